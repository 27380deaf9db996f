--- Constructors by type: torch.Tensor(…), torch.FloatTensor(…), LongTensor(…).
--- Sizes give a tensor of them (of zeros), a list or a tensor its values.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local d = core.dtypes
local TYPES = { FloatTensor = d.float32, DoubleTensor = d.float64, HalfTensor = d.float16,
  BFloat16Tensor = d.bfloat16, ByteTensor = d.uint8, CharTensor = d.int8, ShortTensor = d.int16,
  IntTensor = d.int32, LongTensor = d.int64, BoolTensor = d.bool }

local M = {}

-- A tensor of values, which the tracer of a model is told of.
local function of_values(name, values, to)
  local tensor, tracer = core.tensor(values, to), require("torch.nn").Module.tracer
  if tracer and tracer.made then
    tracer.made(tensor, name)
  end
  return tensor
end

--- The constructor.
---@param name string
---@param dtype any nil: the default dtype
---@return fun(...): torch.Tensor
function M.constructor(name, dtype)
  return function(...)
    local to = { dtype = dtype or core.get_default_dtype() }
    local first = ...
    if select("#", ...) == 1 and type(first) == "table" then
      return of_values(name, first, to)
    elseif select("#", ...) == 1 and core.is_tensor(first) then
      return first:to(to.dtype)
    end
    for i = 1, select("#", ...) do
      local size = select(i, ...)
      errors.check(math.type(size) == "integer", "TypeError",
        "%s(): argument %d must be a size (int); values are given as one list, got %s", name, i,
        type(size))
    end
    return require("torch").zeros({ ... }, to)
  end
end

for name, dtype in pairs(TYPES) do
  M[name] = M.constructor(name, dtype)
end

return M
