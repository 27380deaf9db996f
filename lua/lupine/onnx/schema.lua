--- Signatures of ONNX's operators, a line each:
---
---     Conv(X, W, B?; group: int = 1, pads: ints, auto_pad: string = 'NOTSET') -> (Y)
---     Concat(inputs...; axis: int) -> (concat_result)
---     Dropout(data, ratio?, training_mode?; seed: int) -> (output, mask?)
---
--- In front of the semicolon stand inputs, behind it attributes; `?` marks what may
--- be left out, `...` what there may be any number of. An attribute with `!` behind
--- its type must be given, one without a default may be absent. The order of
--- attributes is that of PopART's Builder methods. Source: ONNX, Operators.md and
--- Changelog.md; PopART, builder.h.
local errors = require("lupine.base.errors")

local M = {}

-- Types of attributes -> the field of AttributeProto.
local FIELDS = { int = "i", float = "f", string = "s", tensor = "t", graph = "g", ints = "ints",
  floats = "floats", strings = "strings", tensors = "tensors", graphs = "graphs", dtype = "i" }

local function split(text)
  local out = {}
  for part in text:gmatch("[^,]+") do
    out[#out + 1] = part:match("^%s*(.-)%s*$")
  end
  return out
end

-- "X, W, B?" -> {{name=, optional=, variadic=}}
local function operands(text)
  local list = {}
  for i, part in ipairs(split(text)) do
    local name, mark = part:match("^([%w_]+)(%.*%??)$")
    assert(name, part)
    list[i] = { name = name, optional = mark:find("?", 1, true) ~= nil,
      variadic = mark:find("...", 1, true) ~= nil }
  end
  return list
end

local function default_of(kind, text)
  if text == nil then
    return nil
  elseif kind == "string" then
    return text:match("^'(.*)'$")
  elseif text:find("^%[") then
    local list = {}
    for number in text:gmatch("[^%[%]%s]+") do
      list[#list + 1] = kind == "floats" and tonumber(number) + 0.0
        or kind == "strings" and number or math.tointeger(number)
    end
    return list
  end
  return kind == "float" and tonumber(text) + 0.0 or math.tointeger(tonumber(text))
end

local function attributes(text)
  local list, by_name = {}, {}
  for i, part in ipairs(split(text)) do
    local name, kind, needed, default = part:match("^([%w_]+):%s*(%a+)(!?)%s*=?%s*(.-)$")
    assert(name and FIELDS[kind], part)
    list[i] = { name = name, kind = kind, field = FIELDS[kind], needed = needed == "!",
      default = default_of(kind, default ~= "" and default or nil) }
    by_name[name] = list[i]
  end
  return list, by_name
end

local function count(list)
  local least, most = 0, 0
  for _, x in ipairs(list) do
    least = x.optional and least or least + 1
    most = x.variadic and math.huge or most + 1
  end
  return least, most
end

---@class lupine.onnx.Schema
---@field name string
---@field text string the signature
---@field inputs {name: string, optional: boolean, variadic: boolean}[]
---@field outputs {name: string, optional: boolean, variadic: boolean}[]
---@field attributes {name: string, kind: string, field: string, needed: boolean, default: any}[]
---@field by_name table<string, table> attributes

--- Reads a signature.
---@param text string
---@return lupine.onnx.Schema
function M.parse(text)
  local name, inputs, rest = text:match("^([%w_]+)%(([^;%)]*)(.*)$")
  local attrs, outputs = rest:match("^;(.*)%) %-> %((.-)%)$")
  if not attrs then
    attrs, outputs = "", rest:match("^%) %-> %((.-)%)$")
  end
  assert(name and outputs, text)
  local s = { name = name, text = text, inputs = operands(inputs), outputs = operands(outputs) }
  s.attributes, s.by_name = attributes(attrs)
  s.least_inputs, s.most_inputs = count(s.inputs)
  s.least_outputs, s.most_outputs = count(s.outputs)
  return s
end

--- The attributes of a node with the defaults of its operator.
--- error: ValueError for one that the operator has not, of another type, or missing
---@param schema lupine.onnx.Schema
---@param given table<string, any> by name
---@param fields table<string, string> "i", "f", … by name
---@return table<string, any>
function M.fill(schema, given, fields)
  local out = {}
  for name, value in pairs(given) do
    local row = schema.by_name[name]
    if row then
      errors.check(row.field == fields[name], "ValueError", "attribute '%s': expected %s, got one "
        .. "of the kind '%s'", name, row.kind, fields[name])
      out[name] = value
    elseif not name:find("^__") then -- those are annotations, of PopART
      errors.raise("ValueError", "%s has no attribute '%s'", schema.name, name)
    end
  end
  for _, row in ipairs(schema.attributes) do
    errors.check(out[row.name] ~= nil or not row.needed, "ValueError",
      "attribute '%s' is missing", row.name)
    if out[row.name] == nil then
      out[row.name] = row.default
    end
  end
  return out
end

return M
