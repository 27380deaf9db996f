--- Functions of PopART's module that belong to no class.
---
--- Source: PopART Python API.
local check = require("lupine.base.check")
local core = require("lupine.core")
local devices = require("popart.devices")
local errors = require("popart.errors")
local signatures = require("lupine.base.signatures")
local tensor_info = require("popart.tensor_info")

local M = {
  syncPatternFromString = devices.syncPatternFromString,
  syncPatternToString = devices.syncPatternToString,
}

-- The release whose names and defaults these are.
local RELEASE = { 3, 4, 0 }

--- The type and shape of a tensor.
--- error: TypeError
---@param ... any tensor
---@return popart.TensorInfo
function M.getTensorInfo(...)
  local tensor = check.one("getTensorInfo", "tensor", ...)
  errors.check(core.is_tensor(tensor), "TypeError", "getTensorInfo: expected a tensor, got %s",
    check.describe(tensor))
  return tensor_info.TensorInfo(tensor)
end
signatures.note(M.getTensorInfo, "getTensorInfo(tensor)", 1)

--- So many tiles, for SessionOptions.numIOTiles.
--- error: TypeError or ValueError
---@param ... any numIOTiles (integer, 0 unless given)
---@return integer
function M.NumIOTiles(...)
  local n = check.one("NumIOTiles", "numIOTiles", ...)
  return check.int(n or 0, "NumIOTiles: numIOTiles", { min = 0 })
end
signatures.note(M.NumIOTiles, "NumIOTiles(numIOTiles=0)", 1)

--- The release of PopART whose names and defaults these are.
---@return integer major, integer minor, integer point
function M.versionNumber()
  return table.unpack(RELEASE)
end

--- The same as text, with lupine's own version.
---@return string
function M.versionString()
  return ("%d.%d.%d (lupine %s)"):format(RELEASE[1], RELEASE[2], RELEASE[3], core.version)
end

--- What tells one build of PopART from another: lupine's version.
---@return string
function M.packageHash()
  return core.version
end

return M
