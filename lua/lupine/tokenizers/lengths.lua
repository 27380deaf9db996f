--- Truncation and padding of ids, as tokenizer.json or a script asks for them.
local reading = require("lupine.tokenizers.reading")
local core = require("lupine.core")

local field, word = reading.field, reading.word
local M = {}

local SIDES = { "Left", "Right" }

--- The rules of a description of truncation; nil without one.
---@param d any
---@return table?
function M.truncation(d)
  if d == nil or d == core.none then
    return nil
  end
  local where = "truncation"
  reading.object(d, where)
  return { max_length = field(d, "max_length", "integer", where),
    stride = field(d, "stride", "integer", where, 0),
    direction = word(d, "direction", SIDES, where, "Right"),
    strategy = word(d, "strategy", { "LongestFirst", "OnlyFirst", "OnlySecond" }, where,
      "LongestFirst") }
end

--- The rules of a description of padding; nil without one.
---@param d any
---@return table?
function M.padding(d)
  if d == nil or d == core.none then
    return nil
  end
  local where = "padding"
  reading.object(d, where)
  local out = { direction = word(d, "direction", SIDES, where, "Right"),
    multiple = field(d, "pad_to_multiple_of", "integer", where, core.none),
    id = field(d, "pad_id", "integer", where, 0),
    type_id = field(d, "pad_type_id", "integer", where, 0),
    token = field(d, "pad_token", "string", where, "[PAD]") }
  if type(d.strategy) == "table" then
    out.fixed = field(d.strategy, "Fixed", "integer", where .. ".strategy")
  elseif d.strategy ~= nil then
    word(d, "strategy", { "BatchLongest" }, where)
  end
  return out
end

local function cut(ids, n, direction)
  if #ids <= n then
    return ids
  end
  local first = direction == "Left" and #ids - n + 1 or 1
  return table.move(ids, first, first + n - 1, 1, {})
end

-- How long both may be that are `most` together.
local function shares(n1, n2, most)
  local less = math.min(n1, n2)
  local more = less > most and less or math.max(less, most - less)
  if less + more > most then
    less, more = most // 2, most - most // 2
  end
  if n1 > n2 then
    return more, less
  end
  return less, more
end

--- The ids of one text or two, cut to what is left beside `added` special tokens.
---@param rules table?
---@param a integer[]
---@param b integer[]?
---@param added integer
---@return integer[] a
---@return integer[]? b
function M.truncate(rules, a, b, added)
  local most = rules and math.max(rules.max_length - added, 0)
  if not rules or #a + (b and #b or 0) <= most then
    return a, b
  elseif rules.strategy == "LongestFirst" and b then
    local n1, n2 = shares(#a, #b, most)
    return cut(a, n1, rules.direction), cut(b, n2, rules.direction)
  elseif rules.strategy == "LongestFirst" then
    return cut(a, most, rules.direction), nil
  end
  local first = rules.strategy == "OnlyFirst"
  local target, other = first and a or b, first and b or a
  local left = target and most - (other and #other or 0) or -1
  if left <= 0 then
    reading.fail("truncation", "the %s text is too short to be cut to %d tokens",
      first and "first" or "second", rules.max_length)
  end
  target = cut(target, left, rules.direction)
  if first then
    return target, b
  end
  return a, target
end

--- How long texts of these lengths become.
---@param rules table
---@param longest integer
---@return integer
function M.padded(rules, longest)
  local n = rules.fixed or longest
  local m = rules.multiple
  return m and m > 0 and (n + m - 1) // m * m or n
end

return M
