--- poptorch.DataLoader: the loader whose batches are what one call of a
--- wrapped model consumes.
---
--- Elements of one batch: batch_size x device iterations x input groups of
--- replicas x gradient accumulation. With several processes each one reads its
--- own part of a map-style dataset. Data are read in the caller; the
--- asynchronous modes give the same batches in the same order, except that
--- rebatching makes full ones out of what the workers have left over.
--- Sources: PopTorch API reference, poptorch.DataLoader; user guide 5.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local dataset = require("torch.utils.data.dataset")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local loop = require("torch.utils.data.loop")
local random = require("torch.utils.data.random")
local rules = require("poptorch.options.rules")
local sampler = require("torch.utils.data.sampler")
local signatures = require("lupine.base.signatures")
local TorchLoader = require("torch.utils.data.loader")
local warn = require("lupine.base.warn")
local Options = require("poptorch.options").Options

local M = {}

local Mode = enums.DataLoaderMode

-- ---- a process's part of a dataset -----------------------------------------

-- Which elements this process reads. With drop_last every process gets the
-- same number, whole batches; else all elements, the first processes one more.
-- Shuffled, all processes use one permutation per epoch, made of the seed, and
-- every second epoch the window lies at the end, so that left-overs get used.
local Part = sampler.Sampler:extend("DistributedSampler")

