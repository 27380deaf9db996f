--- Samplers: in which order a map-style dataset is read. A sampler has
--- `__iter__(self)`, which returns an iterator over indices from 0, and mostly
--- `__len__(self)`; it stands in a loop by itself.
---
--- The samplers here also have `_order()`, the whole epoch at once: the number
--- of indices and an int64 tensor of them (nil: 0 … n-1), so that a loader can
--- cut batches without a call per sample.
--- Source: PyTorch 2.0 documentation, torch.utils.data.Sampler.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local dataset = require("torch.utils.data.dataset")
local loop = require("torch.utils.data.loop")
local random = require("torch.utils.data.random")
local signatures = require("lupine.base.signatures")

local M = {}

--- The order in which a dataset is read, for sub-classes: `__iter__(self)` gives an
--- iterator over indices from 0, `__len__(self)` their number.
---@class torch.utils.data.Sampler
local Sampler = class.new("Sampler")
M.Sampler = Sampler
signatures.note(Sampler, "Sampler()", 1)

Sampler.__call = loop.call

function Sampler.__len(self)
  return dataset.len(self)
end

function Sampler.__iter__(self)
  errors.raise("NotImplementedError", "%s has no method __iter__(self)",
    getmetatable(self).__name)
end

-- ---- where it stands -------------------------------------------------------

local INNER = { "sampler", "batch_sampler", "batches" }

local function is_generator(x)
  local mt = type(x) == "userdata" and getmetatable(x)
  return mt and mt.__name == "torch.Generator"
end

-- A sampler within, if it has a state.
local function stateful(self, name)
  local inner = rawget(self, name)
  return class.of(inner) and inner.state_dict and inner.load_state_dict and inner
end

--- What the order of the epochs to come depends on: the state of a torch.Generator
--- in the field `generator`, the number in `epoch`, and the same of a sampler
--- within, in `sampler`, `batch_sampler` or `batches`. A class with more has its own
--- state_dict and load_state_dict.
---@return table
function Sampler:state_dict()
  local out = { epoch = math.type(self.epoch) and self.epoch or nil,
    generator = is_generator(self.generator) and self.generator:get_state() or nil }
  for _, name in ipairs(INNER) do
    local inner = stateful(self, name)
    out[name] = inner and inner:state_dict() or nil
  end
  return out
end

--- Takes over what state_dict gave.
--- error: TypeError for something else
---@param state table
function Sampler:load_state_dict(state)
  local where = getmetatable(self).__name .. ": load_state_dict: "
  check.table(state, where .. "state_dict")
  if state.generator ~= nil then
    errors.check(is_generator(self.generator), "ValueError",
      "%sthe state is of a sampler with a generator, this one has none", where)
    self.generator:set_state(state.generator)
  end
  if state.epoch ~= nil then
    self.epoch = check.int(state.epoch, where .. "epoch")
  end
  for _, name in ipairs(INNER) do
    local inner = stateful(self, name)
    if inner and state[name] ~= nil then
      inner:load_state_dict(state[name])
    end
  end
end

-- ---- samplers --------------------------------------------------------------

--- __iter__ of a sampler with `_order`.
---@return fun(): integer?
function M.iterate_order(self)
  local n, order = self:_order()
  local i = 0
  order = order and order:tolist()
  return function()
    i = i + 1
    if i <= n then
      return order and order[i] or not order and i - 1 or nil
    end
  end
end

--- In order.
---@class torch.utils.data.SequentialSampler: torch.utils.data.Sampler
local Sequential = Sampler:extend("SequentialSampler")
M.SequentialSampler = Sequential
signatures.note(Sequential, "SequentialSampler(data_source)", 1)

function Sequential:init(data_source)
  self.data_source = data_source
end

function Sequential:_order()
  return dataset.len(self.data_source), nil
end

Sequential.__iter__ = M.iterate_order

function Sequential:__len__()
  return dataset.len(self.data_source)
end

