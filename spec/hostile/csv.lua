--- CSV files.
local core = require("lupine.core")
local file = require("spec.hostile.file")

return {
  read = file(function(path)
    return core.read_csv(path, ",", true)
  end),
  valid = { 'a,"b\n""c"""\r\n1,2.5\n,"x,y"\n', "\xef\xbb\xbfa\n1\n" },
  taken = { ("1,"):rep(9999) .. "1",
    ("\n"):rep(1000000) .. "a" },
  refused = {
    { "nothing", "", "ValueError", "no lines" },
    { "empty lines", ("\r\n"):rep(1000000), "ValueError", "no lines" },
    { "only a mark", "\xef\xbb\xbf", "ValueError", "no lines" },
    { "a field too few", "a,b\n1\n", "ValueError", "line 2: 1 fields; the first line has 2" },
    { "a field too many", "a,b\n1,2,3\n", "ValueError", "line 2: 3 fields" },
    { "an open quote", 'a\n"x\n', "ValueError", "line 3: a quoted field without its end" },
    { "text behind a quote", 'a\n"x"y\n', "ValueError", "line 2: text after a quoted field" },
    { "a quote within", 'a\nx"y\n', "ValueError", "line 2: a quote inside" },
    { "a zero byte", "a\nx\0y\n", "ValueError", "line 2: a zero byte" },
    { "a space behind a quote", 'a\n"x\ny"\n"z" \n', "ValueError", "line 4: text after" },
    { "only a carriage return", 'a\n"x"\rb\n', "ValueError", "carriage return" },
    { "a million columns", (","):rep(1000000), "ValueError", "line 1: more than 65536 fields" },
    { "a second line of a million columns", "a,b\n" .. (","):rep(1000000), "ValueError",
      "line 2: more than 65536 fields" },
    { "a million empty quotes", ('"",'):rep(1000000), "ValueError", "more than 65536 fields" },
    { "a million quotes", '"' .. ('""'):rep(1000000), "ValueError", "without its end" },
    { "a million lines in quotes", '"' .. ("\n"):rep(1000000), "ValueError",
      "line 1000001: a quoted" },
    { "zero bytes", ("\0"):rep(1000000), "ValueError", "line 1: a zero byte" },
    { "a million lines and a short one", "a,b\n" .. ("1,2\n"):rep(200000) .. "1", "ValueError",
      "line 200002: 1 fields" },
    { "a long field", ("x"):rep(4000000) .. '"', "ValueError", "line 1: a quote inside" },
  },
}
