--- What a run computes and returns: DataFlow with its anchors, AnchorReturnType,
--- and how inputs and anchors travel.
---
---     local flow = popart.DataFlow(8, { [loss] = popart.AnchorReturnType("EVERYN", 4) })
---
--- Source: PopART user guide 4.1; its Python API.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local enums = require("popart.enums")
local errors = require("popart.errors")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

local Id, TileSet, Exchange = enums.AnchorReturnTypeId, enums.TileSet, enums.ExchangeStrategy
local Mode = enums.ReplicatedStreamMode

-- Where a tensor travels, of both classes below: {tile set, exchange strategy}.
local function travel(tiles, exchange, where)
  tiles = check.enum(tiles == nil and TileSet.Compute or tiles, where .. ": tileSet", TileSet)
  exchange = check.enum(exchange == nil and Exchange.JustInTime or exchange,
    where .. ": exchangeStrategy", Exchange)
  errors.check(exchange ~= Exchange.OverlapStep, "popart_exception",
    "%s: ExchangeStrategy.OverlapStep is not supported. Allowed: JustInTime, OverlapInnerLoop, "
    .. "OverlapLoops", where)
  return tiles, exchange
end

-- ---- what an anchor returns ------------------------------------------------------------

local IDS = { final = Id.Final, everyn = Id.EveryN, all = Id.All, sum = Id.Sum }
local NO_PERIOD = "A return period should not be supplied for this anchor return type"

--- Which values of a tensor a run returns: "ALL" of them, "EVERYN" with a period the last
--- one of so many, the "FINAL" one or their "SUM", in letters of either case. tileSet and
--- exchangeStrategy change no value.
--- error: popart_exception for another text, a period that is missing or not wanted
--- source: 004 popart.AnchorReturnType
---@class popart.AnchorReturnType
---@overload fun(anchorReturnTypeString: string, returnPeriod: integer?, tileSet: any,
---  exchangeStrategy: any): popart.AnchorReturnType
local AnchorReturnType = closed.close(class.new("AnchorReturnType"))
M.AnchorReturnType = AnchorReturnType
signatures.note(AnchorReturnType,
  "AnchorReturnType(anchorReturnTypeString, returnPeriod, tileSet, exchangeStrategy)", 1)

local PERIOD_FIRST = { "anchorReturnTypeString", "returnPeriod", "tileSet", "exchangeStrategy" }
local WITHOUT = { "anchorReturnTypeString", "tileSet", "exchangeStrategy", "returnPeriod" }

function AnchorReturnType:init(...)
  local second = select(2, ...)
  local without = TileSet:is(second)
  local v = check.arguments("AnchorReturnType", without and WITHOUT or PERIOD_FIRST, nil, ...)
  local text, period, tiles, exchange = v[1], v[2], v[3], v[4]
  if without then
    period, tiles, exchange = v[4], v[2], v[3]
  end
  check.string(text, "AnchorReturnType: anchorReturnTypeString")
  local id = errors.check(IDS[text:lower()], "popart_exception",
    "Invalid anchor return type ID supplied: %s. Allowed: Final, EveryN, All, Sum", text)
  if id ~= Id.EveryN then
    errors.check(period == nil, "popart_exception", NO_PERIOD)
  else
    errors.check(period ~= nil, "popart_exception",
      "Must specify return period with option 'EVERYN'")
    check.int(period, "AnchorReturnType: returnPeriod")
    errors.check(period > 0, "popart_exception", "Anchor return period must be greater than zero")
  end
  self._id, self._period = id, period
  self._tiles, self._exchange = travel(tiles, exchange, "AnchorReturnType")
end

--- The kind.
---@return popart.AnchorReturnTypeId
function AnchorReturnType:id()
  return self._id
end

--- The period of EveryN.
--- error: popart_exception for another kind
---@return integer
function AnchorReturnType:rp()
  return errors.check(self._period, "popart_exception", NO_PERIOD)
end

--- The tiles that do its output.
---@return popart.TileSet
function AnchorReturnType:tileSet()
  return self._tiles
