--- Transforms made of others: one after another, of more dimensions as one
--- point, of parts of a tensor, and reshaping.
--- Source: PyTorch documentation, torch.distributions.transforms.
local Transform = require("torch.distributions.transforms.base")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local function torch()
  return require("torch")
end

local function check_list(list, where)
  check.table(list, where)
  for i, t in ipairs(list) do
    errors.check(Transform:is(t), "TypeError", "%s[%d]: expected a Transform, got %s", where, i,
      check.describe(t))
  end
  return list
end

local function all_bijective(list)
  for _, t in ipairs(list) do
    if not t.bijective then
      return false
    end
  end
  return true
end

local function each_cached(list, size)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = size and t:with_cache(size) or t
  end
  return out
end

-- ---- one after another -------------------------------------------------------

-- Dimensions of a point before the first of the parts, or after the last.
local function dims(parts, first, last, step, to, from)
  local n = parts[first] and parts[first][from].event_dim or 0
  for i = first, last, step do
    n = math.max(n + parts[i][to].event_dim - parts[i][from].event_dim, parts[i][to].event_dim)
  end
  return { event_dim = n }
end

local Compose = Transform:extend("ComposeTransform")

--- t(x) = parts[n](…parts[1](x)).
---@param parts torch.distributions.Transform[]
---@param cache_size? integer
function Compose:init(parts, cache_size)
  Transform.init(self, cache_size)
  check_list(parts, "ComposeTransform: parts")
  rawset(self, "parts", each_cached(parts, self.cache_size == 1 and 1 or nil))
end

