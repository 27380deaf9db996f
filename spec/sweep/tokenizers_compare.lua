-- One case of spec/sweep/tokenizers_compare.py: FOLDER/tokenizer.json on the lines of
-- FOLDER/case.json.
package.path = "./?.lua;" .. package.path
local core = require("lupine.core")
local files = require("spec.support.files")
local tokenizers = require("lupine.tokenizers")

local folder, name = arg[1], arg[2]
local case = core.json_decode(files.read(folder .. "/case.json"))
local tokenizer = tokenizers.Tokenizer.from_file(folder .. "/tokenizer.json")

local shown, wrong = 0, { ids = 0, pairs = 0, types = 0, texts = 0 }

local function compare(kind, line, got, want)
  if type(got) == "table" then
    got, want = table.concat(got, " "), table.concat(want, " ")
  end
  if got ~= want then
    wrong[kind] = wrong[kind] + 1
    shown = shown + 1
    if shown <= 5 then
      print(("  %s of %q\n    got  %s\n    want %s"):format(kind, line, got, want))
    end
  end
end

local bytes, start, encodings = 0, os.clock(), {}
for i, line in ipairs(case.lines) do
  encodings[i] = tokenizer:encode(line)
  bytes = bytes + #line
end
local seconds = os.clock() - start
for i, line in ipairs(case.lines) do
  compare("ids", line, encodings[i].ids, case.ids[i])
  compare("texts", line, tokenizer:decode(case.ids[i]), case.texts[i])
end
for i, ids in ipairs(case.pairs) do
  local first, second = case.lines[2 * i - 1], case.lines[2 * i]
  local e = tokenizer:encode(first, second)
  compare("pairs", first .. " | " .. second, e.ids, ids)
  compare("types", first .. " | " .. second, e.type_ids, case.types[i])
end
local ok = shown == 0 and tokenizer:get_vocab_size() == case.size
print(("%s %-10s %d lines: %d other ids, %d other texts; %d pairs: %d other ids, %d other types; "
  .. "%.1f MB/s"):format(ok and "same" or "DIFFERENT", name, #case.lines, wrong.ids, wrong.texts,
  #case.pairs, wrong.pairs, wrong.types, bytes / seconds / 1e6))
os.exit(ok)
