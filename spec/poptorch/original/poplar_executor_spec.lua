--- PopTorch's tests/poplar_executor_test.py, without those of files of executables
--- (test_ExecutableCaching, test_*_then_load, test_offline_ipu_compileAndExport_*,
--- test_distributed_compile) and test_get_cycles_no_hw, for which there is always hardware.
describe("poplar_executor_test", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn
  local close = torch.testing.assert_close

  local Adder = nn.Module:extend("Adder")
  function Adder:init(attr)
    self.attr = attr
  end
  function Adder:getAttr()
    return self.attr
  end
  function Adder.forward(_, x, y)
    return x + y + 5
  end

  local function one(value)
    return torch.tensor({ value })
  end

  -- Mean squared error with a scale.
  local function custom_loss(output, target)
    local loss = output - target
    return poptorch.identity_loss(loss * loss * 5, { reduction = "mean" })
  end

  local Biased = nn.Module:extend("Biased")
  function Biased:init(attr)
    self.bias = nn.Parameter(torch.zeros({}))
    self.attr = attr
  end
  Biased.getAttr = Adder.getAttr
  function Biased:forward(x, target)
    local out = poptorch.nop(x + 1) + self.bias
    if target then
      return out, custom_loss(out, target)
    end
    return out
  end

  local input, target = torch.tensor({ 1.0, 2.0, 3.0 }), torch.tensor({ 30.0, 40.0, 50.0 })

  it("test_inference_attributes", function()
    local model = poptorch.inferenceModel(Adder("MyAttr"))
    model(one(1.0), one(2.0))
    assert.equal("MyAttr", model.attr)
    assert.equal("MyAttr", model:getAttr())
  end)

  it("test_training_attributes", function()
    local model = poptorch.trainingModel(Biased("MyAttr"))
    model(input, target)
    assert.equal("MyAttr", model.attr)
    assert.equal("MyAttr", model:getAttr())
  end)

  it("test_explicit_destroy", function()
    local opts = poptorch.Options():useIpuId(1) -- both use the same device
    local model = Biased()
    local trainer = poptorch.trainingModel(model, opts)
    local inference = poptorch.inferenceModel(model, opts)
    trainer({ x = input, target = target })
    trainer:destroy()
    for _, name in ipairs({ "copyWeightsToHost", "copyWeightsToDevice" }) do
      assert.matches("not compiled %(or was destroyed%)",
        helper.method_raises("Error", trainer, name).message)
    end
    close(inference(input), model(input):detach())
  end)

  it("test_cpu_output", function()
    local const1, const2 = torch.tensor({ 1, 2 }), torch.tensor({ 3, 4 })
    local Model = nn.Module:extend("Model")
    function Model.forward()
      return const1 + const2, { { const1, const2 }, { const1, const2 } }, const2
    end
    local level = require("lupine.core").host.log_level()
    poptorch.setLogLevel("OFF")
    local sum, nested, same = poptorch.inferenceModel(Model())()
    require("lupine.core").host.log_level(level)
    assert.same({ { 4, 6 }, { 1, 2 }, { 3, 4 } }, { sum:tolist(), nested[2][1]:tolist(),
      same:tolist() })
  end)

  it("test_get_cycles_error_msgs", function()
    local model = poptorch.inferenceModel(Adder())
    model(one(1.0), one(2.0))
    assert.matches("logCycleCount", helper.method_raises("Error", model, "cycleCount").message)
    model = poptorch.inferenceModel(Adder(), poptorch.Options():logCycleCount(true))
    helper.method_raises("Error", model, "cycleCount")
    model:compile(one(1.0), one(2.0))
    assert.matches("has not been run", helper.method_raises("Error", model, "cycleCount").message)
    model(one(3.0), one(4.0))
    assert.is_true(model:cycleCount() > 0)
  end)

  it("test_get_compilation_time", function()
    local without = poptorch.inferenceModel(Adder(),
      poptorch.Options():showCompilationProgressBar(false))
    local with = poptorch.inferenceModel(Adder(),
      poptorch.Options():showCompilationProgressBar(true))
    for _, model in ipairs({ without, with }) do
      assert.matches("not compiled", helper.method_raises("Error", model,
        "compilationTime").message)
      model(one(3.0), one(4.0))
    end
    assert.matches("showCompilationProgressBar", helper.method_raises("Error", without,
      "compilationTime").message)
    assert.is_true(with:compilationTime() > 0)
  end)

  it("test_rewrap_model", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.fc, self.loss = nn.Linear(1, 1), nn.L1Loss()
    end
    function Model:forward(x)
      return self.loss(self.fc(x), x + 1)
    end
    for _, rewrap_executor in ipairs({ true, false }) do
      local model = Model()
      local function reset()
        nn.init.ones_(model.fc.weight)
        nn.init.zeros_(model.fc.bias)
      end
      reset()
      poptorch.trainingModel(model, poptorch.Options():deviceIterations(10))(torch.ones(10, 1))
      local after = model.fc.bias:item()
      assert.is_true(math.abs(after - 0.1) < 1e-6) -- ten steps of 0.01
      model:destroy()
      reset()
      local five = poptorch.Options():deviceIterations(5)
      local trainer = poptorch.trainingModel(model, five)
      trainer(torch.ones(5, 1))
      assert.matches("already wrapped by poptorch.trainingModel: destroy",
        helper.raises("RuntimeError", poptorch.trainingModel, model, five).message)
      trainer:destroy()
      trainer = poptorch.trainingModel(rewrap_executor and trainer or model, five)
      trainer(torch.ones(5, 1))
      assert.is_true(math.abs(model.fc.bias:item() - after) < 1e-6)
    end
  end)
end)
