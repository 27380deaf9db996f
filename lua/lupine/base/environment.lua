--- The library's own globals: `table = {}` or `type = "cnn"` in a script is the
--- script's business, and breaks nothing here.
---
--- Loading this file, which lupine.core does, puts a searcher into
--- package.searchers that gives the library's files an environment with what
--- the standard globals were then; other names are the script's globals. Files
--- whose loading led here have begun with the script's: theirs is exchanged.
--- A library that a script had replaced before is taken from package.loaded.
local _G, package = _G, require("package")
local debug, string = require("debug"), require("string")
local getinfo, getlocal = debug.getinfo, debug.getlocal
local loadfile, error = loadfile, error

local LIBRARIES = { "coroutine", "debug", "io", "math", "os", "package", "string", "table", "utf8" }
local FUNCTIONS = { "assert", "collectgarbage", "dofile", "error", "getmetatable", "ipairs", "load",
  "loadfile", "next", "pairs", "pcall", "print", "rawequal", "rawget", "rawlen", "rawset",
  "require", "select", "setmetatable", "tonumber", "tostring", "type", "warn", "xpcall",
  "_VERSION" }

local own = setmetatable({ _G = _G }, { __index = _G })
for _, name in ipairs(LIBRARIES) do
  own[name] = package.loaded[name]
end
for _, name in ipairs(FUNCTIONS) do
  own[name] = _G[name]
end

-- Where the library's files are.
local root = getinfo(1, "S").source:match("^@(.*)lupine[/\\]base[/\\]environment%.lua$")

local function is_own(path)
  return root ~= nil and string.sub(path, 1, #root) == root
end

local function search(name)
  local path = package.searchpath(name, package.path)
  if not path or not is_own(path) then
    return nil
  end
  local chunk, problem = loadfile(path, "t", own)
  if not chunk then
    error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, problem), 0)
  end
  return chunk, path
end

-- The chunks of files that are being loaded now.
local level, info = 1, getinfo(1, "Sf")
while info do
  local _, path = getlocal(level, -2) -- require gives a chunk its name and its path
  if info.what == "main" and path and info.source == "@" .. path and is_own(path) then
    debug.setupvalue(info.func, 1, own)
  end
  level = level + 1
  info = getinfo(level, "Sf")
end

-- After what is preloaded.
own.table.insert(package.searchers, 2, search)

return own
