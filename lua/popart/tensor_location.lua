--- Where a tensor is: TensorLocation.
---
--- Source: PopART Python API, TensorLocation.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local enums = require("popart.enums")
local errors = require("popart.errors")
local variable_settings = require("popart.variable_settings")
local signatures = require("lupine.base.signatures")

local M = {}

local Storage, TileSet = enums.TensorStorage, enums.TileSet
local Sharding, CommGroup = enums.ReplicatedTensorSharding, variable_settings.CommGroup

-- Field -> what it may be, and its default.
local FIELDS = {
  storage = { Storage, Storage.OnChip }, loadTileSet = { TileSet, TileSet.Compute },
  storageTileSet = { TileSet, TileSet.Compute },
  replicatedTensorSharding = { Sharding, Sharding.Off }, shardingDomain = { CommGroup },
}
local LONG = { "storage", "loadTileSet", "storageTileSet", "replicatedTensorSharding",
  "shardingDomain" }
local SHORT = { "storage", "replicatedTensorSharding", "shardingDomain" }
local NAMES = { "loadTileSet", "replicatedTensorSharding", "shardingDomain", "storage",
  "storageTileSet" }

--- Where a tensor is, on chip or in streaming memory, which tiles hold and load it, and
--- whether replicas share it out: (storage), (storage, replicatedTensorSharding), (storage,
--- loadTileSet, storageTileSet, replicatedTensorSharding), each with a shardingDomain.
--- error: TypeError, AttributeError
--- source: PopART Python API, TensorLocation
---@class popart.TensorLocation
---@field storage popart.TensorStorage
---@field loadTileSet popart.TileSet
---@field storageTileSet popart.TileSet
---@field replicatedTensorSharding popart.ReplicatedTensorSharding
---@field shardingDomain popart.CommGroup
---@overload fun(storage: any, replicatedTensorSharding: any, shardingDomain: any):
---  popart.TensorLocation
local TensorLocation = class.new("TensorLocation")
M.TensorLocation = TensorLocation
signatures.note(TensorLocation, "TensorLocation(storage, loadTileSet, storageTileSet, "
  .. "replicatedTensorSharding, shardingDomain)", 1)

local function unknown(key)
  return errors.raise("AttributeError", "TensorLocation has no attribute '%s'%s", tostring(key),
    check.nearest(key, NAMES))
end

function TensorLocation.__index(self, key)
  local value = TensorLocation[key]
  if value == nil then
    value = (rawget(self, "_values") or {})[key]
  end
  return value == nil and unknown(key) or value
end

function TensorLocation.__newindex(self, key, value)
  local field = FIELDS[key] or unknown(key)
  local where = "TensorLocation: " .. key
  self._values[key] = class.is_class(field[1]) and check.instance(value, where, field[1])
    or check.enum(value, where, field[1])
end

function TensorLocation:setup()
  rawset(self, "_values", { shardingDomain = CommGroup() })
  for key, field in pairs(FIELDS) do
    self._values[key] = self._values[key] or field[2]
  end
end

function TensorLocation:init(...)
  local second = select(2, ...)
  local names = TileSet:is(second) and LONG or SHORT
  if check.is_keywords(second) or select("#", ...) == 1 then
    names = LONG
  end
  local v, given = check.arguments("TensorLocation", names, nil, ...)
  for i, name in ipairs(names) do
    if given[name] then
      self[name] = v[i]
    end
  end
end

function TensorLocation.__eq(a, b)
  for _, name in ipairs(NAMES) do
    if a[name] ~= b[name] then
      return false
    end
  end
  return true
end

function TensorLocation.__tostring(self)
  return ("TensorLocation(%s, %s, %s, %s, %s)"):format(self.storage, self.loadTileSet,
    self.storageTileSet, self.replicatedTensorSharding, self.shardingDomain)
end

return M
