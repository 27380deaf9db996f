--- Precision:enableFloatingPointExceptions and popart's enableFloatingPointChecks: which
--- events stop a run, and that each names operator, module and line.
local helper = require("spec.helper")
local files = require("spec.support.files")
local nn = require("torch.nn")
local popart = require("popart")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises
local T, INF = torch.tensor, math.huge
local NAN = INF - INF

local function options(on)
  local opts = poptorch.Options()
  opts.Precision:enableFloatingPointExceptions(on ~= false)
  return opts
end

local function wrapped(f, on)
  local Net = nn.Module:extend("Net")
  function Net:forward(...)
    return f(...)
  end
  return poptorch.inferenceModel(Net(), options(on))
end

-- {event, operator, function, arguments}
local EVENTS = {
  { "division by zero", "div", function(x, y) return x / y end, T({ 1.0, 2 }), T({ 1.0, 0 }) },
  { "division by zero", "reciprocal", function(x) return x:reciprocal() end, T({ 0.0 }) },
  { "division by zero", "log", function(x) return x:log() end, T({ 1.0, 0 }) },
  { "division by zero", "pow", function(x, y) return x ^ y end, T({ 0.0 }), T({ -1.0 }) },
  { "division by zero", "rsqrt", function(x) return x:rsqrt() end, T({ 0.0 }) },
  { "division by zero", "log2", function(x) return x:log2() end, T({ 0.0 }) },
  { "division by zero", "log10", function(x) return x:log10() end, T({ 0.0 }) },
  { "division by zero", "log1p", function(x) return x:log1p() end, T({ -1.0 }) },
  { "division by zero", "atanh", function(x) return x:atanh() end, T({ 1.0 }) },
  { "division by zero", "xlogy", function(x, y) return torch.xlogy(x, y) end, T({ 1.0, 0 }),
    T({ 0.0, 0 }) },
  { "invalid operation", "fmod", function(x, y) return torch.fmod(x, y) end, T({ 1.0 }),
    T({ 0.0 }) },
  { "invalid operation %(division by infinity%)", "fmod", function(x, y) return x:fmod(y) end,
    T({ 1.0 }), T({ INF }) },
  { "invalid operation %(division by infinity%)", "remainder", function(x, y) return x % y end,
    T({ 1.0 }), T({ INF }) },
  { "invalid operation", "mul", function(x, y) return x * y end, T({ 0.0, 1 }), T({ INF, 1 }) },
  { "invalid operation", "sub", function(x, y) return x - y end, T({ INF }), T({ INF }) },
  { "invalid operation", "sqrt", function(x) return x:sqrt() end, T({ -1.0, 1 }) },
  { "invalid operation", "log", function(x) return x:log() end, T({ -1.0 }) },
  { "invalid operation %(division by infinity%)", "div", function(x, y) return x / y end,
    T({ 1.0 }), T({ INF }) },
  { "invalid operation %(comparison with NaN%)", "lt", function(x, y) return x:lt(y) end,
    T({ NAN, 1 }), T({ 1.0, 1 }) },
  { "invalid operation", "mm", function(x, y) return x:matmul(y) end, T({ { INF, 1 } }),
    T({ { 0.0 }, { 1 } }) },
  { "overflow", "exp", function(x) return x:exp() end, T({ 1000.0 }) },
  { "overflow", "cast", function(x) return x:half() end, T({ 70000.0 }) },
  { "overflow", "add", function(x, y) return x + y end, T({ 60000.0 }):half(),
    T({ 60000.0 }):half() },
  { "overflow", "sum", function(x) return x:sum() end, T({ 60000.0, 60000 }):half() },
  { "overflow", "native_layer_norm", function(x) return nn.functional.layer_norm(x, { 2 }) end,
    T({ { 1e30, -1e30 }, { 1, 2 } }) },
  { "overflow", "native_group_norm", function(x) return nn.functional.group_norm(x, 1) end,
    T({ { 1e30, -1e30 }, { 1, 2 } }) },
}

