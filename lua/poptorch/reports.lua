--- The report files (lua/lupine/session/reports.lua) that an executor's options ask
--- for: Options.enableProfiling sets the engine options. Each model has a folder,
--- Options.modelName.
---
--- Sources: PopTorch API reference, Options.enableProfiling; user guide 4.11.2.
local engine_options = require("lupine.engine_options")
local logging = require("poptorch.logging")
local reports = require("lupine.session.reports")
local rules = require("poptorch.options.rules")

local M = {}

--- Whether any file is written.
---@param options poptorch.Options
---@return boolean
function M.wanted(options)
  return #engine_options.files(rules.engine_options(options)) > 0
end

--- Writes the files of a model.
--- error: OSError if that cannot be done
---@param s table the executor's state: options, training
---@param session lupine.Session
function M.write(s, session)
  local folder = reports.write(session, rules.engine_options(s.options),
    s.options.model_name or s.training and "training" or "inference")
  if folder then
    logging.info("reports of the model are in %s", folder)
  end
end

return M
