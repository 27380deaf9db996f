--- The text of faults (LUPINE_FAULTS).
local faults = require("lupine.faults")

return {
  read = faults.parse,
  valid = { "recoverable action=IPU_RESET step=12; unrecoverable call=20",
    'unknown message="a; b = c" times=2' },
  taken = { ("unknown;"):rep(5000), 'unknown message="' .. ("a"):rep(100000) .. '"', "" },
  refused = {
    { "no kind", ("a"):rep(1000000), "ValueError", "kind: expected one of" },
    { "a long word", "unknown " .. ("a"):rep(1000000), "ValueError", "expected NAME=VALUE" },
    { "a long number", "unknown step=" .. ("9"):rep(100000), "TypeError", "step" },
    { "an open quote", 'unknown message="' .. ("a"):rep(1000000), "ValueError", "not closed" },
    { "zero bytes", "unknown\0\0\0", "ValueError", "." },
    { "many fields", "unknown" .. (" step=1"):rep(10000), "ValueError", "given twice" },
    { "a control character", "\27[2J", "ValueError", "expected a kind of fault" },
  },
}
