--- JSON (core.json_decode).
local core = require("lupine.core")

return {
  read = core.json_decode,
  cut = true,
  valid = { '{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00"], "b": {"c": {}}}', "[[[]]]" },
  refused = {
    { "brackets", ("["):rep(1000000), "ValueError", "." },
    { "objects", ('{"a":'):rep(200000), "ValueError", "." },
    { "closed brackets", ("["):rep(100000) .. ("]"):rep(100000), "ValueError", "." },
    { "a name twice", '{"a": 1, "a": 2}', "ValueError", "[Dd]uplicate" },
    { "a wide integer", "9223372036854775808", "ValueError", "." },
    { "a long number", ("9"):rep(1000000), "ValueError", "." },
    { "an infinite number", "1e999", "ValueError", "." },
    { "no number", "NaN", "ValueError", "." },
    { "half a pair", '"\\ud83d"', "ValueError", "." },
    { "no UTF-8", '"\xff"', "ValueError", "." },
    { "a name with a zero byte", '{"\\u0000": 1}', "ValueError", "." },
    { "a comma too many", "[1,]", "ValueError", "." },
    { "something behind", "[] []", "ValueError", "." },
  },
}
