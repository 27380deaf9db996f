--- Datasets. A map-style one has `__getitem__(self, i)`, i from 0, and
--- `__len__(self)`; an iterable one has `__iter__(self)`.
---
--- Datasets of tensors also have `_take(rows)`, which makes a whole batch
--- without a call per sample; rows is {start, n} or {index = int64 tensor, n}.
--- Source: PyTorch 2.0 documentation, torch.utils.data.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local loop = require("torch.utils.data.loop")
local random = require("torch.utils.data.random")
local signatures = require("lupine.base.signatures")

local M = {}

local function is_tensor(x)
  return require("torch").is_tensor(x)
end

--- The number of samples of a dataset (or list, or tensor).
--- error: TypeError if it has none
---@param data any
---@return integer
function M.len(data)
  if is_tensor(data) then
    return data:size(0)
  elseif type(data) == "table" and not getmetatable(data) then
    return #data
  end
  errors.check(class.of(data) and data.__len__, "TypeError", "object of type '%s' has no __len__",
    class.of(data) and class.of(data).__name or type(data))
  return check.int(data:__len__(), "__len__", { min = 0, error = "ValueError" })
end

--- Sample i, from 0; a sample of several values as a list.
---@param data any
---@param i integer
---@return any
function M.item(data, i)
  if is_tensor(data) then
    return data[i]
  elseif type(data) == "table" and not getmetatable(data) then
    errors.check(i >= 0 and i < #data, "IndexError", "index %d of a list of %d samples", i, #data)
    return data[i + 1]
  end
  local sample = loop.tuple(data:__getitem__(i))
  errors.check(sample ~= nil, "TypeError", "%s.__getitem__(%s) returned nil",
    class.of(data) and class.of(data).__name or type(data), tostring(i))
  return sample
end

-- ---- base classes ----------------------------------------------------------

--- Samples by number, for sub-classes: `__getitem__(self, i)`, i from 0, and
--- `__len__(self)`.
---@class torch.utils.data.Dataset
local Dataset = class.new("Dataset")
M.Dataset = Dataset
signatures.note(Dataset, "Dataset()", 1)

-- dataset[i] is dataset:__getitem__(i), several values as a list. An integer in a
-- tensor is an index too, of other tensors __getitem__ makes what it can.
function Dataset.__index(self, key)
  if type(key) == "string" then
    return getmetatable(self)[key]
  elseif is_tensor(key) then
    local n = key:dim() == 0 and key:item()
    return loop.tuple(self:__getitem__(math.type(n) == "integer" and n or key))
  elseif type(key) == "number" then
    return loop.tuple(self:__getitem__(check.int(key, "an index of a dataset",
      { error = "IndexError" })))
  end
  return getmetatable(self)[key]
end

function Dataset.__len(self)
  return M.len(self)
end

function Dataset.__add(a, b)
  return M.ConcatDataset({ a, b })
end

function Dataset.__getitem__(self)
  errors.raise("NotImplementedError", "%s has no method __getitem__(self, i)",
    getmetatable(self).__name)
end

--- Samples one after another, for sub-classes: `__iter__(self)` gives an iterator.
---@class torch.utils.data.IterableDataset: torch.utils.data.Dataset
local IterableDataset = Dataset:extend("IterableDataset")
M.IterableDataset = IterableDataset
signatures.note(IterableDataset, "IterableDataset()", 1)

IterableDataset.__call = loop.call

function IterableDataset.__iter__(self)
  errors.raise("NotImplementedError", "%s has no method __iter__(self)",
    getmetatable(self).__name)
end

-- ---- tensors ---------------------------------------------------------------

--- Sample i is row i of each tensor.
---@class torch.utils.data.TensorDataset: torch.utils.data.Dataset
local TensorDataset = Dataset:extend("TensorDataset")
M.TensorDataset = TensorDataset
signatures.note(TensorDataset, "TensorDataset(*tensors)", 1)

function TensorDataset:init(...)
  local n = select("#", ...)
  self.tensors = { ... }
  errors.check(n > 0, "ValueError", "TensorDataset(tensors): expected tensors, got none")
  check.dense(self.tensors, "TensorDataset(tensors)", n)
  for i, t in ipairs(self.tensors) do
    errors.check(is_tensor(t) and t:dim() > 0, "TypeError",
      "TensorDataset(tensors): argument %d: expected a tensor with dimensions, got %s", i,
      is_tensor(t) and "one without" or check.describe(t))
    errors.check(t:size(0) == self.tensors[1]:size(0), "AssertionError",
      "TensorDataset(tensors): size mismatch between tensors: argument 1 has %d rows, "
      .. "argument %d has %d", self.tensors[1]:size(0), i, t:size(0))
  end
end

function TensorDataset:__getitem__(i)
  local sample = {}
  for k, t in ipairs(self.tensors) do
    sample[k] = t[i]
  end
  return table.unpack(sample)
end

function TensorDataset:__len__()
  return self.tensors[1]:size(0)
end

-- Batches are copies: changing one in place leaves the dataset as it is.
function TensorDataset:_take(rows)
  local batch = {}
  for k, t in ipairs(self.tensors) do
    batch[k] = rows.index and t:index_select(0, rows.index)
      or t:narrow(0, rows.start, rows.n):clone()
  end
  return loop.tuple(table.unpack(batch))
end

-- ---- parts and sums --------------------------------------------------------

--- The samples of a dataset at `indices` (a list or an int64 tensor).
---@class torch.utils.data.Subset: torch.utils.data.Dataset
local Subset = Dataset:extend("Subset")
M.Subset = Subset
signatures.note(Subset, "Subset(dataset, indices)", 1)

function Subset:init(dataset, indices)
  if is_tensor(indices) then
    indices = indices:tolist()
  end
  self.dataset = dataset
  self.indices = check.table(indices, "Subset: indices")
end

function Subset:__getitem__(i)
  local at = self.indices[i < 0 and #self.indices + i + 1 or i + 1]
  errors.check(at, "IndexError", "index %d of a subset of %d samples", i, #self.indices)
  return loop.spread(M.item(self.dataset, at))
end

function Subset:__len__()
  return #self.indices
end

-- Is there a fast way to whole batches?
local function takes(dataset)
  if Subset:is(dataset) then
    return takes(dataset.dataset)
  end
  return class.of(dataset) ~= nil and dataset._take ~= nil
end
M.takes = takes

function Subset:_take(rows)
  local torch = require("torch")
  if not self._index then
    self._index = torch.tensor(self.indices, { dtype = torch.int64 })
  end
  local index = rows.index and self._index:index_select(0, rows.index)
    or self._index:narrow(0, rows.start, rows.n)
  return self.dataset:_take({ index = index, n = rows.n })
end

--- The samples of several datasets, one dataset after another.
---@class torch.utils.data.ConcatDataset: torch.utils.data.Dataset
local ConcatDataset = Dataset:extend("ConcatDataset")
M.ConcatDataset = ConcatDataset
signatures.note(ConcatDataset, "ConcatDataset(datasets)", 1)

function ConcatDataset:init(...)
  local datasets = check.list("ConcatDataset", "datasets", ...)
  self.datasets = datasets
  errors.check(#datasets > 0, "AssertionError",
    "ConcatDataset: datasets should not be an empty iterable")
  self.cumulative_sizes = {}
  local n = 0
  for i, d in ipairs(datasets) do
    errors.check(not IterableDataset:is(d), "AssertionError",
      "ConcatDataset does not support IterableDataset (dataset %d)", i)
    n = n + M.len(d)
    self.cumulative_sizes[i] = n
  end
end

function ConcatDataset:__getitem__(i)
  local n = self:__len__()
  errors.check(i >= -n and i < n, i < 0 and "ValueError" or "IndexError",
    "absolute value of index should not exceed dataset length: index %d, length %d", i, n)
  i = i < 0 and n + i or i
  local low, high = 1, #self.datasets -- the first whose end lies behind i
  while low < high do
    local middle = (low + high) // 2
    if self.cumulative_sizes[middle] > i then
      high = middle
    else
      low = middle + 1
    end
  end
  return loop.spread(M.item(self.datasets[low], i - (self.cumulative_sizes[low - 1] or 0)))
end

function ConcatDataset:__len__()
  return self.cumulative_sizes[#self.cumulative_sizes]
end

--- Datasets of equal length side by side: sample i has the i-th samples of all,
--- as a list (StackDataset(a, b)) or by name (StackDataset({x = a, y = b})).
---@class torch.utils.data.StackDataset: torch.utils.data.Dataset
local StackDataset = Dataset:extend("StackDataset")
M.StackDataset = StackDataset
signatures.note(StackDataset, "StackDataset(*datasets)", 1)

function StackDataset:init(...)
  local first = ...
  local named = check.is_keywords(first)
  check.dense({ ... }, "StackDataset", select("#", ...))
  errors.check(not named or select("#", ...) == 1, "TypeError",
    "StackDataset: expected datasets, StackDataset(a, b), or one table of them by name")
  self.datasets = named and first or { ... }
  errors.check(next(self.datasets) ~= nil, "ValueError",
    "StackDataset: at least one dataset should be passed")
  for key, d in pairs(self.datasets) do
    errors.check(named or class.of(d) or type(d) ~= "table" or not class.of(d[1]), "TypeError",
      "StackDataset: expected datasets, StackDataset(a, b), got a list of them")
    self._length = self._length or M.len(d)
    errors.check(M.len(d) == self._length, "ValueError",
      "StackDataset: size mismatch between datasets: %s has %d samples, another %d",
      tostring(key), M.len(d), self._length)
  end
end

function StackDataset:__getitem__(i)
  local out = {}
  for key, d in pairs(self.datasets) do
    out[key] = M.item(d, i)
  end
  return loop.spread(out)
end

function StackDataset:__len__()
  return self._length
end

--- Iterable datasets one after another.
---@class torch.utils.data.ChainDataset: torch.utils.data.IterableDataset
local ChainDataset = IterableDataset:extend("ChainDataset")
M.ChainDataset = ChainDataset
signatures.note(ChainDataset, "ChainDataset(datasets)", 1)

function ChainDataset:init(...)
  self.datasets = check.list("ChainDataset", "datasets", ...)
  for i, d in ipairs(self.datasets) do
    errors.check(IterableDataset:is(d), "AssertionError",
      "ChainDataset only supports IterableDataset (dataset %d)", i)
  end
end

function ChainDataset:__iter__()
  local k, current = 0, nil
  local function step(first, ...)
    if first ~= nil then
      return first, ...
    end
    k = k + 1
    if self.datasets[k] then
      current = loop.iterate(self.datasets[k])
      return step(current())
    end
  end
  return function()
    if k > #self.datasets then
      return nil
    elseif current then
      return step(current())
    end
    return step()
  end
end

function ChainDataset:__len__()
  local n = 0
  for _, d in ipairs(self.datasets) do
    n = n + M.len(d)
  end
  return n
end

-- Fractions as counts: rounded down, what is left over one by one.
local function counts_of(lengths, n)
  local sum, whole = 0, true
  for _, x in ipairs(lengths) do
    check.number(x, "random_split: lengths", { min = 0 })
    sum = sum + x
    whole = whole and math.type(x) == "integer"
  end
  if whole or sum > 1 + 1e-9 then
    errors.check(whole and sum == n, "ValueError",
      "random_split: lengths: the sum %s does not equal the length of the dataset, %d", sum, n)
    return lengths
  end
  local counts, rest = {}, n
  for i, x in ipairs(lengths) do
    counts[i] = math.floor(n * x + 1e-9)
    rest = rest - counts[i]
  end
  local i = 0
  while rest > 0 and math.abs(sum - 1) < 1e-6 do
    counts[i % #counts + 1] = counts[i % #counts + 1] + 1
    i, rest = i + 1, rest - 1
  end
  return counts
end

local LENGTHS = { lengths = "list" }

--- Splits a dataset at random into parts without common samples: counts whose
--- sum is its length, or fractions whose sum is 1.
--- Source: PyTorch documentation, utils.data.random_split
---@param ... any dataset, lengths (a list), generator
---@return torch.utils.data.Subset[]
function M.random_split(...)
  local v = check.arguments("random_split", { "dataset", "lengths", "generator" }, LENGTHS, ...)
  local dataset, n = v[1], M.len(v[1])
  local counts = counts_of(check.table(v[2], "random_split: lengths"), n)
  local order = random.permutation(n, random.generator(v[3], "random_split")):tolist()
  local parts, at = {}, 0
  for i, count in ipairs(counts) do
    parts[i] = Subset(dataset, table.move(order, at + 1, at + count, 1, {}))
    at = at + count
  end
  return core.list(parts)
end

return M
