-- Parallel phases: two halves of the model run side by side, in phases on IPUs
-- 0 and 2 and on IPUs 1 and 3 by turns. They swap their results after every
-- layer, within a phase as well.
-- A port of listing 4.11 of the PopTorch user guide.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local N = 3
local size = 10

local Model = nn.Module:extend("Model")

function Model:init()
  local weights = {}
  for n = 1, N * 6 do
    weights[n] = nn.Parameter(torch.rand(size, size))
  end
  self.weights = nn.ParameterList(weights)
end

function Model:forward(in0, target)
  local phase, used = 0, 0
  local function weight()
    used = used + 1
    return self.weights[used]
  end
  local ins
  do
    local _ <close> = poptorch.Block("phase0_ipu0")
    ins = torch.split(in0, size)
  end
  for n = 0, N * 3 - 1 do
    local out = {}
    for ipu = 0, 1 do
      local _ <close> = poptorch.Block(("phase%d_ipu%d"):format(phase, ipu))
      out[ipu] = torch.relu(torch.matmul(weight(), ins[ipu + 1]))
    end
    ins = { out[1], out[0] }
    -- two products in the same phase
    if n % 3 ~= 1 then
      phase = phase + 1
    end
  end
  local _ <close> = poptorch.Block(("phase%d_ipu1"):format(N * 2 - 1))
  local res = ins[1] + ins[2]
  return res, target and nn.functional.l1_loss(res, target)
end

torch.manual_seed(0)
local input = torch.rand(size * 2, 1)
local target = torch.rand(size, 1)
local model = Model()

-- Alternate between IPUs 0 and 2 and IPUs 1 and 3.
local phases = {}
for n = 0, N - 1 do
  phases[2 * n + 1] = { poptorch.Stage(("phase%d_ipu0"):format(2 * n)):ipu(0),
    poptorch.Stage(("phase%d_ipu1"):format(2 * n)):ipu(2) }
  phases[2 * n + 2] = { poptorch.Stage(("phase%d_ipu0"):format(2 * n + 1)):ipu(1),
    poptorch.Stage(("phase%d_ipu1"):format(2 * n + 1)):ipu(3) }
end

local opts = poptorch.Options()
opts:setExecutionStrategy(poptorch.ParallelPhasedExecution(phases))
local optimizer = torch.optim.SGD(model:parameters(), 1e-12)
local poptorch_model = poptorch.trainingModel(model, opts, optimizer)
local want = model(input)
local out, loss = poptorch_model(input, target)
torch.testing.assert_close(out, want)
print(("loss %.6g"):format(loss:item()))
for _, stage in ipairs(poptorch_model:report().stages) do
  print(("phase %d  IPU %d  %s"):format(stage.phase, stage.ipu, stage.block))
end
print("device and host agree")
