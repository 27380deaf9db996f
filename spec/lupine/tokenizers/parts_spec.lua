-- What a tokenizer does around its model, with values of the package tokenizers (0.23), and
-- what it says of files that are wrong.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local memo = require("lupine.tokenizers.memo")
local normalizers = require("lupine.tokenizers.normalizers")
local pre_tokenizers = require("lupine.tokenizers.pre_tokenizers")
local tokenizers = require("lupine").tokenizers
local unicode = require("lupine.tokenizers.unicode")
local torch = require("torch")

local Tokenizer = tokenizers.Tokenizer
local DATA = "spec/lupine/tokenizers/data/"
local A, B = "the ids of a text", "what is given, and more"
local IDS_A = { 56, 655, 610, 45, 629, 630, 51, 608, 37, 56, 610, 677, 609 }

local function bert()
  return Tokenizer.from_file(DATA .. "bert.json")
end

local function around(ids)
  return { 2, table.unpack(ids) }, table.insert(ids, 3)
end

describe("lengths", function()
  it("are cut at the right or the left, of one text or two", function()
    local t = bert()
    local function cut(options, ...)
      t:enable_truncation(options)
      return t:encode(...).ids
    end
    assert.same({ 2, 59, 655, 624, 609, 3 }, cut({ max_length = 6 }, B))
    assert.same({ 2, 49, 628, 623, 610, 3 }, cut({ max_length = 6, direction = "left" }, B))
    assert.same({ 2, 56, 655, 610, 3, 59, 655, 624, 3 }, cut({ max_length = 9 }, A, B))
    assert.same({ 2, 56, 655, 610, 45, 3, 59, 655, 624, 609, 45, 630, 43, 633, 649, 610, 611, 14,
      37, 611, 629, 49, 628, 623, 610, 3 }, cut({ max_length = 26, strategy = "only_first" }, A, B))
    assert.same({ 2, 56, 655, 610, 45, 629, 630, 51, 608, 37, 56, 610, 677, 609, 3, 59, 655, 624,
      609, 3 }, cut({ max_length = 20, strategy = "only_second" }, A, B))
    assert.same({ 2, 677, 609, 3, 623, 610, 3 }, cut({ max_length = 7, direction = "left" }, A, B))
    assert.same({ 2, 3, 3 }, cut({ max_length = 3 }, A, B))
    helper.refuses("ValueError", "the first text is too short to be cut to 12 tokens", cut,
      { max_length = 12, strategy = "only_first" }, A, B)
    t:no_truncation()
    assert.equal(15, #t:encode(A))
    t:enable_truncation(6, 0, "longest_first", "left")
    assert.same({ 2, 49, 628, 623, 610, 3 }, t:encode(B).ids)
    helper.refuses("TypeError", "enable_truncation has no parameter 'max_len'", cut,
      { max_len = 3 }, A)
    helper.refuses("ValueError", "strategy: unknown 'longest'. Allowed: LongestFirst", cut,
      { max_length = 3, strategy = "longest" }, A)
  end)

  it("are filled to the longest, a multiple or a number", function()
    local t = bert()
    t:enable_padding()
    local e = t:encode_batch({ A, "of" })
    assert.same({ 2, 51, 608, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, e[2].ids)
    assert.same({ 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, e[2].attention_mask)
    assert.same({ 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, e[2].special_tokens_mask)
    assert.same({ "[CLS]", "o", "##f", "[SEP]", "[PAD]" }, { table.unpack(e[2].tokens, 1, 5) })
    t:enable_padding({ direction = "left", pad_id = 900, pad_type_id = 3, pad_token = "[X]",
      pad_to_multiple_of = 8 })
    e = t:encode_batch({ A, { "of", "the" } })
    assert.same({ 900, 2, 56 }, { table.unpack(e[1].ids, 1, 3) })
    assert.same({ 900, 2, 51, 608, 3, 56, 655, 610, 3 }, { table.unpack(e[2].ids, 8) })
    assert.same({ 3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 1, 1, 1, 1 }, e[2].type_ids)
    assert.same({ 2, 16 }, { torch.tensor({ e[1].ids, e[2].ids }):size(0), #e[1] })
    t:enable_padding({ length = 10 })
    assert.same({ 2, 51, 608, 3, 0, 0, 0, 0, 0, 0 }, t:encode("of").ids)
    t:no_padding()
    assert.equal(4, #t:encode("of"))
  end)
end)

describe("encode and decode", function()
  it("take texts without special tokens, and words", function()
    local t = bert()
    assert.same(IDS_A, t:encode(A, { add_special_tokens = false }).ids)
    assert.same({ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1 },
      t:encode(A, "of", { add_special_tokens = false }).type_ids)
    assert.same({ 2, 56, 655, 610, 45, 629, 630, 3 },
      t:encode({ "the", "ids" }, { is_pretokenized = true }).ids)
    assert.same(around({ 56, 655, 610, 45, 629, 630, 51, 608, 3, 56, 610, 677, 609, 3 }),
      t:encode({ "the ids", "of" }, { "text" }, { is_pretokenized = true }).ids)
    assert.equal("the ids of a text what is given, and more", t:decode(t:encode(A, B).ids))
    assert.equal("[CLS] the ids of a text [SEP]", t:decode(t:encode(A).ids, false))
    assert.equal("[CLS] the ids of a text [SEP]",
      t:decode(torch.tensor(t:encode(A).ids), { skip_special_tokens = false }))
    assert.same({ "of", "the" }, t:decode_batch({ { 51, 608 }, { 56, 655, 610 } }))
    assert.same({ "[CLS]", 2, "[PAD]" }, { t:id_to_token(2), t:token_to_id("[CLS]"),
      t:id_to_token(0) })
    assert.is_nil(t:token_to_id("nowhere"))
    assert.is_nil(t:id_to_token(123456))
    assert.equal(t:get_vocab_size(), t:get_vocab_size(false) + 2)
    assert.equal(56, t:get_vocab().t)
    assert.equal("Tokenizer(WordPiece, 1159 tokens)", tostring(t))
  end)

  it("refuse what is no text", function()
    local t = bert()
    helper.refuses("TypeError", "encode: text: expected string, got int 3", t.encode, t, 3)
    helper.refuses("ValueError", "not UTF%-8", t.encode, t, "a\xffb")
    helper.refuses("ValueError", "not UTF%-8", t.encode, t, "\xed\xa0\x80")
    helper.refuses("TypeError", "unknown option 'add_special'", t.encode, t, "a", nil,
      { add_special = true })
    helper.refuses("TypeError", "ids, element 2: expected int", t.decode, t, { 1, 2.5 })
    helper.refuses("OSError", "nowhere.json", Tokenizer.from_file, "nowhere.json")
  end)
end)

describe("added tokens", function()
  -- The tokenizer of a file with more of them.
  local function with(more)
    local d = core.json_decode(files.read(DATA .. "gpt2.json"))
    for _, token in ipairs(more) do
      d.added_tokens.n = d.added_tokens.n + 1
      d.added_tokens[d.added_tokens.n] = token
    end
    return Tokenizer.from_str(core.json_encode(d))
  end

  it("are found before all else, alone or with the blanks beside them", function()
    local t = with({ { id = 1000, content = "<w>", single_word = true },
      { id = 1001, content = "<l>", lstrip = true }, { id = 1002, content = "<r>", rstrip = true },
      { id = 1003, content = "<lr>", lstrip = true, rstrip = true },
      { id = 1004, content = "<w><l>" } })
    local CASES = {
      ["a<w>b"] = "a < w > b", ["a <w> b"] = "a Ġ <w> Ġb", ["a<w>"] = "a < w >", ["<w>"] = "<w>",
      ["a  <l>  b"] = "a <l> Ġ Ġb", ["a  <r>  b"] = "a ĠĠ <r> b", ["a \n<lr>\t b"] = "a <lr> b",
      ["<l><r> <lr> "] = "<l> <r> <lr>", ["<w><l>"] = "<w><l>", ["<w> <l>"] = "<w> <l>",
      ["é<w>"] = "Ã© < w >", ["<w>é"] = "< w > Ã©",
    }
    for text, want in pairs(CASES) do
      assert.equal(want, table.concat(t:encode(text).tokens, " "))
    end
    assert.same({}, t:encode("").ids)
    assert.equal("<|endoftext|>h", t:decode({ 0, 72 }, false))
    assert.equal("h", t:decode({ 0, 72 }))
  end)

  it("must agree with the vocabulary", function()
    helper.refuses("ValueError", "'a' has the id %d+ in the vocabulary, and 1000 here", with,
      { { id = 1000, content = "a" } })
    helper.refuses("ValueError", "the id 5 is that of", with, { { id = 5, content = "new" } })
    helper.refuses("ValueError", "the id 1000 is that of '<x>', too", with,
      { { id = 1000, content = "<x>" }, { id = 1000, content = "<y>" } })
    helper.refuses("ValueError", "added_tokens%[1%].id: expected an integer in", with,
      { { id = 1 << 40, content = "x" } })
  end)
end)

describe("a long text", function()
  it("takes work that grows as it does", function()
    local gpt2 = Tokenizer.from_file(DATA .. "gpt2.json")
    local llama = Tokenizer.from_file(DATA .. "llama2.json")
    for _, t in ipairs({ gpt2, llama, bert() }) do
      for _, text in ipairs({ "ab c  é", "xxxxxxx" }) do
        local function work(times)
          return helper.work(function()
            assert.is_true(#t:encode(text:rep(times), { add_special_tokens = false }) >= 1)
          end)
        end
        local short, long = work(500), work(4000)
        assert(long < 8 * 1.5 * short, ("%s: %d and %d"):format(text, short, long))
      end
    end
  end)
end)

describe("what a word became", function()
  it("is kept, of so many words of so many bytes", function()
    local calls = 0
    local f = memo(function(word)
      calls = calls + 1
      return { word }
    end, 5)
    assert.equal(f("abcde"), f("abcde"))
    assert.equal(1, calls)
    assert.same({ "abcdef" }, f("abcdef"))
    assert.same({ "abcdef" }, f("abcdef"))
    assert.equal(3, calls)
    for i = 1, 49999 do
      f(tostring(i))
    end
    f("abcde")
    assert.equal(50002, calls)
    f("x") -- makes room
    f("abcde")
    assert.equal(50004, calls)
  end)
end)

describe("parts of a file", function()
  it("have the originals' defaults", function()
    local function normalized(d, text)
      d.type = "BertNormalizer"
      return (normalizers.make(d)(text))
    end
    assert.equal("e a 中 b", (normalized({}, "É\1 a中b"):gsub(" +", " ")))
    assert.equal("É a 中 b", (normalized({ lowercase = false }, "É\1 a中b"):gsub(" +", " ")))
    assert.equal("é a中b", normalized({ handle_chinese_chars = false, strip_accents = false },
      "É\1 a中b"))
    assert.equal("abc", normalized({}, "ABC"))
    assert.equal("ABC", normalized({ lowercase = false }, "ABC"))
  end)

  it("lie within each other so deep and no deeper", function()
    local function nested(depth)
      local d = { type = "Lowercase" }
      for _ = 1, depth do
        d = { type = "Sequence", normalizers = { d } }
      end
      return d
    end
    assert.equal("a", (normalizers.make(nested(8))("A")))
    helper.refuses("ValueError", "nested more than %d+ deep", normalizers.make, nested(500))
  end)

  it("put Metaspace's mark before the first piece of a text alone", function()
    local first = pre_tokenizers.make({ type = "Sequence", pretokenizers = {
      { type = "Split", pattern = { String = "-" }, behavior = "Isolated" },
      { type = "Metaspace", replacement = "_", prepend_scheme = "first", split = false } } })
    assert.same({ "_a_b", "-", "c" }, first("a b-c", true))
    assert.same({ "a_b", "-", "c" }, first("a b-c", false))
  end)
end)

describe("bytes that are no text", function()
  it("become U+FFFD once for each longest beginning of a character", function()
    for bytes, count in pairs({ ["\xe0\x80\x80"] = 3, ["\xf0\x90\x80"] = 1, ["\xed\xa0\x80"] = 3,
      ["\xc3"] = 1, ["\xe2\x82"] = 1, ["\xf4\x90\x80\x80"] = 4, ["\xc0\x80"] = 2,
      ["\xe2\x28\xa1"] = 2, ["\xf0\x9f\xff"] = 2, ["\xe2\x82\xc3"] = 2, ["\xf5"] = 1 }) do
      local got, n = unicode.lossy("a" .. bytes .. "b"):gsub("\u{FFFD}", "")
      assert.equal(count, n, bytes)
      assert.matches("^a.?b$", got) -- what is a character by itself stays
    end
    assert.equal("aé€😀", unicode.lossy("aé€😀"))
    assert.equal("é€😀\u{FFFD}", unicode.lossy("é€😀\xff"))
  end)
end)

describe("text", function()
  it("has normal forms of Unicode", function()
    assert.equal("e\u{301}", core.text_map("é", "NFD"))
    assert.equal("é", core.text_map("e\u{301}", "NFC"))
    assert.equal("fi1", core.text_map("ﬁ①", "NFKC"))
    assert.equal("i\u{307}ß", core.text_map("İẞ", "lower"))
    assert.equal("가", core.text_map("\u{1100}\u{1161}", "NFC"))
    helper.refuses("ValueError", "not UTF%-8", core.text_map, "a\xe9", "NFC")
    helper.refuses("ValueError", "not UTF%-8", core.text_map, "\xe9", "lower")
    assert.is_false(pcall(core.text_map, "a", "NFX"))
  end)

  it("has patterns with limits", function()
    local r = core.regex([[\p{L}+]])
    assert.same({ 1, 3, 5, 6 }, r:find_all("éa-bc"))
    assert.same({ "éa", "-", "bc" }, r:pieces("éa-bc"))
    assert.same({}, core.regex("x*"):find_all("日本"))
    assert.same({}, r:pieces(""))
    helper.refuses("ValueError", "pattern, byte 3", core.regex, "(a")
    helper.refuses("ValueError", "not UTF%-8", r.find_all, r, "a\xff")
    helper.refuses("RuntimeError", "took more than", r.find_all, core.regex("(a+)+$"),
      ("a"):rep(40) .. "b")
  end)
end)
