--- Records of the table of IPUs: what is none is nil, never an error.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local function whole(text)
  return text .. (" "):rep(255 - #text) .. "\n"
end

return {
  read = function(bytes)
    errors.check(core.devices.record(bytes), "ValueError", "no record")
  end,
  cut = true,
  valid = { whole("pid 4711 ipus 4 2 script train.lua"), whole("pid 1 ipus 0 1 script \27[2J") },
  refused = {
    { "nothing", "", "ValueError", "." },
    { "a free IPU", whole(""), "ValueError", "." },
    { "megabytes", ("pid 1 ipus 0 1 script "):rep(100000), "ValueError", "." },
    { "digits", ("9"):rep(256), "ValueError", "." },
    { "a negative process", whole("pid -1 ipus 0 1 script a"), "ValueError", "." },
    { "a group of none", whole("pid 1 ipus 0 0 script a"), "ValueError", "." },
    { "an IPU too far", whole("pid 1 ipus 4096 1 script a"), "ValueError", "." },
    { "zero bytes", ("\0"):rep(256), "ValueError", "." },
  },
}
