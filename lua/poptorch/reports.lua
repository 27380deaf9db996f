--- Report files of compiled models, as engine options ask for them: those that
--- Options.enableProfiling sets and those of POPLAR_ENGINE_OPTIONS.
---
--- In autoReport.directory (the current one unless given) each model has a folder,
--- Options.modelName, with
---   profile.json  what executor:report() says: {"report": …, "plan": {"nodes": …}},
---                 in the names of lupine.report.fields()
---   summary.txt   the same as report:summary()
---   debug.json    operators with module path, file, line, IPU and stage
---   graph.txt     the program's text
--- each of an option (FILES below) or of autoReport.all, which single ones take away
--- again. A file is replaced as a whole. What the figures are of is fixed when the
--- model is compiled, so that is when they are written.
---
--- Sources: PopTorch API reference, Options.enableProfiling; user guide 4.11.2.
local core = require("lupine.core")
local logging = require("poptorch.logging")
local rules = require("poptorch.options.rules")

local M = {}

-- The operators, without their figures.
local function debug_text(report)
  local list = setmetatable({ n = 0 }, core.json_array)
  for i, node in ipairs(report:nodes()) do
    list[i] = { operator = node.operator, scope = node.scope, file = node.file, line = node.line,
      ipu = node.ipu, stage = node.stage }
    list.n = i
  end
  return core.json_encode(list, 1)
end

-- File, the engine option that asks for it, its text.
local FILES = {
  { "profile.json", "autoReport.outputGraphProfile", function(session)
    return session.report:json()
  end },
  { "summary.txt", "autoReport.outputExecutionProfile", function(session)
    return session.report:summary()
  end },
  { "debug.json", "autoReport.outputDebugInfo", function(session)
    return debug_text(session.report)
  end },
  { "graph.txt", "autoReport.outputSerializedGraph", function(session)
    return session.exec:step():text("step")
  end },
}

--- Engine options that are read here.
---@type table<string, boolean>
M.ENGINE = { ["autoReport.all"] = true, ["autoReport.directory"] = true }
for _, file in ipairs(FILES) do
  M.ENGINE[file[2]] = true
end

local function asked(engine, key)
  local own = engine[key]
  return own == "true" or own ~= "false" and engine["autoReport.all"] == "true"
end

--- Whether any file is written.
---@param options poptorch.Options
---@return boolean
function M.wanted(options)
  local engine = rules.engine_options(options)
  for _, file in ipairs(FILES) do
    if asked(engine, file[2]) then
      return true
    end
  end
  return false
end

--- Writes the files of a model.
--- error: OSError if that cannot be done
---@param s table the executor's state: options, training
---@param session lupine.Session
function M.write(s, session)
  if not M.wanted(s.options) then
    return
  end
  local engine = rules.engine_options(s.options)
  local folder = ("%s/%s"):format(engine["autoReport.directory"] or ".",
    s.options.model_name or s.training and "training" or "inference")
  core.make_folder(folder)
  for _, file in ipairs(FILES) do
    if asked(engine, file[2]) then
      core.write_text(("%s/%s"):format(folder, file[1]), file[3](session))
    end
  end
  logging.info("reports of the model are in %s", folder)
end

return M
