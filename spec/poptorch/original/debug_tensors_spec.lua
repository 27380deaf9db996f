--- PopTorch's tests/debug_tensors_test.py.
describe("debug_tensors_test", function()
  local core = require("lupine.core")
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  local Model = nn.Module:extend("Model")
  function Model:init()
    self.fc1, self.relu, self.fc2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10)
    self.loss = nn.MSELoss({ reduction = "mean" })
  end
  function Model:forward(x, labels)
    local out = self.fc2(self.relu(self.fc1(x)))
    if self.training then
      return self.loss(out, labels)
    end
    return out
  end

  local function run(model)
    model(torch.rand(10, 10), torch.rand(10, 10))
  end

  it("test_tensor_names", function()
    local model = poptorch.trainingModel(Model())
    helper.raises("AssertionError", model.getTensorNames, model)
    run(model)
    local names = model:getTensorNames()
    for _, pattern in ipairs({ "%f[%w]fc1%f[%W]", "%f[%w]fc2%f[%W]", "^input", "^loss",
      "^Gradient___", "^UpdatedVar__", "^scaledLearningRate", "^weightDecayScaleFactor" }) do
      local found = false
      for _, name in ipairs(names) do
        found = found or name:find(pattern) ~= nil
      end
      assert.is_true(found, pattern)
    end
  end)

  it("test_tensor_names_from_precompiled_model", function()
    local model = poptorch.trainingModel(Model())
    run(model)
    local names, file = model:getTensorNames(), os.tmpname()
    model:save(file)
    model:destroy()
    helper.raises("AssertionError", model.getTensorNames, model)
    local loaded = poptorch.load(file)
    os.remove(file)
    assert.same(names, loaded:getTensorNames())
    loaded:destroy()
  end)

  it("test_tensor_values", function()
    local opts = poptorch.Options()
    opts:anchorTensor("grad_bias", "Gradient___fc2.bias")
    opts:anchorTensor("update_weight", "UpdatedVar___fc2.weight")
    local model = poptorch.trainingModel(Model(), opts)
    local last = {}
    for _ = 1, 2 do
      run(model)
      local grad = model:getAnchoredTensor("grad_bias")
      local update = model:getAnchoredTensor("update_weight")
      assert.same({ 10 }, { table.unpack(grad.shape) })
      assert.same({ 10, 10 }, { table.unpack(update.shape) })
      assert.is_false(last.grad ~= nil and torch.equal(grad, last.grad))
      assert.is_false(last.update ~= nil and torch.equal(update, last.update))
      last.grad, last.update = grad:clone(), update:clone()
    end
  end)

  it("test_tensor_modes", function()
    local O = poptorch.OutputMode
    for _, case in ipairs({ { O.All, 3, "OutputMode.All/1" },
      { O.EveryN, 4, "OutputMode.EveryN/4" }, { O.Final, 1, "OutputMode.Final/1" },
      { O.Sum, 1, "OutputMode.Sum/1" } }) do
      local lines, log, level = {}, core.host.log, core.host.log_level()
      core.host.log = function(_, line)
        lines[#lines + 1] = line
      end
      poptorch.setLogLevel("DEBUG")
      local ok, e = pcall(function()
        local opts = poptorch.Options():deviceIterations(4)
        opts:anchorTensor("grad_bias", "Gradient___fc2.bias", case[1], case[2])
        local model = poptorch.trainingModel(Model(), opts)
        model(torch.rand(40, 10), torch.rand(40, 10))
      end)
      core.host.log = log
      core.host.log_level(level)
      assert(ok, e)
      assert.matches("anchor 'grad_bias': Gradient___fc2.bias " .. case[3],
        table.concat(lines, "\n"), 1, true)
    end
  end)
end)
