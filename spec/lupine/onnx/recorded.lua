--- Nodes with results of an independent source, a line each:
---
---     Conv 11 auto_pad=VALID strides=1,3 | 1,2,5,6 2,2,1,1 2 | 1,2,5,2:2.79933
---
--- operator, version, attributes | shapes of inputs ("-" is one that is left out) | shape
--- and digest of each result ("-" is one that is not looked at). Element i of input k is
--- sin(k + 0.37 i); the digest is the sum of the elements times cos(0.11 i). An input of
--- the form i:7,2,3 has these integers. A line that begins with a space continues the one
--- before.
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local M = {}

local function list(text, read)
  local out = {}
  for part in text:gmatch("[^,]+") do
    out[#out + 1] = read(part)
  end
  return out
end

--- The input k of a shape.
---@param shape integer[]
---@param k integer
---@return torch.Tensor
function M.wave(shape, k)
  local count = torch.Size(shape):numel()
  return (torch.arange(count, { dtype = torch.float64 }) * 0.37 + k):sin():float():reshape(shape)
end

---@param t torch.Tensor
---@return number
function M.digest(t)
  local weights = (torch.arange(t:numel(), { dtype = torch.float64 }) * 0.11):cos()
  return (t:double():reshape({ -1 }) * weights):sum():item()
end

local function value(text)
  local number = text:match("^[-%d.e]+$") and tonumber(text)
  return number or text
end

local function attribute(text)
  if text:find(",", 1, true) then
    return list(text:gsub(",$", ""), value)
  end
  return value(text)
end

local LISTS = {}
for name in ([[activations activation_alpha activation_beta axes dilations ends kernel_shape
  output_padding output_shape pads starts strides]]):gmatch("%S+") do
  LISTS[name] = true
end

local function attributes(text)
  local out = {}
  for name, given in text:gmatch("([%w_]+)=(%S+)") do
    local v = attribute(given)
    out[name] = LISTS[name] and type(v) ~= "table" and { v } or v
  end
  return out
end

local function inputs(text)
  local out, k = {}, 0
  for shape in text:gmatch("%S+") do
    k = k + 1
    local integers = shape:match("^i:(.*)")
    out[k] = integers and torch.tensor(list(integers, math.tointeger), { dtype = torch.int32 })
      or shape ~= "-" and M.wave(list(shape, math.tointeger), k) or false
  end
  return out
end

local function check(line, compiled)
  local op, version, attrs, shapes, results = line:match("^(%S+) (%d+) ?(.-)| (.-) | (.*)$")
  assert(op, line)
  local names, wanted = {}, {}
  for text in results:gmatch("%S+") do
    names[#names + 1] = text == "-" and "" or "y" .. #names
    if text ~= "-" then
      wanted[#wanted + 1] = text
    end
  end
  local got = { node(op, inputs(shapes), attributes(attrs), { version = math.tointeger(version),
    outputs = names, compiled = compiled }) }
  for i, text in ipairs(wanted) do
    local shape, digest = text:match("^([%d,]*):(.*)$")
    local has = table.concat(got[i].shape, ",")
    assert(shape == has, ("%s: result %d has the shape %s"):format(line, i, has))
    local want = tonumber(digest)
    local near = math.abs(M.digest(got[i]) - want) <= 2e-5 * (1 + math.abs(want)) + 1e-4
    assert(near, ("%s: result %d has the digest %.8g"):format(line, i, M.digest(got[i])))
  end
end

--- Runs all lines of a text eagerly, and every `each`th compiled too.
---@param text string
---@param each integer
function M.check(text, each)
  local number = 0
  for line in text:gsub("\n +", " "):gmatch("[^\n]+") do
    number = number + 1
    check(line)
    if number % each == 0 then
      check(line, true)
    end
  end
end

return M
