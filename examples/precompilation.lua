-- Compiling on a machine without an IPU, running elsewhere: executables in files.
-- A port of listings 4.27 to 4.35 of the PopTorch user guide.
local poptorch = require("poptorch")
local torch = require("torch")

local ExampleModelWithLoss = torch.nn.Module:extend("ExampleModelWithLoss")

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

local filename = os.tmpname()
local input, target = torch.randn(10), torch.randn(10)

-- 4.27: compile for an IPU that is not here. The file holds the executable, the
-- module with its weights and the optimizer.
do
  local model = ExampleModelWithLoss()
  local opts = poptorch.Options():useOfflineIpuTarget(2)
  poptorch.trainingModel(model, opts):compileAndExport(filename, input, target)
end

-- 4.28: that's all: the model is ready to be used.
do
  local poptorch_model = poptorch.load(filename)
  poptorch_model(input, target)
  poptorch_model:destroy()
end

-- 4.29: options of running may be chosen before it is loaded.
do
  local poptorch_model = poptorch.load(filename, { edit_opts_fn = function(opts)
    opts:useIpuId(1) -- always use IPU 1
  end })
  poptorch_model(input, target)
  -- 4.30: only the executable, for models that no file can hold
  poptorch_model:compileAndExport(filename, input, target, { export_model = false })
  poptorch_model:destroy()
end

-- 4.31: then the script makes and wraps the model itself.
do
  local poptorch_model = poptorch.trainingModel(ExampleModelWithLoss(), poptorch.Options())
  poptorch_model:loadExecutable(filename)
  poptorch_model(input, target)
  poptorch_model:destroy()
end

-- 4.33: training and validation, each in a file of its own.
local validation_file = os.tmpname()
do
  torch.manual_seed(0)
  local model, opts = ExampleModelWithLoss(), poptorch.Options()
  local training_model = poptorch.trainingModel(model, opts)
  training_model:compileAndExport(filename, input, target)
  model:eval()
  local validation_model = poptorch.inferenceModel(model, opts)
  validation_model:compileAndExport(validation_file, input)
  training_model:destroy()
  validation_model:destroy()
end

local function error_of(out)
  return (out - target):pow(2):mean():item()
end

-- 4.34: models that are loaded one by one have weights of their own, which go from
-- one to the other when the script says so.
do
  local training_model = poptorch.load(filename)
  local validation_model = poptorch.load(validation_file)
  for epoch = 1, 2 do
    for _ = 1, 100 do
      training_model(input, target)
    end
    training_model:copyWeightsToHost()
    validation_model:load_state_dict(training_model:state_dict())
    print(("epoch %d: %.4f"):format(epoch, error_of(validation_model(input))))
  end
  training_model:destroy()
  validation_model:destroy()
end

-- 4.35: one that is made of the other shares its weights.
do
  local training_model = poptorch.load(filename)
  local validation_model = poptorch.inferenceModel(training_model)
  validation_model:loadExecutable(validation_file)
  local before = error_of(validation_model(input))
  for _ = 1, 200 do
    training_model(input, target)
  end
  assert(error_of(validation_model(input)) < before)
  print("training reaches the connected model")
end

os.remove(filename)
os.remove(validation_file)
