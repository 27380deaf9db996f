-- The original's precompilation_test.py. Not there: test_pva_annotations, which
-- reads a profile by a library of the original's.
local files = require("spec.support.files")
local core = require("lupine.core")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local ExampleModelWithLoss = nn.Module:extend("ExampleModelWithLoss")

function ExampleModelWithLoss:init()
  self.fc = nn.Linear(10, 10)
  self.loss = nn.CrossEntropyLoss()
end

function ExampleModelWithLoss:forward(x, target)
  local fc = self.fc(x)
  if self.training then
    return fc, self.loss(fc, target)
  end
  return fc
end

local folder

before_each(function()
  folder = files.unused()
  core.make_folder(folder)
end)
after_each(function()
  files.remove(folder)
end)

local function file(name)
  return folder .. "/" .. name .. ".poptorch"
end

local function example(training, offline)
  torch.manual_seed(42)
  local model, opts = ExampleModelWithLoss(), poptorch.Options()
  if offline then
    opts:useOfflineIpuTarget(2)
  end
  model:train(training)
  return training and poptorch.trainingModel(model, opts) or poptorch.inferenceModel(model, opts)
end

local function export(filename, export_model, training)
  local model = example(training ~= false, true)
  local input, target = torch.randn(1, 10), torch.randint(0, 10, { 1 })
  local how = { export_model = export_model ~= false }
  if training ~= false then
    model:compileAndExport(filename, input, target, how)
  else
    model:compileAndExport(filename, input, how)
  end
  model:destroy()
  return input, target
end

local function class_of(out)
  return torch.argmax(out, { dim = 1 }):item()
end

-- Trains and checks that it learned.
local function train(model, input, target)
  local out, first = model(input, target)
  assert.not_equal(target:item(), class_of(out))
  local loss
  for _ = 1, 500 do
    out, loss = model(input, target)
  end
  assert.truthy(loss:item() < first:item() and loss:item() < 0.05)
  assert.equal(target:item(), class_of(out))
  return first:item()
end

describe("precompilation_test", function()
  it("test_export_then_load_live_model", function()
    local model = example(false)
    local input = torch.randn(1, 10)
    local want = model(input):tolist()
    model:save(file("model"))
    model:destroy()
    local loaded = poptorch.load(file("model"))
    assert.same(want, loaded(input):tolist())
    loaded:destroy()
  end)

  it("test_export_then_load", function()
    local input, target = export(file("model"))
    local loaded, own = poptorch.load(file("model")), example(true)
    local _, loss = loaded(input, target)
    assert.same(select(2, own(input, target)):item(), loss:item())
    loaded:destroy()
    own:destroy()
  end)

  it("test_export_then_load_setIpu", function()
    local input, target = export(file("model"))
    local model = poptorch.load(file("model"), { edit_opts_fn = function(opts)
      opts:useIpuId(1)
    end })
    model(input, target)
    assert.equal(1, model.options.ipu_id)
    model:destroy()
  end)

  it("test_export_no_python_then_load", function()
    local input, target = export(file("model"), false)
    local model = poptorch.trainingModel(ExampleModelWithLoss(), poptorch.Options())
    model:loadExecutable(file("model"))
    model(input, target)
  end)

  it("test_export_train_validate_no_python", function()
    local input, target = export(file("train"), false)
    export(file("valid"), false, false)
    local model, options = ExampleModelWithLoss(), poptorch.Options()
    local training = poptorch.trainingModel(model, options)
    training:loadExecutable(file("train"))
    model:eval()
    local validation = poptorch.inferenceModel(model, options)
    validation:loadExecutable(file("valid"))
    -- as made the model may already know the answer: then it says nothing
    if class_of(validation(input)) ~= target:item() then
      train(training, input, target)
      assert.equal(target:item(), class_of(validation(input)))
    end
  end)

  it("test_export_train_validate", function()
    local input, target = export(file("train"))
    export(file("valid"), true, false)
    local training = poptorch.load(file("train"))
    local validation = poptorch.inferenceModel(training, poptorch.Options())
    validation:eval()
    validation:loadExecutable(file("valid"))
    assert.not_equal(target:item(), class_of(validation(input)))
    train(training, input, target)
    assert.equal(target:item(), class_of(validation(input)))
  end)

  it("test_export_train_save_validate", function()
    local input, target = export(file("train"))
    local training = poptorch.load(file("train"))
    local validation = poptorch.inferenceModel(training, poptorch.Options():useOfflineIpuTarget(2))
    validation:eval()
    train(training, input, target)
    validation:compileAndExport(file("valid"), input)
    assert.equal(target:item(), class_of(poptorch.load(file("valid"))(input)))
  end)

  it("test_export_train_save_train", function()
    local input, target = export(file("train"))
    local training = poptorch.load(file("train"))
    local first = train(training, input, target)
    torch.save(training.model:state_dict(), file("weights"))
    training:destroy()
    training = poptorch.load(file("train"))
    training:load_state_dict(torch.load(file("weights")))
    local out, loss = training(input, target)
    assert.truthy(loss:item() < first and loss:item() < 0.05)
    assert.equal(target:item(), class_of(out))
  end)

  it("test_export_train_save_validate_load_weights", function()
    export(file("valid"), true, false)
    local input, target = export(file("train"))
    local training = poptorch.load(file("train"))
    train(training, input, target)
    torch.save(training.model:state_dict(), file("weights"))
    training:destroy()
    local validation = poptorch.load(file("valid"))
    assert.not_equal(target:item(), class_of(validation(input)))
    validation:load_state_dict(torch.load(file("weights")))
    assert.equal(target:item(), class_of(validation(input)))
  end)
end)
