--- Report files of compiled programs, as Poplar's engine options ask for them.
---
--- In autoReport.directory (the current one unless given) each program has a folder
--- with
---   profile.json  what its report says: {"report": …, "plan": {"nodes": …}}, in the
---                 names of lupine.report.fields()
---   summary.txt   the same as report:summary()
---   debug.json    operators with module path, file, line, IPU and stage
---   graph.txt     the program's text
--- each of an option of its own (lupine/engine_options.lua) or of autoReport.all. A file
--- is replaced as a whole. What the figures are of is fixed when a program is compiled,
--- so that is when they are written.
---
--- Source: Poplar, engine creation options.
local core = require("lupine.core")
local engine_options = require("lupine.engine_options")
local folders = require("lupine.base.folders")
local tables = require("lupine.base.tables")

local M = {}

-- The operators, without their figures.
local function debug_text(report)
  local list = tables.array({ n = 0 })
  for i, node in ipairs(report:nodes()) do
    list[i] = { operator = node.operator, scope = node.scope, file = node.file, line = node.line,
      ipu = node.ipu, stage = node.stage }
    list.n = i
  end
  return core.json_encode(list, 1)
end

-- The text of each file that engine options may ask for.
local TEXTS = {
  ["profile.json"] = function(session)
    return session.report:json()
  end,
  ["summary.txt"] = function(session)
    return session.report:summary()
  end,
  ["debug.json"] = function(session)
    return debug_text(session.report)
  end,
  ["graph.txt"] = function(session)
    return session.exec:step():text("step")
  end,
}

-- What writes into a model's folder, whose errors name the engine option.
local function writing(engine, name, f)
  local folder = ("%s/%s"):format(engine_options.value(engine, "autoReport.directory"), name)
  folders.writing("the engine option autoReport.directory", folder, f, folder)
  return folder
end

--- Makes the folder of a model that is to be compiled, if files are asked for.
--- error: OSError naming the engine option if that cannot be done
---@param engine table<string, string> engine options
---@param name string of the folder
function M.prepare(engine, name)
  if #engine_options.files(engine) > 0 then
    writing(engine, name, core.make_folder)
  end
end

--- Writes the files that are asked for.
--- error: OSError naming the engine option if that cannot be done
---@param session lupine.Session
---@param engine table<string, string> engine options
---@param name string of the folder
---@return string? folder with its path; nil: no file was asked for
function M.write(session, engine, name)
  local files = engine_options.files(engine)
  if #files == 0 then
    return nil
  end
  return writing(engine, name, function(folder)
    core.make_folder(folder)
    for _, file in ipairs(files) do
      core.write_text(("%s/%s"):format(folder, file), TEXTS[file](session))
    end
  end)
end

return M
