--- Python signatures: one line says names, order and defaults of a
--- constructor's or function's parameters, and binds a call's arguments.
---
---     local sig = signature("Linear(in_features, out_features, bias=True)")
---     local a = sig(10, {out_features = 5})   -- {in_features = 10, …}
---
--- In a call nil (or nothing) means the default and torch.none an explicit
--- None. A default is None, True, False, a number, 'text' or (a, b).
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local pieces = require("lupine.base.pieces")

local none, rawequal = core.none, rawequal

local Signature = {}
Signature.__index = Signature

local CONSTANTS = { None = false, True = true, False = false }

local function constant(text)
  local quoted = text:match("^'(.*)'$")
  if quoted then
    return quoted
  end
  local list = text:match("^%((.*)%)$")
  if list then
    local out = {}
    for item in list:gmatch("[^,%s]+") do
      out[#out + 1] = constant(item)
    end
    return out
  end
  local number = tonumber(text)
  if number == nil and CONSTANTS[text] == nil then
    error("not a default: " .. text)
  end
  return number or CONSTANTS[text]
end

--- Parses "Name(a, b=1)".
---@param text string
---@return table signature {name, names, defaults}; call it to bind arguments
local function parse(text)
  local name, inside = text:match("^%s*([%w_%.]+)%s*%((.*)%)%s*$")
  local self = setmetatable({ name = name, names = {}, defaults = {}, required = {}, lists = {},
    ordered = {} }, Signature)
  for _, piece in ipairs(inside:find("%S") and pieces(inside) or {}) do
    local param, default = piece:match("^([%w_]+)%s*=%s*(.+)$")
    param = param or piece
    self.names[#self.names + 1] = param
    self.required[param] = default == nil
    self.lists[param] = default == nil and "list" or nil -- may be {}
    if default and default ~= "None" then
      self.defaults[param] = constant(default)
      self.ordered[#self.names] = self.defaults[param]
    end
  end
  return self
end

--- The arguments of a call in the order of the parameters.
--- error: TypeError for too many, unknown, repeated or missing arguments
---@return table list n: how many parameters there are
function Signature:list(...)
  local names, n = self.names, select("#", ...)
  local values
  if n <= #names and (n == 0 or type((select(n, ...))) ~= "table") then -- no keywords
    values = { n = #names, ... }
  else
    values = check.arguments(self.name, names, self.lists, ...)
  end
  local ordered, required = self.ordered, self.required
  for i = 1, #names do
    local value = values[i]
    if value == nil then
      local default = ordered[i]
      if type(default) == "table" then
        values[i] = { table.unpack(default) }
      elseif default ~= nil then
        values[i] = default
      elseif required[names[i]] then
        errors.check(false, "TypeError", "%s: missing required argument '%s'", self.name, names[i])
      end
    elseif rawequal(value, none) then
      values[i] = nil
    end
  end
  return values
end

--- The same by name.
---@return table<string, any>
function Signature:__call(...)
  local values, out = self:list(...), {}
  for i, name in ipairs(self.names) do
    out[name] = values[i]
  end
  return out
end

return parse
