--- How inputs and anchors are to travel between host and device: by which tiles, and whether
--- they do so while the others compute (InputSettings, AnchorReturnType). It changes no value.
---
--- Source: PopART user guide, overlapping IO with compute; its tileset.hpp, commgroup.hpp.
local enums = require("popart.enums")
local errors = require("popart.errors")
local node_attributes = require("popart.node_attributes")

local M = {}

local Mode, TileSet = enums.VirtualGraphMode, enums.TileSet
local METADATA = node_attributes.METADATA
local OVERLAPS = { OverlapInnerLoop = true, OverlapLoops = true }

---@class popart.Travel
---@field way "input"|"output"
---@field id string
---@field tiles popart.TileSet
---@field when popart.ExchangeStrategy

--- The inputs and anchors of a session.
---@param s table model, flow
---@return popart.Travel[]
function M.streams(s)
  local list, metadata = {}, s.model.metadata
  local function said(id, key, of)
    local text = (metadata[METADATA[key]] or {})[id]
    return of(text and math.tointeger(tonumber(text)) or 0)
  end
  for _, input in ipairs(s.model.inputs) do
    list[#list + 1] = { way = "input", id = input.id, tiles = said(input.id, "tileSet", TileSet),
      when = said(input.id, "exchangeStrategy", enums.ExchangeStrategy) }
  end
  for _, id in ipairs(s.flow:anchors()) do
    local art = s.flow:art(id)
    list[#list + 1] = { way = "output", id = id, tiles = art:tileSet(),
      when = art:exchangeStrategy() }
  end
  return list
end

--- Streams that overlap with computing need explicit loops.
--- error: popart_exception
---@param s table options, model, flow
function M.check(s)
  local o = s.options
  for _, stream in ipairs(M.streams(s)) do
    errors.check(not OVERLAPS[stream.when.name] or o.useHostCopyOps and o.enableExplicitMainLoops
      and o.virtualGraphMode ~= Mode.Off, "popart_exception", "ExchangeStrategy::OverlapInnerLoop, "
      .. "ExchangeStrategy::OverlapLoops require SessionOptions::useHostCopyOps, "
      .. "SessionOptions::enableExplicitMainLoops, VirtualGraphMode::(Manual, Auto, "
      .. "ExecutionPhases) to be enabled.")
  end
end

-- Over which loop a stream's mark asks it to overlap. Where a batch is one micro-batch the
-- loop over batches is the inner one.
local function loop(s, stream)
  return stream.when.name == "OverlapInnerLoop" and s.accumulation > 1
    and "overlap_accumulation_loop" or "overlap_device_iteration_loop"
end

-- Why what is said of a stream changes nothing; nil: it does.
local function idle(s, stream)
  if not OVERLAPS[stream.when.name] then
    return "without an exchange strategy that overlaps, tensors travel when they are wanted"
  elseif stream.tiles ~= TileSet.IO then
    return "the tiles of TileSet.IO alone move tensors while others compute"
  elseif s.options.numIOTiles == 0 then
    return "SessionOptions.numIOTiles is 0"
  elseif s.batches * s.accumulation == 1 then
    return "a run has one micro-batch"
  elseif s.options.syntheticDataMode.name ~= "Off" then
    return "with synthetic data nothing goes to or from the host"
  end
  return nil
end

--- Marks of a session's streams, by name.
---@param s table options, model, flow, batches, accumulation
---@return {input: table<string, string>, output: table<string, string>}
function M.marks(s)
  local out = { input = {}, output = {} }
  for _, stream in ipairs(M.streams(s)) do
    out[stream.way][stream.id] = not idle(s, stream) and loop(s, stream) or nil
  end
  return out
end

--- Calls note(name, why) for each stream whose settings change nothing.
---@param s table as M.marks takes it, and session
---@param note fun(name: string, why: string)
function M.note(s, note)
  local late = s.session.spec.system.output_slices > 0
  for _, stream in ipairs(M.streams(s)) do
    if stream.tiles ~= TileSet.Compute or stream.when.value ~= 0 then
      local why = idle(s, stream)
      if stream.way == "output" and not why then
        why = not s.traced.scope:find(stream.id) and "it is no tensor of the model"
          or late and "anchors that do not return every micro-batch go at the end of a run"
      end
      if why then
        note(("tile set and exchange strategy of '%s'"):format(stream.id), why)
      end
    end
  end
end

return M
