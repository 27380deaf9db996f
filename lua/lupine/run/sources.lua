--- Where a configuration comes from: files with what they include, words of the command
--- line, and texts that name other values. All of it makes one tree of nodes
--- (lua/lupine/run/document.lua), later sources before earlier ones, in which every
--- node still knows where it stood.
local document = require("lupine.run.document")
local errors = require("lupine.base.errors")

local M = {}

local function fail(at, ...)
  errors.raise("ConfigFileError", "%s: %s", at, string.format(...))
end

local function read_text(path, from)
  local file, why = io.open(path, "rb")
  local text = file and file:read("a")
  if file then
    file:close()
  end
  if not text then
    local where = from and from .. ": include: " or ""
    errors.raise("FileNotFoundError", "%scannot read '%s': %s", where, path,
      why and why:match("^.*: (.-)$") or "it is no file")
  end
  return text
end

-- A run's folder says all of its values, so that each has to be one that a text can say.
local function check_plain(node, path)
  if node.kind == "scalar" then
    local kind = type(node.value)
    if kind == "table" or kind == "function" or kind == "userdata" or kind == "thread" then
      fail(path, "the program returned a %s among the values; a run file has texts, numbers, truth "
        .. "values, lists and tables by name (a class or function of your own is "
        .. "{class = \"FILE.lua:NAME\"})", kind)
    end
  end
  for _, inner in pairs(node.values or node.items or {}) do
    check_plain(inner, path)
  end
  return node
end

-- A run file in Lua is a program that returns the table; it is run, as any script is.
local function run_lua(path)
  local chunk, why = loadfile(path, "t")
  if not chunk then
    errors.raise("ConfigFileError", "%s", why)
  end
  local value = chunk(path)
  if type(value) ~= "table" or getmetatable(value) then
    fail(path, "the program has to return the table of keys, it returned a %s", type(value))
  end
  return check_plain(document.lua(value, path), path)
end

local READERS = {
  yaml = document.yaml, yml = document.yaml, json = document.json,
}

local function read(path, from)
  local kind = path:match("%.(%a+)$")
  local node
  if kind == "lua" then
    read_text(path, from):len()
    node = run_lua(path)
  elseif READERS[kind] then
    node = READERS[kind](read_text(path, from), path)
  else
    errors.raise("ConfigFileError", "'%s': a run file ends in .yaml, .yml, .json or .lua", path)
  end
  node = node or { kind = "map", keys = {}, values = {}, at = path }
  if node.kind ~= "map" and not node.empty then
    fail(node.at, "a run file is a mapping of keys, this is a %s", node.kind)
  end
  return node.kind == "map" and node or { kind = "map", keys = {}, values = {}, at = path }
end

-- Arguments of one class say nothing to another.
local function other_class(old, new)
  local before, now = old.values.class, new.values.class
  return before and now and (before.text or before.value) ~= (now.text or now.value)
end

--- Puts a tree over another: mappings are merged, everything else is replaced, as are
--- the arguments of an object whose class is another one now.
---@param old table? node
---@param new table node
---@return table node
function M.over(old, new)
  if not old or old.kind ~= "map" or new.kind ~= "map" or other_class(old, new) then
    return new
  end
  local out = { kind = "map", keys = {}, values = {}, at = new.at }
  for _, key in ipairs(old.keys) do
    document.set(out, key, old.values[key])
  end
  for _, key in ipairs(new.keys) do
    document.set(out, key, M.over(out.values[key], new.values[key]))
  end
  return out
end

local function beside(path, name)
  return name:sub(1, 1) == "/" and name or (path:match("^(.*/)") or "") .. name
end

local function included(node)
  local include = node.values.include
  if not include then
    return {}
  end
  local items = include.kind == "list" and include.items or { include }
  for _, item in ipairs(items) do
    if item.kind ~= "scalar" or type(item.text or item.value) ~= "string" then
      fail(item.at, "include: expected a file's name or a list of them")
    end
  end
  return items
end

--- The tree of a file, what it includes first.
--- error: ConfigFileError, FileNotFoundError
---@param path string
---@param from? string where it is included
---@param open? table<string, boolean> files that are being read
---@return table node
function M.file(path, from, open)
  open = open or {}
  if open[path] then
    fail(from or path, "include: '%s' includes itself", path)
  end
  open[path] = true
  local node = read(path, from)
  local out
  for _, item in ipairs(included(node)) do
    out = M.over(out, M.file(beside(path, item.text or item.value), item.at, open))
  end
  open[path] = nil
  return M.over(out, node)
end

-- A tree whose nodes stand where `where(at)` says; one node can be in many places.
local function placed(node, where, seen)
  seen = seen or {}
  if not seen[node] then
    seen[node] = true
    node.at = where(node.at)
    for _, inner in pairs(node.values or node.items or {}) do
      placed(inner, where, seen)
    end
  end
  return node
end

