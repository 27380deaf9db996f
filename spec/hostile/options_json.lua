--- POPTORCH_DEFAULT_OPTIONS: a JSON object of options.
local Options = require("poptorch").Options

return {
  read = function(text)
    return Options():from_json(text)
  end,
  cut = true,
  valid = { '{"deviceIterations": 2, "Training.gradientAccumulation": 3, "logDir": "\\u20ac\\"", '
    .. '"_Popart.set": ["someKey", 1], "maxRepeatLogs": null}' },
  refused = {
    { "brackets", ("["):rep(1000000), "ValueError", "maximum parsing depth" },
    { "objects", ('{"a":'):rep(200000), "ValueError", "maximum parsing depth" },
    { "a long string", '{"logDir": "' .. ("x"):rep(4000000), "ValueError",
      "premature end of input" },
    { "escapes", '{"logDir": "' .. ("\\n"):rep(200000) .. '\\q"}', "ValueError", "escape" },
    { "a long name", '{"' .. ("x"):rep(1000000) .. '": 1}', "AttributeError", "." },
    { "many names", "{" .. ('"a": 1,'):rep(100000) .. "}", "ValueError", "." },
    { "a long number", '{"randomSeed": ' .. ("9"):rep(1000000) .. "}", "Exception", "." },
    { "a list", "[]", "ValueError", "." },
    { "blanks", (" "):rep(1000000), "ValueError", "." },
    { "a comma too many", '{"logDir": "x",}', "ValueError", "." },
    { "a private name", '{"_freeze": "x"}', "AttributeError", "." },
    { "a wrong value", '{"deviceIterations": "2"}', "AssertionError", "." },
    { "a method that is no setter", '{"loadFromFile": "/etc/passwd"}', "AttributeError", "." },
    { "a group", '{"Training": 1}', "AttributeError", "no setter" },
    { "a group of a setter", '{"logDir.x": 1}', "AttributeError", "." },
    { "many dots", '{"' .. ("."):rep(1000000) .. '": 1}', "AttributeError", "." },
  },
}
