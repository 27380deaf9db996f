--- Texts of configuration as trees that remember where each value stood: YAML by
--- libyaml's events, JSON as the part of YAML that it is, after a strict reader has
--- accepted it. Scalars stay text; the schema says what they are
--- (lua/lupine/run/types.lua). Nothing in a text is ever run.
---
--- A node is one of
---   { kind = "map", keys = {name, …}, values = {name = node} }
---   { kind = "list", items = {node, …} }
---   { kind = "scalar", text = string, plain = boolean }   plain: without quotes
---   { kind = "scalar", value = any }                      of a Lua table
--- with `at`, where it stands ("run.yaml:12").
---
--- Sources: YAML 1.2.2 (yaml.org/spec/1.2.2); RFC 8259.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- What a file of configuration never needs, and a hostile one asks for.
local DEEPEST, MOST_BYTES = 64, 16 << 20
-- The key that brings another mapping's values, as YAML 1.1 has it.
local MERGE = "<<"

local function fail(at, ...)
  errors.raise("ConfigFileError", "%s: %s", at, string.format(...))
end

local Reader = {}
Reader.__index = Reader

function Reader:at(event)
  return ("%s:%d"):format(self.name, (event or self.event).start_mark.line + 1)
end

-- libyaml's own words have no name of the file and count lines from 1.
local function reworded(name, message)
  local what, line = tostring(message):match("^(.-) at document: %d+, line: (%d+)")
  if not what then
    return ("%s: %s"):format(name, tostring(message))
  end
  return ("%s:%s: %s"):format(name, line, what)
end

function Reader:next()
  local ok, event = pcall(self.parse)
  if not ok then
    errors.raise("ConfigFileError", "%s", reworded(self.name, event))
  end
  self.event = event
  return event
end

-- A tag names a type that only this reader's schema may choose; "!!str" says no more
-- than quotes do.
local STRING = { ["!"] = true, ["tag:yaml.org,2002:str"] = true }

function Reader:scalar(event)
  if event.tag and not STRING[event.tag] then
    fail(self:at(event), "the tag '%s' is not read; the schema knows each value's type", event.tag)
  end
  return { kind = "scalar", text = event.value, at = self:at(event),
    plain = event.style == "PLAIN" and not event.tag }
end

