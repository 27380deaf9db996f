--- A checkpoint on the disk: a folder of
---
---   NAME.safetensors   the tensors of one object, by key (any reader of safetensors
---                      reads model.safetensors)
---   state.json         everything else: by name, the description of its value as
---                      torch.save writes it (torch/serialization.lua), which keeps
---                      integers, floats, inf, NaN, dtypes and nil apart
---   manifest.json      format, version, what the checkpoint tells of itself, and of
---                      each file its bytes and their XXH3; its own is in "checksum",
---                      as if there were zeros
---
--- The manifest is written last, and the folder gets its name when all is on the disk:
--- one without a manifest, or whose files are others than it says, is no checkpoint.
--- Reading runs no code.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local serialization = require("torch.serialization")
local tables = require("lupine.base.tables")

local M = { FORMAT = "lupine.checkpoint", VERSION = 1 }

local MANIFEST, STATE = "manifest.json", "state.json"
local LONGEST = 64 << 20 -- bytes of a manifest

-- ---- names -----------------------------------------------------------------------

--- A name that can be a file's.
--- errors: TypeError, ValueError
---@param name any
---@param where string for messages
---@return string
function M.check_name(name, where)
  check.string(name, where .. ": a name")
  errors.check(name:find("^[%w_][%w_.-]*$") and #name <= 200, "ValueError",
    "%s: the name '%s': a name is also a file's: letters, digits, '_', '-' and '.' are allowed, "
    .. "of which the last two cannot come first", where, name)
  return name
end

-- ---- the manifest ----------------------------------------------------------------

local HEAD, DIGITS = '{"checksum":"', 16

