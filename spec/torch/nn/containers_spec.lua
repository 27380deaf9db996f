-- Containers of torch.nn: order, names, indices, printing (as PyTorch 2).
local helper = require("spec.helper")
local torch = require("torch")

local raises = helper.raises

local nn = torch.nn

local function keys(module)
  local out = {}
  for name in module:named_parameters() do
    out[#out + 1] = name
  end
  return out
end

describe("Sequential", function()
  it("runs its modules in order and counts them from 1", function()
    local s = nn.Sequential(nn.ReLU(), nn.Flatten())
    assert.equal(2, #s)
    assert.equal("ReLU()", tostring(s[1]))
    assert.equal(s[2], s[-1])
    assert.same({ 1, 4 }, { table.unpack(s(torch.ones({ 1, 2, 2 })).shape) })
    local n = 0
    for _ in ipairs(s) do
      n = n + 1
    end
    assert.equal(2, n)
  end)

  it("takes names from pairs", function()
    local s = nn.Sequential({ { "conv", nn.Linear(1, 1) }, { "act", nn.ReLU() } })
    assert.equal("Sequential(\n  (conv): Linear(in_features=1, out_features=1, bias=True)\n"
      .. "  (act): ReLU()\n)", tostring(s))
    assert.same({ "conv.weight", "conv.bias" }, keys(s))
    helper.raises("TypeError", "has no order", function()
      nn.Sequential({ a = nn.ReLU() })
    end)
    helper.raises("TypeError", 'stand in one list: Sequential%({{"fc", module}, …}%)', function()
      nn.Sequential({ "fc", nn.Linear(1, 1) }, { "act", nn.ReLU() })
    end)
    helper.raises("TypeError", "expected modules", function()
      nn.Sequential(3)
    end)
  end)

  it("grows and can be sub-classed", function()
    local s = nn.Sequential(nn.ReLU()):append(nn.ELU()):extend({ nn.Tanh() }):insert(1, nn.SELU())
    assert.equal("SELU()", tostring(s[1]))
    assert.equal("Tanh()", tostring(s[4]))
    s[4] = nn.Sigmoid()
    assert.equal("Sigmoid()", tostring(s[4]))
    local Block = nn.Sequential:extend("Block")
    assert.equal("Block(\n  (0): ReLU()\n)", tostring(Block(nn.ReLU())))
  end)

  it("passes several results on as several arguments", function()
    local Two = nn.Module:extend("Two")
    function Two.forward(_, x)
      return x, x + 1
    end
    local Add = nn.Module:extend("Add")
    function Add.forward(_, x, y)
      return x + y
    end
    helper.near(nn.Sequential(Two(), Add())(torch.ones({ 1 })), { 3 })
  end)
end)

describe("ModuleList and ModuleDict", function()
  it("register and print their modules", function()
    local list = nn.ModuleList({ nn.ReLU(), nn.ReLU(), nn.ELU(0.5) })
    assert.equal("ModuleList(\n  (0-1): 2 x ReLU()\n  (2): ELU(alpha=0.5)\n)", tostring(list))
    assert.equal("ModuleList()", tostring(nn.ModuleList()))
    local dict = nn.ModuleDict({ { "z", nn.ReLU() }, { "b", nn.Linear(2, 3) } })
    assert.same({ "z", "b" }, dict:keys())
    assert.equal("ReLU()", tostring(dict.z))
    assert.same({ "b.weight", "b.bias" }, keys(dict))
    assert.equal("ModuleDict(\n  (z): ReLU()\n  (b): Linear(in_features=2, out_features=3, "
      .. "bias=True)\n)", tostring(dict))
    dict:pop("z")
    assert.is_false(dict:contains("z"))
    assert.equal(1, #dict)
  end)

  it("have no forward", function()
    helper.raises("NotImplementedError", 'missing the required "forward"', function()
      nn.ModuleList()(torch.ones({ 1 }))
    end)
  end)
end)

describe("a slice of a container", function()
  it("is one of some of its modules, as in Python", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    assert.equal("Sequential(\n  (0): Linear(in_features=2, out_features=2, bias=True)\n"
      .. "  (1): ReLU()\n)", tostring(net[":-1"]))
    assert.same({ "2.weight", "2.bias" }, keys(net["2:"])) -- keeps the names
    assert.equal(2, #net["::2"])
    assert.equal(0, #net["3:"])
    local list = nn.ModuleList({ nn.ReLU(), nn.Tanh(), nn.ReLU() })
    assert.equal("ModuleList(\n  (0): Tanh()\n)", tostring(list["1:2"]))
    assert.equal(list[2], list["1:2"][1])
  end)

  it("and index 0 say how they count", function()
    local net = nn.Sequential(nn.ReLU())
    helper.raises("IndexError", "counted from 1", function()
      return net[0]
    end)
    helper.raises("IndexError", "expected a slice", function()
      return net["a:b"]
    end)
    assert.is_nil(net[2])
  end)
end)

describe("ParameterList and ParameterDict", function()
  it("register tensors as parameters", function()
    local list = nn.ParameterList({ torch.zeros({ 2, 3 }), torch.zeros({ 4 }) })
    assert.equal("ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2x3]\n"
      .. "    (1): Parameter containing: [torch.float32 of size 4]\n)", tostring(list))
    assert.same({ "0", "1" }, keys(list))
    assert.is_true(nn.Parameter:is(list[2]))
    assert.equal(3, #list:append(torch.ones({ 1 })))
    local dict = nn.ParameterDict({ b = torch.zeros({ 1 }), a = torch.zeros({ 1 }) })
    assert.same({ "a", "b" }, keys(dict))
    dict.c = torch.ones({ 2 })
    assert.is_true(nn.Parameter:is(dict.c))
    dict.a = nil
    assert.same({ "b", "c" }, dict:keys())
    assert.equal(2, #dict:parameters())
    helper.raises("IndexError", "counted from 1", function()
      return list[0]
    end)
  end)

  it("lose what is set to nil, as dictionaries of modules do", function()
    local dict = nn.ModuleDict({ a = nn.ReLU(), b = nn.Tanh() })
    dict.a = nil
    assert.same({ "b" }, dict:keys())
    assert.equal(1, #dict)
    dict.a = nn.ELU()
    assert.same({ "b", "a" }, dict:keys())
  end)
end)

describe("a container that is filled", function()
  local a, b = nn.Linear(2, 2), nn.ReLU()

  it("refuses a nil among its elements, with the position", function()
    raises("TypeError", "Sequential: element 2 of 3 is nil", function()
      nn.Sequential(a, nil, b)
    end)
    raises("TypeError", "element 2 of 3", function()
      nn.Sequential({ a, nil, b })
    end)
    raises("TypeError", "element 2 of 2", function()
      nn.Sequential(a, nil)
    end)
    raises("TypeError", "ModuleList: element 2 of 3", function()
      nn.ModuleList({ a, nil, b })
    end)
    raises("TypeError", "append%(module%): expected a module, got nil", function()
      nn.ModuleList({ a }):append(nil)
    end)
    assert.equal(0, #nn.Sequential())
    raises("TypeError", "ParameterList: element 2 of 3 is nil", function()
      nn.ParameterList({ a.weight, nil, a.bias })
    end)
  end)

  it("shows the list where several arguments stand in its place", function()
    raises("TypeError", "^ModuleList: expected one list of modules, ModuleList%({a, b}%), got "
      .. "Linear, ReLU", function()
      nn.ModuleList(a, b)
    end)
    raises("TypeError", "ModuleList: expected one list of modules", function()
      nn.ModuleList(a)
    end)
    raises("TypeError", "ParameterList: expected one list of parameters", function()
      nn.ParameterList(a.weight, a.bias)
    end)
    raises("TypeError", "ModuleDict: expected a table by name", function()
      nn.ModuleDict(a, b)
    end)
  end)

  it("takes a list or another container", function()
    assert.equal(2, #nn.ModuleList(nn.Sequential(a, b)))
    assert.equal(2, #nn.ModuleList({ a, b }))
    assert.equal(0, #nn.ModuleList())
    assert.equal(2, #nn.ParameterList(nn.ParameterList({ a.weight, a.bias })))
  end)
end)
