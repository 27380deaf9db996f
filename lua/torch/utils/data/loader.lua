--- torch.utils.data.DataLoader: batches of a dataset, read in the caller or by
--- worker processes (workers.lua).
---
---     for x, y in loader do … end        -- starting again: a new epoch
---     for x, y in loader:iter() do … end -- ends its workers when left early
---
--- An epoch is a list of tasks, made in the caller, each the samples of one
--- batch; a task is run here or in a worker. A dataset of tensors gives whole
--- batches by one row selection per tensor; any other is read sample by sample
--- and collated. What a dataset draws at random while a batch is read depends
--- on the epoch and the batch's number alone, so that it is the same with any
--- number of workers and when an epoch goes on in another process (position.lua). A
--- worker computes on one thread; with deterministic
--- algorithms so does a loader without workers while it reads a batch, so that
--- the bits of what a dataset or collate_fn computes are the same too.
--- Source: PyTorch 2.0 documentation, torch.utils.data.DataLoader.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local collate = require("torch.utils.data.collate")
local core = require("lupine.core")
local data = require("torch.utils.data.dataset")
local errors = require("lupine.base.errors")
local loop = require("torch.utils.data.loop")
local position = require("torch.utils.data.position")
local random = require("torch.utils.data.random")
local sampler = require("torch.utils.data.sampler")
local signatures = require("lupine.base.signatures")
local warn = require("lupine.base.warn")
local workers = require("torch.utils.data.workers")

--- Batches of a dataset: `for x, y in loader do … end`. batch_size = torch.none
--- switches batching off.
--- Source: PyTorch documentation, utils.data.DataLoader
---@class torch.utils.data.DataLoader
local DataLoader = class.new("DataLoader")
signatures.note(DataLoader, "DataLoader(dataset, batch_size=1, shuffle=None, sampler=None, "
  .. "batch_sampler=None, num_workers=0, collate_fn=None, pin_memory=False, drop_last=False, "
  .. "timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, "
  .. "prefetch_factor=None, persistent_workers=False, pin_memory_device='')", 1)

local NAMES = { "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers",
  "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn",
  "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
  "pin_memory_device" }
DataLoader._NAMES = NAMES

-- ---- arguments -------------------------------------------------------------

local function check_pinning(a)
  check.string(a.pin_memory_device, "DataLoader: pin_memory_device", { nullable = true })
  if a.pin_memory then
    warn("DataLoader: pin_memory: no device reads the host's memory by itself, "
      .. "so this has no effect")
  end
end

local function check_iterable(a)
  for _, name in ipairs({ "shuffle", "sampler", "batch_sampler" }) do
    errors.check(check.is_none(a[name]) or a[name] == false, "ValueError",
      "DataLoader with IterableDataset: %s: expected nil, got %s", name, check.describe(a[name]))
  end
end

local function check_exclusive(a)
  local given = check.is_none
  errors.check(given(a.sampler) or not a.shuffle, "ValueError",
    "DataLoader: sampler and shuffle are mutually exclusive")
  if not given(a.batch_sampler) then
    errors.check((a.batch_size or 1) == 1 and not a.shuffle and given(a.sampler)
      and not a.drop_last, "ValueError", "DataLoader: batch_sampler is mutually exclusive with "
      .. "batch_size, shuffle, sampler and drop_last")
  elseif a.batch_size ~= nil and given(a.batch_size) then
    errors.check(not a.drop_last, "ValueError",
      "DataLoader: batch_size = torch.none switches batching off; drop_last needs batches")
  end
end

local function check_kinds(a)
  local nullable = { nullable = true }
  check.bool(a.shuffle, "DataLoader: shuffle", nullable)
  check.bool(a.drop_last, "DataLoader: drop_last", nullable)
  check.int(a.batch_size, "DataLoader: batch_size",
    { nullable = true, min = 1, error = "ValueError" })
  random.generator(a.generator, "DataLoader")
  errors.check(check.is_none(a.collate_fn) or type(a.collate_fn) == "function", "TypeError",
    "DataLoader: collate_fn: expected a function, got %s", check.describe(a.collate_fn))
  errors.check(a.dataset ~= nil, "TypeError", "DataLoader: argument 'dataset' is missing")
end

local function or_nil(x)
  return not check.is_none(x) and x or nil
end

