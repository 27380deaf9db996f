--- poptorch.DataLoader: the loader whose batches are what one call of a
--- wrapped model consumes.
---
--- Elements of one batch: batch_size x device iterations x input groups of
--- replicas x gradient accumulation. With several processes each one reads its
--- own part of a map-style dataset. In the mode Sync data are read in the caller
--- (or its workers); the asynchronous modes have an accessor, whose process reads
--- the same batches in the same order, except that rebatching makes full ones out
--- of what the workers have left over.
--- Sources: PopTorch API reference, poptorch.DataLoader; user guide 5.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local Accessor = require("poptorch.data.accessor")
local Channel = require("lupine.tracepoints").Channel
local class = require("lupine.base.class")
local core = require("lupine.core")
local dataset = require("torch.utils.data.dataset")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local logging = require("poptorch.logging")
local loop = require("torch.utils.data.loop")
local nesting = require("lupine.base.nesting")
local rules = require("poptorch.options.rules")
local samplers = require("poptorch.data.samplers")
local signatures = require("lupine.base.signatures")
local TorchLoader = require("torch.utils.data.loader")
local warn = require("lupine.base.warn")
local Options = require("poptorch.options").Options
local tables = require("lupine.base.tables")

local M = { AsynchronousDataAccessor = Accessor }

local Mode = enums.DataLoaderMode

-- Samples of a batch.
local MOST = 2 ^ 40

-- ---- arguments -------------------------------------------------------------

local OWN = { "options", "dataset", "batch_size", "shuffle", "num_workers", "drop_last",
  "persistent_workers", "auto_distributed_partitioning", "mode", "async_options",
  "rebatched_worker_size", "batch_sampler" }
