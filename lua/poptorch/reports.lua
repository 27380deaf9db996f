--- The report files (lua/lupine/session/reports.lua) that an executor's options ask
--- for: Options.enableProfiling sets the engine options. Each model has a folder,
--- Options.modelName.
---
--- Sources: PopTorch API reference, Options.enableProfiling; user guide 4.11.2.
local engine_options = require("lupine.engine_options")
local errors = require("lupine.base.errors")
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

local function name_of(s)
  return s.options.model_name or s.training and "training" or "inference"
end

--- Makes the folder of a model that is to be compiled, if it is to have files.
--- error: OSError naming the option if that cannot be done
---@param s table the executor's state: options, training
function M.prepare(s)
  local engine = rules.engine_options(s.options)
  if s.options.profile_dir and s.options.profile_dir == engine["autoReport.directory"] then
    errors.within("enableProfiling", reports.prepare, engine, name_of(s))
  else
    reports.prepare(engine, name_of(s))
  end
end

--- Writes the files of a model.
--- error: OSError if that cannot be done
---@param s table the executor's state: options, training
---@param session lupine.Session
function M.write(s, session)
  local folder = reports.write(session, rules.engine_options(s.options), name_of(s))
  if folder then
    logging.info("reports of the model are in %s", folder)
  end
end

return M
