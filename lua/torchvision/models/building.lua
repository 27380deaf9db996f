--- What torchvision's models share: functions that build one by its name, weights from a
--- file, starting values, numbers of channels.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local exists = require("lupine.base.exists")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")
local torch = require("torch")

local nn = torch.nn
local init = nn.init
local M = {}

--- Builders by name, and their names in order.
---@type table<string, function>
M.builders = {}
---@type string[]
M.names = {}

-- The path of a file of weights. torchvision's names of weights stand for downloads.
local function weights_file(path, name)
  check.string(path, name .. ": weights")
  local named = path:match("^[%w_]+_V%d+$") or path == "DEFAULT" or path:find("_Weights", 1, true)
  errors.check(exists(path) or not named, "ValueError",
    "%s: weights: '%s' names weights of torchvision, and nothing is downloaded here: name a "
    .. "safetensors file with them. Allowed: nil or the path of a safetensors file", name, path)
  return path
end

--- Defines the builder NAME(weights=None, progress=True, ARGUMENTS), which makes a model of
--- make(a), its arguments by name, and loads the weights.
---@param into table<string, function>
---@param name string
---@param arguments string parameters and their defaults
---@param make fun(a: table<string, any>): torch.nn.Module
function M.builder(into, name, arguments, make)
  local sig = ("%s(weights=None, progress=True, %s)"):format(name, arguments)
  local parsed = signature(sig)
  local function build(...)
    local a = parsed(...)
    check.bool(a.progress, name .. ": progress")
    local path = a.weights and weights_file(a.weights, name)
    a.weights, a.progress = nil, nil
    local model = make(a)
    if path then
      model:load_state_dict(require("lupine.safetensors").load_file(path))
    end
    return model
  end
  signatures.note(build, sig)
  into[name], M.builders[name], M.names[#M.names + 1] = build, build, name
end

--- A number of channels as the multiple of divisor that is nearest, which is not less than
--- 0.9 of it.
---@param v number
---@param divisor integer
---@return integer
function M.divisible(v, divisor)
  local near = math.max(divisor, math.floor(v + divisor / 2) // divisor * divisor)
  return near < 0.9 * v and near + divisor or near
end

local function is_norm(m)
  return (nn.BatchNorm2d:is(m) or nn.GroupNorm:is(m)) and m.weight
end

--- Starting values: convolutions by He et al. from the fan out, biases 0, normalisations 1
--- and 0, and `linear(m)` for every Linear, whose bias becomes 0, too.
---@param model torch.nn.Module
---@param linear? fun(m: torch.nn.Linear)
function M.start(model, linear)
  for _, m in ipairs(model:modules()) do
    if nn.Conv2d:is(m) then
      init.kaiming_normal_(m.weight, { mode = "fan_out", nonlinearity = "relu" })
    elseif is_norm(m) then
      init.ones_(m.weight)
    elseif nn.Linear:is(m) and linear then
      linear(m)
    end
    if m.bias and (nn.Conv2d:is(m) or is_norm(m) or nn.Linear:is(m) and linear) then
      init.zeros_(m.bias)
    end
  end
end

--- Normal values of deviation 0.01, for `start`.
---@param m torch.nn.Linear
function M.small(m)
  init.normal_(m.weight, 0, 0.01)
end

--- A list that a constructor needs, whose elements are of one class.
---@param list any
---@param where string
---@param cls table
---@return table[]
function M.settings(list, where, cls)
  check.plain_table(list, where)
  errors.check(#list > 0, "ValueError", "%s should not be empty", where)
  for i, entry in ipairs(list) do
    check.instance(entry, ("%s, element %d"):format(where, i), cls)
  end
  return list
end

--- A class of plain records: their fields in the order of the constructor.
---@param sig string
---@param adjust? fun(self: table) what becomes of the fields
---@param base? table
---@return table
function M.record(sig, adjust, base)
  local parsed = signature(sig)
  local cls = base and base:extend(parsed.name) or class.new(parsed.name)
  function cls:init(...)
    for name, value in next, parsed(...) do
      self[name] = value
    end
    if adjust then
      adjust(self)
    end
  end
  signatures.note(cls, sig)
  return cls
end

return M
