-- What a script gets that is written out of Python's habits.
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")
local nn = torch.nn
local raises = helper.raises
local suggest = require("lupine.base.suggest")

-- As the host runs a script: its handler asks for suggestions.
local function told(f)
  return xpcall(f, function(e)
    local text = suggest(e)
    return text
  end)
end

describe("lists that are handed out", function()
  local x = torch.arange(12):view(3, 4)
  local net = nn.Linear(2, 3)
  local data = torch.utils.data.TensorDataset(x, torch.arange(3))
  local lists = {
    split = x:split(1), chunk = x:chunk(3), unbind = x:unbind(0), stride = x:stride(),
    parameters = net:parameters(),
    modules = nn.Sequential(net):modules(), children = nn.Sequential(net):children(),
    param_groups = torch.optim.SGD(net:parameters(), 0.1).param_groups,
    params = torch.optim.SGD(net:parameters(), 0.1).param_groups[1].params,
    sample = data[0], parts = torch.utils.data.random_split(data, { 1, 2 }),
    grad = torch.autograd.grad(net(torch.ones(2)):sum(), net:parameters()),
    meshgrid = torch.meshgrid(torch.arange(2), torch.arange(2)),
    atleast = torch.atleast_1d(torch.tensor(1), torch.tensor(2)),
  }

  it("say where counting starts at position 0", function()
    for name, list in pairs(lists) do
      assert.is_false(pcall(function() return list[0] end), name)
      raises("IndexError", "position 0 of a list of " .. #list .. ": lists count from 1", function()
        return list[0]
      end)
    end
  end)

  it("count from the end, as torch.Size does", function()
    for _, list in pairs(lists) do
      assert.is_true(rawequal(list[#list], list[-1]))
      assert.is_true(rawequal(list[1], list[-#list]))
      raises("IndexError", "position %-" .. #list + 1 .. " of", function()
        return list[-#list - 1]
      end)
    end
  end)

  it("are plain tables to everything else", function()
    for _, list in pairs(lists) do
      local n = 0
      for i in ipairs(list) do
        n = i
      end
      assert.equal(n, #list)
      assert.is_nil(list[n + 1])
      assert.is_nil(list.name)
      assert.is_falsy(getmetatable(list))
      assert.equal(n, #{ table.unpack(list) })
      for key in pairs(list) do
        assert.equal("integer", math.type(key))
      end
    end
    assert.same({ { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 } }, x:tolist())
    assert.same(x:tolist(), torch.tensor(x:tolist()):tolist())
    assert.same({ 3, 4 }, { table.unpack(torch.cat(x:split(1)).shape) })
    assert.equal("list of 1", require("lupine.base.check").describe(x:chunk(1)):match("list of 1"))
  end)

  it("are not those of numbers: tolist gives plain tables", function()
    assert.is_nil(x:tolist()[0])
    assert.is_nil(x:tolist()[1][-1])
    assert.is_nil(getmetatable(x:tolist()))
  end)

  it("can be emptied", function()
    local list, n = x:split(1), 0
    while table.remove(list) do
      n = n + 1
    end
    assert.equal(3, n)
    assert.is_nil(list[0])
  end)

  it("are saved and copied as lists", function()
    local path = os.tmpname()
    torch.save({ rows = x:stride() }, path)
    assert.same({ 4, 1 }, torch.load(path).rows)
    os.remove(path)
    net.kept = x:stride()
    assert.same({ 4, 1 }, net:deepcopy().kept)
  end)
end)

describe("a misspelt method", function()
  it("gets the nearest names", function()
    local ok, message = told(function()
      local net = nn.Linear(2, 2)
      return net:paramters()
    end)
    assert.is_false(ok)
    assert.matches("method 'paramters') (nearest: 'parameters'", message, 1, true)
  end)
end)

describe("lists that functions of the script get", function()
  it("say where counting starts, too", function()
    local Twice = torch.autograd.Function:extend("Twice")
    local at
    function Twice.forward(ctx, x)
      ctx:save_for_backward(x)
      return x * 2
    end
    function Twice.backward(ctx, g)
      at = { pcall(function() return ctx.saved_tensors[0] end) }
      assert.is_true(ctx.needs_input_grad[1])
      return g * 2
    end
    Twice.apply(torch.ones({ 2 }, { requires_grad = true })):sum():backward()
    assert.matches("position 0 of a list of 1", at[2].message, 1, true)
    local net = nn.Linear(2, 2)
    net:register_forward_hook(function(_, inputs)
      return inputs[0]
    end)
    raises("IndexError", "position 0 of a list of 1", function()
      net(torch.ones(2))
    end)
    net = nn.Linear(2, 2)
    net:register_forward_pre_hook(function(_, inputs)
      return inputs[0]
    end)
    raises("IndexError", "position 0 of a list of 1", function()
      net(torch.ones(2))
    end)
  end)
end)

describe("a loop over what is not called", function()
  it("says what stands there instead", function()
    local net = nn.Linear(2, 2)
    local data = torch.utils.data.TensorDataset(torch.rand(3))
    for _, c in ipairs({
      { function() for _ in net:parameters() do error() end end, "ipairs%(list%) do" },
      { function() for _ in torch.ones(2) do error() end end, "for row in x:iter%(%) do" },
      { function() for _ in data do error() end end, "for i = 0, #data %- 1 do" },
      { function() for _ in ipairs(net:named_parameters()) do error() end end,
        "an iterator stands in the loop by itself" },
    }) do
      local ok, message = told(c[1])
      assert.is_false(ok)
      assert.matches(c[2], message)
    end
  end)
end)

describe("a tensor where Lua wants a number or text", function()
  it("is told of item()", function()
    for _, f in ipairs({
      function() return ("%.2f"):format(torch.tensor(1.5)) end,
      function() return math.sqrt(torch.tensor(4.0)) end,
      function() return "loss " .. torch.tensor(1.5) end,
    }) do
      local ok, message = told(f)
      assert.is_false(ok)
      assert.matches("x:item%(%) is the number of a tensor with one element", message)
    end
  end)
end)

describe("loss.backward()", function()
  it("with a point is refused", function()
    raises("TypeError", "called with a colon, loss:backward%(%)", function()
      torch.ones(1).backward()
    end)
  end)
end)

describe("a name that a module does not have", function()
  it("is an error with the nearest one", function()
    for _, c in ipairs({
      { torch.autograd, "gradd", "torch.autograd", "grad" },
      { torch.distributions, "Norml", "torch.distributions", "Normal" },
      { torch.linalg, "invv", "torch.linalg", "inv" },
      { torch.special, "erff", "torch.special", "erf" },
      { nn.utils.rnn, "pad_sequnce", "torch.nn.utils.rnn", "pad_sequence" },
      { torch.utils.checkpoint, "chekpoint", "torch.utils.checkpoint", "checkpoint" },
      { torch.testing, "assert_cloze", "torch.testing", "assert_close" },
    }) do
      raises("AttributeError", ("module '%s' has no attribute '%s'; did you mean '%s'"):format(
        c[3], c[2], c[4]), function()
        return c[1][c[2]]
      end)
    end
    raises("NotImplementedError", "a tensor is all there is", function()
      return torch.autograd.Variable
    end)
  end)
end)

describe("a module in a loop", function()
  it("says what there is to loop over", function()
    for _, net in ipairs({ nn.Linear(1, 1), nn.ModuleList({ nn.ReLU() }),
      nn.Sequential(nn.Linear(1, 1)) }) do
      raises("TypeError", "ipairs%(net:children%(%)%).*net:named_parameters", function()
        for _ in net do
          error("not reached")
        end
      end)
    end
  end)

  it("does not keep a forward from two nils", function()
    local Net = nn.Module:extend("Net")
    function Net.forward(_, a, b)
      return a == nil and b == nil
    end
    assert.is_true(Net()(nil, nil))
  end)
end)

describe("a device that is not there", function()
  it("is a RuntimeError that names those that are", function()
    local x = torch.ones(2)
    for _, f in ipairs({
      function() x:to("cuda") end,
      function() x:to({ device = "cuda:1" }) end,
      function() torch.ones({ 2 }, { device = "cuda" }) end,
      function() torch.device("cuda") end,
      function() nn.Linear(1, 1):to("cuda") end,
    }) do
      raises("RuntimeError", "no device 'cuda[:1]*' here; allowed are 'cpu', 'meta', 'ipu'", f)
    end
    raises("TypeError", "must be a torch.device or its name, not int 3", function()
      x:to({ device = 3 })
    end)
  end)
end)

describe("matmul of sizes that do not fit", function()
  it("names the shapes and the two sizes", function()
    raises("RuntimeError", "%[3, 4%] and %[3%] cannot be multiplied: size mismatch, the last size "
      .. "of the first %(4%) must equal the only size of the second %(3%)", function()
      torch.rand({ 3, 4 }):matmul(torch.rand({ 3 }))
    end)
    raises("RuntimeError", "the last but one size of the second %(5%)", function()
      torch.rand({ 3, 4 }):matmul(torch.rand({ 2, 5, 3 }))
    end)
    raises("RuntimeError", "both need at least 1 dimension", function()
      torch.rand({ 3, 4 }):matmul(torch.tensor(1.0))
    end)
  end)
end)

describe("variance without degrees of freedom", function()
  it("is nan, and the function says so once", function()
    local out = select(2, require("spec.support.program").run({ "-e", [[
      local torch = require("torch")
      for i = 1, 2 do
        assert(torch.std(torch.ones(1)):isnan():item())
        assert(torch.var(torch.ones({ 1, 3 }), 0):isnan():all():item())
      end
      torch.var(torch.ones(1), { correction = 0 })
      torch.var(torch.ones(3, 0), 0)
    ]] }, ""))
    local _, n = out:gsub("degrees of freedom is <= 0", "")
    assert.equal(2, n)
    assert.matches("std(): degrees", out, 1, true)
    assert.matches("var(): degrees", out, 1, true)
  end)
end)

describe("an argument too many", function()
  -- Taken by no method, and no keyword.
  local strange = coroutine.create(print)

  it("is refused by every method", function()
    local taken = {}
    coroutine.wrap(function() -- a short stack: each error keeps a traceback of it
      for name, method in pairs(core.methods) do
        local x = torch.ones({ 2, 2 })
        if pcall(method, x, strange) or pcall(method, x, strange, strange)
          or pcall(method, x:long(), strange) or pcall(method, x:bool(), strange) then
          taken[#taken + 1] = name
        end
      end
    end)()
    assert.same({}, taken)
  end)

  it("is refused after arguments that are right", function()
    local y = torch.ones({ 2, 2 })
    for name, args in pairs({
      size = { 0 }, stride = { 0 }, is_same_size = { y }, type_as = { y }, resize_as_ = { y },
      type = { torch.float64, false }, to = { "cpu", torch.float32, false, false },
      copy_ = { y, false }, requires_grad_ = { true }, register_hook = { print },
      is_set_to = { y }, get_device = {}, map_ = { y, math.fmod }, dim_order = {},
    }) do
      local x = torch.ones({ 2, 2 }, { requires_grad = name == "register_hook" })
      assert.is_true(pcall(x[name], x, table.unpack(args)), name)
      args[#args + 1] = strange
      raises("TypeError", name .. ".* takes .*%d argument", function()
        torch.ones({ 2, 2 })[name](torch.ones({ 2, 2 }), table.unpack(args))
      end)
    end
  end)

  it("is counted in the message", function()
    local x = torch.ones(2)
    raises("TypeError", "float%(%) takes 0 arguments, but 1 was given", function()
      x:float(1)
    end)
    raises("TypeError", "size%(%) takes 1 argument, but 2 were given", function()
      x:size(0, 1)
    end)
  end)
end)

describe("Multinomial", function()
  it("shows of probs and logits the one that was given", function()
    local p = torch.ones(3)
    assert.equal("Multinomial(total_count: 3.0, probs: torch.Size([3]))",
      tostring(torch.distributions.Multinomial(3, { probs = p })))
    assert.equal("Multinomial(total_count: 3.0, logits: torch.Size([3]))",
      tostring(torch.distributions.Multinomial(3, { logits = p })))
  end)
end)

describe("assigning to an option by its method's name", function()
  local options = require("poptorch").Options()

  it("names the property", function()
    raises("AssertionError", "options:deviceIterations%(value%); the property is device_iterations",
      function()
        options.deviceIterations = 4
      end)
  end)

  it("knows the names of the groups", function()
    raises("AttributeError", "has no attribute 'training' %(nearest: 'Training'%)", function()
      return options.training
    end)
  end)
end)

describe("an error in a DataLoader's worker", function()
  it("begins with the line of the script, without the library's frames", function()
    local Rows = torch.utils.data.Dataset:extend("Rows")
    local line
    function Rows.__len__()
      return 4
    end
    function Rows.__getitem__(_, i)
      line = debug.getinfo(1, "l").currentline + 1
      error("bad row " .. i)
    end
    pcall(Rows.__getitem__, nil, 0)
    local ok, e = pcall(function()
      for _ in torch.utils.data.DataLoader(Rows(), { num_workers = 1 }) do
        error("not reached")
      end
    end)
    assert.is_false(ok)
    assert.matches("habits_spec.lua:" .. line .. ": RuntimeError: bad row 0\nraised in DataLoader "
      .. "worker process 0:\n", tostring(e), 1, true)
    if package.loaded["lupine.host_traceback"] then
      assert.not_matches("workers.lua", e.message, 1, true)
    end
  end)
end)