-- The fields that PyTorch's loader has, from checked arguments.
local function fill(self, a)
  self.dataset = a.dataset
  self.pin_memory = a.pin_memory or false
  self.generator = or_nil(a.generator)
  self.drop_last = a.drop_last or false
  self._drop_rest = self.drop_last -- of each worker's part of an iterable dataset
  self.batch_sampler, self.sampler = or_nil(a.batch_sampler), or_nil(a.sampler)
  if require("torch").is_tensor(self.sampler) then
    self.sampler = self.sampler:tolist()
  end
  self._iterable = data.IterableDataset:is(a.dataset)
  if not self.batch_sampler then
    self.batch_size = a.batch_size == nil and 1 or or_nil(a.batch_size)
  end
  if not self.sampler and not self.batch_sampler and not self._iterable then
    self.sampler = a.shuffle and sampler.RandomSampler(a.dataset, nil, nil, self.generator)
      or sampler.SequentialSampler(a.dataset)
  end
  if self.batch_size and not self._iterable then
    self.batch_sampler = sampler.BatchSampler(self.sampler, self.batch_size, self.drop_last)
  end
  self._batching = self.batch_size ~= nil or self.batch_sampler ~= nil
  self.collate_fn = or_nil(a.collate_fn)
    or (self._batching and collate.default_collate or collate.default_convert)
end

--- Takes PyTorch's parameters, by position or name.
---@param ... any
function DataLoader:init(...)
  local values = check.arguments("DataLoader", NAMES, nil, ...)
  local a = {}
  for i, name in ipairs(NAMES) do
    a[name] = values[i]
  end
  self:_setup(a)
end

--- The same from a table of all arguments.
function DataLoader:_setup(a)
  check_kinds(a)
  check_pinning(a)
  workers.setup(self, a)
  if data.IterableDataset:is(a.dataset) then
    check_iterable(a)
  end
  check_exclusive(a)
  fill(self, a)
end

-- ---- reading ---------------------------------------------------------------

-- One batch of samples as the loop's values.
local function collated(self, samples)
  if self.collate_fn == collate.default_collate then
    local batch = self.collate_fn(samples)
    if loop.is_list(samples[1]) then
      return table.unpack(batch)
    end
    return batch
  end
  local batch = loop.tuple(self.collate_fn(samples))
  errors.check(batch ~= nil, "TypeError", "DataLoader: collate_fn returned nil")
  return loop.spread(batch)
end

local function fetch(self, indices)
  local samples = {}
  for i, at in ipairs(indices) do
    samples[i] = data.item(self.dataset, at)
  end
  return collated(self, samples)
end

local function take(self, rows)
  return loop.spread(loop.tuple(self.dataset:_take(rows)))
end

