--- IDX files.
local core = require("lupine.core")
local file = require("spec.hostile.file")

local function idx(code, sizes, data)
  local parts = { string.pack("BBBB", 0, 0, code, #sizes & 255) }
  for _, size in ipairs(sizes) do
    parts[#parts + 1] = string.pack(">I4", size)
  end
  return table.concat(parts) .. (data or "")
end

local function corpus(name)
  local f = assert(io.open("spec/fuzz/corpus/idx/" .. name, "rb"))
  local bytes = f:read("a")
  f:close()
  return bytes
end

local HUGE = 0xffffffff

return {
  read = file(core.read_idx),
  cut = true,
  valid = { idx(8, { 2, 3 }, "\0\1\2\3\4\255"), idx(0x0D, { 1 }, "\0\0\0\0"), corpus("gzip_u8") },
  refused = {
    { "no magic number", "\137PNG\r\n\26\n", "ValueError", "magic number" },
    { "unknown type", idx(0x0A, { 1 }, "a"), "ValueError", "magic number" },
    { "no dimensions", idx(8, {}), "ValueError", "0 dimensions" },
    { "many dimensions", "\0\0\8\255" .. ("\0\0\0\1"):rep(255), "ValueError", "255 dimensions" },
    { "a product beyond 64 bits", idx(0x0E, { HUGE, HUGE, HUGE }), "ValueError", "beyond" },
    { "empty but wide", idx(8, { 0, HUGE, HUGE, HUGE }), "ValueError", "beyond" },
    { "4 GB of nothing", idx(8, { HUGE }, "x"), "ValueError", "truncated" },
    { "bytes behind", idx(8, { 1 }, "ab"), "ValueError", "extra bytes" },
    { "a bomb", corpus("bomb"), "ValueError", "." },
    { "a hollow archive", corpus("hollow"), "ValueError", "." },
    { "a wrong checksum", corpus("bad_crc"), "ValueError", "damaged" },
  },
}
