--- What compiling a model tells: how far it is, on a terminal; which options it is
--- compiled with and why it is compiled again, in the log.
---
--- Source: PopTorch API reference, Options.showCompilationProgressBar; user guide
--- 4.11.1.
local core = require("lupine.core")
local Group = require("poptorch.options.group")
local logging = require("poptorch.logging")
local Progress = require("lupine.progress")
local tables = require("lupine.base.tables")
local variables = require("lupine.base.variables")

local M = {}

-- The trace, and what core.compile tells of.
local PARTS = 4

--- A bar on standard error if that is a terminal and the options want one; to be
--- closed.
---@param options poptorch.Options
---@return lupine.Progress?
function M.bar(options)
  if not options.show_compilation_progress_bar or not core.terminal_columns() then
    return nil
  end
  return Progress(PARTS, { desc = "Graph compilation" })
end

local function tell_option(key, value)
  if type(value) ~= "table" then
    logging.debug("poptorch.Options set %s to value %s", key, tostring(value))
    return
  end
  for _, k in ipairs(tables.keys(value)) do
    local v = type(value[k]) == "table" and Group.shown(value[k]) or tostring(value[k])
    if math.type(k) == "integer" then
      logging.debug("poptorch.Options added %s to %s", v, key)
    else
      logging.debug("poptorch.Options set %s[%s] to %s", key, k, v)
    end
  end
end

--- The options that a model is compiled with: DEBUG has all of them.
---@param options poptorch.Options
function M.options(options)
  if options.use_model ~= nil then
    logging.info("From the user configuration: Ipu model: %s",
      options.use_model and "Enabled" or "Disabled")
  end
  if logging.enabled("debug") then
    local values = options:toDict()
    for _, key in ipairs(tables.keys(values)) do
      tell_option(key, values[key])
    end
  end
end

-- The first lines of a program's text; all if the number is not above 0.
local function shortened(text, most)
  local lines = {}
  for line in text:gmatch("[^\n]+") do
    lines[#lines + 1] = line
  end
  if most <= 0 or #lines <= most then
    return text
  end
  return ("%s\n… and %d lines more (POPTORCH_MAX_GRAPH_LEN=%d)"):format(
    table.concat(lines, "\n", 1, most), #lines - most, most)
end

--- The text of what was compiled.
---@param session lupine.Session
function M.program(session)
  local most = variables.integer("POPTORCH_MAX_GRAPH_LEN", 0)
  if logging.prints_programs or logging.enabled("trace") then
    logging.debug("the program:\n%s", shortened(session.exec:step():text("step"), most))
  end
  if variables.text("POPTORCH_EXPORT_PROTO_FILE") then
    logging.warn("POPTORCH_EXPORT_PROTO_FILE: no file is written, programs cannot be exported "
      .. "as ONNX yet")
  end
end

--- Why a model is compiled that was compiled before and destroyed.
---@param matches boolean whether it is for the same arguments
---@param e any error of arguments.match if it is not
function M.again(matches, e)
  logging.info("the model was destroyed and is compiled again: %s",
    matches and "for the same arguments" or e.message)
end

return M
