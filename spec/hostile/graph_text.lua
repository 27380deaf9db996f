--- The text form of graphs.
local core = require("lupine.core")

local VALID = [[
graph
input %1 "w": float32[2, 3, 8, 8]
input %2: float32[4, 3, 3, 3]
origin block "B\x41" stage 1 ipu 1 phase 0 file "a.lua" line 7
%3 = permute(%1, dims=[0, 2, 3, 1])
%4 = reshape(%3, shape=[2, -1])
%5 = mul(%4, nan(0x7ff8000000000001))
output %5, %4
]]

local function after(line)
  return "graph\ninput %1: float32[2]\norigin\n" .. line .. "\n"
end

local LONG = 300000

return {
  read = core.graph_parse,
  valid = { VALID, "graph\n" },
  refused = {
    { "no graph", "grape\n", "ValueError", "expected graph" },
    { "zero bytes", "graph\n" .. ("\0"):rep(LONG), "ValueError", "." },
    { "a huge tensor", "graph\ninput %1: float32[9999999999, 9999999999]\n", "ValueError",
      "too many elements" },
    { "many dimensions", "graph\ninput %1: float32[" .. ("1, "):rep(LONG) .. "1]\n", "ValueError",
      "." },
    { "a long word", "graph\n" .. ("x"):rep(LONG), "ValueError", "." },
    { "a long number", after("%2 = mul(%1, " .. ("9"):rep(LONG) .. ")"), "ValueError",
      "63 characters" },
    { "a wide integer", after("%2 = mul(%1, 9223372036854775808)"), "ValueError", "64 bits" },
    { "a long string", "graph\norigin file \"" .. ("x"):rep(LONG), "ValueError", "." },
    { "an unknown operator", after("%2 = system(%1)"), "ValueError", "." },
    { "an unknown value", after("%2 = neg(%7)"), "ValueError", "." },
    { "itself", after("%2 = neg(%2)"), "ValueError", "." },
    { "a huge expansion", after("%2 = expand(%1, size=[4000000000, 4000000000, 2])"), "ValueError",
      "." },
    { "many operands", after("%2 = cat([" .. ("%1, "):rep(LONG) .. "%9], dim=0)"), "ValueError",
      "." },
    { "a range beyond 64 bits",
      after("%2 = slice(%1, dim=0, start=-9223372036854775808, end=9223372036854775807, step=0)"),
      "ValueError", "." },
    { "an output of nothing", "graph\noutput %1\n", "ValueError", "." },
  },
}
