--- Readers of the golden files: JSON that tells integers from floats and keeps
--- null, and safetensors (an 8-byte length, a JSON head, the bytes).
local torch = require("torch")

local M = {}

--- JSON's null, so that lists keep their places.
M.null = setmetatable({}, { __tostring = function() return "null" end })

local value

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function text(s, at)
  local out, from = {}, at + 1
  while true do
    local stop = s:find('["\\]', from)
    out[#out + 1] = s:sub(from, stop - 1)
    if s:byte(stop) == 34 then
      return table.concat(out), stop + 1
    end
    local c = s:sub(stop + 1, stop + 1)
    if c == "u" then
      out[#out + 1] = utf8.char(tonumber(s:sub(stop + 2, stop + 5), 16))
      from = stop + 6
    else
      out[#out + 1] = ESCAPES[c] or c
      from = stop + 2
    end
  end
end

local function skip(s, at)
  return s:find("[^ \t\r\n]", at) or error("JSON ends early")
end

local function sequence(s, at, close, read)
  at = skip(s, at + 1)
  if s:sub(at, at) == close then
    return at + 1
  end
  while true do
    at = skip(s, read(at))
    local c = s:sub(at, at)
    at = skip(s, at + 1)
    if c == close then
      return at
    elseif c ~= "," then
      error(("JSON: '%s' at byte %d"):format(c, at))
    end
  end
end

local LITERALS = { t = { "true", true }, f = { "false", false }, n = { "null", M.null } }

function value(s, at)
  local c = s:sub(at, at)
  if c == '"' then
    return text(s, at)
  elseif c == "[" then
    local out, n = {}, 0
    local last = sequence(s, at, "]", function(k)
      n = n + 1
      out[n], k = value(s, k)
      return k
    end)
    return out, last
  elseif c == "{" then
    local out = {}
    local last = sequence(s, at, "}", function(k)
      local key
      key, k = text(s, k)
      k = skip(s, skip(s, k) + 1)
      out[key], k = value(s, k)
      return k
    end)
    return out, last
  elseif LITERALS[c] then
    return LITERALS[c][2], at + #LITERALS[c][1]
  end
  local first, last = s:find("^-?[%d.eE+-]+", at)
  assert(first, "JSON: no value at byte " .. at)
  return tonumber(s:sub(first, last)), last + 1 -- 2 is an integer, 2.0 is not
end

--- The first value of a text. A list that ends the text needs nothing after it.
function M.json(s)
  return (value(s .. " \0", skip(s, 1)))
end

function M.file(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read("a")
  f:close()
  return s
end

local DTYPES = { F64 = "float64", F32 = "float32", F16 = "float16", BF16 = "bfloat16",
  I64 = "int64", I32 = "int32", I16 = "int16", I8 = "int8", U8 = "uint8", BOOL = "bool" }

--- A function from keys to fresh tensors.
function M.tensors(path)
  local s = M.file(path)
  local n = string.unpack("<I8", s)
  local head = M.json(s:sub(9, 8 + n))
  return function(key)
    local e = head[key] or error("no tensor " .. tostring(key) .. " in " .. path)
    local dtype = torch[DTYPES[e.dtype]]
    local from, to = e.data_offsets[1], e.data_offsets[2]
    if from == to then
      return torch.zeros(e.shape, { dtype = dtype })
    end
    return torch.frombuffer(s:sub(9 + n + from, 8 + n + to), { dtype = dtype }):reshape(e.shape)
  end
end

return M