function Reader:list(event, depth)
  local node = { kind = "list", items = {}, at = self:at(event) }
  while self:next().type ~= "SEQUENCE_END" do
    node.items[#node.items + 1] = self:value(depth)
  end
  return node
end

--- Sets a value of a map; an older one of the name is replaced where it stands.
---@param map table a node
---@param key string
---@param value table a node
function M.set(map, key, value)
  if not map.values[key] then
    map.keys[#map.keys + 1] = key
  end
  map.values[key] = value
end

-- What `<<` brings: values of names that the map itself does not have.
local function merge(map, from)
  local sources = from.kind == "list" and from.items or { from }
  for _, source in ipairs(sources) do
    if source.kind ~= "map" then
      fail(from.at, "'<<' takes a mapping or a list of them, got a %s", source.kind)
    end
    for _, key in ipairs(source.keys) do
      if not map.values[key] then
        M.set(map, key, source.values[key])
      end
    end
  end
end

function Reader:map(event, depth)
  local node = { kind = "map", keys = {}, values = {}, at = self:at(event) }
  local merged, first = {}, {}
  while self:next().type ~= "MAPPING_END" do
    local at = self:at()
    if self.event.type ~= "SCALAR" then
      fail(at, "a key has to be a name, not a list, a mapping or an alias")
    end
    local key = self:scalar(self.event)
    self:next()
    local value = self:value(depth)
    if key.text == MERGE and key.plain then
      merged[#merged + 1] = value
    elseif node.values[key.text] then
      fail(at, "'%s' stands here a second time; it is first at %s", key.text,
        first[key.text])
    else
      M.set(node, key.text, value)
      first[key.text] = at
    end
  end
  for _, from in ipairs(merged) do
    merge(node, from)
  end
  return node
end

-- An anchor's value is known from its end on, so that none contains itself.
function Reader:alias(event)
  local value = self.anchors[event.anchor]
  if not value then
    fail(self:at(event), "the alias *%s is used before the end of the value with this anchor, "
      .. "or there is none", event.anchor)
  end
  return value
end

local READ = { SCALAR = Reader.scalar, SEQUENCE_START = Reader.list, MAPPING_START = Reader.map,
  ALIAS = Reader.alias }

function Reader:value(depth)
  local event = self.event
  if depth > DEEPEST then
    fail(self:at(event), "lists and mappings within each other %d deep; at most %d are read",
      depth, DEEPEST)
  end
  local node = READ[event.type](self, event, depth + 1)
  if event.anchor and event.type ~= "ALIAS" then
    self.anchors[event.anchor] = node
  end
  return node
end

--- The tree of a YAML text; nil for one without a value.
--- error: ConfigFileError with file and line
---@param text string
---@param name string of the file, for messages
---@return table? node
function M.yaml(text, name)
  if #text > MOST_BYTES then
    fail(name, "the text has %d bytes; at most %d are read", #text, MOST_BYTES)
  end
  local reader = setmetatable({ name = name, anchors = {} }, Reader)
  local ok, parse = pcall(require("yaml").parser, text)
  if not ok then
    errors.raise("ConfigFileError", "%s", reworded(name, parse))
  end
  reader.parse = parse
  reader:next() -- the stream's start
  if reader:next().type == "STREAM_END" then
    return nil
  end
  reader:next()
  local node = reader:value(0)
  reader:next() -- the document's end
  if reader:next().type ~= "STREAM_END" then
    fail(reader:at(), "a second document begins here; a file of configuration has one")
  end
  return node
end

-- Characters beyond 16 bits, which JSON may write as two escapes and YAML as one.
local function joined(text)
  return (text:gsub("(\\+)u([dD][89abAB]%x%x)\\u([dD][c-fC-F]%x%x)", function(slashes, high, low)
    if #slashes % 2 == 0 then
      return nil
    end
    local code = 0x10000 + ((tonumber(high, 16) & 0x3ff) << 10 | tonumber(low, 16) & 0x3ff)
    return ("%sU%08x"):format(slashes, code)
  end))
end

--- The tree of a JSON text: strict, as RFC 8259 has it, equal names refused.
--- error: ConfigFileError with file and line
---@param text string
---@param name string of the file, for messages
---@return table? node
function M.json(text, name)
  local ok, e = pcall(core.json_decode, text)
  if not ok then
    errors.raise("ConfigFileError", "%s: %s", name, type(e) == "table" and e.message or e)
  end
  return M.yaml(joined(text), name)
end

local function of_table(value, at, depth, seen)
  if type(value) ~= "table" or getmetatable(value) then
    return { kind = "scalar", value = value, at = at }
  elseif seen[value] or depth > DEEPEST then
    fail(at, "a table contains itself, or tables stand within each other more than %d deep",
      DEEPEST)
  end
  seen[value] = true
  local node
  if #value > 0 or next(value) == nil then
    node = { kind = "list", items = {}, at = at, empty = #value == 0 }
    for i, item in ipairs(value) do
      node.items[i] = of_table(item, at, depth + 1, seen)
    end
  else
    node = { kind = "map", keys = {}, values = {}, at = at }
    for key in pairs(value) do
      if type(key) ~= "string" then
        fail(at, "a table has the key %s among names; keys are names, or all count from 1",
          tostring(key))
      end
      node.keys[#node.keys + 1] = key
    end
    table.sort(node.keys)
    for _, key in ipairs(node.keys) do
      node.values[key] = of_table(value[key], at, depth + 1, seen)
    end
  end
  seen[value] = nil
  return node
end

--- The tree of a Lua table, whose values have their types already.
--- error: ConfigFileError for keys that are no names, and cycles
---@param value table
---@param at string where it comes from
---@return table node
function M.lua(value, at)
  return of_table(value, at, 0, {})
end

return M
