-- Sentences of a small grammar, each word with its part of speech. Some words are of
-- several kinds, which the words around them tell: "they watch the light", "the light
-- watch", "they light the watch".
local torch = require("torch")

local M = {}

M.tags = { "article", "adjective", "noun", "verb", "adverb", "preposition", "pronoun" }
M.length = 16 -- of the longest sentence

local WORDS = {
  article = { "a", "the", "this", "that" },
  adjective = { "light", "fast", "cold", "right", "open", "old", "round", "green", "well" },
  noun = { "light", "watch", "cold", "right", "round", "run", "walk", "play", "house", "river",
    "well", "saw" },
  verb = { "light", "watch", "right", "open", "round", "run", "walk", "play", "saw", "find" },
  adverb = { "fast", "right", "well", "often", "here" },
  preposition = { "in", "by", "round", "under" },
  pronoun = { "they", "we", "you", "that", "this" },
}

-- What a part of a sentence consists of, one of these each time.
local RULES = {
  sentence = { { "who", "does" }, { "who", "does", "where" }, { "who", "adverb", "does" } },
  who = { { "thing" }, { "pronoun" }, { "thing", "where" } },
  thing = { { "article", "noun" }, { "article", "adjective", "noun" } },
  does = { { "verb", "thing" }, { "verb", "adverb" }, { "verb", "pronoun", "adverb" } },
  where = { { "preposition", "thing" } },
}

M.words = { "" } -- what fills short sentences is word 0
local ids = {}
for _, tag in ipairs(M.tags) do
  for _, word in ipairs(WORDS[tag]) do
    if not ids[word] then
      M.words[#M.words + 1], ids[word] = word, #M.words
    end
  end
end

local function grow(name, pick, words, tags)
  if RULES[name] then
    for _, part in ipairs(RULES[name][pick(#RULES[name])]) do
      grow(part, pick, words, tags)
    end
    return
  end
  words[#words + 1] = ids[WORDS[name][pick(#WORDS[name])]]
  for i, tag in ipairs(M.tags) do
    tags[#words] = tag == name and i - 1 or tags[#words]
  end
end

-- Numbers 1 to n of a sequence of its own.
local function picker(seed)
  local g = torch.Generator()
  g:manual_seed(seed)
  local drawn, at = {}, 0
  return function(n)
    if at == #drawn then
      drawn, at = torch.rand({ 4096 }, { generator = g }):tolist(), 0
    end
    at = at + 1
    return math.min(math.floor(drawn[at] * n) + 1, n)
  end
end

--- Sentences: words [count, 16], how many each has [count], tags [count, 16]; behind its end
--- a sentence has word 0, and -100 for a tag, which losses and metrics leave out.
---@param count integer
---@param seed integer
---@return torch.utils.data.TensorDataset
function M.sentences(count, seed)
  local pick, all, lengths, due = picker(seed), {}, {}, {}
  for i = 1, count do
    local words, tags = {}, {}
    grow("sentence", pick, words, tags)
    lengths[i] = #words
    for k = #words + 1, M.length do
      words[k], tags[k] = 0, -100
    end
    all[i], due[i] = words, tags
  end
  return torch.utils.data.TensorDataset(torch.tensor(all), torch.tensor(lengths),
    torch.tensor(due))
end

return M
