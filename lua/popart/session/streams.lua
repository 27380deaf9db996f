--- What of a session is below its run: single buffers, files of weights, other processes'
--- weights. Programs here have no streams or functions that a script could give them, and
--- those that would are refused.
---
--- Source: PopART Python API, Session.
local check = require("lupine.base.check")
local errors = require("popart.errors")
local exists = require("lupine.base.exists")
local loading = require("popart.session.loading")
local tables = require("lupine.base.tables")

local M = { methods = {} }
local methods = M.methods

--- Buffers that SessionOptions.updatableNamedBuffers names go to the device.
--- errors: popart_runtime_error before prepareDevice; popart_exception for a name that no
--- initializer has, or if none is named
function methods:buffersFromHost()
  local s = loading.prepared(self, "buffersFromHost")
  local list = s.options.updatableNamedBuffers
  errors.check(#list > 0, "popart_exception", "buffersFromHost: "
    .. "SessionOptions.updatableNamedBuffers names no buffer")
  for _, name in ipairs(list) do
    errors.check(s.model.variables[name], "popart_exception", "buffersFromHost: no buffer '%s' "
      .. "(SessionOptions.updatableNamedBuffers)%s", name, check.nearest(name, s.model.order))
  end
  errors.guard("popart_runtime_error", function()
    loading.load(s)
    local names = tables.set(s.options.updatableNamedBuffers)
    s.session:upload_named("parameter", names)
    s.session:upload_named("buffer", names)
  end)
end

local EXTERNAL = 1

-- A tensor's entry that says in which file it is; nil: in the model.
local function location_of(t)
  for _, entry in ipairs(t.data_location == EXTERNAL and t.external_data or {}) do
    if entry.key == "location" then
      return entry
    end
  end
  return nil
end

--- The initializers that are in one file are in another from now on, which modelToHost
--- then names.
--- error: popart_runtime_error for a file that is there, or that is not, or that no
--- initializer is in
--- source: PopART Python API, Session.updateExternallySavedTensorLocations
---@param fromLocation string
---@param toLocation string
function methods:updateExternallySavedTensorLocations(fromLocation, toLocation)
  local s, where = rawget(self, "_s"), "updateExternallySavedTensorLocations: "
  check.string(fromLocation, where .. "fromLocation")
  check.string(toLocation, where .. "toLocation")
  local text = ("Updating externally saved tensor location from file '%s' to file '%s', but file ")
    :format(fromLocation, toLocation)
  errors.check(not exists(toLocation), "popart_runtime_error", "%s'%s' already exists", text,
    toLocation)
  errors.check(exists(fromLocation), "popart_runtime_error", "%s'%s' does not exist", text,
    fromLocation)
  local found = false
  for _, t in ipairs(s.model.proto.graph.initializer) do
    local entry = location_of(t)
    if entry and entry.value == fromLocation then
      entry.value, found = toLocation, true
    end
  end
  errors.check(found, "popart_runtime_error", "No ONNX model initializers have external location "
    .. "set to '%s'", fromLocation)
end

--- The weights of replica 0 go to all others: they have the same already, unless a variable
--- has a value for each group.
--- error: popart_runtime_error before prepareDevice
---@param rootRank? integer
function methods:broadcastWeights(rootRank)
  loading.prepared(self, "broadcastWeights")
  check.int(rootRank or 0, "broadcastWeights: rootRank", { min = 0 })
end

--- Compiled programs are in the cache's folder already: nothing is written.
function methods:updateEngineCache()
  loading.prepared(self, "updateEngineCache")
end

-- ---- what there is not ------------------------------------------------------------------

local REFUSED = {
  connectStream = "give inputs to session:run(stepio)",
  connectStreamToCallback = "give inputs to session:run(popart.PyStepIOCallback(...))",
  connectHostFunction = "programs call no functions of the host",
  copyFromRemoteBuffer = "tensors off the chip are read as others: session:readWeights",
  copyToRemoteBuffer = "tensors off the chip are written as others: session:writeWeights",
}

for name, advice in pairs(REFUSED) do
  methods[name] = function()
    errors.raise("popart_exception", "Session:%s is not supported: %s", name, advice)
  end
end

return M
