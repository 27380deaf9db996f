--- From a list of samples to one batch.
--- Source: PyTorch 2.0 documentation, torch.utils.data, "collate_fn".
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local nesting = require("lupine.base.nesting")

local M = {}

local collate

local function collate_numbers(batch)
  local torch = require("torch")
  local dtype = torch.int64
  for i, x in ipairs(batch) do
    errors.check(type(x) == "number", "TypeError",
      "default_collate: sample %d is a number in the first sample of the batch, here %s", i - 1,
      check.describe(x))
    if math.type(x) == "float" then
      dtype = torch.float64
    end
  end
  return torch.tensor(batch, { dtype = dtype })
end

local function column(batch, key)
  local values = core.list({})
  for i, sample in ipairs(batch) do
    errors.check(type(sample) == "table" and sample[key] ~= nil,
      type(key) == "string" and "KeyError" or "RuntimeError",
      "default_collate: each sample of a batch should have the same parts; sample %d has no %s",
      i - 1, math.type(key) and ("part %d"):format(key - 1) or ("'%s'"):format(tostring(key)))
    values[i] = sample[key]
  end
  return values
end

local function collate_tables(batch)
  local out = #batch[1] > 0 and core.list({}) or {}
  for key in pairs(batch[1]) do
    out[key] = collate(column(batch, key))
  end
  for i, sample in ipairs(batch) do
    errors.check(#sample == #batch[1], "RuntimeError",
      "default_collate: each sample of a batch should be of equal size; sample %d has %d parts, "
      .. "the first has %d", i - 1, #sample, #batch[1])
  end
  return out
end

function collate(batch)
  local torch = require("torch")
  local first = batch[1]
  if torch.is_tensor(first) then
    return torch.stack(batch, 0)
  elseif type(first) == "number" then
    return collate_numbers(batch)
  elseif type(first) == "boolean" then
    return torch.tensor(batch)
  elseif type(first) == "string" then
    return batch
  elseif type(first) == "table" and not getmetatable(first) then
    return collate_tables(batch)
  end
  return errors.raise("TypeError", "default_collate: samples must be tensors, numbers, booleans, "
    .. "strings, lists or dictionaries of them; found %s", check.describe(first))
end

--- A list of samples as one batch: tensors are stacked, whole numbers become
--- int64, others float64, strings stay a list; lists and dictionaries are
--- taken apart and each part collated.
---@param batch any[]
---@return any
function M.default_collate(batch)
  errors.check(type(batch) == "table" and #batch > 0, "ValueError",
    "default_collate: batch: expected a list of samples, got %s", check.describe(batch))
  nesting.check(batch[1], "default_collate: sample 0", "ValueError") -- the others follow it
  return collate(batch)
end

--- What a loader that does not batch does to a sample: nothing.
--- Source: PyTorch documentation, utils.data.default_convert
---@param data any
---@return any data
function M.default_convert(data)
  return data
end

return M
