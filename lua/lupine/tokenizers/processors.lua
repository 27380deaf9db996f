--- What puts special tokens around the ids of one text or of a pair, by the names of
--- tokenizer.json: lists of parts, {"sequence", "A", type} or {"token", id, type}.
local reading = require("lupine.tokenizers.reading")

local field = reading.field
local M = {}

-- [token, id] of BertProcessing and RobertaProcessing.
local function pair_id(d, name, where)
  local list = field(d, name, "array", where)
  local id = list[2]
  if type(list[1]) ~= "string" or math.type(id) ~= "integer" or id < 0 then
    reading.fail(where .. "." .. name, "expected [token, id]")
  end
  return id
end

function M.BertProcessing(d, where)
  local sep, cls = pair_id(d, "sep", where), pair_id(d, "cls", where)
  local one = { { "token", cls, 0 }, { "sequence", "A", 0 }, { "token", sep, 0 } }
  return { single = one, pair = { one[1], one[2], one[3], { "sequence", "B", 1 },
    { "token", sep, 1 } } }
end

function M.RobertaProcessing(d, where)
  local sep, cls = pair_id(d, "sep", where), pair_id(d, "cls", where)
  local first, last = { "token", cls, 0 }, { "token", sep, 0 }
  return { single = { first, { "sequence", "A", 0 }, last }, pair = { first,
    { "sequence", "A", 0 }, last, last, { "sequence", "B", 0 }, last } }
end

-- A special token may be several ids.
local function read_special(d, where)
  local out = {}
  for name, special in next, field(d, "special_tokens", "object", where) do
    local own = ("%s.special_tokens['%s']"):format(where, name)
    local ids = {}
    for i, id in ipairs(field(reading.object(special, own), "ids", "array", own)) do
      if math.type(id) ~= "integer" or id < 0 then
        reading.fail(own, "expected ids, got %s", tostring(id))
      end
      ids[i] = id
    end
    out[name] = ids
  end
  return out
end

local function add_piece(parts, piece, where, special)
  reading.object(piece, where)
  local kind = piece.Sequence and "Sequence" or "SpecialToken"
  local own = field(piece, kind, "object", where)
  local id = field(own, "id", "string", where)
  local type_id = field(own, "type_id", "integer", where, 0)
  if kind == "Sequence" then
    if id ~= "A" and id ~= "B" then
      reading.fail(where, "expected the sequence A or B, got %q", id)
    end
    parts[#parts + 1] = { "sequence", id, type_id }
    return
  elseif not special[id] then
    reading.fail(where, "special_tokens has no '%s'", id)
  end
  for _, token in ipairs(special[id]) do
    parts[#parts + 1] = { "token", token, type_id }
  end
end

function M.TemplateProcessing(d, where)
  local special, out = read_special(d, where), {}
  for _, name in ipairs({ "single", "pair" }) do
    out[name] = {}
    for i, piece in ipairs(field(d, name, "array", where)) do
      add_piece(out[name], piece, ("%s.%s[%d]"):format(where, name, i - 1), special)
    end
  end
  return out
end

-- It changes offsets alone.
function M.ByteLevel()
  return false
end

-- The one of a sequence that puts tokens around: with two the second would take the first's
-- for text.
local parts = reading.sequence(M, "processors")
function M.Sequence(d, where, depth)
  local found = false
  for _, part in ipairs(parts(d, where, depth)) do
    if part and found then
      reading.fail(where, "only one processor of a Sequence may add tokens")
    end
    found = part or found
  end
  return found
end

return {
  --- {single, pair} of a description; without one false.
  ---@param d any
  ---@return table|false
  make = function(d)
    return reading.part(M, d, "post_processor") or false
  end,
}
