--- Manifests of checkpoints, whose checksums are right.
local folder = require("lupine.checkpoint.folder")

local FILES = '"files":{"state.json":{"bytes":3,"xxh3":"0123"}}'

local function text(parts)
  return '","x":0,' .. parts .. "}"
end

local INFO = '"info":{"map":[["step",{"float":"inf"}]]}'

local function whole(files, info)
  return text((files or FILES) .. ',"format":"lupine.checkpoint","version":1,' .. (info or INFO))
end

return {
  read = function(bytes)
    folder.told(folder.parse(folder.sign('{"checksum":"0000000000000000' .. bytes), "x"), "x")
  end,
  cut = true,
  valid = { whole() },
  refused = {
    { "nothing", "", "ValueError", "no manifest" },
    { "no JSON", '" return 1', "ValueError", "no manifest" },
    { "brackets", '","a":' .. ("["):rep(1000000), "ValueError", "no manifest" },
    { "no format", text(FILES .. ',"version":1'), "ValueError", "no manifest" },
    { "a version that is none", (whole():gsub('"version":1', '"version":1.5')), "ValueError",
      "no manifest" },
    { "a later version", (whole():gsub('"version":1', '"version":2')), "ValueError", "format 2" },
    { "files that are none", whole('"files":1'), "ValueError", "no manifest" },
    { "a list of files", whole('"files":["a"]'), "ValueError", "described wrongly" },
    { "a file that is none", whole('"files":{"a":1}'), "ValueError", "described wrongly" },
    { "a path", whole('"files":{"a/b":{"bytes":1,"xxh3":"0"}}'), "ValueError",
      "described wrongly" },
    { "the folder above", whole('"files":{"..":{"bytes":1,"xxh3":"0"}}'), "ValueError",
      "described wrongly" },
    { "bytes that are none", whole('"files":{"a":{"bytes":"1","xxh3":"0"}}'), "ValueError",
      "described wrongly" },
    { "a hash that is none", whole('"files":{"a":{"bytes":1,"xxh3":0}}'), "ValueError",
      "described wrongly" },
    { "no info", whole(nil, '"inf":1'), "ValueError", "info" },
    { "info that is a number", whole(nil, '"info":1'), "ValueError", "info is no table" },
    { "info that holds a tensor", whole(nil, '"info":{"t":"a"}'), "ValueError", "no tensor" },
    { "files twice", whole(FILES .. "," .. FILES), "ValueError", "no manifest" },
  },
}
