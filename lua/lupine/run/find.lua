--- Which run goes on: the folder or the name that was given, or the latest one that has
--- not come to its end.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folder = require("lupine.run.folder")

local M = {}

local function base(path)
  return path:match("([^/]+)/*$")
end

local function unfinished(runs)
  for _, run in ipairs(runs) do
    if run.facts.status ~= "finished" and not run:is_running() then
      return run
    end
  end
  return nil
end

-- The run of a folder that a word names: run-002, or run, of which it is the latest
-- that has not ended.
local function named(parent, word)
  local runs, names = folder.list(parent), {}
  for i, run in ipairs(runs) do
    names[i] = base(run.path)
    if names[i] == word then
      return run
    end
  end
  local found = unfinished(folder.list(parent, word)) or folder.list(parent, word)[1]
  errors.check(found, "FileNotFoundError", "there is no run '%s': neither is it a folder nor is it "
    .. "among those in '%s'%s", word, parent, #names > 0
    and (": " .. table.concat(names, ", ") .. check.nearest(word, names)) or ", where none is")
  return found
end

--- The run that is meant.
--- errors: FileNotFoundError, ValueError
---@param parent string where runs are
---@param word? string a folder or a name; nil: the latest
---@param name? string only those of this name, without a word
---@return lupine.run.Folder
function M.run(parent, word, name)
  if word and core.is_folder(word) then
    return folder.open(word)
  elseif word then
    return named(parent, word)
  end
  local runs = folder.list(parent, name)
  errors.check(#runs > 0, "FileNotFoundError", "there is no run%s in '%s'",
    name and (" '%s'"):format(name) or "", parent)
  return errors.check(unfinished(runs), "FileNotFoundError", "all runs%s in '%s' have come to "
    .. "their end, or are still trained; name one: --resume %s", name and (" '%s'"):format(name)
    or "", parent, runs[1].path)
end

return M
