--- What the transforms share: maps y = t(x) with an inverse t.inv and the log of
--- the absolute determinant of their derivative. One of one's own is a class:
---
---     local Cube = torch.distributions.transforms.Transform:extend("Cube")
---     Cube.bijective, Cube.sign = true, 1
---     function Cube:_call(x) return x ^ 3 end
---     function Cube:_inverse(y) return y:sign() * y:abs() ^ (1 / 3) end
---     function Cube:log_abs_det_jacobian(x, y) return (3 * x ^ 2):log() end
---
--- `domain.event_dim` and `codomain.event_dim` say how many dimensions are one
--- point (0 unless given). Source: PyTorch documentation,
--- torch.distributions.transforms.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")

---@class torch.distributions.Transform
---@field bijective boolean
---@field sign number|torch.Tensor of the derivative, where there is one
---@field domain {event_dim: integer}
---@field codomain {event_dim: integer}
---@field event_dim integer where both have the same
---@field inv torch.distributions.Transform
local Transform = class.new("Transform")
Transform.bijective = false
Transform.domain = { event_dim = 0 }
Transform.codomain = { event_dim = 0 }

--- Sums the last n dimensions.
---@param x torch.Tensor
---@param n integer
---@return torch.Tensor
function Transform._sum(x, n)
  for _ = 1, n do
    x = x:sum(-1)
  end
  return x
end

local Inverse

local function inverse_of(self)
  local inv = rawget(self, "_inv")
  if not inv then
    inv = Inverse(self)
    rawset(self, "_inv", inv)
  end
  return inv
end

function Transform.__index(self, key)
  local cls = getmetatable(self)
  if key == "inv" then
    return (cls._inverse_of or inverse_of)(self)
  elseif key == "event_dim" then
    local n = self.domain.event_dim
    errors.check(n == self.codomain.event_dim, "ValueError",
      "Please use either .domain.event_dim or .codomain.event_dim")
    return n
  end
  local computed = cls._properties and cls._properties[key]
  if computed then
    return computed(self)
  end
  return cls[key]
end

--- The last value of a transform with cache_size = 1 is kept, and its inverse.
---@param size? integer 0 or 1
function Transform:init(size)
  size = type(size) == "table" and size.cache_size or size or 0
  errors.check(size == 0 or size == 1, "ValueError", "cache_size must be 0 or 1, got %s",
    check.describe(size))
  rawset(self, "cache_size", size)
end

--- The same transform, with or without a kept value.
---@param size? integer 1 unless given
---@return torch.distributions.Transform
function Transform:with_cache(size)
  size = size or 1
  if self.cache_size == size then
    return self
  end
  local new = setmetatable({}, getmetatable(self))
  for key, value in next, self do
    new[key] = key ~= "_inv" and key ~= "_kept" and value or nil
  end
  Transform.init(new, size)
  return new
end

-- What a kept pair has beside `value`, else f(self, value).
local function through_cache(self, value, mine, other, f)
  if self.cache_size ~= 1 then
    return f(self, value)
  end
  local kept = rawget(self, "_kept")
  if not kept or not rawequal(kept[mine], value) then
    kept = { [mine] = value, [other] = f(self, value) }
    rawset(self, "_kept", kept)
  end
  return kept[other]
end

function Transform.__call(self, x)
  return through_cache(self, x, "x", "y", self._call)
end

function Transform:_inv_call(y)
  return through_cache(self, y, "y", "x", self._inverse)
end

for _, name in ipairs({ "_call", "_inverse", "log_abs_det_jacobian" }) do
  Transform[name] = function(self)
    errors.raise("NotImplementedError", "%s has no %s", getmetatable(self).__name, name)
  end
end

--- The shape of results for operands of `shape`.
---@param _ torch.distributions.Transform
---@param shape integer[]
---@return integer[]
function Transform.forward_shape(_, shape) return shape end

--- The shape of operands for results of `shape`.
---@param _ torch.distributions.Transform
---@param shape integer[]
---@return integer[]
function Transform.inverse_shape(_, shape) return shape end

function Transform.__tostring(self)
  return getmetatable(self).__name .. "()"
end

-- Of one class without options.
function Transform.__eq(a, b)
  return rawequal(a, b) or getmetatable(a) == getmetatable(b) and a:_same(b)
end

function Transform._same()
  return false
end

-- ---- the way back ----------------------------------------------------------

Inverse = Transform:extend("_InverseTransform")

function Inverse:init(transform)
  rawset(self, "_inv", transform)
  rawset(self, "cache_size", 0)
end

Inverse._properties = {
  domain = function(self) return self._inv.codomain end,
  codomain = function(self) return self._inv.domain end,
  bijective = function(self) return self._inv.bijective end,
  sign = function(self) return self._inv.sign end,
}

function Inverse.__call(self, y)
  return self._inv:_inv_call(y)
end

function Inverse:_inv_call(x)
  return self._inv(x)
end

function Inverse:log_abs_det_jacobian(x, y)
  return -self._inv:log_abs_det_jacobian(y, x)
end

function Inverse:with_cache(size)
  return self._inv:with_cache(size).inv
end

function Inverse:forward_shape(shape) return self._inv:inverse_shape(shape) end
function Inverse:inverse_shape(shape) return self._inv:forward_shape(shape) end
function Inverse:_same(other) return self._inv == other._inv end

function Inverse.__tostring(self)
  return ("_InverseTransform(%s)"):format(tostring(self._inv))
end

return Transform
