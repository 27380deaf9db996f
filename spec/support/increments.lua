--- The datasets of PopTorch's tests of its data loader.
local torch = require("torch")
local D = torch.utils.data

local M = {}

--- Samples full of their number.
M.Increment = D.Dataset:extend("Increment")

function M.Increment:init(shape, length, dtype)
  self.shape, self.length, self.dtype = shape, length, dtype or torch.float32
end

function M.Increment:__len__()
  return self.length
end

function M.Increment:__getitem__(i)
  return torch.full(self.shape, i, { dtype = self.dtype })
end

--- The same and their number as a label: two values, or a dictionary.
M.Labelled = M.Increment:extend("Labelled")

function M.Labelled:__getitem__(i)
  return torch.full(self.shape, i, { dtype = torch.float32 }),
    torch.full({ 1 }, i, { dtype = torch.int64 })
end

M.Dictionaries = M.Labelled:extend("Dictionaries")

function M.Dictionaries:__getitem__(i)
  local data, label = M.Labelled.__getitem__(self, i)
  return { data = data, label = label }
end

--- The same one after another, without and with a length.
M.Unsized = D.IterableDataset:extend("Unsized")

function M.Unsized:init(shape, length, dtype)
  self.shape, self.length, self.dtype, self.start = shape, length, dtype or torch.float32, 0
end

function M.Unsized:__iter__()
  local i = -1
  return function()
    i = i + 1
    return i < self.length and torch.full(self.shape, self.start + i, { dtype = self.dtype }) or nil
  end
end

M.Sized = M.Unsized:extend("Sized")

function M.Sized:__len__()
  return self.length
end

--- A worker_init_fn: each worker reads a part of an iterable dataset.
function M.split(id)
  local info = D.get_worker_info()
  local set, n = info.dataset, info.num_workers
  local each = -(-set.length // n)
  set.start = each * id
  set.length = id == n - 1 and set.length - each * (n - 1) or each
end

return M
