--- The memory of tensors, of which a program has each by itself.
local errors = require("lupine.base.errors")

local M = {}

-- The addresses of a tensor's first element and behind its last.
local function extent(t)
  local first, last = t:data_ptr(), 0
  for i, size in ipairs(t.shape) do
    last = last + (size - 1) * t:stride(i - 1)
  end
  return first, t:numel() > 0 and first + (last + 1) * t:element_size() or first
end

local function extents(tensors)
  local out = {}
  for i, t in ipairs(tensors) do
    local first, after = extent(t)
    out[i] = { t = t, first = first, after = after }
  end
  return out
end

local function is_alone(t, list)
  local first, after = extent(t)
  for _, other in ipairs(list) do
    if other.first < after and first < other.after and not rawequal(other.t, t) then
      return false
    end
  end
  return true
end

-- Is it no part of a larger tensor?
local function is_whole(t)
  return not t._base or t._base:numel() == t:numel()
end

--- Parameters that are views of something else, and buffers that show all of it in
--- another form, get memory of their own, as what a program has of them.
--- Those that lie over another one stay as they are, and so does a buffer that is a
--- part of a larger tensor: it is read and written there.
---@param model torch.nn.Module
function M.separate(model)
  local all, views = {}, {}
  local function add(t, may)
    all[#all + 1] = t
    views[#views + 1] = may and (t._base or not t:is_contiguous()) and t or nil
  end
  for _, p in ipairs(model:parameters()) do
    add(p, true)
  end
  for _, b in ipairs(model:buffers()) do
    add(b, is_whole(b))
  end
  local list = #views > 0 and extents(all)
  for _, t in ipairs(views) do
    if is_alone(t, list) then
      require("torch").no_grad(function()
        t:set_(t:is_contiguous() and t:clone() or t:contiguous())
      end)
    end
  end
end

-- ---- inputs ------------------------------------------------------------------

local function greatest_divisor(a, b)
  while b ~= 0 do
    a, b = b, a % b
  end
  return a
end

-- The bytes that a tensor lies in: from, up to; its elements begin whole steps
-- from the first.
local function span(t)
  if t:numel() == 0 then
    return { from = 0, to = 0, step = 0, size = 0 }
  end
  local from, size, last, step = t:data_ptr(), t:element_size(), 0, 0
  for d, stride in ipairs(t:stride()) do
    last = last + (t.shape[d] - 1) * stride * size
    step = greatest_divisor(step, t.shape[d] > 1 and stride * size or 0)
  end
  return { from = from, to = from + last + size, step = step, size = size }
end

local function apart(a, b)
  local step = greatest_divisor(a.step, b.step)
  local ahead = step > 0 and (a.from - b.from) % step or 0
  return a.from >= b.to or b.from >= a.to or ahead >= b.size and ahead + a.size <= step
end

--- A program has a copy of each input: one that it writes may share no memory with
--- another, which would not see the write.
--- error: RuntimeError
---@param tensors torch.Tensor[]
---@param n integer how many there are
---@param written table<integer, any> by number of one that is written
---@param name_of fun(i: integer): string
function M.check_apart(tensors, n, written, name_of)
  for i in pairs(written) do
    local own = span(tensors[i])
    for k = 1, n do
      errors.check(k == i or apart(own, span(tensors[k])), "RuntimeError",
        "%s is written in place and shares memory with %s, which the compiled function has as "
        .. "two tensors: clone() one of them", name_of(i), name_of(k))
    end
  end
end

return M
