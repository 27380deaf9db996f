--- A folder of compiled steps: what was compiled once is only lowered again.
---
--- An entry is an executable file (session/stored.lua) without weights, named
---     KEY-VERSION-FORMAT.lupine
--- KEY is the XXH3 of what fixes a compiled step and its report: the traced step's
--- text, without files and lines of scripts, that of the step which is planned in its
--- place, and the compile spec. Nothing in it depends on the CPU or on weights. Entries
--- are written as a whole or not at all; one that is damaged or of something else is
--- never trusted, it is written anew.
---
--- Who misses holds a lock on KEY while it compiles, so that of several processes
--- one compiles and the others load. Nobody takes entries away.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local exists = require("lupine.base.exists")
local stored = require("lupine.session.stored")
local tables = require("lupine.base.tables")

local M = {}

---@class lupine.session.Cache
---@field path string the folder; it is made if it is missing
---@field log fun(level: string, format: string, ...: any)

-- ---- keys -------------------------------------------------------------------------

-- A text of plain data in which equal data are equal.
local function canonical(value, out)
  if type(value) ~= "table" then
    out[#out + 1] = math.type(value) == "float" and ("%a"):format(value)
      or type(value) == "string" and ("%q"):format(value) or tostring(value)
    return
  end
  out[#out + 1] = "{"
  for _, key in ipairs(tables.keys(value)) do
    canonical(key, out)
    out[#out + 1] = "="
    canonical(value[key], out)
    out[#out + 1] = ","
  end
  out[#out + 1] = "}"
end

-- What is in the libraries that a step names, whose costs are in its report.
local function libraries_of(text)
  local found = {}
  for _, op in ipairs(core.custom_ops()) do
    if text:find(('library="%s"'):format(op.library), 1, true) then
      found[op.library] = op.hash
    end
  end
  return found
end

-- How the host runs a program, and who watches, changes nothing in it.
local APART = { host = true, progress = true }

--- What a traced step and its compile spec are stored under.
---@param step lupine.Step
---@param compile table core.compile's
---@param planned? lupine.Step what the simulated system sees in place of it
---@return string
function M.key(step, compile, planned)
  local text = step:text("key")
  local rest, out = { libraries = libraries_of(text) }, { text,
    planned and planned:text("key") or "" }
  for name, value in pairs(compile) do
    if not APART[name] then
      rest[name] = value
    end
  end
  canonical(rest, out)
  return core.xxh3(table.concat(out))
end

local VERSION = ("%s-%s"):format(core.version, core.executable_format)

local function file_of(cache, key)
  return ("%s/%s-%s.lupine"):format(cache.path, key, VERSION)
end

-- ---- looking up -------------------------------------------------------------------

-- Versions that have an entry of this key.
local function versions_of(cache, key)
  local _, files = core.list_folder(cache.path)
  local found = {}
  for _, name in ipairs(files) do
    found[#found + 1] = name:match("^" .. key .. "%-(.*)%.lupine$")
  end
  table.sort(found)
  return found
end

local function same_type(a, b)
  return a.role == b.role and a.name == b.name and a.dtype == b.dtype
    and table.concat(a.shape, " ") == table.concat(b.shape, " ")
end

-- The variables of a traced step are the first of the complete one. They give it
-- their data.
local function take_data(complete, step)
  local vars = complete:vars()
  for i, v in ipairs(step:vars()) do
    errors.check(vars[i] and same_type(v, vars[i]), "ValueError", "variable '%s' is another one",
      v.name)
    local data = step:data(i)
    if data then
      complete:bind(i, data)
    end
  end
end

-- The program of an entry with its report and step; raises if there is none.
local function load(path, step, compile, of)
  local file = stored.read(path)
  local why = stored.mismatch(file)
  errors.check(not why, "ValueError", "%s", why)
  local complete = stored.parse(file)
  take_data(complete, step)
  local program = core.lower(complete, { host = compile.host })
  return program, stored.report(file, of.planned or complete, compile.system, of.spelling),
    complete
end

-- {program, report, step}, or nil and why not.
local function look_up(cache, key, step, compile, of)
  local path = file_of(cache, key)
  if not exists(path) then
    local versions = versions_of(cache, key)
    return nil, #versions == 0 and "nothing is stored"
      or "stored by another version only: " .. table.concat(versions, ", ")
  end
  local found = table.pack(errors.try(load, path, step, compile, of))
  if found[1] then
    return { table.unpack(found, 2, 4) }
  end
  return nil, "a damaged file is ignored: "
    .. (errors.Exception:is(found[2]) and found[2].message or tostring(found[2]))
end

-- ---- compiling --------------------------------------------------------------------

local function unusable(cache, e)
  errors.raise_hint("cache_folder", "OSError", "the folder of the executable cache, %s, cannot be "
    .. "written: %s", cache.path, errors.Exception:is(e) and e.message or tostring(e))
end

local function lock(cache, key)
  local ok, held = errors.try(core.lock_file, file_of(cache, key) .. ".lock")
  if not ok then
    unusable(cache, held)
  end
  cache.log("debug", "executable cache: cache file locked, %s", key)
  return held
end

local function store(cache, key, step, report)
  local path = file_of(cache, key)
  local ok, e = errors.try(stored.write, path, stored.texts_of(step, report), {})
  if ok then
    cache.log("info", "executable cache: compiled and stored as %s", path)
  else
    cache.log("warn", "executable cache: %s could not be stored: %s", path, tostring(e))
  end
end

local function log_hit(cache, key)
  cache.log("info", "executable cache: hit, %s", file_of(cache, key))
end

-- With the lock: another process may have compiled it meanwhile. Only who does it
-- itself has missed it.
local function compile_locked(cache, key, step, compile, make, of)
  local held <close> = lock(cache, key)
  local found, why = look_up(cache, key, step, compile, of)
  if found then
    log_hit(cache, key)
  else
    cache.log("info", "executable cache: miss, %s: %s", key, why)
    local program, report = make(step, compile)
    store(cache, key, step, report)
    found = { program, report, step }
  end
  held:close()
  cache.log("debug", "executable cache: released the cache lock, %s", key)
  return found
end

--- The program of a traced step: from the cache, else made and stored there.
--- error: OSError if the folder can not be written; what `make` raises
---@param step lupine.Step
---@param compile table core.compile's
---@param cache lupine.session.Cache
---@param make fun(step: lupine.Step, compile: table): userdata, lupine.Report
---@param of {planned: lupine.Step?, spelling: table?} session.open's spec, of which it is
---@return userdata program
---@return lupine.Report
---@return lupine.Step the complete step of the program
function M.compile(step, compile, cache, make, of)
  local made, e = pcall(core.make_folder, cache.path)
  if not made then
    unusable(cache, e)
  end
  local key = M.key(step, compile, of.planned)
  local found = look_up(cache, key, step, compile, of)
  if found then
    log_hit(cache, key)
  else
    found = compile_locked(cache, key, step, compile, make, of)
  end
  return found[1], found[2], found[3]
end

return M
