--- Options.TensorLocations and TensorLocationSettings: where activations,
--- weights, optimizer state and gradient accumulators live.
--- Source: PopTorch API reference, poptorch.options._TensorLocationOptions.
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local places = require("poptorch.options.places")

local M = {}

-- Booleans are stored as 0 and 1 in the dictionary form.
local function flag(name, key, dict, doc, effect)
  return { name = name, key = key, dict = dict, params = { "use" }, kind = "bool",
    omitted = true, doc = doc, effect = effect }
end

local on_chip = flag("useOnChipStorage", "on_chip_storage", "onChip",
  "true: on chip; false: off chip; nil: undefined.",
  "Off chip: streamed in before use and out after, no tile memory between.")
on_chip.nullable = true
on_chip.set = function(self, values, given, row)
  local use = values[1]
  if not given.use then
    use = true
  end
  self:_store(row, Group._argument(row, "use", use))
end

--- Where one kind of tensor is stored. Setters copy the settings they are
--- given, so later changes here do not reach the options.
---@class poptorch.TensorLocationSettings
local Settings = Group.define("TensorLocationSettings", {
  {
    name = "minElementsForOffChip", key = "min_elements_for_off_chip",
    dict = "minElementsForOffChip", params = { "min_elements" }, kind = "int", min = 0,
    doc = "Tensors with fewer elements stay on chip.",
    effect = "Which tensors are off chip; 2 when unset.",
  },
  {
    name = "minElementsForReplicatedTensorSharding",
    key = "min_elements_for_replicated_tensor_sharding",
    dict = "minElementsForReplicatedTensorSharding", params = { "min_elements" }, kind = "int",
    min = 0,
    doc = "Only tensors with more elements are sharded over replicas.",
    effect = "Which tensors are sharded; 8192 when unset.",
  },
  on_chip,
  flag("useReplicatedTensorSharding", "replicated_tensor_sharding",
    "useReplicatedTensorSharding", "Shards over the replicas (weights, optimizer state).",
    "A replica keeps its part; a gather before use, a scatter after."),
  flag("useIOTilesToLoad", "io_tiles_to_load", "useIOTilesToLoad",
    "Loads through I/O tiles.", "Streaming overlaps with computing."),
  flag("useIOTilesToStore", "io_tiles_to_store", "useIOTilesToStore",
    "Keeps on I/O tiles (sharded tensors).", "That of useIOTilesToLoad."),
})
M.TensorLocationSettings = Settings

-- By their dictionary names, values are those of the dictionary form.
local group_index = Settings.__index
function Settings.__index(self, key)
  for _, row in ipairs(Settings._rows) do
    if row.dict == key and row.name ~= key then
      return self:toDict()[key]
    end
  end
  return group_index(self, key)
end

function Settings:toDict()
  local out = Group.toDict(self)
  for k, v in pairs(out) do
    if type(v) == "boolean" then
      out[k] = v and 1 or 0
    end
  end
  return out
end

local function location(name, key, of)
  return {
    name = name, key = key, params = { "location" }, kind = Settings, nullable = false,
    tables = { location = true },
    set = function(self, values, _, row)
      self:_store(row, class.copy(Group._argument(row, "location", values[1])))
    end,
    doc = "Location of " .. of .. ".",
    effect = "Tile memory and streaming of " .. of .. ".",
    idle = places.idle(key:match("_(%w+)$")),
  }
end

M.Options = Group.define("_TensorLocationOptions", {
  {
    name = "numIOTiles", key = "num_io_tiles", params = { "num_tiles" }, kind = "int",
    default = 0, min = 32, max = 192, popart = "numIOTiles",
    set = function(self, values, _, row)
      local n = Group._argument(row, "num_tiles", values[1])
      errors.check(n % 2 == 0, "AssertionError",
        "numIOTiles(num_tiles): expected an even int, got %d", n)
      self:_store(row, n)
    end,
    doc = "Tiles of each IPU set aside for I/O.",
    effect = "Fewer tiles compute; host I/O and streaming overlap.",
  },
  location("setActivationLocation", "location_activation", "activations"),
  location("setWeightLocation", "location_weight", "weights"),
  location("setOptimizerLocation", "location_optimizer", "optimizer state"),
  location("setAccumulatorLocation", "location_accumulator", "gradient accumulators"),
})

return M
