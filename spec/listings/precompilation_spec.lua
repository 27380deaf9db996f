--- The user guide's listings of precompilation, ported line by line. Losses and
--- predictions tell which weights a loaded model has.
local files = require("spec.support.files")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local ExampleModelWithLoss = nn.Module:extend("ExampleModelWithLoss")

function ExampleModelWithLoss:init()
  self.fc = torch.nn.Linear(10, 10)
  self.loss = torch.nn.MSELoss()
end

function ExampleModelWithLoss:forward(x, target)
  local fc = self.fc(x)
  if self.training then
    return fc, self.loss(fc, target)
  end
  return fc
end

local close = torch.testing.assert_close

local folder

setup(function()
  folder = files.folder()
end)

teardown(function()
  files.remove(folder)
end)

local function file(name)
  return folder .. "/" .. name .. ".poptorch"
end

describe("listing", function()
  local input, target, first

  it("4.27: a model is compiled for an offline target and exported", function()
    torch.manual_seed(0)
    local model = ExampleModelWithLoss()
    local opts = poptorch.Options()
    -- You don't need a real IPU to compile the executable.
    local ipu_target_version = poptorch.ipuHardwareVersion()
    opts:useOfflineIpuTarget(ipu_target_version)
    local poptorch_model = poptorch.trainingModel(model, opts)
    input = torch.randn(10)
    target = torch.randn(10)
    poptorch_model:compileAndExport(file("training"), input, target)
    assert.is_false(poptorch_model:isAttachedToDevice())
    first = select(2, model(input, target)):item()
    poptorch_model:destroy()
    assert.is_true(assert(io.open(file("training"))):close())
  end)

  it("4.28: it is loaded and ready to be used", function()
    local poptorch_model = poptorch.load(file("training"))
    assert.is_true(poptorch_model:isCompiled())
    local _, loss = poptorch_model(input, target)
    assert.near(first, loss:item(), 1e-6)
    poptorch_model:destroy()
  end)

  it("4.29: and with options that are edited, run on a device of one's choice", function()
    local function setIpuDevice(opts)
      opts:useIpuId(1) -- always use IPU 1
    end
    local poptorch_model = poptorch.load(file("training"), { edit_opts_fn = setIpuDevice })
    local _, loss = poptorch_model(input, target)
    assert.near(first, loss:item(), 1e-6)
    assert.equal(1, poptorch_model.options.ipu_id)
    poptorch_model:destroy()
  end)

  it("4.30: the executable alone is exported; 4.31: and loaded", function()
    local poptorch_model = poptorch.trainingModel(ExampleModelWithLoss(), poptorch.Options())
    poptorch_model:compileAndExport(file("executable"), input, target, { export_model = false })
    poptorch_model:destroy()
    helper.raises("AssertionError", "saved with export_model = false", function()
      poptorch.load(file("executable"))
    end)

    local model = ExampleModelWithLoss()
    local opts = poptorch.Options()
    poptorch_model = poptorch.trainingModel(model, opts)
    poptorch_model:loadExecutable(file("executable"))
    assert.is_true(poptorch_model:isCompiled())
    local want = select(2, model(input, target)):item()
    local _, loss = poptorch_model(input, target)
    assert.near(want, loss:item(), 1e-6)
    poptorch_model:destroy()
  end)

  it("4.32: weights are copied implicitly", function()
    local model = ExampleModelWithLoss()
    local opts = poptorch.Options()
    local training_model = poptorch.trainingModel(model, opts)
    model:eval()
    local validation_model = poptorch.inferenceModel(model, opts)
    local before = validation_model(input):clone()
    for _ = 1, 2 do
      training_model(input, target)
    end
    local prediction = validation_model(input)
    assert.is_false(torch.equal(before, prediction))
    close(prediction, model(input))
  end)

  it("4.33: a pair is exported; 4.34: loaded, it is not connected", function()
    local model = ExampleModelWithLoss()
    local opts = poptorch.Options()
    local training_model = poptorch.trainingModel(model, opts)
    training_model:compileAndExport(file("training"), input, target)
    model:eval()
    local validation_model = poptorch.inferenceModel(model, opts)
    validation_model:compileAndExport(file("validation"), input)
    training_model:destroy()
    validation_model:destroy()

    training_model = poptorch.load(file("training"))
    validation_model = poptorch.load(file("validation"))
    local before = validation_model(input):clone()
    for _ = 1, 2 do
      training_model(input, target)
      training_model:copyWeightsToHost()
      validation_model:copyWeightsToDevice()
      -- each has a model of its own: the training's weights are not there
      close(validation_model(input), before)
    end
    validation_model:load_state_dict(training_model.model:state_dict())
    assert.is_false(torch.equal(validation_model(input), before))
  end)

  it("4.35: connected again, it is", function()
    local training_model = poptorch.load(file("training"))
    local validation_model = poptorch.inferenceModel(training_model)
    validation_model.model:eval()
    validation_model:loadExecutable(file("validation"))
    local before = validation_model(input):clone()
    for _ = 1, 2 do
      training_model(input, target)
      local prediction = validation_model(input)
      assert.is_false(torch.equal(before, prediction))
      before = prediction:clone()
    end
    torch.testing.assert_close(before, training_model.model.fc(input))
  end)
end)