local function checksum(text)
  return core.xxh3(HEAD .. ("0"):rep(DIGITS) .. text:sub(#HEAD + DIGITS + 1))
end

--- The text of a manifest with the right checksum in it.
---@param text string that begins with a checksum of zeros
---@return string
function M.sign(text)
  return HEAD .. checksum(text) .. text:sub(#HEAD + DIGITS + 1)
end

-- Its key comes first in the alphabet.
local function manifest_text(manifest)
  manifest.checksum = ("0"):rep(DIGITS)
  return M.sign(core.json_encode(manifest))
end

local function damaged(folder, why, ...)
  errors.raise("ValueError", "the checkpoint '%s' cannot be used: %s", folder, why:format(...))
end

--- A manifest from its text, whose checksum is right.
--- error: ValueError
---@param text string
---@param folder string for messages
---@return table
function M.parse(text, folder)
  if checksum(text) ~= text:sub(#HEAD + 1, #HEAD + DIGITS) or text:sub(1, #HEAD) ~= HEAD then
    damaged(folder, "%s is damaged: its checksum is another one", MANIFEST)
  end
  local ok, m = pcall(core.json_decode, text, MANIFEST)
  local fits = ok and type(m) == "table" and m.format == M.FORMAT and type(m.files) == "table"
    and math.type(m.version) == "integer"
  if not fits then
    damaged(folder, "%s is no manifest of a checkpoint", MANIFEST)
  elseif m.version > M.VERSION then
    damaged(folder, "it is of format %d, this is lupine %s, which reads up to %d", m.version,
      core.version, M.VERSION)
  end
  for name, file in pairs(m.files) do
    if type(file) ~= "table" or math.type(file.bytes) ~= "integer" or type(file.xxh3) ~= "string"
      or not name:find("^[%w_][%w_.-]*$") then
      damaged(folder, "%s: the file '%s' is described wrongly", MANIFEST, name)
    end
  end
  return m
end

-- A file's hash and bytes; it is missing aloud.
local function hash_of(folder, name)
  local ok, hash, bytes = pcall(core.hash_file, folder .. "/" .. name)
  if not ok and errors.classes.FileNotFoundError:is(hash) then
    damaged(folder, "the file %s is missing: it is no checkpoint, or not a whole one", name)
  elseif not ok then
    error(hash, 0)
  end
  return hash, bytes
end

local function text_of(folder, name, most)
  local _, bytes = hash_of(folder, name)
  if bytes > most then
    damaged(folder, "%s has %d bytes, at most %d are read", name, bytes, most)
  end
  return core.read_within(folder, name, 0, bytes):tobytes()
end

--- What a manifest tells of the checkpoint itself.
--- error: ValueError
---@param m table
---@param folder string for messages
---@return table
function M.told(m, folder)
  local where = ("checkpoint '%s': %s"):format(folder, MANIFEST)
  local info = serialization.restore(m.info, {}, {}, where)
  if type(info) ~= "table" then
    damaged(folder, "%s: info is no table", MANIFEST)
  end
  return info
end

--- Whether a folder looks like a checkpoint: it has a manifest.
---@param folder string
---@return boolean
function M.is_there(folder)
  return (pcall(core.read_within, folder, MANIFEST, 0, 0)) -- of a pipe nothing is waited for
end

--- What a checkpoint tells of itself; its other files are not looked at.
--- errors: OSError, ValueError (one that is damaged, half there or of a later format)
---@param folder string
---@return table info as it was saved
---@return table manifest
function M.info(folder)
  errors.check(core.is_folder(folder), "FileNotFoundError", "there is no checkpoint '%s'", folder)
  local m = M.parse(text_of(folder, MANIFEST, LONGEST), folder)
  return M.told(m, folder), m
end

-- ---- writing ---------------------------------------------------------------------

local function note(files, path, name)
  local hash, bytes = core.hash_file(path .. "/" .. name)
  files[name] = { bytes = bytes, xxh3 = hash }
end

-- The files of a checkpoint in a folder that is not its yet.
local function fill(path, states, info, objects)
  local files, values = {}, {}
  for _, name in ipairs(tables.keys(states)) do
    local description, parts = serialization.describe(states[name], "checkpoint: " .. name)
    values[name] = description
    if #parts.names > 0 then
      local file = name .. ".safetensors"
      core.write_safetensors(path .. "/" .. file, parts.names, parts.tensors, { format = "pt" })
      note(files, path, file)
    end
  end
  core.write_text(path .. "/" .. STATE, core.json_encode(values))
  note(files, path, STATE)
  core.write_text(path .. "/" .. MANIFEST, manifest_text({ format = M.FORMAT,
    version = M.VERSION, lupine = core.version, files = files, objects = tables.array(objects),
    info = serialization.describe(info, "checkpoint: info") }))
end

--- Writes a checkpoint within `parent`, under the first of the names that is free.
--- errors: OSError, TypeError and ValueError for what cannot be saved; nothing is left
--- of it then, and what was there is there still
---@param parent string a folder that is there
---@param names fun(k: integer): string? the names, by number from 1
---@param states table<string, any> plain data and tensors by name
---@param info table plain data
---@param objects string[] which of the states are objects'
---@param replace? boolean take the place of a checkpoint that has the name
---@return string name
function M.write(parent, names, states, info, objects, replace)
  local new <close> = core.new_folder(parent)
  fill(new:path(), states, info, objects)
  local k = 0
  repeat
    k = k + 1
    local name = names(k)
    errors.check(name, "OSError", "checkpoint: '%s': something is there already", parent)
    local done = new:rename(parent .. "/" .. name, replace)
    if done then
      return name
    end
  until false
end

-- ---- reading ---------------------------------------------------------------------

local function verify(folder, m)
  for _, name in ipairs(tables.keys(m.files)) do
    local file, hash, bytes = m.files[name], hash_of(folder, name)
    if bytes ~= file.bytes then
      damaged(folder, "the file %s has %d bytes, it was written with %d", name, bytes, file.bytes)
    elseif hash ~= file.xxh3 then
      damaged(folder, "the file %s is damaged: its checksum is another one", name)
    end
  end
end

-- The value of a description and its file of tensors.
local function value_of(folder, name, description, file)
  local names, tensors = {}, {}
  if file then
    names, tensors = core.read_safetensors(file)
  end
  return serialization.restore(description, names, tensors, ("checkpoint '%s': %s"):format(folder,
    name))
end

--- All of a checkpoint, each file of which is as it was written.
--- errors: OSError, ValueError (one that is damaged, half there or of a later format)
---@param folder string
---@return table<string, any> states by name
---@return table info
---@return table<string, boolean> objects which names are objects'
function M.read(folder)
  local info, m = M.info(folder)
  verify(folder, m)
  if not m.files[STATE] then
    damaged(folder, "%s does not name %s", MANIFEST, STATE)
  end
  local values = core.json_decode(text_of(folder, STATE, m.files[STATE].bytes),
    folder .. "/" .. STATE)
  if type(values) ~= "table" then
    damaged(folder, "%s holds no values", STATE)
  end
  local states = {}
  for name, description in next, values do
    local file = name .. ".safetensors"
    states[name] = value_of(folder, name, description, m.files[file] and folder .. "/" .. file)
  end
  return states, info, tables.set(type(m.objects) == "table" and m.objects or {})
end

return M
