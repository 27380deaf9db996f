--- `lupine new NAME`: a small project that trains at once.
local codes = require("lupine.commands")
local core = require("lupine.core")
local project = require("lupine.commands.project")
local tables = require("lupine.base.tables")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine new NAME
Writes a project into the new folder NAME: a run file, a model, its data and a spec of
both, which runs at once: cd NAME && lupine run run.yaml
]]

local OPTIONS = {}

local function help()
  return USAGE .. "  -h, --help        print this\n"
end

local LONGEST = 100

local function check_name(rest)
  local name = rest[1]
  if not name then
    words.refuse("no name is given")
  elseif rest[2] then
    words.refuse("'%s' is one word too many", rest[2])
  elseif not name:find("^%a[%w_-]*$") or #name > LONGEST then
    words.refuse("'%s' is no name: letters, digits, '_' and '-' are allowed, a letter first, "
      .. "and at most %d of them", name, LONGEST)
  end
  return name
end

local function write(folder, name)
  core.make_folder(folder .. "/spec")
  for path, text in pairs(project) do
    core.write_text(folder .. "/" .. path, (text:gsub("@NAME@", name)))
  end
end

local function prepare(_, rest)
  local name = check_name(rest)
  return function()
    local new <close> = core.new_folder(".")
    write(new:path(), name)
    if not new:rename(name) then
      io.stderr:write(("lupine new: '%s' is there already; nothing is overwritten\n"):format(name))
      return codes.ERROR
    end
    print(("%s: %s"):format(name, table.concat(tables.keys(project), " ")))
    print(("cd %s && lupine run run.yaml"):format(name))
    return codes.DONE
  end
end

--- Runs with the words of the command line after "new".
---@param ... string
---@return integer? exit code
function M.run(...)
  return words.run("new", OPTIONS, help, prepare, ...)
end

return M
