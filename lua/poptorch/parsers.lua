--- Objects of a user's class as arguments and results of a model: a parser of the
--- class says which tensors such an object has, and makes another one of others.
---
---     local Parser = poptorch.ICustomArgParser:extend("PairParser")
---     function Parser:yieldTensors(pair)
---       coroutine.yield(pair.a)
---       coroutine.yield(pair.b)
---     end
---     function Parser:reconstruct(_, next_tensor)
---       return Pair(next_tensor(), next_tensor())
---     end
---     poptorch.registerCustomArgParser(Pair, Parser())
---
--- Source: PopTorch 3.x, poptorch.ICustomArgParser.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")

local M = {}

---@class poptorch.ICustomArgParser
local ICustomArgParser = class.new("ICustomArgParser")
M.ICustomArgParser = ICustomArgParser

local function abstract(self, name)
  errors.raise("NotImplementedError", "%s has no method %s", class.of(self).__name, name)
end

--- Every tensor of the object, in an order that does not change: yielded one by one,
--- or returned as a list.
---@param struct any of the class that the parser is registered for
---@return torch.Tensor[]?
function ICustomArgParser:yieldTensors(struct) -- luacheck: ignore 212
  return abstract(self, "yieldTensors")
end

--- A new object like the given one, of the tensors that calls of next_tensor give,
--- in the order of yieldTensors; after the last one nil. What else the object holds
--- it may take over.
---@param original_structure any
---@param next_tensor fun(): torch.Tensor?
---@return any
function ICustomArgParser:reconstruct(original_structure, next_tensor) -- luacheck: ignore 212
  return abstract(self, "reconstruct")
end

--- From now on objects of the class may be arguments and results of models, and batches
--- of loaders, whose processes start later; nil takes its parser away. Objects of classes
--- that extend it have it, too, unless they have their own; those of a process of a loader
--- must be of the class itself.
--- error: poptorch.Error for what is no class or no parser
---@param arg_data_type table a class, or the metatable that the objects have
---@param arg_parser poptorch.ICustomArgParser?
function M.registerCustomArgParser(arg_data_type, arg_parser)
  errors.check(type(arg_data_type) == "table", "Error",
    "registerCustomArgParser(arg_data_type): expected a class, got %s",
    check.describe(arg_data_type))
  if check.is_none(arg_parser) then
    arg_parser = nil
  else
    errors.check(ICustomArgParser:is(arg_parser), "Error", "registerCustomArgParser(arg_parser): "
      .. "expected an object of a class that extends poptorch.ICustomArgParser, got %s",
      check.describe(arg_parser))
  end
  arguments.register(arg_data_type, arg_parser)
end

-- Dictionaries that remember their order need no parser of the user's.
local Ordered = ICustomArgParser:extend("OrderedDictParser")

function Ordered:yieldTensors(dict) -- luacheck: ignore 212
  for _, tensor in pairs(dict) do
    coroutine.yield(tensor)
  end
end

function Ordered:reconstruct(dict, next_tensor) -- luacheck: ignore 212
  local out = ordered.dict()
  for name in pairs(dict) do
    out[name] = next_tensor()
  end
  return out
end

M.registerCustomArgParser(getmetatable(ordered.dict()), Ordered())

return M
