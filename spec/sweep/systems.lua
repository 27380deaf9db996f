--- Random systems of simulated IPUs, from shapes alone:
---     lupine spec/sweep/systems.lua
--- What a report says adds up: rows to steps, steps to cycles, samples to a second, peaks
--- to what the chips have. And its neighbours are on the right side of it: twice the batch
--- is no faster, half no larger, state that lies off the chip is not on it, and so on.
---
--- Environment: COUNT systems (100) from SEED (1) on, MODEL: one of the models.
package.path = "./?.lua;" .. package.path

local poptorch = require("poptorch")
local tables = require("lupine.base.tables")
local torch = require("torch")

local nn = torch.nn
local F = nn.functional
local failed, seed = 0, nil

local function pick(list)
  return list[math.random(#list)]
end

-- ---- models: layers, and an input and targets of so many rows ---------------------------

local function zeros(...)
  return torch.zeros({ ... }, { dtype = torch.int64 })
end

local Block = nn.Module:extend("Block")

function Block:init(width, heads)
  self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
end

function Block:forward(x)
  local rows, length, width = table.unpack(x.shape)
  local parts = self.qkv(self.norm1(x)):reshape(rows, length, 3, self.heads, -1)
    :permute(2, 0, 3, 1, 4)
  local scores = parts[0]:matmul(parts[1]:transpose(-1, -2)) * (self.heads / width) ^ 0.5
  x = x + self.proj(scores:softmax(-1):matmul(parts[2]):transpose(1, 2)
    :reshape(rows, length, width))
  return x + self.down(F.gelu(self.up(self.norm2(x))))
end

local Residual = nn.Module:extend("Residual")

function Residual:init(from, to, stride)
  self.conv1 = nn.Conv2d(from, to, 3, { stride = stride, padding = 1, bias = false })
  self.conv2 = nn.Conv2d(to, to, 3, { padding = 1, bias = false })
  self.norm1, self.norm2 = nn.BatchNorm2d(to), nn.BatchNorm2d(to)
  self.skip = nn.Conv2d(from, to, 1, { stride = stride })
end

function Residual:forward(x)
  return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.skip(x))
end

local Pool = nn.Module:extend("Pool")

function Pool:init(width, classes)
  self.fc = nn.Linear(width, classes)
end

function Pool:forward(x)
  return self.fc(x:flatten(2):mean(2))
end

local Recurrent = nn.Module:extend("Recurrent")

function Recurrent:init(width)
  self.lstm = nn.LSTM(width, width, { batch_first = true })
end

function Recurrent:forward(x)
  return (self.lstm(x))
end

local Tables = nn.Module:extend("Tables")

function Tables:init(n, rows, width)
  self.tables = nn.ModuleList()
  for _ = 1, n do
    self.tables:append(nn.Embedding(rows, width))
  end
end

function Tables:forward(ids)
  local list = {}
  for i, rows in ipairs(self.tables) do
    list[i] = rows(ids[{ torch.slice(), i - 1 }])
  end
  local x = torch.stack(list, 1)
  return torch.cat({ x:flatten(1), x:matmul(x:transpose(1, 2)):flatten(1) }, 1)
end

local function words(length)
  return function(rows)
    return zeros(rows, length), zeros(rows, length)
  end
end

local function pictures(channels, ...)
  local size = { ... }
  return function(rows)
    return torch.zeros(rows, channels, table.unpack(size)), zeros(rows)
  end
end

local MODELS = {
  gpt = function()
    local width, vocabulary = pick({ 128, 256, 512 }), pick({ 1000, 8192 })
    local layers = { nn.Embedding(vocabulary, width) }
    for _ = 1, math.random(1, 6) do
      layers[#layers + 1] = Block(width, width // 64)
    end
    layers[#layers + 1] = nn.Linear(width, vocabulary)
    return layers, words(pick({ 64, 128, 256 }))
  end,
  resnet = function()
    local width, size, layers = pick({ 16, 32, 64 }), pick({ 32, 64 }), {}
    for i = 1, math.random(2, 4) do
      layers[i] = Residual(i == 1 and 3 or width << i - 2, width << i - 1, i == 1 and 1 or 2)
    end
    layers[#layers + 1] = Pool(width << #layers - 1, 100)
    return layers, pictures(3, size, size)
  end,
  waves = function()
    local width = pick({ 64, 128, 256 })
    local layers = { nn.Sequential(nn.Conv1d(1, width, 10, { stride = 5 }), nn.GELU()) }
    for i = 2, math.random(2, 5) do
      layers[i] = nn.Sequential(nn.Conv1d(width, width, 3, { stride = 2 }), nn.GELU())
    end
    layers[#layers + 1] = Pool(width, 32)
    return layers, pictures(1, pick({ 4000, 16000 }))
  end,
  lstm = function()
    local width = pick({ 64, 128, 256 })
    local layers = { nn.Embedding(1000, width) }
    for i = 2, math.random(2, 4) do
      layers[i] = Recurrent(width)
    end
    layers[#layers + 1] = nn.Linear(width, 1000)
    return layers, words(pick({ 16, 50 }))
  end,
  tables = function()
    local n, width = pick({ 4, 8, 16 }), pick({ 16, 32 })
    local layers, from = { Tables(n, pick({ 1000, 20000 }), width) }, n * width + n * n
    for _ = 1, math.random(1, 3) do
      layers[#layers + 1] = nn.Sequential(nn.Linear(from, 512), nn.ReLU())
      from = 512
    end
    layers[#layers + 1] = nn.Linear(from, 2)
    return layers, function(rows)
      return zeros(rows, n), zeros(rows)
    end
  end,
}
local NAMES = tables.keys(MODELS)
table.sort(NAMES)

local Model = nn.Module:extend("Model")

function Model:init(layers, half)
  self.layers, self.half_inputs = nn.ModuleList(layers), half
end

function Model:forward(x, targets)
  x = self.half_inputs and x:is_floating_point() and x:half() or x
  for _, layer in ipairs(self.layers) do
    x = layer(x)
  end
  return poptorch.identity_loss(F.cross_entropy(x:flatten(0, -2):float(), targets:flatten()),
    "none")
end

-- ---- systems ----------------------------------------------------------------------------

local function system()
  local c = { model = os.getenv("MODEL") or pick(NAMES), seed = math.random(1 << 30),
    batch = pick({ 1, 2, 4 }), replicas = pick({ 1, 2, 4 }), iterations = pick({ 1, 2 }),
    stages = pick({ 1, 2, 4 }), strategy = pick({ "Pipelined", "Sharded", "Serial" }),
    half = math.random() < 0.5, optimizer = pick({ "SGD", "AdamW", "LAMB" }), proportion = 0.6 }
  c.recompute = pick({ "NoRecompute", c.strategy == "Pipelined" and "Pipeline" or "Standard",
    "RecomputeAll" })
  c.accumulation = 2 * c.stages + math.random(0, 8)
  return c
end

local function strategy(c, net)
  local phases, layers = {}, #net.layers
  c.stages = math.min(c.stages, layers)
  for s = 0, c.stages - 1 do
    poptorch.BeginBlock(net.layers[s * layers // c.stages + 1],
      { user_id = "B" .. s, ipu_id = c.strategy == "Serial" and 0 or s })
    phases[s + 1] = poptorch.Phase("B" .. s)
  end
  if c.strategy == "Serial" then
    return poptorch.SerialPhasedExecution(phases):setTensorsLiveness(
      poptorch.Liveness[c.liveness or "AlwaysLive"])
  end
  return poptorch[c.strategy .. "Execution"](poptorch.AutoStage.AutoIncrement)
end

local function compiled(c)
  math.randomseed(c.seed)
  torch.set_default_device("meta")
  local layers, rows = MODELS[c.model]()
  local net = Model(layers, c.half)
  net = c.half and net:half() or net
  local options = poptorch.Options():useOfflineIpuTarget(c.chip or 2)
    :replicationFactor(c.replicas):deviceIterations(c.iterations):broadcastBuffers(false)
    :autoRoundNumIPUs(true):setExecutionStrategy(strategy(c, net))
  options.Training:gradientAccumulation(c.accumulation)
  options._Popart:set("autoRecomputation", c.recompute)
  options._Popart:set("engineOptions", { ["debug.allowOutOfMemory"] = "true" })
  local proportions = {}
  for ipu = 0, c.stages - 1 do
    proportions["IPU" .. ipu] = c.proportion
  end
  options:setAvailableMemoryProportion(proportions)
  options.TensorLocations:setOptimizerLocation(poptorch.TensorLocationSettings()
    :minElementsForOffChip(0):useOnChipStorage(not c.off_chip)
    :useReplicatedTensorSharding(c.shard or false):minElementsForReplicatedTensorSharding(2))
  local executor = poptorch.trainingModel(net, options, poptorch.optim[c.optimizer](
    net:parameters(), c.optimizer == "SGD" and { lr = 0.1, momentum = 0.9,
      use_combined_accum = false } or { lr = 0.1 }))
  executor:compile(rows(c.batch * c.accumulation * c.replicas * c.iterations))
  local report = executor:report()
  executor:destroy()
  torch.set_default_device("cpu")
  return report
end

local function fail(c, text, ...)
  failed = failed + 1
  local list = {}
  for k, v in pairs(c) do
    list[#list + 1] = k .. "=" .. tostring(v)
  end
  table.sort(list)
  print(("FAIL SEED=%d %s\n     %s"):format(seed, text:format(...), table.concat(list, " ")))
end

-- ---- one report ---------------------------------------------------------------------------

local PARTS = { "compute", "exchange", "sync", "copy", "host", "streaming", "collective" }

local function steps(c, report)
  local looped, once = 0, 0
  for _, part in ipairs(report.sequence) do
    for k = part.first_row, part.first_row + part.rows - 1 do
      local row, sum = report.schedule[k], 0
      for _, name in ipairs(PARTS) do
        sum = sum + row[name]
      end
      if sum ~= row.cycles then
        fail(c, "row %d is of %d cycles, its parts of %d", k, row.cycles, sum)
      end
      looped = looped + (part.once and 0 or row.cycles * part.count)
      once = once + (part.once and row.cycles * part.count or 0)
    end
  end
  local sum = looped * report.loops + once
  if math.abs(sum - report.cycles) > 1e-9 * report.cycles then
    fail(c, "%d cycles, of rows of %d", report.cycles, sum)
  end
end

local function speed(c, report)
  local samples = c.batch * c.accumulation * c.replicas * c.iterations
  local per_second = samples * report.clock_hz / report.cycles
  if math.abs(report.samples_per_second / per_second - 1) > 1e-9 then
    fail(c, "%g samples a second, not %g", report.samples_per_second, per_second)
  end
  local most = c.strategy == "Pipelined" and c.accumulation / (c.accumulation + c.stages - 1)
    or 1
  if report.wall_efficiency > most + 1e-9 then
    fail(c, "efficiency %g above %g", report.wall_efficiency, most)
  end
  local flops = 0
  for _, o in ipairs(report.operators) do
    flops = flops + o.flops
  end
  local peak = (c.half and 128 or 32) * report.tiles * report.ipus * report.cycles
  if flops > peak then
    fail(c, "%g operations in a time of at most %g", flops, peak)
  end
end

local function memory(c, report)
  local live = report:liveness().ipus
  for ipu, has in pairs(report.memory) do
    if has.fits ~= (has.max_tile_including_gaps <= has.tile_bytes
      and has.code <= has.code_limit) then
      fail(c, "IPU %d: %d bytes of %d, fits: %s", ipu, has.max_tile_including_gaps,
        has.tile_bytes, has.fits)
    end
    local most = math.max(0, table.unpack(live[ipu] and live[ipu].bytes or {}))
    if most > has.not_always_live + 1 then
      fail(c, "IPU %d: %d bytes live of %d", ipu, most, has.not_always_live)
    end
  end
end

-- ---- a report and its neighbours ------------------------------------------------------------

local function fullest(report)
  local most = 0
  for _, has in pairs(report.memory) do
    most = math.max(most, has.max_tile)
  end
  return most
end

-- What changes -> the bounds of the ratios of cycles and of bytes on the fullest tile.
-- Planners see no syncs: a recurrent layer's step back may be 7 % dearer for half the rows.
-- That of look-ups sees bytes alone: an update in half may be split, and is far dearer then.
-- Collectives of a small model that had one replica may be most of its time.
local ANY, SMALL = math.huge, 1e5
local NEIGHBOURS = {
  { "twice the batch", { 0.92, 2.2 }, { 0.98, 2.5 }, function(c)
    return { batch = 2 * c.batch }
  end },
  { "twice the iterations", { 1.9, 2.001 }, { 0.99, 1.02 }, function(c)
    return { iterations = 2 * c.iterations }
  end },
  { "twice the accumulation", { 1.05, 2.001 }, { 0.99, 1.02 }, function(c)
    return { accumulation = 2 * c.accumulation }
  end },
  { "twice the replicas", { 0.9999, 4 }, { 0.5, 1.1 }, function(c)
    return { replicas = 2 * c.replicas }
  end },
  { "no recomputation", { 0.5, 1.0005 }, { 0.98, ANY }, function(c)
    return c.strategy ~= "Serial" and { recompute = "NoRecompute" }
  end },
  { "state off the chip", { 1, ANY }, { 0, 1.01 }, function()
    return { off_chip = true }
  end },
  { "state sharded", { 0, ANY }, { 0, 1.05 }, function(c)
    return c.replicas > 1 and c.strategy ~= "Serial" and { shard = true }
  end },
  { "float", { 0.5, ANY }, { 0.97, ANY }, function(c)
    return c.half and { half = false }
  end },
  { "a Bow", { 0.98, 1.6 }, { 0.99, 1.01 }, function()
    return { chip = 21 }
  end },
  { "little memory for products", { 0.995, ANY }, { 0, 1.05 }, function()
    return { proportion = 0.02 }
  end },
  { "much memory for products", { 0, 1.005 }, { 0, ANY }, function()
    return { proportion = 1 }
  end },
  { "no pipeline", { 0.99, ANY }, { 0, ANY }, function(c)
    return c.strategy == "Pipelined" and c.recompute == "NoRecompute" and { strategy = "Sharded" }
  end },
  { "tensors off the chip", { 0.999, ANY }, { 0, 1.02 }, function(c)
    return c.strategy == "Serial" and { liveness = "OffChipAfterEachPhase" }
  end },
}

local function within(ratio, bounds)
  return ratio >= bounds[1] and ratio <= bounds[2]
end

local function checked(c)
  local report = compiled(c)
  steps(c, report)
  speed(c, report)
  memory(c, report)
  return report
end

local function compared(c)
  local report = checked(c)
  local bytes = fullest(report)
  for _, neighbour in ipairs(NEIGHBOURS) do
    local name, cycles, room, change = table.unpack(neighbour)
    local other = change(c)
    if other then
      for k, v in pairs(c) do
        other[k] = other[k] == nil and v or other[k]
      end
      local has = checked(other)
      local time, size = has.cycles / report.cycles, fullest(has) / bytes
      if not within(time, cycles) then
        fail(c, "%s: %.4f times the cycles", name, time)
      end
      if bytes > SMALL and not within(size, room) then
        fail(c, "%s: %.4f times the bytes", name, size)
      end
    end
  end
end

poptorch.setLogLevel("ERR")
local first, count = tonumber(os.getenv("SEED") or 1), tonumber(os.getenv("COUNT") or 100)
for n = first, first + count - 1 do
  math.randomseed(n)
  seed = n
  compared(system())
  collectgarbage()
end
print(("%d systems, %d failures"):format(count, failed))
os.exit(failed == 0, true)
