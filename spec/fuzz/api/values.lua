--- Random arguments: mostly what a call might want, now and then what it must
--- refuse. All of them follow from one seed.
local core = require("lupine.core")
local torch = require("torch")

---@class spec.fuzz.Values
---@field shape integer[]  what most tensors of this call have
local Values = {}
Values.__index = Values

local FLOATS = { "float32", "float32", "float32", "float64", "float16", "bfloat16" }
local OTHERS = { "int64", "int64", "int32", "int16", "int8", "uint8", "bool" }
local SIZES = { 1, 2, 2, 3, 3, 4, 5, 7, 8, 16, 17 }
local INTS = { 0, 1, -1, 2, 3, -2, 4, 5, -3, 8 }
local EDGES = { math.maxinteger, math.mininteger, 1 << 62, 1 << 40, -(1 << 40), 1 << 31,
  (1 << 31) - 1, -(1 << 31), 1 << 32, 65537, 1000 }
local NUMBERS = { 0.0, 1.0, -1.0, 0.5, 2.0, -0.5, 1e-5, 0.1, 3.7 }
local ODD_NUMBERS = { 0 / 0, 1 / 0, -1 / 0, -0.0, 1e308, -1e308, 5e-324, 1e-40, 2.0 ^ 63 }
local WORDS = { "mean", "sum", "none", "batchmean", "constant", "reflect", "replicate", "circular",
  "tanh", "linear", "relu", "gelu", "floor", "trunc", "prod", "amax", "amin", "fro", "nuc",
  "reduced", "complete", "r", "left", "right", "ij", "xy", "ij,jk->ik", "ii->i", "ij->", "i,j",
  "...i,i->...", "nearest", "bilinear", "bicubic", "trilinear", "area", "same", "valid", "border",
  "zeros", "reflection", "gels", "gelsd", "gelsy", "gelss", "midpoint", "lower", "higher", "U",
  "", "abc", "float32", "cpu", "meta", "1:", "..., None", "%s", "\0" }
local MAX_ELEMENTS = 2048

--- A stream of arguments that `seed` decides.
---@param seed integer
---@return spec.fuzz.Values
function Values.new(seed)
  math.randomseed(seed, 0x5eed)
  local v = setmetatable({ notes = {} }, Values)
  v.shape = v:new_shape()
  return v
end

---@param p number
---@return boolean
function Values.chance(_, p)
  return math.random() < p
end

