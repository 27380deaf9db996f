--- safetensors files.
local core = require("lupine.core")
local file = require("spec.hostile.file")

local function safetensors(header, data)
  return string.pack("<I8", #header) .. header .. (data or "")
end

local function entry(name, dtype, shape, from, to)
  return ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}'):format(name, dtype, shape,
    from, to)
end

local function one(dtype, shape, from, to, data)
  return safetensors("{" .. entry("x", dtype, shape, from, to) .. "}", data)
end

local function two(from, to, data)
  return safetensors("{" .. entry("x", "F32", "1", 0, 4) .. "," .. entry("y", "F32", "1", from, to)
    .. "}", data)
end

local HUGE = "9223372036854775807"
local VALID = safetensors("{" .. entry("b", "F32", "2,1", 2, 10) .. ","
  .. entry("a", "I16", "", 0, 2) .. ',"__metadata__":{"x":"y"}}',
  string.pack("<i2ff", -5, 1.5, -0.25))

local function many(n, from, to)
  local list = {}
  for i = 1, n do
    list[i] = entry(tostring(i), "U8", "0", from, to)
  end
  return safetensors("{" .. table.concat(list, ",") .. "}")
end

return {
  read = file(core.read_safetensors),
  cut = true,
  valid = { VALID, safetensors("{}") },
  refused = {
    { "a zip archive", "PK\3\4" .. ("x"):rep(60), "ValueError", "zip archive" },
    { "a header of 2^62 bytes", string.pack("<I8", 1 << 62) .. "{}", "ValueError",
      "header of 4611686018427387904 bytes" },
    { "a header beyond 63 bits", string.pack("<I8", (1 << 63) | 1) .. "{}", "ValueError",
      "header of" },
    { "a header of -1 bytes", ("\255"):rep(8) .. "{}", "ValueError", "header of" },
    { "a long header", string.pack("<I8", 100000001) .. "{}", "ValueError", "at most 100000000" },
    { "no header", safetensors(""), "ValueError", "does not start with" },
    { "a list", safetensors("[]"), "ValueError", "does not start with" },
    { "a space", safetensors(" {}"), "ValueError", "does not start with" },
    { "a number for a tensor", safetensors('{"x":1}'), "ValueError", "has not exactly" },
    { "nothing for a tensor", safetensors('{"x":{}}'), "ValueError", "has not exactly" },
    { "more for a tensor",
      safetensors('{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":1}}', "abcd"),
      "ValueError", "exactly" },
    { "another type", one("F99", "", 0, 4, "abcd"), "ValueError", "dtype is 'F99'" },
    { "a long type", one(("F"):rep(100000), "", 0, 4, "abcd"), "ValueError", "dtype is 'FFF" },
    { "a number for the type", safetensors('{"x":{"dtype":5,"shape":[],"data_offsets":[0,4]}}',
      "abcd"), "ValueError", "dtype is 'no string'" },
    { "an object for the shape",
      safetensors('{"x":{"dtype":"F32","shape":{},"data_offsets":[0,4]}}', "abcd"), "ValueError",
      "shape is not" },
    { "a negative size", one("F32", "-1", 0, 4, "abcd"), "ValueError", "a size is not" },
    { "a size with a point", one("F32", "1.0", 0, 4, "abcd"), "ValueError", "a size is not" },
    { "a size beyond 64 bits", one("F32", HUGE .. "0", 0, 4, "abcd"), "ValueError", "header" },
    { "a product beyond 63 bits", one("F32", HUGE .. "," .. HUGE, 0, 4, "abcd"), "ValueError",
      "beyond" },
    { "empty but wide", one("F32", HUGE .. ",0", 0, 0), "ValueError", "beyond" },
    { "many sizes", one("U8", ("1,"):rep(100000) .. "1", 0, 1, "a"), "ValueError", "at most 12" },
    { "bytes that wrap to 4", one("F32", "4611686018427387905", 0, 4, "abcd"), "ValueError",
      "beyond" },
    { "a shape larger than its bytes", one("F32", "2", 0, 4, "abcd"), "ValueError",
      "take 8 bytes" },
    { "an end before the start", one("F32", "1", 4, 0, "abcd"), "ValueError", "outside" },
    { "a negative start", one("F32", "1", -4, 0, "abcd"), "ValueError", "outside" },
    { "the least start", one("F32", "1", "-9223372036854775808", HUGE, "abcd"), "ValueError",
      "outside" },
    { "a start with a point", one("F32", "1", "0.0", 4, "abcd"), "ValueError", "two numbers" },
    { "4 GB of nothing", one("F32", "1000000000", 0, 4000000000, "abcd"), "ValueError",
      "truncated" },
    { "an overlap", two(2, 6, "abcdef"), "ValueError", "overlap" },
    { "the same bytes", two(0, 4, "abcd"), "ValueError", "overlap" },
    { "a gap", two(8, 12, "abcdefghijkl"), "ValueError", "gap" },
    { "a gap at the start", one("F32", "1", 4, 8, "abcdefgh"), "ValueError", "gap" },
    { "many tensors in a gap", function() return many(2000, 1, 1) end, "ValueError", "outside" },
    { "a byte behind", VALID .. "!", "ValueError", "extra bytes" },
    { "bytes without tensors", safetensors("{}", "x"), "ValueError", "extra bytes" },
    { "a name twice", safetensors("{" .. entry("x", "U8", "1", 0, 1) .. ","
      .. entry("x", "U8", "1", 0, 1) .. "}", "a"), "ValueError", "header, byte %d+: .*duplicate" },
    { "a long name twice", safetensors(('{"%s":1,"%s":1}'):format(("x"):rep(100000),
      ("x"):rep(100000))), "ValueError", "duplicate" },
    { "a long name", safetensors(('{"%s":1}'):format(("x"):rep(1000000))), "ValueError",
      "exactly" },
    { "a number for a text", safetensors('{"__metadata__":{"a":1}}'), "ValueError",
      "is not a string" },
    { "a list of texts", safetensors('{"__metadata__":[]}'), "ValueError", "not an object" },
    { "brackets", safetensors('{"x":' .. ("["):rep(1000000)), "ValueError", "header, byte" },
    { "objects", safetensors(('{"x":'):rep(200000)), "ValueError", "header, byte" },
    { "many numbers", safetensors('{"x":[' .. ("1,"):rep(500000) .. "1]}"), "ValueError",
      "exactly" },
    { "no UTF-8", safetensors('{"\xff":1}'), "ValueError", "header, byte" },
    { "a name with a zero byte", safetensors('{"\\u0000":1}'), "ValueError", "header, byte" },
    { "an infinite number", one("F32", "1e400", 0, 4, "abcd"), "ValueError", "header" },
    { "no number", safetensors('{"x":NaN}'), "ValueError", "header" },
    { "something behind the header", safetensors("{}garbage"), "ValueError", "header" },
  },
}
