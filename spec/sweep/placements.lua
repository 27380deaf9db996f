--- Models of others (ports.lua) on the simulated system:
---     lupine spec/sweep/placements.lua
--- Each trains on the device as eagerly; what lupine.plan says of its variants is what the
--- programs have that are written so; and under random placements, strategies, locations
--- and types the schedule's order gives the bits of micro-batch order.
---
--- Environment: COUNT placements (200) from SEED (1) on, MODEL: one of the models.
package.path = "./?.lua;" .. package.path

local lupine = require("lupine")
local own = require("poptorch.executor.own")
local poptorch = require("poptorch")
local ports = require("spec.sweep.ports")
local report = require("lupine.report")
local tables = require("lupine.base.tables")
local torch = require("torch")

local STEPS, NEAR, JOINED = 3, 2e-3, 0.02 -- JOINED: operators that are one over a cut
local failed = 0

local function fail(text, ...)
  failed = failed + 1
  print("FAIL " .. text:format(...))
end

-- A model and its arguments, of `rows` times the rows.
local function made(name, rows, half)
  torch.manual_seed(7)
  local net, args = ports[name][1](), table.pack(ports[name][2]())
  for i = 1, args.n do
    local list = {}
    for k = 1, rows do
      list[k] = args[i]:is_floating_point() and args[i] * (1 + 0.01 * k) or args[i]
    end
    args[i] = torch.cat(list, 0)
    args[i] = half and args[i]:is_floating_point() and args[i]:half() or args[i]
  end
  return half and net:half() or net, args
end

local function trained(name)
  local net, args = made(name, 1)
  local other = made(name, 1)
  local sgd = torch.optim.SGD(net:parameters(), { lr = 0.05, momentum = 0.9 })
  local executor = poptorch.trainingModel(other, nil,
    torch.optim.SGD(other:parameters(), { lr = 0.05, momentum = 0.9 }))
  for step = 1, STEPS do
    sgd:zero_grad()
    local host = table.pack(net(table.unpack(args, 1, args.n)))
    local device = table.pack(executor(table.unpack(args, 1, args.n)))
    host[host.n]:backward()
    sgd:step()
    local want, got = host[host.n]:item(), device[device.n]:item()
    if math.abs(want - got) > NEAR * math.max(math.abs(want), 0.01) then
      fail("%s, step %d: loss %g on the device, %g on the host", name, step, got, want)
    end
  end
  executor:destroy()
end

-- ---- plans ----------------------------------------------------------------------------

local function training(net, options)
  return poptorch.trainingModel(net, options:broadcastBuffers(false),
    poptorch.optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9, use_combined_accum = true }))
end

local function as_planned(name, variant)
  local net, args = made(name, math.max(1, math.ceil(variant.batch)))
  local options = poptorch.Options()
  for ipu, module in ipairs(variant.cuts) do
    poptorch.BeginBlock(net:get_submodule((module:gsub("/", "."))), { ipu_id = ipu })
  end
  for _, option in ipairs(variant.options) do
    if not option:find("AutoBlocks") then
      local code = option:gsub(" for the same batch", "")
      assert(load(code, "option", "t", { options = options, poptorch = poptorch, torch = torch }))()
    end
  end
  local executor = training(net, options)
  executor:compile(table.unpack(args, 1, args.n))
  local has = executor:report().samples_per_second
  executor:destroy()
  local off = has / variant.samples_per_second - 1
  if math.abs(off) > JOINED then
    fail("%s planned as %d x %d, %s: %.1f %% more samples a second", name, variant.stages,
      variant.replicas, table.concat(variant.options, "; "), 100 * off)
  end
end

local function planned(name)
  local net, args = made(name, 1)
  local plan = lupine.plan(training(net, poptorch.Options()), { ipus = { 1, 2, 4 }, tries = 20,
    inputs = { table.unpack(args, 1, args.n) } })
  for _, variant in ipairs(plan.plans) do
    as_planned(name, variant)
  end
end

-- ---- placements -----------------------------------------------------------------------