end

--- When it goes to the host.
---@return popart.ExchangeStrategy
function AnchorReturnType:exchangeStrategy()
  return self._exchange
end

function AnchorReturnType.__eq(a, b)
  return a._id == b._id and a._period == b._period and a._tiles == b._tiles
    and a._exchange == b._exchange
end

function AnchorReturnType.__tostring(self)
  return ("AnchorReturnType(%q%s)"):format(self._id.name,
    self._period and (", %d"):format(self._period) or "")
end

--- An anchor as lupine.session.open takes it, without its name.
---@param art popart.AnchorReturnType
---@return {mode: string, period: integer}
function M.mode(art)
  return { mode = core.output_modes[art._id.value + 1], period = art._period or 1 }
end

--- How many values of an anchor a run returns for each replica.
---@param art popart.AnchorReturnType
---@param batches integer batches per step
---@param accumulation integer micro-batches of a batch
---@return integer
function M.fetches(art, batches, accumulation)
  if art._id == Id.All then
    return batches * accumulation
  elseif art._id == Id.EveryN then
    return batches // art._period * accumulation
  end
  return 1
end

--- The shape of an anchor's values after a run, of a tensor of this shape: what counts
--- values stands before it, [batches, accumulation, replicas] or [replicas], without those
--- that are 1.
--- error: RuntimeError for a period that does not divide the batches
---@param art popart.AnchorReturnType
---@param counts {batches: integer, accumulation: integer, replicas: integer}
---@param shape integer[]
---@return integer[]
function M.shape(art, counts, shape)
  local leading = { counts.replicas }
  if art._id == Id.All or art._id == Id.EveryN then
    local period = art._period or 1
    errors.check(counts.batches % period == 0, "RuntimeError",
      "Invalid anchor period, is not divisble by batchesPerStep")
    leading = { counts.batches // period, counts.accumulation, counts.replicas }
  end
  local out = {}
  for _, n in ipairs(leading) do
    out[#out + 1] = n ~= 1 and n or nil
  end
  return table.move(shape, 1, #shape, #out + 1, out)
end

-- ---- data flow ---------------------------------------------------------------------------

--- Batches of a run, and the tensors whose values it returns: what of each by name, or a
--- list of names (anchorTensors and anchorIds in Python's module).
--- error: popart_exception for batchesPerStep < 1, or a period that does not divide it
--- source: 004 popart.DataFlow
---@class popart.DataFlow
---@overload fun(batchesPerStep: integer?, anchors: table<string, popart.AnchorReturnType>
---  | string[] | nil, anchorReturnType: popart.AnchorReturnType?): popart.DataFlow
local DataFlow = closed.close(class.new("DataFlow"))
M.DataFlow = DataFlow
signatures.note(DataFlow, "DataFlow(batchesPerStep, anchors, anchorReturnType)", 1)

local function check_period(art, batches)
  if art._id == Id.EveryN then
    errors.check(art._period <= batches, "popart_exception",
      "Return period must be <= to the number of batches per step")
    errors.check(batches % art._period == 0, "popart_exception",
      "Return period must be a factor of the number of batches per step")
  end
end

-- {[id] = art} of either form of anchors.
local function anchor_map(given, art)
  local out = {}
  for key, value in pairs(check.plain_table(given, "DataFlow: anchors")) do
    local id = key
    if math.type(key) == "integer" then
      id, value = value, art or AnchorReturnType("All")
    end
    check.string(id, "DataFlow: a name of anchors")
    out[id] = check.instance(value, ("DataFlow: anchors['%s']"):format(id), AnchorReturnType)
  end
  return out
end

function DataFlow:init(...)
  local v, given = check.arguments("DataFlow",
    { "batchesPerStep", "anchors", "anchorReturnType", "anchorTensors", "anchorIds" },
    { anchors = true, anchorTensors = true, anchorIds = true }, ...)
  local anchors = v[2] or v[4] or v[5]
  errors.check(anchors == nil or given.batchesPerStep, "TypeError",
    "DataFlow: anchors without batchesPerStep")
  self._batches = check.int(v[1] or 0, "DataFlow: batchesPerStep")
  errors.check(not anchors or self._batches > 0, "popart_exception",
    "'Batches per step' must be greater than zero, got %d", self._batches)
  self._art = anchor_map(anchors or {}, v[3] and check.instance(v[3],
    "DataFlow: anchorReturnType", AnchorReturnType))
  for _, art in pairs(self._art) do
    check_period(art, self._batches)
  end
end

--- Whether a run returns values of a tensor.
---@param id string
---@return boolean
function DataFlow:isAnchored(id)
  return self._art[id] ~= nil
end

--- How many tensors have their values returned.
---@return integer
function DataFlow:nAnchors()
  return #tables.keys(self._art)
end

--- Batches of a run: executions of the model in inference, updates of weights in training.
---@return integer
function DataFlow:batchesPerStep()
  return self._batches
end

--- The names of the anchors, sorted.
---@return string[]
function DataFlow:anchors()
  return tables.keys(self._art)
end

--- What a run returns of an anchor.
--- error: popart_exception for a tensor that is none
---@param id string
---@return popart.AnchorReturnType
function DataFlow:art(id)
  return self._art[id] or errors.raise("popart_exception", "Tensor %s is not an anchor%s",
    tostring(id), check.nearest(id, self:anchors()))
end

--- Sets the batches of a run, for sessions made from now on.
--- error: popart_exception for less than 1 with anchors
---@param ... any batchesPerStep (integer)
function DataFlow:setBatchesPerStep(...)
  local n = check.int(check.one("setBatchesPerStep", "batchesPerStep", ...),
    "setBatchesPerStep: batchesPerStep")
  errors.check(n > 0 or next(self._art) == nil, "popart_exception",
    "'Batches per step' must be greater than zero, got %d", n)
  for _, art in pairs(self._art) do
    check_period(art, n)
  end
  self._batches = n
end

function DataFlow.__tostring(self)
  local parts = { tostring(self._batches) }
  for _, id in ipairs(self:anchors()) do
    parts[#parts + 1] = ("%s = %s"):format(id, self._art[id])
  end
  return ("DataFlow(%s)"):format(table.concat(parts, ", "))
end

-- ---- inputs --------------------------------------------------------------------------------

--- How an input travels: by which tiles and when, which changes no value, or whether all
--- replicas get the same.
--- error: TypeError
--- source: PopART Python API, InputSettings
---@class popart.InputSettings
---@overload fun(tileSet: any, exchangeStrategy: any): popart.InputSettings
---@overload fun(replicatedStreamMode: any): popart.InputSettings
local InputSettings = closed.close(class.new("InputSettings"))
M.InputSettings = InputSettings
signatures.note(InputSettings, "InputSettings(tileSet, exchangeStrategy, replicatedStreamMode)", 1)

function InputSettings:init(...)
  local mode
  if Mode:is((...)) then
    mode = check.one("InputSettings", "replicatedStreamMode", ...)
    self._tiles, self._exchange = travel(nil, nil, "InputSettings")
  else
    local v = check.arguments("InputSettings", { "tileSet", "exchangeStrategy",
      "replicatedStreamMode", "relicatedStreamMode" }, nil, ...) -- the last is the original's slip
    mode = v[3] or v[4]
    self._tiles, self._exchange = travel(v[1], v[2], "InputSettings")
  end
  self._mode = check.enum(mode or Mode.Replicate, "InputSettings: replicatedStreamMode", Mode)
end

--- The tiles that do its input.
---@return popart.TileSet
function InputSettings:tileSet()
  return self._tiles
end

--- When it comes from the host.
---@return popart.ExchangeStrategy
function InputSettings:exchangeStrategy()
  return self._exchange
end

--- Whether each replica gets its own.
---@return popart.ReplicatedStreamMode
function InputSettings:replicatedStreamMode()
  return self._mode
end

function InputSettings.__tostring(self)
  return ("InputSettings[%s, %s, %s]"):format(self._exchange, self._tiles, self._mode)
end

return M