local NAMES = table.move(OWN, 1, #OWN, 1, {})
do
  local known = tables.set(OWN)
  for _, name in ipairs(TorchLoader._NAMES) do
    if not known[name] then
      NAMES[#NAMES + 1] = name
    end
  end
end

local function given(x)
  return not check.is_none(x)
end

local function check_async(a, combined)
  local options = given(a.async_options) and a.async_options or {}
  check.plain_table(options, "DataLoader: async_options")
  errors.check(options.rebatched_size == nil, "AssertionError",
    "DataLoader: async_options: rebatched_size is set by the loader itself")
  local allowed = tables.set(Accessor._OPTIONS)
  for name in pairs(options) do
    errors.check(allowed[name], "TypeError", "DataLoader: async_options: unknown option '%s'; "
      .. "allowed are %s%s", tostring(name), table.concat(Accessor._OPTIONS, ", "),
      check.nearest(name, Accessor._OPTIONS))
  end
  Accessor._checked(options, "DataLoader: async_options: ")
  local size = check.int(a.rebatched_worker_size, "DataLoader: rebatched_worker_size",
    { nullable = true, min = 1 })
  errors.check(not given(size) or not combined or size <= combined, "AssertionError",
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
    errors.check(not given(a.async_options) and not given(a.rebatched_worker_size),
      "AssertionError",
      "DataLoader: async_options and rebatched_worker_size need an asynchronous mode, got %s",
      tostring(a.mode))
  end
end

-- ---- the loader ------------------------------------------------------------

--- Batches of a dataset, each as many samples as one call of a wrapped model takes:
--- batch_size x device iterations x gradient accumulation x input groups of
--- replicas. Further parameters are those of torch.utils.data.DataLoader.
--- In the modes Async and AsyncRebatched another process, with num_workers workers
--- of its own, reads while the device runs; what comes is the memory of its ring of
--- buffers, used again for a later batch: clone what is to be kept. AsyncRebatched
--- (and Async with drop_last = false) fills batches up with what each worker of an
--- iterable dataset has left over. Workers live on from loop to loop unless
--- persistent_workers = false.
---@class poptorch.DataLoader: torch.utils.data.DataLoader
---@field options poptorch.Options
---@field combinedBatchSize integer?
local DataLoader = TorchLoader:extend("DataLoader")
M.DataLoader = DataLoader
signatures.note(DataLoader, "DataLoader(options, dataset, batch_size=1, shuffle=None, "
  .. "num_workers=0, drop_last=True, persistent_workers=None, "
  .. "auto_distributed_partitioning=True, mode=DataLoaderMode.Sync, async_options=None, "
  .. "rebatched_worker_size=None, batch_sampler=None, **kwargs)", 1)

-- An empty list or dictionary, as x is one or the other.
local function like(x)
  return #x > 0 and core.list({}) or {}
end

-- Objects that a parser knows as one like the last of them.
local function concatenated_objects(parts)
  local spec, columns = nil, {}
  for i, part in ipairs(parts) do
    local tensors = {}
    spec = arguments.flatten(part, "the batch of collate_fn", tensors)
    for k, entry in ipairs(tensors) do
      columns[k] = columns[k] or core.list({})
      columns[k][i] = entry.tensor
    end
  end
  local k = 0
  return arguments.rebuild(spec, function()
    k = k + 1
    return require("torch").cat(columns[k], 0)
  end)
end

-- Results of collate_fn as one: tensors are concatenated, lists, dictionaries and
-- objects that have a parser part by part; of anything else the last is taken.
local function concatenated(parts)
  local torch = require("torch")
  local last = parts[#parts]
  if torch.is_tensor(last) then
    return torch.cat(parts, 0)
  elseif arguments.is_object(last) then
    return concatenated_objects(parts)
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

--- An iterator over one epoch, as a generic for takes it; of an asynchronous mode
--- it gives the memory of the accessor's buffers.
---@return fun(): any, ...
function DataLoader:iter()
  check.method(self, DataLoader, "iter")
  if self._accessor then
    return self._accessor:iter()
  end
  return TorchLoader.iter(self)
end

--- As torch.utils.data.DataLoader's; of an asynchronous mode where the loop stands,
--- not the process that reads ahead.
---@return table
function DataLoader:state_dict()
  check.method(self, DataLoader, "state_dict")
  return (self._accessor or TorchLoader).state_dict(self._accessor or self)
end

--- As torch.utils.data.DataLoader's; an asynchronous mode starts another process.
---@param state_dict table
function DataLoader:load_state_dict(state_dict)
  check.method(self, DataLoader, "load_state_dict")
  return (self._accessor or TorchLoader).load_state_dict(self._accessor or self, state_dict)
end

--- The next loop begins a new epoch, though the last one was left early.
function DataLoader:end_epoch()
  check.method(self, DataLoader, "end_epoch")
  return (self._accessor or TorchLoader).end_epoch(self._accessor or self)
end

function DataLoader:__len__()
  if not self._rebatched or self._batches_given then
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
  nesting.check(parts[#parts], "DataLoader: the batch of collate_fn", "ValueError")
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
  a.batch_sampler = samplers.Combined(a.batch_sampler, factor, a.drop_last,
    factor > 1 and given(a.collate_fn))
  a.drop_last = nil
end

-- A batch for one call.
local function combined_size(batch_size, factor)
  errors.check(1.0 * batch_size * factor <= MOST, "ValueError", "DataLoader: batch_size x "
    .. "deviceIterations x gradientAccumulation x replicas must not be more than 2^40, got %d x %d",
    batch_size, factor)
  return batch_size * factor
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

local function warn_of_batches(self, batches, factor)
  local n = has_length(batches) and dataset.len(batches)
  if not self.drop_last and factor > 1 and (not n or n % factor ~= 0) then
    logging.warn("DataLoader: a call takes %d batches of the batch_sampler, which gives %s, and "
      .. "drop_last is false: the last batch will %s", factor, n or "an unknown number",
      n and ("have %d of them"):format(n % factor) or "perhaps have fewer")
  end
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

-- Rows of the batches that the accessor puts together: not more than there are.
local function rebatched_size(self)
  local size = self._rebatched and self.combinedBatchSize or nil
  if size and not self.drop_last and self.sampler and has_length(self.sampler) then
    size = math.min(size, math.max(dataset.len(self.sampler), 2))
  end
  return size
end

--- drop_last: of the whole dataset, or of a process's part. mode, async_options: in
--- another process, an AsynchronousDataAccessor of these options.
--- rebatched_worker_size: rows that workers read at a time where batches are put
--- together, the combined batch size unless given. batch_sampler: its batches, as
--- many as a call takes, are one; combinedBatchSize is known if it has a
--- batch_size.
--- error: poptorch.Error for batch_sampler with batch_size, shuffle or several
--- processes, and in the asynchronous modes if there is no first batch;
--- AssertionError for what cannot be split over processes
---@param ... any options, dataset and those of the class's signature, by position or
---  name
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
  if check.is_none(a.persistent_workers) then
    a.persistent_workers = (tonumber(a.num_workers) or 0) > 0
  end
  check_kinds(a)
  self:_configure(a)
  if dataset.Dataset:is(a.dataset) and not dataset.IterableDataset:is(a.dataset) then
    Channel("dataset"):instrument(a.dataset, "__getitem__")
  end
  a.options:_freeze("poptorch.DataLoader")
  if a.mode ~= Mode.Sync then
    local o = class.copy(given(a.async_options) and a.async_options or {})
    o.rebatched_size = rebatched_size(self)
    self._accessor = Accessor(self, o)
  end
end

-- Whether the accessor puts batches together, out of what the workers have left
-- over or of the smaller ones that they are to read: also to drop nothing.
local function rebatches(self, drop_last)
  return (self.combinedBatchSize or 1) > 1 and (self.mode == Mode.AsyncRebatched
    or self.mode == Mode.Async and not drop_last)
end

-- Batches that the accessor puts together are read in parts, of which none is
-- dropped.
local function use_rebatching(self, a, drop_last)
  local size = given(a.rebatched_worker_size) and a.rebatched_worker_size or nil
  self._rebatched = rebatches(self, drop_last)
  local reads = self._rebatched and not self._batches_given
  if reads then
    a.batch_size, a.drop_last = size or a.batch_size, false
  elseif size then
    logging.warn("DataLoader: rebatched_worker_size = %d has no effect: batches are read in parts "
      .. "in the mode AsyncRebatched, and in Async with drop_last = false, if they have several "
      .. "samples and no batch_sampler makes them", size)
  end
end

local function warn_of_sizes(self, batches, factor, iterable)
  if batches then
    warn_of_batches(self, batches, factor)
  elseif not iterable and self.batch_size then
    warn_of_rest(self, self.combinedBatchSize, dataset.len(self.sampler))
  elseif iterable and self.num_workers > 1 and not self.worker_init_fn then
    logging.warn("DataLoader: each of the %d workers reads the whole iterable dataset: its "
      .. "elements come %d times unless the dataset asks get_worker_info or a worker_init_fn "
      .. "splits it", self.num_workers, self.num_workers)
  end
end

function DataLoader:_configure(a)
  local factor = rules.input_factor(a.options)
  local iterable = dataset.IterableDataset:is(a.dataset)
  local batched = a.batch_size == nil or given(a.batch_size)
  local drop_last = a.drop_last
  self.options, self.mode = a.options, a.mode
  self.auto_distributed_partitioning = a.auto_distributed_partitioning
  local batches = given(a.batch_sampler) and a.batch_sampler
  self._batches_given = batches and true or nil
  if batches then
    use_batch_sampler(self, a, factor)
  elseif batched then
    a.batch_size = combined_size(a.batch_size or 1, factor)
    self.combinedBatchSize = a.batch_size
  else
    a.drop_last = nil
  end
  local parts = 1
  if not iterable and check_distributed(a, iterable, a.shuffle) and not given(a.batch_sampler) then
    parts = a.options.Distributed.numProcesses
    a.sampler = samplers.Part(dataset.len(a.dataset), self.combinedBatchSize or 1,
      a.options.Distributed, drop_last, a.shuffle and a.options.random_seed or nil)
    a.shuffle = nil
  elseif iterable then
    check_distributed(a, iterable, a.shuffle)
  end
  check_async(a, self.combinedBatchSize)
  use_rebatching(self, a, drop_last)
  self:_setup(a)
  self.drop_last = drop_last
  if drop_last and (batches or batched) then
    warn_of_none(batches or (iterable or parts > 1) and a.dataset or self.sampler,
      batches, batches and factor or self.combinedBatchSize, parts)
  end
  warn_of_sizes(self, batches, factor, iterable)
end

--- Ends the process of an asynchronous loader; in the mode Sync nothing happens.
function DataLoader:terminate()
  check.method(self, DataLoader, "terminate")
  if self._accessor then
    self._accessor:terminate()
  end
end

return M