--- In random order; without replacement each epoch is a new permutation.
---@class torch.utils.data.RandomSampler: torch.utils.data.Sampler
local Random = Sampler:extend("RandomSampler")
M.RandomSampler = Random
signatures.note(Random, "RandomSampler(data_source, replacement=False, num_samples=None, "
  .. "generator=None)", 1)

function Random:init(...)
  local v = check.arguments("RandomSampler",
    { "data_source", "replacement", "num_samples", "generator" }, nil, ...)
  self.data_source = v[1]
  self.replacement = check.bool(v[2], "RandomSampler: replacement", { nullable = true }) or false
  self._num_samples = check.int(v[3], "RandomSampler: num_samples", { nullable = true, min = 1 })
  self.generator = random.generator(v[4], "RandomSampler")
  errors.check(self._num_samples or dataset.len(self.data_source) > 0, "ValueError",
    "RandomSampler: num_samples should be a positive integer value, but data_source is empty")
end

function Random:__len__()
  return self._num_samples or dataset.len(self.data_source)
end

function Random:_order()
  local wanted, n = self:__len__(), dataset.len(self.data_source)
  if not self.replacement and wanted == n then
    return n, random.permutation(n, self.generator)
  end
  errors.check(n > 0, "ValueError", "RandomSampler: data_source is empty")
  if self.replacement then
    return wanted, random.draws(n, wanted, self.generator)
  end
  local parts = {}
  for i = 1, -(-wanted // n) do
    parts[i] = random.permutation(n, self.generator)
  end
  return wanted, require("torch").cat(parts):narrow(0, 0, wanted)
end

Random.__iter__ = M.iterate_order

--- The given indices (a list or an int64 tensor) in random order.
---@class torch.utils.data.SubsetRandomSampler: torch.utils.data.Sampler
local SubsetRandom = Sampler:extend("SubsetRandomSampler")
M.SubsetRandomSampler = SubsetRandom
signatures.note(SubsetRandom, "SubsetRandomSampler(indices, generator=None)", 1)

function SubsetRandom:init(...)
  local torch = require("torch")
  local v = check.arguments("SubsetRandomSampler", { "indices", "generator" }, nil, ...)
  self.indices = v[1]
  self._index = torch.is_tensor(v[1]) and v[1]
    or torch.tensor(check.table(v[1], "SubsetRandomSampler: indices"), { dtype = torch.int64 })
  self.generator = random.generator(v[2], "SubsetRandomSampler")
end

function SubsetRandom:__len__()
  return self._index:size(0)
end

function SubsetRandom:_order()
  local n = self:__len__()
  return n, self._index:index_select(0, random.permutation(n, self.generator))
end

SubsetRandom.__iter__ = M.iterate_order

--- Indices 0 … #weights-1, each as likely as its weight.
---@class torch.utils.data.WeightedRandomSampler: torch.utils.data.Sampler
local Weighted = Sampler:extend("WeightedRandomSampler")
M.WeightedRandomSampler = Weighted
signatures.note(Weighted, "WeightedRandomSampler(weights, num_samples, replacement=True, "
  .. "generator=None)", 1)

function Weighted:init(...)
  local torch = require("torch")
  local v = check.arguments("WeightedRandomSampler",
    { "weights", "num_samples", "replacement", "generator" }, nil, ...)
  self.weights = torch.as_tensor(v[1], { dtype = torch.float64 })
  errors.check(self.weights:dim() == 1, "ValueError",
    "WeightedRandomSampler: weights: expected a list of numbers, got %d dimensions",
    self.weights:dim())
  self.num_samples = check.int(v[2], "WeightedRandomSampler: num_samples",
    { min = 1, error = "ValueError" })
  self.replacement = v[3] == nil or check.bool(v[3], "WeightedRandomSampler: replacement",
    { error = "ValueError" })
  self.generator = random.generator(v[4], "WeightedRandomSampler")
end

function Weighted:__len__()
  return self.num_samples
end

function Weighted:_order()
  return self.num_samples, require("torch").multinomial(self.weights, self.num_samples,
    self.replacement, { generator = self.generator })
end

Weighted.__iter__ = M.iterate_order

--- The part of one process, every num_replicas-th index of an order that `seed`
--- and the epoch fix; padded from the start (or cut short) so that all parts are
--- equal. Call set_epoch before each epoch.
---@class torch.utils.data.DistributedSampler: torch.utils.data.Sampler
local Distributed = Sampler:extend("DistributedSampler")
M.DistributedSampler = Distributed
signatures.note(Distributed, "DistributedSampler(dataset, num_replicas, rank, shuffle=True, "
  .. "seed=0, drop_last=False)", 1)

function Distributed:init(...)
  local v = check.arguments("DistributedSampler",
    { "dataset", "num_replicas", "rank", "shuffle", "seed", "drop_last" }, nil, ...)
  local bad = { error = "ValueError" }
  self.dataset = v[1]
  self.num_replicas = check.int(v[2], "DistributedSampler: num_replicas",
    { min = 1, error = "ValueError" })
  self.rank = check.int(v[3], "DistributedSampler: rank",
    { min = 0, max = self.num_replicas - 1, error = "ValueError" })
  self.shuffle = v[4] == nil or check.bool(v[4], "DistributedSampler: shuffle", bad)
  self.seed = check.int(v[5] or 0, "DistributedSampler: seed", bad)
  self.drop_last = check.bool(v[6] or false, "DistributedSampler: drop_last", bad)
  self.epoch = 0
end

--- Another order from now on.
function Distributed:set_epoch(epoch)
  self.epoch = check.int(epoch, "set_epoch: epoch", { min = 0 })
end

function Distributed:__len__()
  local n = dataset.len(self.dataset)
  return self.drop_last and n // self.num_replicas or -(-n // self.num_replicas)
end

function Distributed:_order()
  local torch = require("torch")
  local n, each = dataset.len(self.dataset), self:__len__()
  local order = torch.arange(n)
  if self.shuffle then
    order = random.permutation(n, torch.Generator():manual_seed(self.seed + self.epoch))
  end
  if each > 0 then
    local mine = torch.arange(each) * self.num_replicas + self.rank
    order = order:index_select(0, mine % n)
  end
  return each, order
end

Distributed.__iter__ = M.iterate_order

--- Lists of batch_size indices of another sampler.
---@class torch.utils.data.BatchSampler: torch.utils.data.Sampler
local Batch = Sampler:extend("BatchSampler")
M.BatchSampler = Batch
signatures.note(Batch, "BatchSampler(sampler, batch_size, drop_last)", 1)

--- Whether all that a sampler draws is drawn when a loop over it starts: those of
--- this file and what is made of them.
---@param x any
---@return boolean
function M.draws_at_once(x)
  local cls = class.of(x)
  if cls == Batch then
    return M.draws_at_once(x.sampler)
  end
  return cls and cls._order ~= nil and cls.__iter__ == M.iterate_order
end

function Batch:init(...)
  local v = check.arguments("BatchSampler", { "sampler", "batch_size", "drop_last" }, nil, ...)
  self.sampler = v[1]
  self.batch_size = check.int(v[2], "BatchSampler: batch_size", { min = 1, error = "ValueError" })
  self.drop_last = check.bool(v[3], "BatchSampler: drop_last", { error = "ValueError" })
end

function Batch:__len__()
  local n = dataset.len(self.sampler)
  return self.drop_last and n // self.batch_size or -(-n // self.batch_size)
end

function Batch:__iter__()
  local next_index = loop.iterate(self.sampler, "BatchSampler: sampler")
  return function()
    local batch = {}
    while #batch < self.batch_size do
      local i = next_index()
      if i == nil then
        break
      end
      batch[#batch + 1] = i
    end
    local short = #batch < self.batch_size
    if #batch == 0 or short and self.drop_last then
      return nil
    end
    return batch
  end
end

return M
