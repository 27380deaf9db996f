-- poptorch.custom_op beyond PopTorch's own tests: gradients, types, programs of
-- every kind, and what is refused.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.helper")
local lupine = require("lupine")
local poptorch = require("poptorch")
local report = require("lupine.report")
local session = require("lupine.session")
local torch = require("torch")
local nn = torch.nn

setup(function()
  for _, name in ipairs({ "cube", "leaky_relu", "test_ops", "odd_ops" }) do
    custom_ops.load(name)
  end
end)

local function cube(x, bias)
  return table.unpack(poptorch.custom_op({ x, bias }, "Cube", "com.acme", 1, { x, x }))
end

local function leaky(x, attributes)
  return poptorch.custom_op({ x }, "LeakyRelu", "com.acme", 1, { x }, attributes)[1]
end

local function odd(name, x, attributes, example)
  return poptorch.custom_op({ x }, name, "spec.odd", 1, { example or x }, attributes)[1]
end

local function module(forward, init)
  local Net = nn.Module:extend("Net")
  Net.init, Net.forward = init, forward
  return Net()
end

describe("a custom operator", function()
  it("has the gradient of its library", function()
    local x = torch.randn({ 3, 4 }, { dtype = torch.float64, requires_grad = true })
    local bias = torch.randn({ 3, 4 }, { dtype = torch.float64, requires_grad = true })
    assert.is_true(torch.autograd.gradcheck(function(a, b)
      local y, z = cube(a, b)
      return y, z
    end, { x, bias }))
    assert.is_true(torch.autograd.gradcheck(function(a)
      return select(2, cube(a, bias:detach()))
    end, { x }))
    assert.is_true(torch.autograd.gradcheck(function(b)
      local y, z = cube(x:detach(), b)
      return y + z
    end, { bias }))
    local negative = torch.tensor({ -1.0, 2.0 }, { requires_grad = true })
    leaky(negative, { alpha = 0.25 }):sum():backward()
    helper.near(negative.grad, { 0.25, 1 })
  end)

  it("takes every floating type, and operands with gaps between their elements", function()
    for _, dtype in ipairs({ torch.float64, torch.float32, torch.float16, torch.bfloat16 }) do
      local x = torch.tensor({ { -2.0, 0.5 }, { 1, 3 } }, { dtype = dtype })
      local y, z = cube(x:t(), torch.ones(1, { dtype = dtype }):expand(2, 2))
      assert.equal(dtype, y.dtype)
      helper.near(y, { { -7, 2 }, { 1.125, 28 } }, helper.exact)
      helper.near(z, { { -8, 1 }, { 0.125, 27 } }, helper.exact)
    end
  end)

  it("rounds to half types as PyTorch does", function()
    local x = torch.randn(4096) * 10 ^ (torch.rand(4096) * 10 - 6)
    for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
      local rounded = x:to(dtype)
      local got = odd("To", x, { dtype = dtype == torch.float16 and 3 or 4 }, rounded)
      assert.is_true(compiled.same_bits(rounded, got))
    end
  end)

  it("has the defaults of attributes that a call leaves out", function()
    local x = torch.tensor({ -1.0 })
    helper.near(leaky(x), { -0.01 })
    helper.near(leaky(x, { alpha = 0.5 }), { -0.5 })
    assert.equal(18, poptorch.custom_op({ torch.tensor({ 5.0, 6.0, 7.0 }) }, "ReduceOp",
      "test.poptorch", 1, { x })[1]:item())
  end)

  it("gives no results without elements a hard time", function()
    local x = torch.zeros({ 0, 3 }, { requires_grad = true })
    local y = leaky(x)
    assert.same({ 0, 3 }, { table.unpack(y.shape) })
    y:sum():backward()
    assert.same({ 0, 3 }, { table.unpack(x.grad.shape) })
  end)

  it("is listed with its library", function()
    for _, op in ipairs(core.custom_ops()) do
      if op.name == "AddVecScalarMulFloat" then
        assert.equal("integer", math.type(op.hash))
        op.hash = nil
        assert.same({ domain = "test.poptorch", name = "AddVecScalarMulFloat", version = 1,
          inputs = 1, outputs = 1, gradient = false, library = "libtest_ops.so",
          attributes = { { name = "vec", kind = "floats" },
            { name = "scalar", kind = "float", fallback = "1.0" } } }, op)
        return
      end
    end
    error("it is not there")
  end)
end)