local function index_rows(list)
  local torch = require("torch")
  return { index = torch.tensor(list, { dtype = torch.int64 }), n = #list }
end

-- Tasks of an epoch whose order is known at once, from number `first` on.
local function cut(self, first, n, index)
  local size = self.batch_sampler.batch_size
  local at = first * size
  return function()
    local count = math.min(size, n - at)
    if count <= 0 or count < size and self.batch_sampler.drop_last then
      return nil
    end
    local rows = { start = at, n = count, index = index and index:narrow(0, at, count) }
    at = at + count
    return rows
  end
end

-- A sampler's values. What one draws meanwhile is not between the caller's numbers,
-- so that how far workers read ahead changes none of them.
local function drawn(source, seed, where)
  local step = loop.iterate(source, where)
  if sampler.draws_at_once(source) or type(source) == "table" and not class.of(source) then
    return step
  end
  local stream = random.stream(~seed & math.maxinteger)
  return function()
    return stream(step)
  end
end

local function skip(step, n)
  for _ = 1, n do
    step()
  end
  return step
end

-- The tasks of an epoch from number `first` on: an index, a list of indices, or rows
-- of a dataset that gives whole batches.
local function tasks(self, seed, first)
  if not self._batching then
    return skip(drawn(self.sampler, seed, "DataLoader: sampler"), first)
  end
  local fast = self.collate_fn == collate.default_collate and data.takes(self.dataset)
  local batches = self.batch_sampler
  if fast and class.of(batches) == sampler.BatchSampler
    and sampler.draws_at_once(batches.sampler) then
    return cut(self, first, batches.sampler:_order())
  end
  local next_batch = skip(drawn(batches, seed, "DataLoader: batch_sampler"), first)
  return function()
    local indices = next_batch()
    if indices ~= nil then
      check.table(indices, "DataLoader: batch_sampler: a batch of indices")
      return fast and index_rows(indices) or indices
    end
  end
end

local function single(self, sample)
  return loop.spread(loop.tuple(self.collate_fn(sample)))
end

-- The loop's values of a task; a worker calls it too.
function DataLoader:_run(task)
  if not self._batching then
    return single(self, data.item(self.dataset, task))
  elseif task.n then
    return take(self, task)
  end
  return fetch(self, task)
end

-- The batches of an iterable dataset, or of a worker's part of it.
function DataLoader:_stream()
  local next_sample = loop.iterate(self.dataset)
  if not self.batch_size then
    return function()
      local sample = loop.tuple(next_sample())
      if sample ~= nil then
        return single(self, sample)
      end
    end
  end
  local ended = false
  return function()
    local samples = {}
    while not ended and #samples < self.batch_size do
      local sample = loop.tuple(next_sample())
      ended = sample == nil
      samples[#samples + 1] = sample
    end
    if #samples == 0 or #samples < self.batch_size and self._drop_rest then
      return nil
    end
    return collated(self, samples)
  end
end

local Task = {
  __close = function(self)
    core.set_task(self.before)
  end,
}

-- fn(...) as a worker would run it.
local function as_worker(fn, ...)
  local _ <close> = setmetatable({ before = core.set_task(true) }, Task)
  return fn(...)
end

-- The same with random numbers from a seed on; the caller's go on as if nothing had
-- been drawn.
local function seeded(seed, fn, ...)
  local _ <close> = random.keep()
  random.seed_all(seed)
  return as_worker(fn, ...)
end

local function stream_here(self, seed, first)
  local own = random.stream(seed)
  local stream = own(as_worker, self._stream, self)
  return skip(function()
    return own(as_worker, stream)
  end, first)
end

local function here(self, seed, first)
  if self._iterable then
    return stream_here(self, seed, first)
  end
  local next_task, k = tasks(self, seed, first), first - 1
  return function()
    local task = next_task()
    if task == nil then
      return nil
    end
    k = k + 1
    if type(task) == "table" and task.n then
      return as_worker(self._run, self, task) -- nothing is drawn
    end
    return seeded(workers.batch_seed(seed, k), self._run, self, task)
  end
end

--- An iterator over one epoch, as a generic for takes it; after load_state_dict over
--- the rest of the one that the state is of.
---@return fun(): any, ...
function DataLoader:iter()
  check.method(self, DataLoader, "iter")
  return position.loop(self, function(first)
    local seed = random.seed(self.generator)
    if self.num_workers == 0 then
      return here(self, seed, first)
    end
    return workers.iterate(self, seed, not self._iterable and tasks(self, seed, first) or nil,
      first)
  end)
end

--- Where the latest loop stands: how many batches it has given, and what its order
--- and its random numbers began with. Batches that workers have read ahead do not
--- count. Samplers and datasets with state_dict and load_state_dict are asked for
--- theirs when an epoch begins.
---@return table
function DataLoader:state_dict()
  check.method(self, DataLoader, "state_dict")
  return position.save(self)
end

--- The next loop is the rest of the epoch that the state is of: the same batches, for
--- any number of workers; what was read before is not read again, but of an iterable
--- dataset.
--- errors: TypeError, ValueError for what state_dict did not give
---@param state_dict table
function DataLoader:load_state_dict(state_dict)
  check.method(self, DataLoader, "load_state_dict")
  position.load(self, state_dict)
end

--- A loop that was left early counts as one in the middle, which a state goes on
--- with; after this the next one begins a new epoch there, too.
function DataLoader:end_epoch()
  check.method(self, DataLoader, "end_epoch")
  position.leave(self)
end

function DataLoader:__iter__()
  return self:iter()
end

DataLoader.__call = loop.call

local LOOP = "a DataLoader is no list: write `for x, y in loader do`"

function DataLoader.__index(self, key)
  errors.check(math.type(key) ~= "integer", "TypeError", LOOP)
  return getmetatable(self)[key]
end

function DataLoader.__pairs()
  errors.raise("TypeError", LOOP)
end

--- The number of batches of an epoch.
--- error: TypeError for an iterable dataset without __len__
---@return integer
function DataLoader:__len__()
  if not self._iterable then
    return data.len(self._batching and self.batch_sampler or self.sampler)
  end
  local n = data.len(self.dataset)
  if not self.batch_size then
    return n
  end
  return self.drop_last and n // self.batch_size or -(-n // self.batch_size)
end

function DataLoader.__len(self)
  return self:__len__()
end

return DataLoader
