-- torch.nn.Module: registration, order, names, state, hooks, printing. Texts
-- and orders are those of PyTorch 2 for the same modules.
local helper = require("spec.helper")
local torch = require("torch")

local raises = helper.raises

local nn = torch.nn

local Net = nn.Module:extend("Net")
function Net:init()
  self.fc = nn.Linear(2, 3)
  self.w = nn.Parameter(torch.zeros({ 1 }))
  self:register_buffer("b", torch.zeros({ 2 }))
  self.seq = nn.Sequential(nn.Linear(3, 1, { bias = false }), nn.ReLU({ inplace = true }))
  self.t = self.fc
end
function Net:forward(x, scale)
  return self.seq(self.fc(x + self.b)) * (scale or 1) + self.w
end

local function names(iterator)
  local out = {}
  for name in iterator do
    out[#out + 1] = name
  end
  return out
end

describe("a module", function()
  local net
  before_each(function()
    net = Net()
  end)

  it("registers what is assigned to its fields, in order", function()
    assert.same({ "w", "fc.weight", "fc.bias", "seq.0.weight" }, names(net:named_parameters()))
    assert.same({ "w", "fc.weight", "fc.bias", "seq.0.weight", "t.weight", "t.bias" },
      names(net:named_parameters({ remove_duplicate = false })))
    assert.same({ "", "fc", "seq", "seq.0", "seq.1" }, names(net:named_modules()))
    assert.same({ "fc", "seq" }, names(net:named_children()))
    assert.same({ "m.w" }, names(net:named_parameters("m", { recurse = false })))
    assert.equal(4, #net:parameters())
    assert.equal(1, #net:buffers())
    assert.equal(net.fc, net:children()[1])
  end)

  it("registers in a field that held a plain value before", function()
    net.extra = 5
    net.extra = nn.Identity()
    assert.same({ "fc", "seq", "extra" }, names(net:named_children()))
    net.extra = nil
    assert.is_nil(net.extra)
    assert.is_nil(net.no_such_field)
  end)

  it("refuses a value of another kind in a registered field", function()
    helper.raises("TypeError", "cannot assign a Tensor as parameter 'w'", function()
      net.w = torch.zeros({ 1 })
    end)
    helper.raises("TypeError", "as child module 'fc'", function()
      net.fc = 3
    end)
    helper.raises("KeyError", "can't contain", function()
      net:register_buffer("a.b", torch.zeros({ 1 }))
    end)
    helper.raises("KeyError", "already exists", function()
      net:register_parameter("forward", nil)
    end)
  end)

  it("prints as in PyTorch", function()
    assert.equal(table.concat({
      "Net(",
      "  (fc): Linear(in_features=2, out_features=3, bias=True)",
      "  (seq): Sequential(",
      "    (0): Linear(in_features=3, out_features=1, bias=False)",
      "    (1): ReLU(inplace=True)",
      "  )",
      "  (t): Linear(in_features=2, out_features=3, bias=True)",
      ")" }, "\n"), tostring(net))
    assert.equal("Parameter containing:\ntensor([0.], requires_grad=True)", tostring(net.w))
  end)

  it("takes arguments by forward's parameter names", function()
    local x = torch.ones({ 1, 2 })
    helper.near(net({ x = x, scale = 2 }), net(x, 2))
    helper.near(net(x, { scale = 2 }), net(x, 2))
  end)

  it("says so when forward is called with a point", function()
    helper.raises("TypeError", "with a colon", function()
      net.forward(torch.ones({ 1, 2 }))
    end)
    assert.same({ 1, 1 }, { table.unpack(net:forward(torch.ones({ 1, 2 })).shape) })
  end)

  it("puts the path of the module that failed into the error", function()
    local e = helper.raises("RuntimeError", nil, function()
      net(torch.ones({ 1, 2 }):reshape({ 2, 1 }):expand({ 2, 5 }))
    end)
    assert.truthy(e.location:find("in module Net", 1, true))
    local outer = nn.Sequential({ { "body", nn.Sequential(nn.Linear(3, 3)) } })
    e = helper.raises("RuntimeError", nil, function()
      outer(torch.ones({ 1, 2 }))
    end)
    assert.equal("in module 'body.0' (Linear) of Sequential", e.location)
    assert.is_truthy(tostring(e):find(e.message .. "\n  " .. e.location, 1, true))
  end)

  it("puts it there where the module is compiled, too", function()
    local outer = nn.Sequential({ { "body", nn.Sequential(nn.Linear(3, 3)) } })
    local x = torch.ones({ 1, 2 })
    local _, plain = pcall(outer, x)
    for _, run in ipairs({ require("poptorch").inferenceModel(outer), function(...)
      return require("lupine").compile(outer, { ... })(...)
    end }) do
      local _, e = pcall(run, x)
      assert.equal(plain.message, e.message)
      assert.equal("in module 'body.0' (Linear) of Sequential", e.location)
      assert.is_truthy(tostring(e):find("in module 'body.0' (Linear)", 1, true))
    end
  end)

  it("finds members by path", function()
    assert.equal(net.seq[1].weight, net:get_parameter("seq.0.weight"))
    assert.equal(net.seq[2], net:get_submodule("seq.1"))
    assert.equal(net.b, net:get_buffer("b"))
    helper.raises("AttributeError", "Net has no submodule 'nope'", function()
      net:get_submodule("nope")
    end)
  end)

  it("switches modes and gradients for the whole tree", function()
    assert.is_true(net.training)
    assert.is_false(net:eval().seq[1].training)
    net:requires_grad_(false)
    assert.is_false(net.fc.weight.requires_grad)
    net:requires_grad_(true)
    net(torch.ones({ 1, 2 })):sum():backward()
    assert.truthy(net.w.grad)
    net:zero_grad({ set_to_none = false })
    helper.near(net.w.grad, { 0 })
    net:zero_grad()
    assert.is_nil(net.w.grad)
  end)

  it("converts floating tensors and keeps parameters the same objects", function()
    net:register_buffer("count", torch.tensor(3))
    local w = net.w
    net:half()
    assert.equal(torch.float16, net.b.dtype)
    assert.equal(torch.int64, net.count.dtype)
    assert.equal(w, net.w)
    assert.equal(torch.float16, w.dtype)
    assert.is_true(w.requires_grad)
    assert.equal(torch.float64, net:to(torch.float64).fc.weight.dtype)
    helper.raises("TypeError", "only accepts floating point", function()
      net:to(torch.int32)
    end)
  end)

  it("deepcopy keeps buffers that are views of one memory so, as PyTorch does", function()
    local m = nn.Module()
    m:register_buffer("all", torch.zeros(2, 3))
    m:register_buffer("first", m.all[0])
    local copy = m:deepcopy()
    copy.first:add_(1)
    assert.same({ { 1, 1, 1 }, { 0, 0, 0 } }, copy.all:tolist())
    assert.equal(0, m.all:sum():item())
  end)

  it("deepcopy keeps integers and floats apart", function()
    for _ = 1, 20 do -- the order of a table's keys changes
      local m = nn.Module()
      m.x, m.y, m.z, m.w = 0.0, 0, 1, 1.0
      local copy = m:deepcopy()
      assert.equal("float integer integer float", table.concat({ math.type(copy.x),
        math.type(copy.y), math.type(copy.z), math.type(copy.w) }, " "))
    end
  end)

  it("copies deeply and keeps sharing inside the copy", function()
    local copy = net:deepcopy()
    assert.equal(copy.fc, copy.t)
    assert.not_equal(copy.fc, net.fc)
    torch.no_grad(function()
      copy.fc.weight:fill_(7)
    end)
    assert.is_true(net.fc.weight:abs():max():item() < 1)
  end)

  it("applies a function children first", function()
    local order = {}
    net:apply(function(m)
      order[#order + 1] = m:_get_name()
    end)
    assert.same({ "Linear", "Linear", "ReLU", "Sequential", "Net" }, order)
  end)
end)

describe("hooks of a module", function()
  it("see and replace arguments and results, in order", function()
    local m = nn.Identity()
    local a = m:register_forward_pre_hook(function(_, args)
      return args[1] + 1
    end)
    local b = m:register_forward_hook(function(module, args, out)
      assert.equal(m, module)
      helper.near(args[1], { 2 })
      return out * 10
    end)
    m:register_forward_pre_hook(function(_, args)
      return { args[1] * 1 }
    end, { prepend = true })
    helper.near(m(torch.ones({ 1 })), { 20 })
    b:remove()
    helper.near(m(torch.ones({ 1 })), { 2 })
    a:remove()
    a:remove()
    helper.near(m(torch.ones({ 1 })), { 1 })
  end)

  it("change the state dictionary", function()
    local m = nn.Linear(1, 1)
    m:register_state_dict_hook(function(_, dict, prefix)
      dict[prefix .. "extra"] = torch.ones({ 1 })
    end)
    local keys = {}
    for key in pairs(nn.Sequential(m):state_dict()) do
      keys[#keys + 1] = key
    end
    assert.same({ "0.weight", "0.bias", "0.extra" }, keys)
  end)
end)

describe("a state dictionary", function()
  it("lists own tensors before the children's, shared ones twice", function()
    local keys = {}
    for key in pairs(Net():state_dict()) do
      keys[#keys + 1] = key
    end
    assert.same({ "w", "b", "fc.weight", "fc.bias", "seq.0.weight", "t.weight", "t.bias" }, keys)
  end)

  it("leaves out buffers that are not persistent", function()
    local m = nn.Module()
    m:register_buffer("x", torch.ones({ 1 }), { persistent = false })
    assert.is_nil(next(m:state_dict()))
    assert.equal(1, #m:buffers())
  end)

  it("loads into another module", function()
    local a, b = Net(), Net()
    local result = b:load_state_dict(a:state_dict())
    assert.equal("<All keys matched successfully>", tostring(result))
    helper.near(b.fc.weight, a.fc.weight)
    assert.not_equal(a.fc.weight:data_ptr(), b.fc.weight:data_ptr())
  end)

  it("reports everything that does not match at once", function()
    local e = helper.raises("RuntimeError", nil, function()
      Net():load_state_dict({ w = torch.zeros({ 2 }), zzz = torch.zeros({ 1 }),
        ["fc.weight"] = torch.zeros({ 3, 2 }) })
    end)
    assert.equal("Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: \"b\", "
      .. "\"fc.bias\", \"seq.0.weight\", \"t.weight\", \"t.bias\". \n\tUnexpected key(s) in "
      .. "state_dict: \"zzz\". \n\tsize mismatch for w: copying a param with shape "
      .. "torch.Size([2]) from checkpoint, the shape in current model is torch.Size([1]).",
      e.message)
  end)

  it("may match in part if not strict", function()
    local keys = nn.Linear(1, 1):load_state_dict({ weight = torch.ones({ 1, 1 }),
      other = torch.ones({ 1 }) }, { strict = false })
    assert.same({ "bias" }, keys.missing_keys)
    assert.same({ "other" }, keys.unexpected_keys)
  end)
end)

describe("a tracer", function()
  after_each(function()
    nn.Module.tracer = nil
  end)

  it("is told of every forward, also of one that fails", function()
    local log = {}
    nn.Module.tracer = {
      enter = function(m) log[#log + 1] = "+" .. m:_get_name() end,
      leave = function(m) log[#log + 1] = "-" .. m:_get_name() end,
    }
    local net = nn.Sequential(nn.Identity(), nn.Linear(3, 3))
    assert.is_false(pcall(net, torch.ones({ 1, 2 })))
    assert.same({ "+Sequential", "+Identity", "-Identity", "+Linear", "-Linear", "-Sequential" },
      log)
  end)

  it("forbids to replace a buffer and hears of plain fields that change", function()
    local m, heard = Net(), nil
    m.count = 1
    nn.Module.tracer = {
      enter = function() end,
      leave = function() end,
      assign = function(_, name, old) heard = { name, old } end,
    }
    helper.raises("Error", "self%.b:copy_", function()
      m.b = torch.ones({ 2 })
    end)
    m.count = 2
    assert.same({ "count", 1 }, heard)
  end)
end)

describe("a method of a module", function()
  it("that is called with a point is an error that says so", function()
    local net = nn.Linear(2, 2)
    for name, fn in pairs({
      parameters = net.parameters, named_parameters = net.named_parameters, train = net.train,
      state_dict = net.state_dict, load_state_dict = net.load_state_dict,
    }) do
      raises("TypeError", name .. " is a method: call it with a colon", fn)
    end
    raises("TypeError", "new is a method of the class", function() Net.new() end)
  end)

  it("is a function", function()
    raises("TypeError", "Net.forward: expected a function, got int 1", function()
      Net().forward = 1
    end)
  end)
end)

-- As PyTorch's dictionaries of those names.
describe("what a module keeps by name", function()
  it("is read, set and removed by index, and listed in order", function()
    local net = nn.Module()
    net:register_buffer("a", torch.ones(1))
    net:register_buffer("b", nil)
    net:register_buffer("c", torch.ones(2))
    assert.same({ 2 }, { net._buffers["c"]:size(0) })
    assert.is_nil(net._buffers["b"])
    assert.is_nil(net._buffers["d"])
    net._buffers["b"] = torch.ones(3)
    net._buffers["a"] = nil
    local sizes = {}
    for name, buffer in pairs(net._buffers) do
      sizes[#sizes + 1] = name .. buffer:size(0)
    end
    assert.same({ "b3", "c2" }, sizes)
    assert.is_nil(rawget(net, "_fields").a)
    assert.same({ "b", "c" }, helper.state_keys(net))
  end)
end)

describe("torch.nn.parameter", function()
  it("has Parameter", function()
    assert.equal(nn.Parameter, nn.parameter.Parameter)
    assert.equal(nn.parameter, require("torch.nn.parameter"))
    raises("NotImplementedError", "register_buffer", function()
      return nn.parameter.Buffer
    end)
  end)
end)
