--- Tokenizers (tokenizer.json), which encode a text when they are made.
local tokenizers = require("lupine.tokenizers")

local MODEL = '"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}'

local function file(more)
  return "{" .. MODEL .. "," .. more .. "}"
end

local function nested(kind, list, n)
  return ('{"type":"Sequence","%s":['):format(list):rep(n) .. kind .. ("]}"):rep(n)
end

local function bad(what, more, pattern, class)
  return { what, file(more), class or "ValueError", pattern }
end

return {
  read = function(bytes)
    local tokenizer = tokenizers.Tokenizer.from_str(bytes)
    return tokenizer:decode(tokenizer:encode("ab é <x> 12", "b a").ids)
  end,
  cut = true,
  valid = {
    file('"added_tokens":[{"id":3,"content":"<x>","lstrip":true}],"normalizer":{"type":"NFC"},'
      .. '"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"padding":null'),
  },
  refused = {
    { "no object", "[]", "ValueError", "the file: expected an object" },
    { "no model", "{}", "ValueError", "model" },
    { "a model of another kind", '{"model":{"type":"Unigram","vocab":[]}}', "NotImplementedError",
      "there is no 'Unigram'. Allowed: BPE, WordLevel, WordPiece" },
    { "an array as vocabulary", '{"model":{"type":"BPE","vocab":[],"merges":[]}}', "ValueError",
      "model.vocab: expected an object" },
    { "an id for two", '{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}', "ValueError",
      "have one id, 0" },
    { "a huge id", '{"model":{"type":"BPE","vocab":{"a":4294967296},"merges":[]}}', "ValueError",
      "expected an integer in" },
    { "a merge of nothing", '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}',
      "ValueError", "merges%[0%]: the vocabulary has no 'b'" },
    { "a merge of three", '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a a"]}}',
      "ValueError", "merges%[0%]: expected" },
    { "dropout", '{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.5}}', "ValueError",
      "drawn at random" },
    { "an unknown token that is none", '{"model":{"type":"WordPiece","vocab":{"a":0},'
      .. '"unk_token":"?"}}', "ValueError", "unk_token: the vocabulary has no" },
    bad("another version", '"version":"2.0"', "version: expected '1.0'"),
    bad("a normalizer that is none", '"normalizer":{"type":"Precompiled"}', "no 'Precompiled'",
      "NotImplementedError"),
    bad("a text as normalizer", '"normalizer":"NFC"', "normalizer: expected an object"),
    bad("a pre-tokenizer that is none", '"pre_tokenizer":{"type":"UnicodeScripts"}', "no 'Unicode",
      "NotImplementedError"),
    bad("sequences", '"normalizer":' .. nested('{"type":"NFC"}', "normalizers", 40),
      "nested more than 32 deep"),
    bad("a bad pattern", '"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},'
      .. '"behavior":"Isolated"}', "the pattern .*parenthesis"),
    bad("a pattern that takes for ever", '"pre_tokenizer":{"type":"Split",'
      .. '"pattern":{"Regex":"(a|b|ab)+$"},"behavior":"Isolated"},"normalizer":{"type":'
      .. '"Prepend","prepend":"' .. ("ab"):rep(30) .. '"}', "took more than", "RuntimeError"),
    bad("a class in a class", '"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a[b]]"},'
      .. '"behavior":"Isolated"}', "classes within classes"),
    bad("another behaviour", '"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},'
      .. '"behavior":"Gone"}', "unknown 'Gone'. Allowed: Removed"),
    bad("a mark of two", '"pre_tokenizer":{"type":"Metaspace","replacement":"ab"}',
      "expected one character"),
    bad("a template of a token that is none", '"post_processor":{"type":"TemplateProcessing",'
      .. '"single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}',
      "special_tokens has no 'x'"),
    bad("a template of a third text", '"post_processor":{"type":"TemplateProcessing",'
      .. '"single":[{"Sequence":{"id":"C","type_id":0}}],"pair":[],"special_tokens":{}}',
      "the sequence A or B"),
    bad("two processors", '"post_processor":{"type":"Sequence","processors":['
      .. ('{"type":"BertProcessing","sep":["a",0],"cls":["a",0]},'):rep(2)
      .. '{"type":"ByteLevel"}]}', "only one processor"),
    bad("a length that is none", '"truncation":{"max_length":-1}', "max_length: expected"),
    bad("a number for a flag", '"added_tokens":[{"id":3,"content":"x","lstrip":1}]',
      "lstrip: expected bool"),
    bad("a decoder that is none", '"decoder":{"type":"CTC"}', "no 'CTC'", "NotImplementedError"),
    { "a name with a zero byte", '{"model":{"type":"BPE","vocab":{"\\u0000":0},"merges":[]}}',
      "ValueError", "NUL byte" },
  },
  taken = {
    -- 10,000 characters of one word
    '{"model":{"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2},"merges":["a a","aa aa"]},'
      .. '"normalizer":{"type":"Prepend","prepend":"' .. ("a"):rep(10000) .. '"}}',
  },
}
