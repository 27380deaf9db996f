-- Listings 4.27 to 4.35 of the user guide, one after another, as the pages have them.
local files = require("spec.support.files")
local core = require("lupine.core")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local ExampleModelWithLoss = nn.Module:extend("ExampleModelWithLoss")

function ExampleModelWithLoss:init()
  self.fc = nn.Linear(10, 10)
  self.loss = nn.MSELoss()
end

function ExampleModelWithLoss:forward(x, target)
  local fc = self.fc(x)
  if self.training then
    return fc, self.loss(fc, target)
  end
  return fc
end

local folder, filename, open
local input, target = torch.randn(10), torch.randn(10)

before_each(function()
  folder, open = files.unused(), {}
  core.make_folder(folder)
  filename = folder .. "/model.poptorch"
end)
after_each(function()
  for _, executor in ipairs(open) do
    executor:destroy()
  end
  files.remove(folder)
end)

local function kept(executor)
  open[#open + 1] = executor
  return executor
end

-- Listing 4.27.
local function precompile(...)
  local model, opts = ExampleModelWithLoss(), poptorch.Options():useOfflineIpuTarget(2)
  local wrapped = poptorch.trainingModel(model, opts)
  wrapped:compileAndExport(filename, input, target, ...)
  wrapped:destroy()
  return model
end

local function train(model, epochs)
  local loss
  for _ = 1, epochs do
    loss = select(2, model(input, target)):item()
  end
  return loss
end

-- Listing 4.33.
local function precompile_both()
  local model, opts = ExampleModelWithLoss(), poptorch.Options()
  local training, validation = folder .. "/training.poptorch", folder .. "/validation.poptorch"
  local wrapped = kept(poptorch.trainingModel(model, opts))
  wrapped:compileAndExport(training, input, target)
  model:eval()
  kept(poptorch.inferenceModel(model, opts)):compileAndExport(validation, input)
  return training, validation
end

describe("listing", function()
  it("4.27, 4.28: a model compiled offline is ready to be used when it is loaded", function()
    local model = precompile()
    local loaded = kept(poptorch.load(filename))
    assert.same(model.fc.weight:tolist(), loaded.model.fc.weight:tolist())
    local _, first = loaded(input, target)
    assert.near(model.loss(model.fc(input), target):item(), first:item(), 1e-5)
    assert.truthy(train(loaded, 100) < first:item())
  end)

  it("4.29: on a specific IPU", function()
    precompile()
    local loaded = kept(poptorch.load(filename, { edit_opts_fn = function(opts)
      opts:useIpuId(1)
    end }))
    loaded(input, target)
    assert.equal(1, loaded.options.ipu_id)
  end)

  it("4.30, 4.31: only the executable, for a model that the script makes", function()
    precompile({ export_model = false })
    local ok, e = pcall(poptorch.load, filename)
    assert.is_false(ok)
    assert.matches("loadExecutable", e.message)
    local model = ExampleModelWithLoss()
    local wrapped = kept(poptorch.trainingModel(model, poptorch.Options()))
    wrapped:loadExecutable(filename)
    local out = model.fc(input):tolist()
    for i, value in ipairs(wrapped(input, target):tolist()) do
      assert.near(out[i], value, 1e-5)
    end
  end)

  it("4.32: weights go from training to validation by themselves", function()
    local model, opts = ExampleModelWithLoss(), poptorch.Options()
    local training = kept(poptorch.trainingModel(model, opts))
    train(training, 20)
    model:eval()
    local validation = kept(poptorch.inferenceModel(model, opts))
    local before = validation(input)
    model:train()
    train(training, 20)
    assert.is_false(torch.equal(before, validation(input)))
    assert.is_true(torch.allclose(model.fc(input), validation(input), 1e-5, 1e-6))
  end)

  it("4.33, 4.34: loaded models have weights of their own", function()
    local training, validation = precompile_both()
    local trainer, validator = kept(poptorch.load(training)), kept(poptorch.load(validation))
    local before = validator(input)
    assert.is_true(trainer.model.training)
    assert.is_false(validator.model.training)
    train(trainer, 50)
    trainer:copyWeightsToHost()
    validator:copyWeightsToDevice()
    assert.is_true(torch.equal(before, validator(input)))
    validator:load_state_dict(trainer:state_dict())
    assert.is_true(torch.allclose(trainer.model.fc(input), validator(input), 1e-5, 1e-6))
  end)

  it("4.35: a model made of the loaded one is connected with it", function()
    local training, validation = precompile_both()
    local trainer = kept(poptorch.load(training))
    local validator = kept(poptorch.inferenceModel(trainer))
    validator:loadExecutable(validation)
    local before = validator(input)
    train(trainer, 50)
    assert.is_false(torch.equal(before, validator(input)))
    assert.is_true(torch.allclose(trainer.model.fc(input), validator(input), 1e-5, 1e-6))
  end)
end)