describe("a program with custom operators", function()
  local function forward(self, x)
    return leaky(self.fc(x), { alpha = 0.125 })
  end
  local function init(self)
    self.fc = nn.Linear(4, 4)
  end

  it("gives in inference what eager calls do, over iterations, replicas, stages", function()
    local net = module(function(self, x)
      local y
      do
        local _ <close> = poptorch.Block("one", { ipu_id = 0 })
        y = forward(self, x)
      end
      local _ <close> = poptorch.Block("two", { ipu_id = 1 })
      return cube(y, y * 2)
    end, init)
    local x = torch.randn(16, 4)
    local options = poptorch.Options():deviceIterations(4):replicationFactor(2)
    local got = { poptorch.inferenceModel(net, options)(x) }
    for i, want in ipairs({ net(x) }) do
      helper.near(got[i], want:detach())
    end
  end)

  it("trains as eager calls do, in a pipeline with replicas", function()
    local net = module(function(self, x)
      local y
      do
        local _ <close> = poptorch.Block("one", { ipu_id = 0 })
        y = leaky(self.fc(x), { alpha = 0.125 })
      end
      local _ <close> = poptorch.Block("two", { ipu_id = 1 })
      local z, w = cube(self.fc2(y), y)
      return poptorch.identity_loss(z + w * 0.5, "mean")
    end, function(self)
      self.fc, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)
    end)
    local host = net:deepcopy()
    local x = torch.randn(24, 4)
    local options = poptorch.Options():replicationFactor(2)
    options.Training:gradientAccumulation(3)
    local trainer = poptorch.trainingModel(net, options,
      torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    local optimizer = torch.optim.SGD(host:parameters(), { lr = 0.1 })
    for _ = 1, 3 do
      trainer(x)
      optimizer:zero_grad()
      host(x):mean():backward()
      optimizer:step()
    end
    for name, p in net:named_parameters() do
      for other, q in host:named_parameters() do
        if name == other then
          helper.near(p:detach(), q:detach(), { 1e-5, 1e-5 })
        end
      end
    end
  end)

  it("is replayed in the order of its schedule, training too", function()
    local net = module(function(self, x)
      local y
      do
        local _ <close> = poptorch.Block("one", { ipu_id = 0 })
        y = leaky(self.fc(x), { alpha = 0.125 })
      end
      local _ <close> = poptorch.Block("two", { ipu_id = 1 })
      return poptorch.identity_loss(cube(self.fc2(y), y), "mean")
    end, function(self)
      self.fc, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)
    end)
    local options = poptorch.Options():deviceIterations(2)
    options.Training:gradientAccumulation(3)
    local x, vars, one, other = torch.randn(12, 4), nil, nil, nil
    local open = session.open
    session.open = function(...) -- from the weights before the run
      local opened, inputs = open(...), {}
      local step = opened.exec:step()
      vars = step:vars()
      for i, v in ipairs(vars) do
        inputs[i] = v.role == "input" and x or nil
      end
      one = select(2, report.replay(step, { strategy = "pipelined" }, inputs))
      other = select(2, report.replay(step, {}, inputs, { order = "micro_batches" }))
      return opened
    end
    local trainer = poptorch.trainingModel(net, options,
      torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    local ok, e = pcall(trainer, x)
    session.open = open
    assert(ok, e)
    trainer:copyWeightsToHost()
    for i, v in ipairs(vars) do
      if v.role == "parameter" then
        assert.is_true(compiled.same_bits(one[i], other[i]), v.name)
        for name, p in net:named_parameters() do
          if name == v.name then
            helper.near(p:detach(), one[i], { 1e-6, 1e-5 })
          end
        end
      end
    end
  end)

  it("keeps them in halves", function()
    local net = module(forward, init):half()
    local x = torch.randn(2, 4):half()
    local y = poptorch.inferenceModel(net)(x)
    assert.equal(torch.float16, y.dtype)
    helper.near(y, net(x):detach(), { 2e-3, 2e-3 })
  end)

  it("has them in loops and branches", function()
    local net = module(function(_, x)
      return poptorch.for_loop(3, function(y)
        return poptorch.cond(y:sum():gt(0), function(z) return leaky(z) end, { y },
          function(z) return leaky(z, { alpha = 2.0 }) end, { y })[1]
      end, { x })[1]
    end)
    helper.near(poptorch.inferenceModel(net)(torch.tensor({ -1.0, -2.0 })), { -8, -16 })
  end)

  it("prints, is parsed, and writes equal attributes alike", function()
    local step = compiled.step(function(x)
      return leaky(x) + leaky(x, { alpha = 0.01 }) + leaky(x, { alpha = 0.02 })
    end, { torch.ones(2) })
    local graph = core.graph_parse(step:text("micro"))
    graph:run_pass("cse")
    local text = graph:print()
    assert(text:find('= custom([%1], domain="com.acme", name="LeakyRelu", version=1, '
      .. 'library="libleaky_relu.so", attributes="alpha=0.01")', 1, true), text)
    assert.equal(text, core.graph_parse(text):print())
    for from, want in pairs({
      ['version=1, library="libleaky_relu.so"'] = { 'version=7, library="libleaky_relu.so"',
        "version 7 of the custom operator com.acme.LeakyRelu; libleaky_relu.so has version 1" },
      ['domain="com.acme", name="LeakyRelu", version=1, library="libleaky_relu.so"'] = {
        'domain="com.acme", name="Gone", version=1, library="libgone.so"',
        "'Gone' of domain 'com.acme', version 1: load libgone.so by torch.ops.load_library" },
      ['attributes="alpha='] = { 'attributes="gamma=', "no attribute 'gamma'. Allowed: alpha" },
      ["custom([%1]"] = { "custom([%1, %1]", "com.acme.LeakyRelu takes 1 tensors, got 2" },
    }) do
      local at, stop = text:find(from, 1, true)
      local ok, e = pcall(core.graph_parse, text:sub(1, at - 1) .. want[1] .. text:sub(stop + 1))
      assert(not ok and tostring(e):find(want[2], 1, true), tostring(e))
    end
  end)

  it("refuses gradients in a text that are none of it", function()
    local head = 'graph\ninput %1: float32[2]\ninput %2: int32[2]\ninput %3: float32[3]\n'
    local function graph(operands, wanted)
      return head .. ('%%4 = custom_grad([%s], domain="com.acme", name="LeakyRelu", version=1, '
        .. 'library="", attributes="", wanted=[%s])\noutput %%4\n'):format(operands, wanted)
    end
    core.graph_parse(graph("%1, %1, %1", "0"))
    for _, case in ipairs({ { "%1, %1", "0" }, { "%1, %1, %3", "0" }, { "%1, %3, %1", "0" },
      { "%2, %2, %2", "0" }, { "%1, %1, %1", "1" }, { "%1, %1, %1", "-1" },
      { "%1, %1, %1", "0, 0" }, { "%1, %1, %2", "0" } }) do
      helper.refuses("ValueError", nil, core.graph_parse, graph(case[1], case[2]))
    end
  end)

  it("may be what lupine.compile makes, with gradients", function()
    local x = torch.randn(5)
    local run = lupine.compile(function(a)
      return leaky(a, { alpha = 0.5 })
    end, { x }, { cotangents = { torch.ones(5) } })
    local y, grads = run(x, { torch.ones(5) })
    helper.near(y, torch.where(x:lt(0), x * 0.5, x))
    helper.near(grads[1], torch.where(x:lt(0), torch.full({ 5 }, 0.5), torch.ones(5)))
  end)

  it("rounds results at random around them, where that is asked", function()
    local options = poptorch.Options():deviceIterations(1)
    options.Precision:enableStochasticRounding(true)
    local net = module(function(_, x)
      return leaky(x, { alpha = 0.125 })
    end)
    local x = torch.full({ 4096 }, -1.0):half() * (1 + 2 ^ -10)
    local y = poptorch.inferenceModel(net, options)(x):float()
    helper.near(y:mean(), -0.125 * (1 + 2 ^ -10), { 1e-5, 0 })
  end)

  it("has names of the operator's", function()
    local net = poptorch.inferenceModel(module(function(_, x)
      return poptorch.NameScope("scope", function() return (cube(x, x)) end)
    end))
    net(torch.ones(2))
    local names = {}
    for _, name in ipairs(net:getTensorNames()) do
      names[name] = true
    end
    assert.is_true(names["scope/Cube:0"])
    assert.equal("Cube", net:report():nodes()[1].operator)
  end)

  it("pays what the library says, else for an elementwise operation", function()
    local function cost(fn, ...)
      local nodes = poptorch.inferenceModel(module(function(_, ...) return fn(...) end))
      nodes(...)
      for _, op in ipairs(nodes:report().operators) do
        if op.name == "custom" then
          return op.cycles
        end
      end
    end
    local x = torch.zeros(1472, 1000)
    -- 3 cycles for each of a tile's 1000 elements and one more: cube.c
    assert.equal(3 * 1001, cost(function(a) return (cube(a, a)) end, x))
    local plain = cost(leaky, x)
    assert(plain > 100 and plain < 10000, plain)
    assert.equal(0, cost(function(a) return odd("Strange", a, { what = "cost" }) end, x))
  end)

  it("may be any number, of which sums are made", function()
    local net = poptorch.inferenceModel(module(function(_, a)
      for _ = 1, 8 do
        a = odd("Strange", a, { what = "dear" })
      end
      return a
    end))
    net(torch.zeros(4))
    assert(net:report().cycles > 1 << 50, net:report().cycles)
  end)

  it("is asked with the types of inputs and results, forward and backward", function()
    local net = module(function(self, a)
      return poptorch.identity_loss(odd("Priced", self.w * a, nil, torch.zeros(1, 1)), "sum")
    end, function(self)
      self.w = nn.Parameter(torch.ones(8))
    end)
    local trainer = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(),
      { lr = 0.5 }))
    helper.near(trainer(torch.arange(8.0)), 28)
    helper.near(net.w:detach(), 1 - torch.arange(8.0) / 2)
    local cycles = {}
    for _, op in ipairs(trainer:report().operators) do
      cycles[op.name] = op.cycles
    end
    -- as cost_priced in spec/support/custom_ops/odd_ops.c has it
    assert.equal(100000 + 1000 + 200, cycles.custom)
    assert.equal(150000 + 1000 + 200, cycles.custom_grad)
  end)
end)
