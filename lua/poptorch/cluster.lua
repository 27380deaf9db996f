--- Operators on sets of points, as torch_cluster has them: farthest point
--- sampling and nearest points.
---
--- Sources: PopTorch 3.4, poptorch.fps and poptorch.nearest; Qi et al.,
--- "PointNet++" (2017), for the sampling.
local check = require("lupine.base.check")
local control = require("lupine.control")
local core = require("lupine.core")
local define = require("poptorch.define")
local errors = require("lupine.base.errors")

local M = {}

local PE = { error = "Error" }

local function tensor(x, where)
  errors.check(core.is_tensor(x), "Error", "%s: expected a Tensor, got %s", where,
    check.describe(x))
  return x
end

local function torch()
  return require("torch")
end

-- `rows` points as rows of a matrix.
local function points(x, where)
  local dims = x:dim()
  errors.check(dims == 1 or dims == 2, "ValueError",
    "%s: expected a tensor of 1 or 2 dimensions, got %d", where, dims)
  return dims == 1 and x:reshape(-1, 1) or x
end

local function squares(x, row)
  return ((x - row) ^ 2):sum(1)
end

-- `count` of the points, the first at `start`, each as far as can be from all
-- before it: their numbers.
local function sample(x, start, count)
  local n = x.shape[1]
  local near = squares(x, x:index_select(0, start))
  local found = torch().zeros({ count }, { dtype = start.dtype })
  local place = torch().arange(count, { dtype = start.dtype })
  local all = torch().arange(n, { dtype = start.dtype })
  found = torch().where(place:eq(0), start, found)
  near = near:masked_fill(all:eq(start), -1)
  local out = control.loop(count - 1, function(distance, chosen, at)
    local next_one = distance:argmax():to(start.dtype):reshape(1)
    chosen = torch().where(place:eq(at), next_one, chosen)
    distance = torch().minimum(distance, squares(x, x:index_select(0, next_one)))
    return distance:masked_fill(all:eq(next_one), -1), chosen, at + 1
  end, { near, found, torch().ones({ 1 }, { dtype = start.dtype }) }, "fps")
  return out[2]
end

local function check_ptr(ptr, rows)
  errors.check(type(ptr) == "table" and not getmetatable(ptr) and #ptr >= 2, "Error",
    "fps: ptr: expected a list of at least 2 integers, got %s", check.describe(ptr))
  for i, at in ipairs(ptr) do
    check.int(at, ("fps: ptr: element %d"):format(i - 1),
      { error = "Error", outside = "Error", min = i > 1 and ptr[i - 1] or 0, max = rows })
  end
end

