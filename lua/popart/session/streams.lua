--- What of a session is below its run: single buffers, files of weights, other processes'
--- weights. Programs here have no streams or functions that a script could give them, and
--- those that would are refused.
---
--- Source: PopART Python API, Session.
local check = require("lupine.base.check")
local errors = require("popart.errors")
local loading = require("popart.session.loading")
local model_file = require("popart.session.model_file")
local own = require("popart.session.own")
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

--- The initializers whose data is in one file have it in another one, a copy, from now on:
--- modelToHost then names that.
--- error: popart_runtime_error for a file that is there, or that is not, or that no
--- initializer is in
--- source: PopART Python API, Session.updateExternallySavedTensorLocations
---@param fromLocation string
---@param toLocation string
function methods:updateExternallySavedTensorLocations(fromLocation, toLocation)
  local where = "updateExternallySavedTensorLocations: "
  model_file.move(own.state(self), check.string(fromLocation, where .. "fromLocation"),
    check.string(toLocation, where .. "toLocation"))
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
  runWithHandle = "a session has one program: session:run(stepio)",
  fromIr = "models are ONNX: popart.Builder makes them",
  setDeviceInfo = "give deviceInfo to the constructor",
  copyToRemoteBuffer = "tensors off the chip are written as others: session:writeWeights",
}

for name, advice in pairs(REFUSED) do
  methods[name] = function()
    errors.raise("popart_exception", "Session:%s is not supported: %s", name, advice)
  end
end

return M
