--- Files of torch.save: the description of a value beside two tensors.
local core = require("lupine.core")
local file = require("spec.hostile.file")
local torch = require("torch")

local load = file(torch.load)

-- A file of safetensors whose metadata holds the description.
local function with(description)
  local header = ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    .. '"b":{"dtype":"I64","shape":[1],"data_offsets":[4,12]},"__metadata__":{"lupine":%s}}')
    :format(core.json_encode(description))
  return string.pack("<I8", #header) .. header .. string.pack("<fi8", 1.5, 7)
end

local function nested(open, close, n)
  return open:rep(n) .. "1" .. close:rep(n)
end

return {
  read = function(description)
    return load(with(description))
  end,
  cut = true,
  valid = {
    '{"map":[["w",{"t":"a","param":true,"grad":true}],[2.5,{"list":[{"t":"b"},{"t":"x","same":"b"},'
      .. '{"float":"-inf"},{"bytes":"00ff"},{"dtype":"float32"},{"size":[2,3]},null,true,"\\u00e9"'
      .. "]}]],\"ordered\":true}",
  },
  taken = { nested('{"list":[', "]}", 900) },
  refused = {
    { "no JSON", "return 1", "ValueError", "." },
    { "brackets", ("["):rep(1000000), "ValueError", "." },
    { "lists", nested('{"list":[', "]}", 5000), "ValueError", "." },
    { "keys of keys", nested('{"map":[[', ",1]]}", 600), "ValueError", "a key is no string" },
    { "a bare list", "[1]", "ValueError", "unknown kind" },
    { "an empty object", "{}", "ValueError", "unknown kind" },
    { "another object", '{"code":"os.exit()"}', "ValueError", "unknown kind" },
    { "an object of two kinds", '{"t":"a","list":[]}', "ValueError", "two kinds" },
    { "a name twice", '{"t":"a","t":"b"}', "ValueError", "[Dd]uplicate" },
    { "no such tensor", '{"t":"c"}', "ValueError", "no tensor string \"c\"" },
    { "a long name", '{"t":"' .. ("x"):rep(1000000) .. '"}', "ValueError", "no tensor" },
    { "a tensor of a list", '{"t":[1]}', "ValueError", "no tensor" },
    { "the same as a table", '{"t":"a","same":{}}', "ValueError", "no tensor" },
    { "an object for a list", '{"list":{"a":1}}', "ValueError", "a list is no list" },
    { "a text for a list", '{"list":"abc"}', "ValueError", "a list is no list" },
    { "an object for a map", '{"map":{"a":1}}', "ValueError", "a map is no list" },
    { "an entry of one", '{"map":[["a"]]}', "ValueError", "no pair" },
    { "an entry of three", '{"map":[["a",1,2]]}', "ValueError", "no pair" },
    { "an entry of text", '{"map":["ab"]}', "ValueError", "no pair" },
    { "an object for an entry", '{"map":[{"1":"a"}]}', "ValueError", "no pair" },
    { "a key of nothing", '{"map":[[null,1]]}', "ValueError", "a key is" },
    { "a key that is no number", '{"map":[[{"float":"nan"},1]]}', "ValueError", "a key is" },
    { "a tensor as a key", '{"map":[[{"t":"a"},1]]}', "ValueError", "a key is" },
    { "an unknown float", '{"float":"1"}', "ValueError", "a float" },
    { "odd bytes", '{"bytes":"0"}', "ValueError", "bytes" },
    { "bytes that are none", '{"bytes":"zz"}', "ValueError", "bytes" },
    { "a number of bytes", '{"bytes":12}', "ValueError", "bytes" },
    { "an unknown type", '{"dtype":"float9"}', "ValueError", "a dtype" },
    { "a type of a list", '{"dtype":[]}', "ValueError", "a dtype" },
    { "a size of text", '{"size":["a"]}', "ValueError", "a size" },
    { "a size that is no list", '{"size":3}', "ValueError", "a size" },
    { "a parameter of whole numbers", '{"t":"b","param":true,"grad":true}', "Exception", "." },
    { "a wide list, then a fault", '{"list":[' .. ("1,"):rep(100000) .. '{}]}', "ValueError",
      "unknown kind" },
  },
}
