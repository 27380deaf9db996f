--- Calls of custom operators, which libraries have (torch.ops.load_library,
--- docs/custom_ops.md): eager ones, with gradients, and traced ones.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r" }

local function check_text(s)
  errors.check(not s:find("[\128-\255]"), "ValueError", "%s contains non-ASCII characters.", s)
  errors.check(not s:find("\0", 1, true), "ValueError", "%q contains a zero byte", s)
  return s
end

local function string_text(s)
  return '"' .. check_text(s):gsub('[%c"\\\127]', function(c)
    return ESCAPES[c] or ("\\x%02x"):format(c:byte())
  end) .. '"'
end

local MOST = 0x1.fffffep127 -- of 32 bits

local function float_text(v)
  errors.check(v ~= v or v >= -MOST or v == -math.huge, "Error",
    "%g is too low for a Popart float attribute.", v)
  errors.check(v ~= v or v <= MOST or v == math.huge, "Error",
    "%g is too high for a Popart float attribute.", v)
  if v ~= v then
    return "nan"
  end
  local text = ("%.17g"):format(v)
  return text:find("[.en]") and text or text .. ".0"
end

local TEXTS = { float = float_text, integer = tostring, string = string_text }

local function kind_of(v)
  return math.type(v) or type(v)
end

local function list_text(key, list)
  errors.check(#list > 0, "ValueError", "attribute '%s': an empty list has no type; expected a "
    .. "list of floats, ints or strings", key)
  local out, first = {}, kind_of(list[1])
  for i, v in ipairs(list) do
    errors.check(TEXTS[kind_of(v)] and kind_of(v) == first, "ValueError",
      "attribute '%s': a list holds only floats, only ints or only strings; element %d is %s", key,
      i - 1, check.describe(v))
    out[i] = TEXTS[first](v)
  end
  return "[" .. table.concat(out, ", ") .. "]"
end

-- Also one of table.pack.
local function is_list(value)
  if type(value) ~= "table" or getmetatable(value) then
    return false
  end
  for key, v in pairs(value) do
    local packed = key == "n" and v == #value
    if not packed and (math.type(key) ~= "integer" or key < 1 or key > #value) then
      return false
    end
  end
  return true
end

local function value_text(key, value)
  local text = TEXTS[kind_of(value)]
  if text then
    return text(value)
  end
  errors.check(is_list(value), "ValueError", "attribute '%s': expected a float, an int, a string "
    .. "or a list of one of these, got %s", key, check.describe(value))
  return list_text(key, value)
end

-- "alpha=0.02, sizes=[1, 2]", by name.
local function attributes_text(attributes)
  local keys, out = {}, {}
  for key in pairs(attributes) do
    errors.check(type(key) == "string", "ValueError",
      "attributes: all keys must be strings, got %s", check.describe(key))
    check_text(key)
    errors.check(key:find("^[%a_][%w_]*$"), "ValueError",
      "attributes: '%s' is no name: letters, digits and _ are allowed", key)
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for i, key in ipairs(keys) do
    out[i] = key .. "=" .. value_text(key, attributes[key])
  end
  return table.concat(out, ", ")
end

--- The results of a library's operator.
--- error: ValueError for attributes of wrong types or that are no ASCII;
--- poptorch.Error for floats that 32 bits do not hold, for what the operator
--- refuses, and for one that no library has
---@param inputs torch.Tensor[]
---@param name string
---@param domain string
---@param version integer of the domain
---@param attributes? table<string, any> floats, ints, strings, lists of one of them
---@return torch.Tensor[]
function M.call(inputs, name, domain, version, attributes)
  return core.forms.internal.custom(inputs, { domain = domain, name = name, version = version,
    library = "", attributes = attributes_text(attributes or {}) })
end

return require("lupine.base.namespace").close(M, "lupine.custom_op")
