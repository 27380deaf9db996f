--- Event files of TensorBoard: records of TFRecord's form, each a message Event. Written
--- by hand, as three fields of two messages are all that scalars take.
---
---   record   u64 length, u32 masked crc32c(length), bytes, u32 masked crc32c(bytes)
---   Event    double wall_time = 1, int64 step = 2, string file_version = 3,
---            Summary summary = 5, SessionLog session_log = 7
---   Summary  repeated Value {string tag = 1, float simple_value = 2} value = 1
---
--- A run that goes on begins another file, which says from which step on the older ones
--- do not count any more (SessionLog START).
--- Sources: TensorFlow, "TFRecord and tf.train.Example"; tensorboard's event.proto and
--- summary.proto; RFC 3720, B.4 (CRC-32C).
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

-- ---- records -------------------------------------------------------------------------

local POLYNOMIAL = 0x82f63b78 -- of Castagnoli, reflected
local by_byte = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    crc = crc & 1 == 1 and (crc >> 1) ~ POLYNOMIAL or crc >> 1
  end
  by_byte[byte] = crc
end

--- The CRC-32C of bytes.
---@param bytes string
---@return integer
function M.crc32c(bytes)
  local crc = 0xffffffff
  for i = 1, #bytes do
    crc = by_byte[(crc ~ bytes:byte(i)) & 0xff] ~ (crc >> 8)
  end
  return crc ~ 0xffffffff
end

local function masked(bytes)
  local crc = M.crc32c(bytes)
  return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
end

--- A record of TFRecord's form.
---@param bytes string
---@return string
function M.record(bytes)
  local length = ("<I8"):pack(#bytes)
  return length .. ("<I4"):pack(masked(length)) .. bytes .. ("<I4"):pack(masked(bytes))
end

-- ---- messages ------------------------------------------------------------------------

local function varint(n)
  local out = {}
  while math.ult(0x7f, n) do
    out[#out + 1] = string.char(n & 0x7f | 0x80)
    n = n >> 7
  end
  out[#out + 1] = string.char(n)
  return table.concat(out)
end

local VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

local function key(number, kind)
  return varint(number << 3 | kind)
end

local function bytes_field(number, bytes)
  return key(number, BYTES) .. varint(#bytes) .. bytes
end

local function event(time, step, rest)
  return key(1, FIXED64) .. ("<d"):pack(time)
    .. (step and step ~= 0 and key(2, VARINT) .. varint(step) or "") .. rest
end

--- The event that begins a file.
---@param time number seconds since 1970
---@return string
function M.version(time)
  return event(time, nil, bytes_field(3, "brain.Event:2"))
end

--- The event that takes older events of this step and later ones back.
---@param time number
---@param step integer
---@return string
function M.start(time, step)
  return event(time, step, bytes_field(7, key(1, VARINT) .. varint(1)))
end

--- The event of a step's numbers.
---@param time number
---@param step integer
---@param values table<string, number> by tag
---@return string
function M.scalars(time, step, values)
  local parts = {}
  for _, tag in ipairs(tables.keys(values)) do
    parts[#parts + 1] = bytes_field(1, bytes_field(1, tag) .. key(2, FIXED32)
      .. ("<f"):pack(values[tag]))
  end
  return event(time, step, bytes_field(5, table.concat(parts)))
end

-- ---- files ---------------------------------------------------------------------------

---@class lupine.run.Events
local Events = class.new("Events")

local PREFIX = "events.out.tfevents."

-- Files are read in the order of their names: a later one has a later time in it.
local function time_of_name(folder)
  local time = core.host.time() // 1 | 0
  for _, name in ipairs(select(2, core.list_folder(folder))) do
    local other = math.tointeger(tonumber(name:match("^events%.out%.tfevents%.(%d+)")))
    time = other and math.max(time, other + 1) or time
  end
  return time
end

--- Begins a file in a folder; with a step, what older files have after it is taken back.
--- error: OSError
---@param folder string
---@param step? integer
function Events:init(folder, step)
  local process, now = core.host.process(), core.host.time()
  self.path = ("%s/%s%010d.%s.%d.lupine"):format(folder, PREFIX, time_of_name(folder),
    process.host or "host", process.pid)
  local file, why = io.open(self.path, "wb")
  errors.check(file, "OSError", "%s", why)
  self.file = file
  self:append(M.version(now))
  if step then
    self:append(M.start(now, step + 1))
  end
end

function Events:append(bytes)
  local ok, why = self.file:write(M.record(bytes))
  if ok then
    ok, why = self.file:flush()
  end
  errors.check(ok, "OSError", "cannot write '%s': %s", self.path, why)
end

--- Writes a row of metrics: its numbers, `validation.loss` as the tag validation/loss.
---@param row table<string, any>
function Events:write(row)
  local values = {}
  for name, value in pairs(row) do
    if type(value) == "number" and name ~= "step" and name ~= "time" then
      values[name:gsub("%.", "/")] = value
    end
  end
  self:append(M.scalars(row.time or core.host.time(), row.step, values))
end

--- The end of writing.
function Events:close()
  self.file:close()
end

M.Events = Events
return M
