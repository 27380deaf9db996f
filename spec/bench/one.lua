--- One timed run of one workload on our side, in a process of its own:
---     lupine spec/bench/one.lua WORKLOAD THREADS SECONDS
--- Warms up for a third of the time and at least 10 steps, then times calls.
--- Prints `loss` of each of the first 10 steps, `ms` (median a step), `rss`
--- (resident MB) and `library`, a line each.
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local workloads = require("spec.bench.workloads")

local STEPS = 10
local clock = core.host.clock

local WithLoss = nn.Module:extend("WithLoss")

function WithLoss:init(w)
  self.model = w.model()
  self.loss = w.loss()
end

function WithLoss:forward(x, target)
  return self.loss(self.model(x), target)
end

local function wrap(w)
  local net = WithLoss(w)
  workloads.initialise(net)
  local opts = poptorch.Options()
  opts:deviceIterations(w.iterations or 1)
  opts:outputMode(poptorch.OutputMode.All)
  if w.optimizer then
    opts.Training:gradientAccumulation(w.accumulation or 1)
    return poptorch.trainingModel(net, opts, w.optimizer(net:parameters()))
  end
  net:eval()
  return poptorch.inferenceModel(net, opts)
end

local function resident_mb()
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^VmRSS:%s*(%d+)")
    if kb then
      return tonumber(kb) / 1024
    end
  end
end

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

-- One number a step: the mean over its micro-batches.
local function losses_of(w, result, losses)
  local each = result:view({ -1, w.accumulation or 1 }):mean(1)
  for _, v in ipairs(each:tolist()) do
    losses[#losses + 1] = v
  end
end

local function run(name, threads, seconds)
  torch.set_num_threads(threads)
  local w = assert(workloads.all[name], "no workload of that name")
  local step = wrap(w)
  local x, target = workloads.data(w)
  local losses = {}
  while #losses < STEPS do
    losses_of(w, step(x, target), losses)
  end
  local stop = clock() + seconds / 3
  while clock() < stop do
    step(x, target)
  end
  local times = {}
  stop = clock() + seconds
  while clock() < stop or #times < STEPS do
    local t = clock()
    step(x, target)
    times[#times + 1] = clock() - t
  end
  for i = 1, STEPS do
    print(("loss %.9g"):format(losses[i]))
  end
  print(("ms %.9g"):format(median(times) * 1e3 / (w.iterations or 1)))
  print(("rss %.1f"):format(resident_mb()))
  print("library lupine " .. core.version)
end

run(arg[1], math.tointeger(tonumber(arg[2])), tonumber(arg[3]))