---@generic T
---@param list T[]
---@return T
function Values.pick(_, list)
  return list[math.random(#list)]
end

function Values:new_shape()
  local ndim = self:pick({ 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5 })
  local shape, n = {}, 1
  for i = 1, ndim do
    shape[i] = self:chance(0.06) and 0 or self:pick(SIZES)
    if n * shape[i] > MAX_ELEMENTS then
      shape[i] = 1
    end
    n = n * shape[i]
  end
  return shape
end

-- The shape of the call, or one that may go with it.
local function related(self)
  local shape = table.move(self.shape, 1, #self.shape, 1, {})
  local how = math.random(12)
  if how <= 6 or #shape == 0 then
    return shape
  elseif how == 7 then
    shape[math.random(#shape)] = 1
  elseif how == 8 then
    table.remove(shape, 1)
  elseif how == 9 then
    table.remove(shape)
  elseif how == 10 and #shape > 1 then
    shape[#shape], shape[#shape - 1] = shape[#shape - 1], shape[#shape]
  elseif how == 11 then
    return { shape[math.random(#shape)] }
  else
    shape[math.random(#shape)] = self:pick(SIZES)
  end
  return shape
end

local function count(shape)
  local n = 1
  for _, s in ipairs(shape) do
    n = n * s
  end
  return n
end

-- Elements of a plain tensor; sums of few halves are exact in every type.
local function elements(self, shape, dtype)
  local n = count(shape)
  local float = dtype.is_floating_point
  local how = math.random(10)
  local list = {}
  for i = 1, n do
    if not float then
      list[i] = math.random(0, 3)
    elseif how <= 6 then
      list[i] = math.random(-6, 6) / 2
    elseif how <= 8 then
      list[i] = math.random()
    else
      list[i] = self:pick(self:chance(0.2) and ODD_NUMBERS or NUMBERS)
    end
  end
  local t = torch.tensor(list, { dtype = float and torch.float64 or torch.int64 })
  if not float and how == 10 and n > 0 then
    t:fill_(self:pick(EDGES))
  end
  return t:to(dtype):reshape(shape)
end

-- The tensor again, laid out in memory in another way.
local function laid_out(self, t)
  local how = math.random(14)
  local n = t.ndim
  if how == 1 and n > 1 then
    return t:transpose(0, 1):contiguous():transpose(0, 1)
  elseif how == 2 and n > 0 then
    return torch.cat({ t, t }, n - 1):narrow(n - 1, t:size(n - 1), t:size(n - 1))
  elseif how == 3 and n > 0 then
    return torch.stack({ t, t }, n):select(n, 1)
  elseif how == 4 and n > 0 and t:size(0) > 0 then
    return t[{ torch.slice(0, 1) }]:expand(t.shape)
  elseif how == 5 and n == 1 and t:size(0) > 2 then
    return t:unfold(0, 2, 1) -- neighbours share elements
  elseif how == 6 and self:chance(0.1) then
    local rows = self:pick({ 1000, 70000, 1 << 31, 1 << 50 })
    for _, size in ipairs(t.shape) do -- as many elements as 2^50 allows
      rows = math.max(1, rows // math.max(1, size))
    end
    return t:unsqueeze(0):expand(rows, table.unpack(t.shape))
  elseif how == 7 and t:numel() > 0 then
    return t:as_strided({ 2, 2 }, { 0, 0 })
  end
  return t
end

---@param dtype? torch.dtype
---@param shape? integer[]
---@return torch.Tensor
function Values:tensor(dtype, shape)
  shape = shape or (self:chance(0.85) and related(self) or self:new_shape())
  local name = self:pick(self:chance(0.7) and FLOATS or OTHERS)
  dtype = dtype or torch[name]
  local t = elements(self, shape, dtype)
  if self:chance(0.3) then
    t = laid_out(self, t)
  end
  if dtype.is_floating_point and self:chance(0.2) then
    t:requires_grad_()
    if self:chance(0.5) and t:numel() <= MAX_ELEMENTS then
      t = t * 1
    end
  end
  return t
end

---@return integer
function Values:int()
  if self:chance(0.04) then
    return self:pick(EDGES)
  elseif self:chance(0.2) and #self.shape > 0 then
    return self:pick(self.shape)
  end
  return self:pick(INTS)
end

---@return number
function Values:number()
  return self:chance(0.1) and self:pick(ODD_NUMBERS) or self:pick(NUMBERS)
end

---@return integer[]
function Values:ints()
  if self:chance(0.25) then
    return table.move(self.shape, 1, #self.shape, 1, {})
  end
  local list = {}
  for i = 1, self:pick({ 0, 1, 1, 2, 2, 2, 3, 3, 4, 6, 13 }) do
    list[i] = self:int()
  end
  return list
end

---@return string
function Values:word()
  return self:pick(WORDS)
end

--- Something of no particular kind.
function Values:wrong()
  local how = math.random(17)
  if how == 1 then
    return {}
  elseif how == 2 then
    return { 1, "a", {} }
  elseif how == 3 then
    return self:word()
  elseif how == 4 then
    return true
  elseif how == 5 then
    return print
  elseif how == 6 then
    return coroutine.create(print)
  elseif how == 7 then
    return io.stdin
  elseif how == 8 then
    return torch.none
  elseif how == 9 then
    return torch.float16
  elseif how == 10 then
    return { x = 1, self = 2 }
  elseif how == 11 then
    return torch.Size(self:ints())
  elseif how == 12 then
    return self:number()
  elseif how == 13 then
    return self:int()
  elseif how == 14 then
    return torch.slice(self:chance(0.5) and self:int() or nil, self:int())
  elseif how == 15 then
    return setmetatable({}, { __index = error, __len = error })
  elseif how == 16 then
    return self:tensor()
  end
  return nil
end

local MAKERS = {
  Tensor = Values.tensor,
  Value = function(self)
    return self:chance(0.6) and self:tensor() or self:chance(0.5) and self:number() or self:int()
  end,
  ["Tensor[]"] = function(self)
    local list = {}
    for i = 1, self:pick({ 0, 1, 2, 2, 3 }) do
      list[i] = self:tensor()
    end
    return list
  end,
  int = Values.int,
  ["int[]"] = function(self)
    return self:chance(0.3) and self:int() or self:ints()
  end,
  float = Values.number,
  Scalar = function(self)
    return self:chance(0.5) and self:number() or self:int()
  end,
  bool = function(self)
    return self:chance(0.5)
  end,
  str = Values.word,
  ScalarType = function(self)
    return torch[self:pick(self:chance(0.5) and FLOATS or OTHERS)]
  end,
  Graph = function(self) -- bodies are traced, not given
    return self:wrong()
  end,
}

--- An argument of a form's kind, or once in a while anything.
---@param kind string
---@return any
function Values:of_kind(kind)
  if self:chance(0.03) then
    return self:wrong()
  end
  return MAKERS[kind](self)
end

--- An argument of some kind.
function Values:any()
  local how = math.random(10)
  if how <= 4 then
    return self:tensor()
  elseif how <= 6 then
    return self:int()
  elseif how == 7 then
    return self:ints()
  elseif how == 8 then
    return self:number()
  end
  return self:wrong()
end

--- A key for x[key].
function Values:key()
  local how = math.random(6)
  if how == 1 then
    return self:int()
  elseif how == 2 then
    return self:tensor()
  elseif how == 3 then
    local list = {}
    for i = 1, math.random(0, 3) do
      list[i] = self:chance(0.5) and self:int() or self:wrong() or torch.none
    end
    return list
  elseif how == 4 then
    return self:wrong() or torch.ellipsis
  end
  local parts = { "0", "1", "-1", ":", "1:", ":-1", "::2", "None", "...", ",", ", ", " ", "9",
    "99999999999999999999", "-", "::0", "::9223372036854775807", "x" }
  local text = {}
  for i = 1, math.random(1, 5) do
    text[i] = self:pick(parts)
  end
  return table.concat(text)
end

-- ---- in words ------------------------------------------------------------------

local function tensor_words(t)
  local text = ("%s %s strides %s offset %s%s"):format(tostring(t.dtype), tostring(t.shape),
    table.concat(t:stride(), ","), t:storage_offset(), t.requires_grad and " grad" or "")
  local few = t:numel() > 0 and t:numel() <= 8
  return few and text .. " " .. Values.words(t:detach():tolist()) or text
end

--- A value as a person may write it again.
---@param v any
---@return string
function Values.words(v)
  if core.is_tensor(v) then
    local ok, text = pcall(tensor_words, v)
    return ok and "<" .. text .. ">" or "<tensor>"
  elseif type(v) == "string" then
    return ("%q"):format(v)
  elseif type(v) == "table" and not getmetatable(v) then
    local parts = {}
    for k, x in pairs(v) do
      parts[#parts + 1] = (type(k) == "number" and "" or tostring(k) .. " = ") .. Values.words(x)
    end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  local ok, text = pcall(tostring, v)
  return ok and text or "<" .. type(v) .. ">"
end

return Values