describe("floating-point exceptions", function()
  for _, row in ipairs(EVENTS) do
    it(("stop a run at %s in %s"):format(row[1]:gsub("%%", ""), row[2]), function()
      local line = debug.getinfo(row[3], "S").linedefined
      local e = raises("Error", ("^floating%%-point exception: %s in %s %%(.*spec%%.lua:%d%%)$")
        :format(row[1], row[2], line), function()
        wrapped(row[3])(table.unpack(row, 4))
      end)
      assert.equal("poplar_application_runtime_error", e.type)
      wrapped(row[3], false)(table.unpack(row, 4)) -- off: no error
    end)
  end

  it("are told element by element where an operand has infinities, too", function()
    local f = function(x, y) return x / y end
    wrapped(f)(T({ INF, 1 }), T({ 2.0, 1 }))
    raises("Error", "division by zero in div", function()
      wrapped(f)(T({ INF, 1 }), T({ 2.0, 0 }))
    end)
  end)

  it("are told of each run by itself", function()
    local model = wrapped(function(x, y) return x + y end)
    model(T({ INF, 1 }), T({ 1.0, 1 }))
    raises("Error", "overflow in add", function()
      model(T({ 3e38, 1 }), T({ 3e38, 1 }))
    end)
  end)

  it("look at float64 as it is", function()
    local compiled = require("spec.support.compiled")
    local x = T({ 1e300 }, { dtype = torch.float64 })
    local function result(y)
      local step = compiled.step(function(a, b) return a * b end, { x, y })
      step:complete({ numerics = { trap = true } })
      local at = compiled.vars(step)
      return step:compile({}):run(compiled.feed(at, { x, y }), {})[at["output output_1"]]:item()
    end
    assert.equal(2e300, result(T({ 2.0 }, { dtype = torch.float64 })))
    raises("RuntimeError", "overflow in mul", function()
      result(x)
    end)
  end)

  it("leave masks with infinities alone", function()
    local model = wrapped(function(x, mask)
      return x:masked_fill(mask, -INF):softmax(-1), x:max(), torch.where(mask, -INF, x)
    end)
    local y = model(T({ 1.0, 2, 3 }), T({ true, false, false }))
    assert.equal(0, y[0]:item())
  end)

  local function net(fields)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
    end
    function Net:forward(x)
      poptorch.Block.start("a", { ipu_id = 0 })
      local h = self.first(x)
      poptorch.Block.start("b", { ipu_id = fields.two and 1 or 0 })
      return poptorch.identity_loss(self.second(h):sqrt(), "sum")
    end
    torch.manual_seed(0)
    return Net()
  end

  it("name the module, the half of the program and the update", function()
    local model = net({})
    local x = torch.ones(1, 2)
    torch.no_grad(function()
      model.second.weight:fill_(0)
      model.second.bias:zero_()
    end)
    -- the gradient of a root at 0
    local trainer = poptorch.trainingModel(model, options(),
      torch.optim.SGD(model:parameters(), 0.1))
    raises("Error", "division by zero in %S+, backward %(.*spec.lua:%d+%)", function()
      trainer(x)
    end)
    trainer:destroy()
    torch.no_grad(function()
      model.first.weight:fill_(3e38)
    end)
    raises("Error", "overflow in %S+ of first %(", function()
      poptorch.inferenceModel(model, options())(x * 10)
    end)
    local plain = net({})
    torch.no_grad(function()
      plain.second.bias:fill_(1e-4)
      plain.second.weight:fill_(1e-30)
      plain.first.weight:fill_(1e-6)
    end)
    raises("Error", "overflow in popart_sgd_step, the update of ", function()
      poptorch.trainingModel(plain, options(),
        poptorch.optim.SGD(plain:parameters(), { lr = 3e38 }))(x)
    end)
  end)

  it("are those of every result", function()
    local Scaled = nn.Module:extend("Scaled")
    function Scaled:init() self.w = nn.Parameter(torch.ones(2)) end
    function Scaled:forward(x) return poptorch.identity_loss(self.w * x, "sum") end
    local model = Scaled()
    -- the square of the gradient is the third
    raises("Error", "overflow in adam_step, the update of w", function()
      poptorch.trainingModel(model, options(), poptorch.optim.Adam(model:parameters()))(
        torch.full({ 2 }, 1e30))
    end)
  end)

  it("leave weights as they were and the model usable", function()
    local model = net({})
    torch.no_grad(function()
      model.second.bias:fill_(5)
      model.second.weight:fill_(0.1)
      model.first.weight:fill_(0.1)
    end)
    local trainer = poptorch.trainingModel(model, options(),
      torch.optim.SGD(model:parameters(), 1e-3))
    trainer(torch.ones(1, 2))
    local w = model.first.weight:detach():clone()
    raises("Error", "invalid operation in sqrt", function()
      trainer(torch.ones(1, 2) * -1e6)
    end)
    assert.is_true(torch.equal(w, model.first.weight))
    trainer(torch.ones(1, 2))
    assert.is_true(model.first.weight:isfinite():all():item())
    assert.is_false(torch.equal(w, model.first.weight))
    -- a NaN that comes is none that is made
    wrapped(function(x) return x + 1 end)(T({ NAN }))
  end)

  it("are the same in a pipeline, over micro-batches and in loops", function()
    local model = net({ two = true })
    torch.no_grad(function()
      model.second.bias:fill_(5)
    end)
    local opts = options()
    opts.Training:gradientAccumulation(4)
    local x = torch.ones(4, 2) * 0.1
    local trainer = poptorch.trainingModel(model, opts, torch.optim.SGD(model:parameters(), 1e-3))
    trainer(x)
    torch.no_grad(function()
      model.first.weight:fill_(1)
      model.second.weight:fill_(1)
    end)
    trainer:copyWeightsToDevice()
    x[2] = -1e9 -- of one of them
    raises("Error", "invalid operation in sqrt", function()
      trainer(x)
    end)
    raises("Error", "overflow in mul %(.*spec.lua:%d+%)", function()
      wrapped(function(x0)
        return poptorch.for_loop(6, function(y) return y * y end, { x0 })[1]
      end)(T({ 1e3 }))
    end)
  end)

  it("change no value, beside stochastic rounding either", function()
    local function train(on, stochastic)
      torch.manual_seed(1)
      local model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
      local Loss = nn.Module:extend("Loss")
      function Loss:init() self.net, self.loss = model, nn.MSELoss() end
      function Loss:forward(x, y) return self.loss(self.net(x), y) end
      local whole = Loss()
      local x, y = torch.randn(4, 8), torch.randn(4, 4)
      if stochastic then
        whole:half()
        x, y = x:half(), y:half()
      end
      local opts = options(on):randomSeed(3)
      opts.Precision:enableStochasticRounding(stochastic)
      local trainer = poptorch.trainingModel(whole, opts,
        torch.optim.Adam(model:parameters(), { lr = 0.01 }))
      for _ = 1, 5 do
        trainer(x, y)
      end
      return model[1].weight:detach():float():clone()
    end
    for _, stochastic in ipairs({ false, true }) do
      local off, on = train(false, stochastic), train(true, stochastic)
      assert.is_true(torch.allclose(off, on, { rtol = 1e-6, atol = 1e-7 }))
    end
  end)

  it("stay in a saved executable", function()
    local folder <close> = setmetatable({ path = files.folder() }, { __close = function(f)
      files.remove(f.path)
    end })
    local model = wrapped(function(x) return x:sqrt() end)
    model(T({ 4.0 }))
    model:save(folder.path .. "/e.poptorch")
    raises("Error", "invalid operation in sqrt", function()
      poptorch.load(folder.path .. "/e.poptorch")(T({ -4.0 }))
    end)
  end)

  it("are popart's enableFloatingPointChecks", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local y = b.aiOnnx:sqrt({ x })
    b:addOutputTensor(y)
    local opts = popart.SessionOptions()
    opts.enableFloatingPointChecks = true
    local s = popart.InferenceSession({ fnModel = b:getModelProto(),
      dataFlow = popart.DataFlow(1, { y }), userOptions = opts,
      deviceInfo = popart.DeviceManager():createIpuModelDevice({ numIPUs = 1 }) })
    s:prepareDevice()
    local anchors = s:initAnchorArrays()
    s:run(popart.PyStepIO({ [x] = T({ 4.0, 9 }) }, anchors))
    assert.same({ 2, 3 }, anchors[y]:tolist())
    local ok, e = pcall(s.run, s, popart.PyStepIO({ [x] = T({ -4.0, 9 }) }, anchors))
    assert.is_false(ok)
    assert.is_true(popart.poplar_application_runtime_error:is(e))
    assert.matches("invalid operation in sqrt", e.message)
  end)
end)
