--- Our side of one workload, in a process of its own, which bench.lua drives:
---     lupine spec/bench/one.lua WORKLOAD THREADS FILE [WAY]
--- FILE (safetensors) has the weights by name, `input` and `target`. Trains 10
--- steps and prints `loss` of each, `first` (ms of the first call, compiling
--- included), `library` and `ready`, a line each; then obeys lines of its input:
---     time SECONDS    prints `ms`, the median of a step during that time
--- and at their end prints `rss`, the largest resident memory (MB) since the
--- file was read. WAY: compiled (default), by poptorch; step, by lupine.compile; eager,
--- a plain script; make, which writes FILE instead.
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local lupine = require("lupine")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local safetensors = require("lupine.safetensors")
local torch = require("torch")
local workloads = require("spec.bench.workloads")

local STEPS, SEED = 10, 1
local wall = core.host.clock
-- With CLOCK=cpu, the processor's time of all threads: for a machine that others use.
local clock = os.getenv("CLOCK") == "cpu" and os.clock or wall

local WithLoss = nn.Module:extend("WithLoss")

function WithLoss:init(w)
  self.model = w.model()
  self.loss = workloads.loss(w)
end

function WithLoss:forward(x, target)
  local y = self.model(x)
  return self.loss(y, y:size(0) == target:size(0) and target or target:flatten())
end

local function make(w, path)
  torch.manual_seed(SEED)
  local model = w.model()
  local tensors = {}
  for name, p in model:named_parameters() do
    tensors[name] = p
  end
  tensors.input, tensors.target = workloads.data(w)
  safetensors.save_file(tensors, path)
  local direct, least = workloads.operations(w)
  print(("operations %.9g"):format(direct))
  print(("least %.9g"):format(least))
  print(("bytes %d"):format(workloads.update_bytes(w, model)))
end

local function load(w, path)
  local net = WithLoss(w)
  local tensors = safetensors.load_file(path)
  local _ <close> = torch.no_grad()
  for name, p in net.model:named_parameters() do
    p:copy_(tensors[name])
  end
  return net, tensors.input, tensors.target
end

-- A plain script, as spec/bench/peers/pytorch.py has it. A call takes `iterations`
-- steps.
local function eager(w, net)
  local optimizer = w.optimizer and w.optimizer(net:parameters())
  if not optimizer then
    net:eval()
    return function(x, target)
      local _ <close> = torch.no_grad()
      return net(x, target)
    end
  end
  return function(inputs, targets)
    local xs, ts, losses = inputs:split(w.batch), targets:split(w.batch), {}
    for i, x in ipairs(xs) do
      optimizer:zero_grad()
      local loss = net(x, ts[i])
      loss:backward()
      optimizer:step()
      losses[i] = loss:detach()
    end
    return torch.stack(losses)
  end
end

-- The same as a compiled step.
local function stepped(w, net, input, target)
  if not w.optimizer then
    return lupine.compile(net:eval(), { input, target })
  end
  local rows = w.batch // (w.accumulation or 1)
  local step = lupine.compile(net, { optimizer = w.optimizer(net:parameters()),
    accumulation = w.accumulation })
  return function(inputs, targets)
    local xs, ts, losses = inputs:split(rows), targets:split(targets:size(0) // (inputs:size(0)
      // rows)), {}
    for i, x in ipairs(xs) do
      losses[i] = step(x, ts[i])
    end
    return torch.stack(losses)
  end
end

local WAYS = { eager = eager, step = stepped }

local function compiled(w, net)
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

local function status_mb(key)
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^" .. key .. ":%s*(%d+)")
    if kb then
      return tonumber(kb) / 1024
    end
  end
end

-- The largest resident memory counts from here on.
local function forget_peak()
  local file = io.open("/proc/self/clear_refs", "w")
  if file then
    file:write("5")
    file:close()
  end
end

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

-- One number a step: the mean over its micro-batches.
local function losses_of(micro_batches, result, losses)
  local each = result:view({ -1, micro_batches }):mean(1)
  for _, v in ipairs(each:tolist()) do
    losses[#losses + 1] = v
  end
end

local function measure(step, x, target, seconds)
  step(x, target) -- wakes threads and caches
  local times, stop = {}, wall() + seconds
  repeat
    local t = clock()
    step(x, target)
    times[#times + 1] = clock() - t
  until wall() >= stop
  return median(times)
end

local function run(w, threads, path, way)
  torch.set_num_threads(threads)
  local net, x, target = load(w, path)
  collectgarbage()
  forget_peak()
  local t = clock()
  local step = (WAYS[way] or compiled)(w, net, x, target)
  local micro_batches = way ~= "eager" and w.accumulation or 1
  local losses, first = {}, nil
  while #losses < STEPS do
    losses_of(micro_batches, step(x, target), losses)
    first = first or clock() - t
  end
  for i = 1, STEPS do
    print(("loss %.9g"):format(losses[i]))
  end
  print(("first %.9g"):format(first * 1e3))
  print("library lupine " .. core.version)
  print("ready")
  io.stdout:flush()
  for line in io.lines() do
    local seconds = tonumber(line:match("^time (.*)$"))
    print(("ms %.9g"):format(measure(step, x, target, seconds) * 1e3 / (w.iterations or 1)))
    io.stdout:flush()
  end
  print(("rss %.1f"):format(status_mb("VmHWM")))
end

local w = assert(workloads.all[arg[1]], "no workload of that name")
if arg[4] == "make" then
  make(w, arg[3])
else
  run(w, math.tointeger(tonumber(arg[2])), arg[3], arg[4])
end