--- The tree of a text that config:yaml(true) made: nodes stand where its comments say.
--- error: ConfigFileError, FileNotFoundError
---@param path string
---@return table node
function M.with_origins(path)
  local origins = {}
  for line in (read_text(path) .. "\n"):gmatch("([^\n]*)\n") do
    origins[#origins + 1] = line:match("^.* # (.*)$") or false
  end
  return placed(M.file(path), function(at)
    local line = math.tointeger(tonumber(at:match(":(%d+)$")))
    return line and origins[line] or at
  end)
end

--- The tree that has one node, at a path with points.
---@param path string
---@param node table
---@return table node
function M.at_path(path, node)
  local keys = {}
  for key in path:gmatch("[^.]+") do
    table.insert(keys, 1, key)
  end
  for _, key in ipairs(keys) do
    node = { kind = "map", keys = { key }, values = { [key] = node }, at = node.at }
  end
  return node
end

local COMMAND_LINE = "command line"

--- The tree that a word `a.b=value` of the command line is; the value is YAML.
--- error: ConfigFileError
---@param word string
---@return table node
function M.word(word)
  local path, text = word:match("^([%w_.-]+)=(.*)$")
  local at = ("%s: %s"):format(COMMAND_LINE, word)
  if not path or path:find("^%.") or path:find("%.$") or path:find("..", 1, true) then
    fail(COMMAND_LINE, "expected key=value, as in optimizer.args.lr=0.1, got '%s'", word)
  end
  local ok, node = pcall(document.yaml, text, at)
  if not ok then
    node.message = node.message:gsub("^(.-):%d+:", "%1:", 1)
    error(node, 0)
  end
  node = node or { kind = "scalar", text = "", plain = true }
  return M.at_path(path, placed(node, function()
    return COMMAND_LINE
  end))
end

-- The node of a path with points; lists count from 1.
local function find(root, path)
  local node = root
  for key in path:gmatch("[^.]+") do
    if node.kind == "map" then
      node = node.values[key]
    else
      node = node.kind == "list" and node.items[math.tointeger(tonumber(key))] or nil
    end
    if not node then
      return nil
    end
  end
  return node
end

-- Names of variables whose values no file of a run shall have.
local SECRETS = { "TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "AUTH", "KEY$" }

local function is_secret(variable)
  for _, pattern in ipairs(SECRETS) do
    if variable:upper():find(pattern) then
      return true
    end
  end
  return false
end

local function environment(name, node)
  local variable, default = name:match("^env:([%w_]+)(.*)$")
  if not variable or default ~= "" and default:sub(1, 1) ~= "," then
    fail(node.at, "expected ${env:NAME} or ${env:NAME,default}, got ${%s}", name)
  end
  local value = os.getenv(variable)
  if not value and default == "" then
    fail(node.at, "the environment has no variable %s; ${env:%s,default} needs none", variable,
      variable)
  end
  local from = (" ($%s)"):format(variable) -- which what a run wrote says already
  return { kind = "scalar", text = value or default:sub(2), plain = true,
    written = is_secret(variable) and ("${%s}"):format(name) or nil,
    at = node.at:find(from, 1, true) and node.at or node.at .. from }
end

-- How many values one file may become: aliases of aliases make many out of few bytes.
local MOST_VALUES = 100000

local resolve

-- What `${name}` stands for.
local function referred(root, name, node, busy)
  if name:find("^env:") then
    return environment(name, node)
  end
  local target = find(root, name)
  if not target then
    fail(node.at, "${%s}: the configuration has no value '%s'", name, name)
  end
  return resolve(root, target, busy)
end

local function joined(root, node, busy)
  local secret = false
  local text = node.text:gsub("%$(%$*){([^{}]*)}", function(more, name)
    if #more > 0 then
      return ("%s{%s}"):format(more, name) -- "$${a}" is the text "${a}"
    end
    local found = referred(root, name, node, busy)
    if found.kind ~= "scalar" then
      fail(node.at, "${%s} is a %s; only a number or text can stand within a text", name,
        found.kind)
    end
    secret = secret or found.written ~= nil
    return tostring(found.text or found.value)
  end)
  return { kind = "scalar", text = text, plain = node.plain, at = node.at,
    written = secret and node.text or nil }
end

-- A node with its references replaced. `busy` are those on the way to it, and how many
-- there have been.
function resolve(root, node, busy)
  busy.count = busy.count + 1
  if busy[node] then
    fail(node.at, "this value refers to itself")
  elseif busy.count > MOST_VALUES then
    fail(node.at, "at most %d values are read", MOST_VALUES)
  end
  busy[node] = true
  local out = node
  if node.kind == "scalar" and node.text and node.text:find("${", 1, true) then
    local whole = node.text:match("^%${([^{}]*)}$")
    out = whole and referred(root, whole, node, busy) or joined(root, node, busy)
  elseif node.kind == "list" then
    out = { kind = "list", items = {}, at = node.at, empty = node.empty }
    for i, item in ipairs(node.items) do
      out.items[i] = resolve(root, item, busy)
    end
  elseif node.kind == "map" then
    out = { kind = "map", keys = node.keys, values = {}, at = node.at }
    for _, key in ipairs(node.keys) do
      out.values[key] = resolve(root, node.values[key], busy)
    end
  end
  busy[node] = nil
  return out
end

--- The tree with each `${a.b}` and `${env:NAME}` replaced by what it names. What has a
--- secret of the environment in it keeps how it was written, too: files of a run have that.
--- error: ConfigFileError
---@param root table node
---@return table node
function M.resolved(root)
  return resolve(root, root, { count = 0 })
end

return M
