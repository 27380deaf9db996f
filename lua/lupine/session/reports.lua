--- Report files of compiled programs, as Poplar's engine options ask for them.
---
--- In autoReport.directory (the current one unless given) each program has a folder
--- with
---   profile.json  what its report says: {"report": …, "plan": {"nodes": …}}, in the
---                 names of lupine.report.fields()
---   summary.txt   the same as report:summary()
---   debug.json    operators with module path, file, line, IPU and stage
---   graph.txt     the program's text
--- each of an option (FILES below) or of autoReport.all, which single ones take away
--- again. A file is replaced as a whole. What the figures are of is fixed when a
--- program is compiled, so that is when they are written.
---
--- Source: Poplar, engine creation options.
local core = require("lupine.core")
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
M.ENGINE = { ["autoReport.all"] = true, ["autoReport.directory"] = true,
  ["debug.allowOutOfMemory"] = true }
for _, file in ipairs(FILES) do
  M.ENGINE[file[2]] = true
end

local function asked(engine, key)
  local own = engine[key]
  return own == "true" or own ~= "false" and engine["autoReport.all"] == "true"
end

--- Whether any file is written.
---@param engine table<string, string> engine options
---@return boolean
function M.wanted(engine)
  for _, file in ipairs(FILES) do
    if asked(engine, file[2]) then
      return true
    end
  end
  return false
end

--- Whether a program may be compiled that does not fit the tiles: where it is to be
--- reported the engine goes on, unless told otherwise.
---@param engine table<string, string> engine options
---@return boolean
function M.allows_out_of_memory(engine)
  local told = engine["debug.allowOutOfMemory"]
  return told == "true" or told == nil and M.wanted(engine)
end

--- Writes the files that are asked for.
--- error: OSError if that cannot be done
---@param session lupine.Session
---@param engine table<string, string> engine options
---@param name string of the folder
---@return string? folder with its path; nil: no file was asked for
function M.write(session, engine, name)
  if not M.wanted(engine) then
    return nil
  end
  local folder = ("%s/%s"):format(engine["autoReport.directory"] or ".", name)
  core.make_folder(folder)
  for _, file in ipairs(FILES) do
    if asked(engine, file[2]) then
      core.write_text(("%s/%s"):format(folder, file[1]), file[3](session))
    end
  end
  return folder
end

return M