--- Farthest point sampling: of the points (rows) ptr[i] to ptr[i + 1] - 1 of src, for every
--- i, the share `ratio`, rounded up. The first is the first one or drawn; each
--- further one is the farthest from those chosen.
--- error: poptorch.Error for other kinds of arguments, a ptr that does not ascend within src
--- or a ratio not above 0 and at most 1
--- source: PopTorch 3.4, poptorch.fps
---@param ... any src, ptr (list of integers), ratio (0.5), random_start (false)
---@return torch.Tensor numbers of the chosen points
M.fps = define("fps(src, ptr, ratio=0.5, random_start=False)",
  function(src, ptr, ratio, random_start)
    tensor(src, "fps: src")
    local x = points(src, "fps: src")
    check_ptr(ptr, x.shape[1])
    ratio = check.number(ratio == nil and 0.5 or ratio, "fps: ratio", PE)
    errors.check(ratio > 0 and ratio <= 1, "Error",
      "fps: ratio: expected more than 0 and at most 1, got %s", check.describe(ratio))
    random_start = check.bool(random_start or false, "fps: random_start", PE)
    local parts = {}
    for i = 1, #ptr - 1 do
      local n = ptr[i + 1] - ptr[i]
      if n > 0 then
        local start = random_start and torch().randint(0, n, { 1 })
          or torch().zeros({ 1 }, { dtype = torch().int64 })
        parts[#parts + 1] = sample(x:narrow(0, ptr[i], n), start, math.ceil(ratio * n)) + ptr[i]
      end
    end
    errors.check(#parts > 0, "Error", "fps: ptr: expected points between two elements, got none")
    return torch().cat(parts)
  end, { ptr = "list" })

-- A list of batch numbers, which must ascend.
local function check_sorted(list, where)
  for i, nr in ipairs(list) do
    check.int(nr, ("%s: element %d"):format(where, i - 1), PE)
    errors.check(i == 1 or list[i - 1] <= nr, "ValueError", "%s: not sorted: %d follows %d", where,
      nr, list[i - 1] or 0)
  end
end

-- {[number] = true} of a list.
local function set_of(list, rows)
  local out = {}
  for i = 1, rows do
    out[list[i] or 0] = true
  end
  return out
end

local function check_lists(batch_x, batch_y, x, y)
  check_sorted(batch_x, "nearest: batch_x")
  check_sorted(batch_y, "nearest: batch_y")
  for _, pair in ipairs({ { batch_x, x, "x" }, { batch_y, y, "y" } }) do
    local list, of, name = table.unpack(pair)
    errors.check(#list == 0 or #list == of.shape[1], "ValueError",
      "nearest: batch_%s: expected %d elements, one for each row of %s, got %d", name, of.shape[1],
      name, #list)
  end
  local in_x, in_y = set_of(batch_x, x.shape[1]), set_of(batch_y, y.shape[1])
  for nr in pairs(in_x) do
    errors.check(in_y[nr], "ValueError", "nearest: batch_x has the batch %d, which batch_y has not",
      nr)
  end
  for nr in pairs(in_y) do
    errors.check(in_x[nr], "ValueError", "nearest: batch_y has the batch %d, which batch_x has not",
      nr)
  end
end

-- The batch numbers as a tensor: of a list, of none (all in batch 0).
local function batch_of(batch, rows, like, where)
  if core.is_tensor(batch) then
    errors.check(batch:dim() == 1 and batch.shape[1] == rows, "ValueError",
      "%s: expected a tensor of %d elements, one for each row, got %s", where, rows,
      check.describe(batch))
    return batch
  end
  local dtype = like and like.dtype or torch().int64
  return #batch > 0 and torch().tensor(batch, { dtype = dtype })
    or torch().zeros({ rows }, { dtype = dtype })
end

--- For each row of x the number of the nearest row of y, of those in the same batch:
--- batch_x and batch_y, lists or tensors, ascend and say which batch a row is in
--- (one is left out: all in batch 0).
--- error: poptorch.Error for other kinds of arguments, ValueError for rows of other lengths,
--- batch lists that are not sorted, of other lengths, or with other batches
--- source: PopTorch 3.4, poptorch.nearest
---@param ... any x, y, batch_x (none), batch_y (none)
---@return torch.Tensor
M.nearest = define("nearest(x, y, batch_x=None, batch_y=None)", function(x, y, batch_x, batch_y)
  x = points(tensor(x, "nearest: x"), "nearest: x")
  y = points(tensor(y, "nearest: y"), "nearest: y")
  errors.check(x.shape[2] == y.shape[2], "ValueError",
    "nearest: expected rows of one length, got %d in x and %d in y", x.shape[2], y.shape[2])
  for name, batch in pairs({ batch_x = batch_x, batch_y = batch_y }) do
    errors.check(core.is_tensor(batch) or type(batch) == "table" and not getmetatable(batch),
      "Error", "nearest: %s: expected a Tensor or a list, got %s", name, check.describe(batch))
  end
  batch_x, batch_y = batch_x or {}, batch_y or {}
  local listed_x, listed_y = not core.is_tensor(batch_x), not core.is_tensor(batch_y)
  if listed_x and listed_y then
    check_lists(batch_x, batch_y, x, y)
  end
  local distance = torch().cdist(x:float(), y:float())
  if not (listed_x and listed_y and #batch_x == 0 and #batch_y == 0) then
    local of_x = batch_of(batch_x, x.shape[1], not listed_y and batch_y, "nearest: batch_x")
    local of_y = batch_of(batch_y, y.shape[1], not listed_x and batch_x, "nearest: batch_y")
    distance = distance:masked_fill(of_x:unsqueeze(1):ne(of_y:unsqueeze(0)), math.huge)
  end
  return distance:argmin(1)
end, { batch_x = "list", batch_y = "list" })

return M
