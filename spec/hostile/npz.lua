--- .npz archives.
local core = require("lupine.core")
local file = require("spec.hostile.file")
local numpy = require("lupine.numpy")
local zip = require("spec.hostile.zip")

local function npy(n, data)
  local header = ("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }\n"):format(n)
  return "\x93NUMPY\1\0" .. string.pack("<I2", #header) .. header .. data
end

local function entry(name, data, more)
  local x = { name = name, data = data }
  for k, v in pairs(more or {}) do
    x[k] = v
  end
  return x
end

local ARRAY = npy(3, "abc")
local VALID = zip.archive({ entry("a.npy", ARRAY), entry("b", npy(0, "")) })

local function one(data, more)
  return zip.archive({ entry("a.npy", data, more) })
end

-- Arrays that hold the entries behind them: `levels` times the same bytes.
local function russian_doll(levels)
  local inner, list, at = ("x"):rep(2000), {}, 0
  for i = levels, 1, -1 do
    local x = entry(("a%d"):format(i), npy(#inner, inner))
    inner = zip.part(x)
    list[levels + 1 - i] = { x, #inner }
  end
  local parts = {}
  for i = levels, 1, -1 do -- the outermost first
    parts[#parts + 1] = zip.directory(list[i][1], #inner - list[i][2])
    at = at + #parts[#parts]
  end
  return inner .. table.concat(parts) .. zip.ending(levels, at, #inner)
end

local function many(n)
  local list = {}
  for i = 1, n do
    list[i] = entry(tostring(i), "", { crc = 0 })
  end
  return zip.archive(list)
end

local function bomb(claimed)
  local data, crc = zip.deflated_zeros(50000000)
  return one(data, { crc = crc, size = claimed or 50000000, method = 8 })
end

local function flipped(s, at)
  return s:sub(1, at - 1) .. string.char(s:byte(at) ~ 1) .. s:sub(at + 1)
end

-- An archive is refused as a whole, or each bad array when it is asked for; the
-- second way takes what the first takes and says the same.
local function read(path)
  local whole = table.pack(pcall(core.read_npz, path))
  local done, why = pcall(function()
    for name, x in pairs(numpy.load(path)) do
      assert(core.is_tensor(x), name)
    end
  end)
  assert(done == whole[1], why)
  assert(done or tostring(why) == tostring(whole[2]), why)
  if not done then
    error(why, 0)
  end
end

return {
  read = file(read),
  cut = true,
  valid = { VALID },
  refused = {
    { "nothing", "PK\5\6" .. ("\255"):rep(18), "ValueError", "." },
    { "only the beginning of a zip", "PK\3\4" .. ("x"):rep(100), "ValueError", "." },
    { "something behind", VALID .. "PK", "ValueError", "." },
    { "a name twice", zip.archive({ entry("a", ARRAY), entry("a", ARRAY) }), "ValueError", "." },
    { "an array twice", zip.archive({ entry("a", ARRAY), entry("a.npy", ARRAY) }), "ValueError",
      "two arrays 'a'" },
    { "a wrong sum", one(ARRAY, { crc = 1 }), "ValueError", "CRC" },
    { "another byte", flipped(VALID, 38 + #ARRAY - 4), "ValueError", "." },
    { "no array", one("text"), "ValueError", "truncated" },
    { "an archive", one(VALID), "ValueError", "no npy file" },
    { "bytes behind the array", one(ARRAY .. "d"), "ValueError", "extra bytes" },
    { "a length beyond the ratio", one("\3\0", { method = 8, size = 0xfffffff0 }), "ValueError",
      "cannot come of 2 compressed" },
    { "a stored length beyond the file", one(ARRAY, { size = 1 << 30, packed = 1 << 30 }),
      "ValueError", "." },
    { "a place beyond the file", one(ARRAY, { at = 0xfffffff0 }), "ValueError", "." },
    { "an unpacked length of another array", one(npy(1 << 40, "abc")), "ValueError", "truncated" },
    { "bzip2", one("BZh9", { method = 12 }), "ValueError", "compression method 12" },
    { "xz", one("\xfd7zXZ\0", { method = 95 }), "ValueError", "compression method 95" },
    { "an unknown method", one("x", { method = 77 }), "ValueError", "." },
    { "an encrypted entry", one(ARRAY, { flags = 1 }), "ValueError", "." },
    { "damaged deflate", one("\255\255\255", { method = 8, size = 3 }), "ValueError", "." },
    { "a long name", zip.archive({ entry(("n"):rep(60000), ARRAY) }), "ValueError", "damaged" },
    { "entries in one another", russian_doll(30), "ValueError", "overlap" },
    { "more entries than told", zip.part(entry("a", ARRAY)) .. zip.directory(entry("a", ARRAY), 0)
      .. zip.ending(9000, 47, 31 + #ARRAY), "ValueError", "." },
    { "many entries", function() return many(10000) end, "ValueError", "." },
    { "50 MB of nothing", bomb, "ValueError", "no npy file" },
    { "50 MB told as 1 GB", function() return bomb(1 << 30) end, "ValueError", "cannot come" },
  },
}