local function pick(list)
  return list[math.random(#list)]
end

-- Blocks that begin at some of the modules; their names.
local function place(net, phased)
  local names, chosen, blocks = {}, {}, {}
  for name in net:named_children() do
    names[#names + 1] = name
  end
  for _ = 1, math.random(0, 3) do
    chosen[pick(names)] = true
  end
  for _, name in ipairs(names) do
    if chosen[name] then
      blocks[#blocks + 1] = "B" .. #blocks + 1
      poptorch.BeginBlock(net:get_submodule(name), { user_id = blocks[#blocks],
        ipu_id = phased == "serial" and 0 or phased and #blocks % 2 or pick({ 0, #blocks }) })
    end
  end
  return blocks
end

local function phases(net, blocks)
  local list, forward = { poptorch.Phase("B0") }, net.forward
  for i, name in ipairs(blocks) do
    list[i + 1] = poptorch.Phase(name)
  end
  function net.forward(...)
    poptorch.Block.start("B0")
    return forward(...)
  end
  return list
end

local STRATEGIES = {
  pipelined = function(_, blocks)
    return poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
      2 * (#blocks + 1) + math.random(0, 2)
  end,
  sharded = function()
    return poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement), pick({ 1, 3 })
  end,
  serial = function(net, blocks)
    return poptorch.SerialPhasedExecution(phases(net, blocks)):setTensorsLiveness(
      poptorch.Liveness[pick({ "AlwaysLive", "OffChipAfterFwd", "OffChipAfterEachPhase" })]),
      pick({ 1, 3 })
  end,
  parallel = function(net, blocks)
    return poptorch.ParallelPhasedExecution(phases(net, blocks)), pick({ 1, 3 })
  end,
}
local NAMES = tables.keys(STRATEGIES)
table.sort(NAMES)

local function locate(options, replicas)
  local io = math.random() < 0.3
  if io then
    options.TensorLocations:numIOTiles(64)
  end
  for _, kind in ipairs({ "Optimizer", "Weight", "Accumulator", "Activation" }) do
    local settings = poptorch.TensorLocationSettings():useOnChipStorage(math.random() < 0.7)
      :minElementsForOffChip(pick({ 0, 8 })):useIOTilesToLoad(io and math.random() < 0.5)
    if (kind == "Optimizer" or kind == "Weight") and replicas > 1 and math.random() < 0.3 then
      settings:useReplicatedTensorSharding(true):minElementsForReplicatedTensorSharding(2)
    end
    options.TensorLocations["set" .. kind .. "Location"](options.TensorLocations, settings)
  end
end

-- When phases load and store, and how many micro-batches pass each together.
local function schedule(options, accumulation)
  for _, name in ipairs({ "weight", "activation", "accumulator", "optimizerState" }) do
    options._Popart:set(("executionPhaseSettings.%sIOSchedule"):format(name), math.random(0, 1))
  end
  options._Popart:set("executionPhaseSettings.schedule", math.random(0, 2))
  options._Popart:set("batchSerializationSettings.batchSchedule", math.random(0, 3))
  options._Popart:set("batchSerializationSettings.factor", pick({ 1, accumulation }))
end

local function same(a, b)
  for i, x in pairs(a) do
    if not torch.allclose(x, b[i], { rtol = 0, atol = 0, equal_nan = true }) then
      return false
    end
  end
  return true
end

local function placed(name)
  local half, replicas, iterations = math.random() < 0.25, pick({ 1, 2, 4 }), pick({ 1, 2 })
  local net, strategy = made(name, 1, half), pick(NAMES)
  local blocks = place(net, (strategy == "serial" or strategy == "parallel") and strategy)
  local how, accumulation = STRATEGIES[strategy](net, blocks)
  local options = poptorch.Options():setExecutionStrategy(how):replicationFactor(replicas)
    :deviceIterations(iterations):broadcastBuffers(false):autoRoundNumIPUs(true)
  options.Training:gradientAccumulation(accumulation)
  options._Popart:set("autoRecomputation", pick({ "Pipeline", "NoRecompute", "RecomputeAll" }))
  options.Precision:enableStochasticRounding(half and math.random() < 0.5)
  locate(options, replicas)
  if strategy == "serial" or strategy == "parallel" then
    schedule(options, accumulation)
  end
  local kind, numbers = pick({ "SGD", "combined", "AdamW", "LAMB" }), { lr = 0.01 }
  if kind == "combined" then
    kind, numbers.momentum, numbers.use_combined_accum = "SGD", 0.9, true
  end
  local executor = poptorch.trainingModel(net, options,
    poptorch.optim[kind](net:parameters(), numbers))
  local _, args = made(name, accumulation * replicas * iterations, half)
  local ok, e = pcall(executor.compile, executor, table.unpack(args, 1, args.n))
  if not ok then -- blocks that come back
    return e.message:find("must ascend", 1, true) or fail("%s: %s", name, e.message)
  end
  local session, inputs, n = own.state(executor).session, {}, 0
  local step = session.exec:step()
  for i, v in ipairs(step:vars()) do
    n = n + (v.role == "input" and 1 or 0)
    inputs[i] = v.role == "input" and args[n]:to(v.dtype) or nil
  end
  local function replay(by)
    return report.replay(step, session.spec.system, inputs, { order = by, seed = 3 })
  end
  local done, out, vars = pcall(replay, "schedule")
  local wants, values = replay("micro_batches")
  if not done then
    fail("%s, %s: %s", name, strategy, out.message)
  elseif not same(out, wants) or not same(vars, values) then
    fail("%s, %s: other bits than in micro-batch order", name, strategy)
  end
  executor:destroy()
end

-- ---- all of them ----------------------------------------------------------------------

poptorch.setLogLevel("ERR")
local seed, count = tonumber(os.getenv("SEED") or 1), tonumber(os.getenv("COUNT") or 200)
local names = os.getenv("MODEL") and { os.getenv("MODEL") } or tables.keys(ports)
table.sort(names)
for _, name in ipairs(names) do
  trained(name)
  planned(name)
end
for n = seed, seed + count - 1 do
  math.randomseed(n)
  local name, before = pick(names), failed
  placed(name)
  if failed > before then
    print(("     with SEED=%d COUNT=1"):format(n))
  end
end
print(("%d models, %d placements, %d failures"):format(#names, count, failed))
os.exit(failed == 0, true)
