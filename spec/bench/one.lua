--- Our side of one workload, in a process of its own, which bench.lua drives:
---     lupine spec/bench/one.lua WORKLOAD THREADS FILE [WAY]
--- FILE (safetensors) has the weights and buffers by name, `input` (`input2` …) and
--- `target`. Trains 10 steps, 50 if PRECISION (bench.lua) is set, and prints `loss` of
--- each, `first` (ms of the first call, compiling included), `library` and `ready`, a
--- line each; then obeys lines of its input:
---     time SECONDS    prints `ms`, the median of a step during that time
--- and at their end prints `rss`, the largest resident memory (MB) since the
--- file was read. WAY: compiled (default), by poptorch; step, by lupine.compile; eager,
--- a plain script; make, which writes FILE instead.
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local lupine = require("lupine")
local poptorch = require("poptorch")
local safetensors = require("lupine.safetensors")
local torch = require("torch")
local workloads = require("spec.bench.workloads")

local PRECISION = os.getenv("PRECISION") or ""
local HALF = PRECISION == "half"
local STEPS, SEED = PRECISION ~= "" and 50 or 10, 1
local wall = core.host.clock
-- With CLOCK=cpu, the processor's time of all threads: for a machine that others use.
local clock = os.getenv("CLOCK") == "cpu" and os.clock or wall

-- Calls f(name, tensor) with parameters and floating buffers.
local function each_value(model, f)
  for name, p in model:named_parameters() do
    f(name, p)
  end
  for name, b in model:named_buffers() do
    if b:is_floating_point() then
      f(name, b)
    end
  end
end

-- Statistics as of a network that has been trained.
local function vary(name, t)
  if name:find("running_mean$") then
    t:uniform_(-0.1, 0.1)
  elseif name:find("running_var$") then
    t:uniform_(0.5, 1.5)
  end
end

local function make(w, path)
  torch.manual_seed(SEED)
  local model, tensors = w.model(), {}
  each_value(model, function(name, t)
    vary(name, t)
    tensors[name] = t
  end)
  local data = { workloads.data(w) }
  for i, t in ipairs(data) do
    tensors[i == #data and "target" or i == 1 and "input" or "input" .. i] = t
  end
  safetensors.save_file(tensors, path)
  if not w.products then
    return
  end
  local direct, least = workloads.operations(w)
  print(("operations %.9g"):format(direct))
  print(("least %.9g"):format(least))
  print(("bytes %d"):format(workloads.update_bytes(w, model)))
end

-- The network and what it is called with.
local function load(w, path)
  local net = workloads.with_loss(w)
  local tensors = safetensors.load_file(path)
  local _ <close> = torch.no_grad()
  each_value(net.model, function(name, t)
    t:copy_(tensors[name])
  end)
  local data = { tensors.input }
  while tensors["input" .. #data + 1] do
    data[#data + 1] = tensors["input" .. #data + 1]
  end
  data[#data + 1] = tensors.target
  for k, t in ipairs(HALF and data or {}) do
    data[k] = t:is_floating_point() and t:half() or t
  end
  return HALF and net:half() or net, data
end

-- What a step does in turn: {a module that returns a loss, the one that learns}.
local function phases_of(w, net)
  return w.phases and w.phases(net.model) or { { net, net } }
end

-- Calls step with each part of some rows of the data; the losses.
local function in_turn(step, rows, ...)
  local parts, losses = {}, {}
  for k, t in ipairs({ ... }) do
    parts[k] = t:split(rows)
  end
  for i = 1, #parts[1] do
    local args = {}
    for k, list in ipairs(parts) do
      args[k] = list[i]
    end
    losses[i] = step(table.unpack(args))
  end
  return torch.stack(losses)
end

-- One step of all phases; the sum of their losses.
local function all_of(steps)
  return function(...)
    local sum = steps[1](...)
    for i = 2, #steps do
      sum = sum + steps[i](...)
    end
    return sum
  end
end

-- A plain script, as spec/bench/peers/pytorch.py has it. A call takes `iterations`
-- steps.
local function eager(w, net)
  if not w.optimizer then
    net:eval()
    return function(...)
      local _ <close> = torch.no_grad()
      return net(...)
    end
  end
  local steps = {}
  for i, phase in ipairs(phases_of(w, net)) do
    local optimizer = w.optimizer(phase[2]:parameters())
    steps[i] = function(...)
      optimizer:zero_grad()
      local loss = phase[1](...)
      loss:backward()
      optimizer:step()
      return loss:detach()
    end
  end
  local step = all_of(steps)
  return function(...)
    return in_turn(step, w.batch, ...)
  end
end

-- The same as a compiled step.
local function stepped(w, net, data)
  if not w.optimizer then
    return lupine.compile(net:eval(), data)
  end
  local steps = {}
  for i, phase in ipairs(phases_of(w, net)) do
    steps[i] = lupine.compile(phase[1], { optimizer = w.optimizer(phase[2]:parameters()),
      accumulation = w.accumulation })
  end
  local step = all_of(steps)
  return function(...)
    return in_turn(step, w.batch // (w.accumulation or 1), ...)
  end
end

local WAYS = { eager = eager, step = stepped }

-- Phases share weights, which is a compiled step's business.
local function compiled(w, net, data)
  if w.phases then
    return stepped(w, net, data)
  end
  local opts = poptorch.Options()
  opts:deviceIterations(w.iterations or 1)
  opts:outputMode(poptorch.OutputMode.All)
  opts:useIpuModel(true) -- training GPT-2 fits no single IPU; what is timed is this CPU
  if w.optimizer then
    opts.Training:gradientAccumulation(w.accumulation or 1)
    return poptorch.trainingModel(net, opts, w.optimizer(net:parameters(), HALF))
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
  local each = result:float():view({ -1, micro_batches }):mean(1)
  for _, v in ipairs(each:tolist()) do
    losses[#losses + 1] = v
  end
end

local function measure(step, data, seconds)
  step(table.unpack(data)) -- wakes threads and caches
  local times, stop = {}, wall() + seconds
  repeat
    local t = clock()
    step(table.unpack(data))
    times[#times + 1] = clock() - t
  until wall() >= stop
  return median(times)
end

local function run(w, threads, path, way)
  if HALF and (WAYS[way] or w.phases) then
    error("bench: PRECISION=half is PopTorch's mixed way, which executors of poptorch have", 0)
  end
  local _ <close> = PRECISION == "bf16" and torch.autocast("cpu", torch.bfloat16) or nil
  torch.set_num_threads(threads)
  local net, data = load(w, path)
  collectgarbage()
  forget_peak()
  local t = clock()
  local step = (WAYS[way] or compiled)(w, net, data)
  local micro_batches = way ~= "eager" and w.accumulation or 1
  local losses, first = {}, nil
  while #losses < STEPS do
    losses_of(micro_batches, step(table.unpack(data)), losses)
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
    print(("ms %.9g"):format(measure(step, data, seconds) * 1e3 / (w.iterations or 1)))
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