function Part:init(n, step, d, drop_last, seed)
  self.n, self.seed, self.epoch = n, seed, 0
  local processes = d.numProcesses
  if drop_last then
    self.count = step * (n // (step * processes))
    self.first = d.processId * self.count
    self.left = n - self.count * processes
  else
    local each, more = n // processes, n % processes
    self.count = each + (d.processId < more and 1 or 0)
    self.first = d.processId * each + math.min(d.processId, more)
    self.left = 0
  end
end

function Part:_order()
  local torch = require("torch")
  local epoch = self.epoch
  self.epoch = epoch + 1
  if not self.seed then
    return self.count, torch.arange(self.first, self.first + self.count)
  end
  local source = torch.Generator():manual_seed(self.seed * 1000003 + epoch)
  local shift = epoch % 2 == 1 and self.left or 0
  return self.count, random.permutation(self.n, source):narrow(0, self.first + shift, self.count)
end

function Part:__iter__()
  local _, order = self:_order()
  return loop.iterate(order:tolist())
end

function Part:__len__()
  return self.count
end

-- ---- several batches of a sampler as one -----------------------------------

-- Groups of `factor` batches: as one list of indices, or, separate, as a list of
-- the batches.
local Combined = sampler.Sampler:extend("CombinedBatchSampler")

function Combined:init(batches, factor, drop_last, separate)
  self.batches, self.factor, self.drop_last = batches, factor, drop_last
  self.separate = separate
end

local function append(self, group, batch)
  check.table(batch, "DataLoader: batch_sampler: a batch of indices")
  if self.separate then
    group[#group + 1] = batch
  else
    table.move(batch, 1, #batch, #group + 1, group)
  end
end

function Combined:__iter__()
  local next_batch = loop.iterate(self.batches, "DataLoader: batch_sampler")
  return function()
    local group, count = {}, 0
    while count < self.factor do
      local batch = next_batch()
      if batch == nil then
        break
      end
      append(self, group, batch)
      count = count + 1
    end
    if count == 0 or count < self.factor and self.drop_last then
      return nil
    end
    return group
  end
end

function Combined:__len__()
  local n = dataset.len(self.batches)
  return self.drop_last and n // self.factor or -(-n // self.factor)
end

-- ---- arguments -------------------------------------------------------------

local OWN = { "options", "dataset", "batch_size", "shuffle", "num_workers", "drop_last",
  "persistent_workers", "auto_distributed_partitioning", "mode", "async_options",
  "rebatched_worker_size", "batch_sampler" }
local NAMES = table.move(OWN, 1, #OWN, 1, {})
do
  local known = {}
  for _, name in ipairs(OWN) do
    known[name] = true
  end
  for _, name in ipairs(TorchLoader._NAMES) do
    if not known[name] then
      NAMES[#NAMES + 1] = name
    end
  end
end

local ACCESSOR = { "buffer_size", "miss_sleep_time_in_ms", "load_indefinitely", "early_preload",
  "sharing_strategy" }

local function check_async(a, combined)
  local options = a.async_options or {}
  check.plain_table(options, "DataLoader: async_options")
  errors.check(options.rebatched_size == nil, "AssertionError",
    "DataLoader: async_options: rebatched_size is set by the loader itself")
  local allowed = {}
  for _, name in ipairs(ACCESSOR) do
    allowed[name] = true
  end
  for name in pairs(options) do
    errors.check(allowed[name], "TypeError", "DataLoader: async_options: unknown option '%s'; "
      .. "allowed are %s%s", tostring(name), table.concat(ACCESSOR, ", "),
      check.nearest(name, ACCESSOR))
  end
  local nullable = { nullable = true, min = 1 }
  check.int(options.buffer_size, "DataLoader: async_options: buffer_size", nullable)
  check.number(options.miss_sleep_time_in_ms, "DataLoader: async_options: miss_sleep_time_in_ms",
    { nullable = true, min = 0 })
  check.enum(options.sharing_strategy, "DataLoader: async_options: sharing_strategy",
    enums.SharingStrategy, { nullable = true })
  local size = check.int(a.rebatched_worker_size, "DataLoader: rebatched_worker_size", nullable)
  errors.check(not size or not combined or size <= combined, "AssertionError",
    "DataLoader: rebatched_worker_size must be at most the combined batch size, got %s and %s",
    tostring(size), tostring(combined))
end

local function check_kinds(a)
  check.instance(a.options, "DataLoader: options", Options,
    { error = "TypeError", shown = "poptorch.Options" })
  errors.check(a.dataset ~= nil, "TypeError", "DataLoader: argument 'dataset' is missing")
  check.int(a.batch_size, "DataLoader: batch_size",
    { nullable = true, min = 1, error = "ValueError" })
  check.bool(a.shuffle, "DataLoader: shuffle", { nullable = true })
  check.bool(a.drop_last, "DataLoader: drop_last")
  check.bool(a.auto_distributed_partitioning, "DataLoader: auto_distributed_partitioning")
  check.enum(a.mode, "DataLoader: mode", enums.DataLoaderMode)
  if a.mode == Mode.Sync then
    errors.check(not a.async_options and not a.rebatched_worker_size, "AssertionError",
      "DataLoader: async_options and rebatched_worker_size need an asynchronous mode, got %s",
      tostring(a.mode))
  end
end

-- ---- the loader ------------------------------------------------------------

--- Batches of a dataset, each as many samples as one call of a wrapped model takes:
--- batch_size x device iterations x gradient accumulation x input groups of
--- replicas. Further parameters are those of torch.utils.data.DataLoader.
---@class poptorch.DataLoader: torch.utils.data.DataLoader
---@field options poptorch.Options
---@field combinedBatchSize integer?
local DataLoader = TorchLoader:extend("DataLoader")
M.DataLoader = DataLoader
signatures.note(DataLoader, "DataLoader(options, dataset, batch_size=1, shuffle=None, "
  .. "num_workers=0, drop_last=True, persistent_workers=None, "
  .. "auto_distributed_partitioning=True, mode=DataLoaderMode.Sync, async_options=None, "
  .. "rebatched_worker_size=None, batch_sampler=None, **kwargs)", 1)

local function given(x)
  return not check.is_none(x)
end

-- An empty list or dictionary, as x is one or the other.
local function like(x)
  return #x > 0 and core.list({}) or {}
end

-- Results of collate_fn as one: tensors are concatenated, lists and
-- dictionaries part by part; of anything else the last is taken.
local function concatenated(parts)
  local torch = require("torch")
  local last = parts[#parts]
  if torch.is_tensor(last) then
    return torch.cat(parts, 0)
  elseif type(last) ~= "table" or getmetatable(last) then
    return last
  end
  local out = like(last)
  for key in pairs(last) do
    local column = core.list({})
    for i, part in ipairs(parts) do
      column[i] = part[key]
    end
    out[key] = concatenated(column)
  end
  return out
end

-- The first tensor of a batch, which says how many rows it has.
local function first_tensor(batch)
  if require("torch").is_tensor(batch) then
    return batch
  end
  local found
  for _, part in pairs(type(batch) == "table" and batch or {}) do
    found = found or first_tensor(part)
  end
  return found
end

-- Rows of each tensor of a batch.
local function narrowed(batch, start, n)
  if require("torch").is_tensor(batch) then
    return batch:narrow(0, start, n):clone()
  elseif type(batch) ~= "table" or getmetatable(batch) then
    return batch
  end
  local out = like(batch)
  for key, part in pairs(batch) do
    out[key] = narrowed(part, start, n)
  end
  return out
end

-- Batches of `size` rows out of those that `next_batch` gives.
local function rebatched(next_batch, size, drop_last)
  local rest, n = nil, 0
  local function count(batch)
    local t = first_tensor(batch)
    errors.check(t and t:dim() > 0, "TypeError",
      "DataLoader: rebatching needs tensors with dimensions, got %s", check.describe(batch))
    return t:size(0)
  end
  return function()
    while n < size do
      local batch = loop.tuple(next_batch())
      if batch == nil then
        break
      end
      rest = rest and concatenated(core.list({ rest, batch })) or batch
      n = count(rest)
    end
    local batch, full = rest, n >= size
    if n > size then
      batch, rest, n = narrowed(rest, 0, size), narrowed(rest, size, n - size), n - size
    else
      rest, n = nil, 0
    end
    if full or not drop_last then
      return loop.spread(batch)
    end
  end
end

function DataLoader:iter()
  local step, state, control, guard = TorchLoader.iter(self)
  if self._rebatched then
    step = rebatched(step, self.combinedBatchSize, self.drop_last)
  end
  return step, state, control, guard
end

function DataLoader:__len__()
  if not self._rebatched then
    return TorchLoader.__len__(self)
  end
  local n, size = dataset.len(self._iterable and self.dataset or self.sampler),
    self.combinedBatchSize
  return self.drop_last and n // size or -(-n // size)
end

-- A collate_fn sees one batch of the batch_sampler at a time: its results are
-- concatenated.
function DataLoader:_run(task)
  if not self.batch_sampler or not self.batch_sampler.separate then
    return TorchLoader._run(self, task)
  end
  local parts = core.list({})
  for i, indices in ipairs(task) do
    parts[i] = loop.tuple(TorchLoader._run(self, indices))
  end
  return loop.spread(concatenated(parts))
end

-- batch_sampler: its batches, as many as one call takes, are one.
local function use_batch_sampler(self, a, factor)
  errors.check(a.batch_size == nil and not a.shuffle, "Error",
    "DataLoader: batch_sampler is mutually exclusive with batch_size and shuffle")
  errors.check(a.options.Distributed.numProcesses == 1 or not a.auto_distributed_partitioning,
    "Error", "DataLoader: batch_sampler cannot be split over %d processes: pass "
    .. "auto_distributed_partitioning = false and a sampler of this process's part",
    a.options.Distributed.numProcesses)
  local size = class.of(a.batch_sampler) and a.batch_sampler.batch_size
  self.combinedBatchSize = size and size * factor or nil
  a.batch_sampler = Combined(a.batch_sampler, factor, a.drop_last,
    factor > 1 and given(a.collate_fn))
  a.drop_last = nil
end

local function check_distributed(a, iterable, shuffled)
  local d = a.options.Distributed
  if d.numProcesses <= 1 or not a.auto_distributed_partitioning then
    return false
  end
  errors.check(not iterable, "AssertionError",
    "DataLoader: an IterableDataset cannot be split over %d processes: pass "
    .. "auto_distributed_partitioning = false and let each process read its own part",
    d.numProcesses)
  errors.check(not given(a.sampler), "AssertionError",
    "DataLoader: sampler cannot be split over %d processes: pass "
    .. "auto_distributed_partitioning = false", d.numProcesses)
  if shuffled then
    errors.check(a.options.random_seed, "AssertionError",
      "DataLoader: shuffle with %d processes needs the same seed everywhere: call "
      .. "options:randomSeed(seed)", d.numProcesses)
    errors.check(a.batch_size == nil or given(a.batch_size), "AssertionError",
      "DataLoader: shuffle with %d processes needs a batch_size", d.numProcesses)
  end
  return true
end

local function warn_of_rest(self, combined, n)
  if not self.drop_last and combined > 1 and n % combined ~= 0 then
    logging.warn("DataLoader: the dataset has %d elements, no multiple of the combined batch "
      .. "size %d, and drop_last is false: the last batch will have %d elements", n, combined,
      n % combined)
  end
end

local function has_length(x)
  if class.of(x) then
    return x.__len__ ~= nil
  end
  return type(x) == "userdata" or type(x) == "table" and not getmetatable(x)
end

-- One call takes more than there is, and what is left over is dropped.
local function warn_of_none(source, batches, need, processes)
  local n = has_length(source) and dataset.len(source)
  if n and n < need * processes then
    local unit = batches and (n == 1 and "batch" or "batches") or n == 1 and "sample" or "samples"
    warn("DataLoader: %d %s, one call needs %d%s: the loader is empty; a call takes batch_size x "
      .. "deviceIterations x gradientAccumulation x replicas, drop_last is true", n, unit, need,
      processes > 1 and (" in each of %d processes"):format(processes) or "")
  end
end

function DataLoader:init(...)
  local values = check.arguments("DataLoader", NAMES, { async_options = true }, ...)
  local a = {}
  for i, name in ipairs(NAMES) do
    a[name] = values[i]
  end
  a.drop_last = a.drop_last == nil or a.drop_last
  a.auto_distributed_partitioning = a.auto_distributed_partitioning == nil
    or a.auto_distributed_partitioning
  a.mode = a.mode or Mode.Sync
  check_kinds(a)
  self:_configure(a)
  a.options:_freeze("poptorch.DataLoader")
end

-- Whether full batches are put together out of what workers have left over, or
-- of the smaller batches that they are to read. An asynchronous loader that is
-- to drop nothing does so, too. Else each batch is full as it is read.
local function rebatches(self, a, iterable)
  local combined = self.combinedBatchSize
  local wanted = a.mode == Mode.AsyncRebatched
    or a.mode == Mode.Async and not a.drop_last and (combined or 1) > 1
  return wanted and a.batch_size ~= nil and given(a.batch_size)
    and (iterable or a.rebatched_worker_size ~= nil)
end

function DataLoader:_configure(a)
  local factor = rules.input_factor(a.options)
  local iterable = dataset.IterableDataset:is(a.dataset)
  local batched = a.batch_size == nil or given(a.batch_size)
  local drop_last = a.drop_last
  self.options, self.mode = a.options, a.mode
  self.auto_distributed_partitioning = a.auto_distributed_partitioning
  local batches = given(a.batch_sampler) and a.batch_sampler
  if batches then
    use_batch_sampler(self, a, factor)
  elseif batched then
    a.batch_size = (a.batch_size or 1) * factor
    self.combinedBatchSize = a.batch_size
  else
    a.drop_last = nil
  end
  local parts = 1
  if not iterable and check_distributed(a, iterable, a.shuffle) and not given(a.batch_sampler) then
    parts = a.options.Distributed.numProcesses
    a.sampler = Part(dataset.len(a.dataset), self.combinedBatchSize or 1, a.options.Distributed,
      drop_last, a.shuffle and a.options.random_seed or nil)
    a.shuffle = nil
  elseif iterable then
    check_distributed(a, iterable, a.shuffle)
  end
  check_async(a, self.combinedBatchSize)
  self._rebatched = rebatches(self, a, iterable)
  if self._rebatched then
    a.batch_size, a.drop_last = a.rebatched_worker_size or a.batch_size, false
  end
  self:_setup(a)
  self.drop_last = drop_last
  if drop_last and (batches or batched) then
    warn_of_none(batches or (iterable or parts > 1) and a.dataset or self.sampler,
      batches, batches and factor or self.combinedBatchSize, parts)
  end
  if not iterable and batched and not given(a.batch_sampler) then
    warn_of_rest(self, self.combinedBatchSize, dataset.len(self.sampler))
  end
end

--- Stops the worker process of an asynchronous loader. There is none: batches
--- are made in the caller.
function DataLoader.terminate() end

return M
