--- Options files (poptorch.conf): Python literals, read and never run.
local file = require("spec.hostile.file")
local Options = require("poptorch").Options

local LONG = 20000

return {
  read = file(function(path)
    return Options():loadFromFile(path)
  end),
  valid = { "deviceIterations(0x10).replicationFactor(1_0)\n# note\n"
    .. "outputMode(poptorch.OutputMode.EveryN, output_return_period=2)\n"
    .. "setAvailableMemoryProportion({\"IPU0\": .5, 'IPU1': 2.5e-1,})\n"
    .. "logDir('b\\x41' r\"\\n\")\n" },
  refused = {
    { "brackets", "deviceIterations(" .. ("["):rep(LONG), "ConfigFileError", "nested" },
    { "calls", "deviceIterations" .. ("()"):rep(LONG), "ConfigFileError", "chain" },
    { "names", "x" .. (".a"):rep(LONG), "ConfigFileError", "chain" },
    { "a very long line", "logDir('" .. ("x"):rep(1000000) .. "')", "ConfigFileError", "at most" },
    { "many lines", ("logDir('x')\n"):rep(2000) .. "x", "AttributeError", "." },
    { "a long name", ("x"):rep(LONG) .. "()", "AttributeError", "." },
    { "a long string", "logDir('" .. ("x"):rep(LONG), "ConfigFileError", "unterminated" },
    { "a long number", "deviceIterations(" .. ("9"):rep(LONG) .. ")", "ConfigFileError", "number" },
    { "underscores", "deviceIterations(1" .. ("_"):rep(LONG) .. ")", "ConfigFileError", "number" },
    { "signs", "deviceIterations(" .. ("-"):rep(LONG) .. "1)", "ConfigFileError", "syntax" },
    { "zero bytes", ("\0"):rep(LONG), "ConfigFileError", "character" },
    { "no UTF-8", "logDir(\xff\xfe)", "ConfigFileError", "character" },
    { "a statement", "import os", "ConfigFileError", "not allowed" },
    { "an operator", "deviceIterations(1 << 62)", "ConfigFileError", "." },
    { "a call of a library", "logDir(torch.load('x'))", "AttributeError", "." },
    { "a private name", "_freeze('x')", "AttributeError", "." },
    { "a Lua chunk", "\27Lua", "ConfigFileError", "character" },
  },
}
