--- Conditions on runs, as words of a command line have them: status=failed,
--- optimizer.args.lr<0.01, validation.accuracy>=0.9, name=base-*.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local listing = require("lupine.run.listing")

local M = {}

-- What is neither a key of the run file nor a metric.
local FACTS = {
  status = function(entry)
    return entry:status()
  end,
  name = function(entry)
    return entry.name
  end,
  step = function(entry)
    return entry:step()
  end,
  age = function(entry)
    return entry:age()
  end,
}

--- The value of a leaf of a configuration; a list is its text, and null is nil.
---@param leaf table
---@return any
function M.plain(leaf)
  if leaf.value == nil and leaf.text ~= "null" then
    return leaf.text
  end
  return leaf.value
end

--- The value of a key of the run file, a metric (its last value), status, name, step or
--- age (in seconds); nil: the run has none.
---@param entry lupine.run.Entry
---@param key string
---@return any
function M.value(entry, key)
  if FACTS[key] then
    return FACTS[key](entry)
  end
  local leaf = entry:config()[key]
  if leaf then
    return M.plain(leaf)
  end
  return entry:last(key)
end

local COMPARE = {
  ["<"] = function(a, b)
    return a < b
  end,
  ["<="] = function(a, b)
    return a <= b
  end,
  [">"] = function(a, b)
    return a > b
  end,
  [">="] = function(a, b)
    return a >= b
  end,
}

local function equal(value, text)
  local number = tonumber(text)
  if type(value) == "number" and number then
    return value == number
  elseif value == nil then
    return text == "null" or text == ""
  end
  return tostring(value):find(listing.pattern(text)) ~= nil
end

local STATUSES = { "running", "finished", "interrupted", "failed", "died", "damaged" }

-- Refuses a status that no run can have.
local function check_status(word, text)
  for _, status in ipairs(STATUSES) do
    if status:find(listing.pattern(text)) then
      return
    end
  end
  errors.raise("ValueError", "%s: no run is '%s'%s; allowed are %s", word, text,
    check.nearest(text, STATUSES), table.concat(STATUSES, ", "))
end

--- The condition that a word says; nil: it says none.
--- error: ValueError
---@param word string
---@return {key: string, holds: fun(entry: lupine.run.Entry): boolean}?
function M.read(word)
  local key, operator, text = word:match("^([%w_.]+)([<>=!]=?)(.*)$")
  if not key or operator == "!" then
    return nil
  end
  local compare, number = COMPARE[operator], tonumber(text)
  errors.check(not compare or number, "ValueError", "%s: expected a number behind '%s', got '%s'",
    word, operator, text)
  if key == "status" then
    check_status(word, text)
  end
  return { key = key, word = word, holds = function(entry)
    local value = M.value(entry, key)
    if compare then
      return type(value) == "number" and compare(value, number)
    end
    return equal(value, text) == (operator ~= "!=")
  end }
end

-- Names that runs have; the key is none of them.
local function names_of(entries)
  local names, known = {}, {}
  local function add(name)
    if not known[name] then
      known[name], names[#names + 1] = true, name
    end
  end
  for name in pairs(FACTS) do
    add(name)
  end
  for _, entry in ipairs(entries) do
    for name in pairs(entry:config()) do
      add(name)
    end
    for _, row in ipairs(entry:rows()) do
      for name in pairs(row) do
        add(name)
      end
    end
  end
  return names
end

-- Refuses a key that no run has.
local function check_key(entries, key, word)
  local known = FACTS[key] ~= nil
  for _, entry in ipairs(entries) do
    known = known or entry:config()[key] ~= nil or #entry:rows(key) > 0
  end
  if known then
    return
  end
  errors.raise("ValueError", "%s: no run has '%s'%s; allowed are keys of the run file, "
    .. "metrics, status, name, step, age", word, key, check.nearest(key, names_of(entries)))
end

--- The entries for which all conditions hold.
--- error: ValueError for a key that none has
---@param entries lupine.run.Entry[]
---@param conditions table[] of M.read
---@return lupine.run.Entry[]
function M.apply(entries, conditions)
  for _, condition in ipairs(conditions) do
    if #entries > 0 and not FACTS[condition.key] then
      check_key(entries, condition.key, condition.word)
    end
  end
  local out = {}
  for _, entry in ipairs(entries) do
    local all = true
    for _, condition in ipairs(conditions) do
      all = all and condition.holds(entry)
    end
    out[#out + 1] = all and entry or nil
  end
  return out
end

--- Puts entries in the order of a value; those without one come last. "-lr": greatest
--- first.
--- error: ValueError for a key that none has
---@param entries lupine.run.Entry[]
---@param by string
function M.sort(entries, by)
  local key, down = by:gsub("^%-", "")
  if #entries > 0 and not FACTS[key] then
    check_key(entries, key, "--sort")
  end
  local values, place = {}, {}
  for i, entry in ipairs(entries) do
    values[entry], place[entry] = M.value(entry, key), i
  end
  table.sort(entries, function(a, b)
    local x, y = values[a], values[b]
    if x == nil or y == nil or x == y then
      if (x == nil) ~= (y == nil) then
        return y == nil
      end
      return place[a] < place[b]
    elseif type(x) ~= type(y) or type(x) == "boolean" then
      x, y = tostring(x), tostring(y)
    end
    if down > 0 then
      return x > y
    end
    return x < y
  end)
end

return M