Compose._properties = {
  domain = function(self) return dims(self.parts, #self.parts, 1, -1, "domain", "codomain") end,
  codomain = function(self) return dims(self.parts, 1, #self.parts, 1, "codomain", "domain") end,
  bijective = function(self) return all_bijective(self.parts) end,
  sign = function(self)
    local sign = 1
    for _, part in ipairs(self.parts) do
      sign = sign * part.sign
    end
    return sign
  end,
}

function Compose._inverse_of(self)
  if not rawget(self, "_inv") then
    local back = {}
    for i = #self.parts, 1, -1 do
      back[#back + 1] = self.parts[i].inv
    end
    rawset(self, "_inv", Compose(back))
    rawset(self._inv, "_inv", self)
  end
  return self._inv
end

function Compose.with_cache(self, size)
  size = size or 1
  return self.cache_size == size and self or Compose(each_cached(self.parts, size), size)
end

function Compose.__call(self, x)
  for _, part in ipairs(self.parts) do
    x = part(x)
  end
  return x
end

function Compose:log_abs_det_jacobian(x, y)
  local n, total = self.domain.event_dim, torch().zeros_like(x)
  for i, part in ipairs(self.parts) do
    local out = i == #self.parts and y or part(x)
    local term = Transform._sum(part:log_abs_det_jacobian(x, out), n - part.domain.event_dim)
    total = i == 1 and term or total + term
    n, x = n + part.codomain.event_dim - part.domain.event_dim, out
  end
  return total
end

function Compose:forward_shape(shape)
  for _, part in ipairs(self.parts) do
    shape = part:forward_shape(shape)
  end
  return shape
end

function Compose:inverse_shape(shape)
  for i = #self.parts, 1, -1 do
    shape = self.parts[i]:inverse_shape(shape)
  end
  return shape
end

function Compose:_same(other)
  for i = 1, math.max(#self.parts, #other.parts) do
    if self.parts[i] ~= other.parts[i] then
      return false
    end
  end
  return true
end

function Compose.__tostring(self)
  local lines = {}
  for i, part in ipairs(self.parts) do
    lines[i] = "    " .. tostring(part)
  end
  return ("ComposeTransform(\n%s\n)"):format(table.concat(lines, ",\n"))
end
Compose.__eq = Transform.__eq

-- ---- more dimensions as one point -----------------------------------------------

local function define_independent(M)
  M._define("IndependentTransform", { "base_transform", "reinterpreted_batch_ndims" }, {
    _properties = {
      domain = function(self)
        return { event_dim = self.base_transform.domain.event_dim + self.count }
      end,
      codomain = function(self)
        return { event_dim = self.base_transform.codomain.event_dim + self.count }
      end,
      bijective = function(self) return self.base_transform.bijective end,
      sign = function(self) return self.base_transform.sign end,
    },
    _setup = function(self, inner, n)
      check_list({ inner }, "IndependentTransform: base_transform")
      rawset(self, "base_transform", inner:with_cache(self.cache_size))
      rawset(self, "count", check.int(n, "IndependentTransform: reinterpreted_batch_ndims",
        { min = 0 }))
      rawset(self, "reinterpreted_batch_ndims", self.count)
    end,
    _call = function(self, x)
      errors.check(x:dim() >= self.domain.event_dim, "ValueError", "Too few dimensions on input")
      return self.base_transform(x)
    end,
    _inverse = function(self, y)
      errors.check(y:dim() >= self.codomain.event_dim, "ValueError",
        "Too few dimensions on input")
      return self.base_transform.inv(y)
    end,
    log_abs_det_jacobian = function(self, x, y)
      return Transform._sum(self.base_transform:log_abs_det_jacobian(x, y), self.count)
    end,
    forward_shape = function(self, shape) return self.base_transform:forward_shape(shape) end,
    inverse_shape = function(self, shape) return self.base_transform:inverse_shape(shape) end,
    _same = function(self, other)
      return self.count == other.count and self.base_transform == other.base_transform
    end,
  })
end

-- ---- reshaping -------------------------------------------------------------------

local function numel(shape)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  return n
end

-- The last sizes of `shape` are those of `old`: `new` in their place.
local function replaced(shape, old, new)
  errors.check(#shape >= #old, "ValueError", "Too few dimensions on input")
  local out, cut = {}, #shape - #old
  for i = 1, #shape do
    errors.check(i <= cut or shape[i] == old[i - cut], "ValueError",
      "Shape mismatch: expected %s, got %s", tostring(core.Size(old)),
      tostring(core.Size({ table.unpack(shape, cut + 1) })))
    out[i] = i <= cut and shape[i] or nil
  end
  return table.move(new, 1, #new, cut + 1, out)
end

local function define_reshape(M)
  M._define("ReshapeTransform", { "in_shape", "out_shape" }, {
    bijective = true,
    _properties = {
      domain = function(self) return { event_dim = #self.in_shape } end,
      codomain = function(self) return { event_dim = #self.out_shape } end,
    },
    _setup = function(self, from, to)
      rawset(self, "in_shape", { table.unpack(check.table(from, "ReshapeTransform: in_shape")) })
      rawset(self, "out_shape", { table.unpack(check.table(to, "ReshapeTransform: out_shape")) })
      errors.check(numel(from) == numel(to), "ValueError",
        "in_shape, out_shape have different numbers of elements")
    end,
    _call = function(self, x) return x:reshape(self:forward_shape(x.shape)) end,
    _inverse = function(self, y) return y:reshape(self:inverse_shape(y.shape)) end,
    log_abs_det_jacobian = function(self, x)
      local shape = { table.unpack(x.shape, 1, x:dim() - #self.in_shape) }
      return torch().zeros(shape, { dtype = x.dtype })
    end,
    forward_shape = function(self, shape) return replaced(shape, self.in_shape, self.out_shape) end,
    inverse_shape = function(self, shape) return replaced(shape, self.out_shape, self.in_shape) end,
  })
end

-- ---- parts of a tensor -------------------------------------------------------------

-- The parts of x along the transforms' dimension; `stack`: slices without it.
local function parts_of(self, x)
  if not self.lengths then
    errors.check(x:size(self.dim) == #self.transforms, "AssertionError",
      "StackTransform: size %d of dimension %d must equal the number of transforms, %d",
      x:size(self.dim), self.dim, #self.transforms)
    return x:unbind(self.dim)
  end
  errors.check(x:size(self.dim) == self.length, "AssertionError",
    "CatTransform: size %d of dimension %d must equal the sum of lengths, %d", x:size(self.dim),
    self.dim, self.length)
  return x:split(self.lengths, self.dim)
end

local function mapped(self, f)
  return function(x, y)
    local xs, ys, out = parts_of(self, x), y and parts_of(self, y), {}
    for i, t in ipairs(self.transforms) do
      out[i] = f(t, xs[i], ys and ys[i])
    end
    return out
  end
end

local function forward(t, x) return t(x) end
local function backward(t, y) return t.inv(y) end
local function slope(t, x, y) return t:log_abs_det_jacobian(x, y) end

local function widest(self)
  local n = 0
  for _, t in ipairs(self.transforms) do
    n = math.max(n, t.event_dim)
  end
  return { event_dim = n }
end

local function define_parts(M)
  M._define("StackTransform", { "tseq", "dim" }, {
    _properties = {
      bijective = function(self) return all_bijective(self.transforms) end,
      domain = widest, codomain = widest,
    },
    _setup = function(self, list, dim)
      check_list(list, "StackTransform: tseq")
      rawset(self, "transforms", each_cached(list, self.cache_size == 1 and 1 or nil))
      rawset(self, "dim", check.int(dim or 0, "StackTransform: dim"))
    end,
    _call = function(self, x) return torch().stack(mapped(self, forward)(x), self.dim) end,
    _inverse = function(self, y) return torch().stack(mapped(self, backward)(y), self.dim) end,
    log_abs_det_jacobian = function(self, x, y)
      return torch().stack(mapped(self, slope)(x, y), self.dim)
    end,
  })

  M._define("CatTransform", { "tseq", "dim", "lengths" }, {
    _properties = {
      bijective = function(self) return all_bijective(self.transforms) end,
      domain = widest, codomain = widest,
    },
    _setup = function(self, list, dim, lengths)
      check_list(list, "CatTransform: tseq")
      rawset(self, "transforms", each_cached(list, self.cache_size == 1 and 1 or nil))
      rawset(self, "dim", check.int(dim or 0, "CatTransform: dim"))
      local own, total = {}, 0
      for i = 1, #list do
        own[i] = lengths and lengths[i] or 1
        total = total + own[i]
      end
      errors.check(not lengths or #lengths == #list, "AssertionError",
        "CatTransform: lengths: expected %d of them, got %d", #list, lengths and #lengths or 0)
      rawset(self, "lengths", own)
      rawset(self, "length", total)
    end,
    _call = function(self, x) return torch().cat(mapped(self, forward)(x), self.dim) end,
    _inverse = function(self, y) return torch().cat(mapped(self, backward)(y), self.dim) end,
    log_abs_det_jacobian = function(self, x, y)
      local n, terms = self.event_dim, mapped(self, slope)(x, y)
      for i, t in ipairs(self.transforms) do
        terms[i] = Transform._sum(terms[i], n - t.event_dim)
      end
      local dim = self.dim % x:dim() - x:dim() + n -- counted from the end
      if dim < 0 then
        return torch().cat(terms, dim)
      end
      local total = terms[1]
      for i = 2, #terms do
        total = total + terms[i]
      end
      return total
    end,
  })
end

return function(M)
  define_independent(M)
  define_reshape(M)
  define_parts(M)
  return { ComposeTransform = Compose, identity_transform = Compose({}) }
end
