--- Writes seeds of the target `executable` (see executable.lua beside it).
dofile("spec/fuzz/harness/executable.lua")
local core = require("lupine.core")
local class_names = require("torch.class_names")
local control = require("lupine.control")
local files = require("spec.support.files")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local path = os.tmpname()

local function write(name, executor, ...)
  executor(...)
  executor:save(path)
  local _, _, texts = core.read_executable(path)
  local names, out = {}, {}
  for key in pairs(texts) do
    names[#names + 1] = key ~= "format" and key ~= "version" and key or nil
  end
  table.sort(names)
  for _, key in ipairs(names) do
    out[#out + 1] = ("==%s==\n%s"):format(key, texts[key])
  end
  files.write("spec/fuzz/corpus/executable/" .. name, table.concat(out, "\n"))
end

local Net = class_names.class("FuzzNet", "seeds")
local x = torch.ones({ 1, 2 })

write("inference", poptorch.inferenceModel(nn.Linear(2, 2)), x)
write("constant", poptorch.inferenceModel(Net()), x)

local net = Net()
write("training", poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(),
  { lr = 0.1, momentum = 0.9 })), x)

local opts = poptorch.Options():replicationFactor(2):deviceIterations(2)
opts:anchorTensor("w", "fc.weight")
opts.Training:gradientAccumulation(2)
net = Net()
write("replicas", poptorch.trainingModel(net, opts, poptorch.optim.SGD(net:parameters(),
  { lr = 0.1 })), torch.ones({ 8, 2 }))

function Net:forward(v)
  return control.loop(2, function(a)
    return self.fc(a):tanh()
  end, { v })[1]
end
write("loop", poptorch.inferenceModel(Net()), x)
os.remove(path)
