--- Rows of metrics on the disk: JSONL, one object a line, and CSV. A row costs what it
--- is long, whatever has been written; each is handed to the system when it is written,
--- so that a killed process loses the row it was writing at most, and readers pass over
--- such a torn last line; those before a checkpoint are on the disk with it.
---
--- JSON has no NaN and no infinity: such a value is null. CSV has `nan`, `inf` and
--- `-inf`, and nothing where a row has no value. A column that is new to the CSV makes
--- its head be written again, once, with all rows below it, in one step: at any moment
--- each row has the fields of the head.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

local function is_finite(x)
  return x == x and x ~= math.huge and x ~= -math.huge
end

local function read_all(path)
  local file = io.open(path, "rb")
  if not file then
    return ""
  end
  local text <close> = file
  return text:read("a")
end

-- A file that is written at its end; what cannot be written raises.
local function open(path)
  local file, why = io.open(path, "ab")
  errors.check(file, "OSError", "%s", why)
  return file
end

local function append(file, path, text)
  local ok, why = file:write(text)
  if ok then
    ok, why = file:flush()
  end
  errors.check(ok, "OSError", "cannot write '%s': %s", path, why)
end

-- ---- JSONL ---------------------------------------------------------------------------

local function json_of(row)
  local out = {}
  for key, value in pairs(row) do
    out[key] = type(value) == "number" and not is_finite(value) and core.none or value
  end
  return core.json_encode(out) .. "\n"
end

local function row_of(line, path, number)
  local ok, row = pcall(core.json_decode, line, path)
  errors.check(ok and type(row) == "table", "ValueError", "%s:%d: this is no row of metrics",
    path, number)
  for key, value in pairs(row) do
    row[key] = value ~= core.none and value or nil
  end
  return row
end

--- The rows of a JSONL file that is there, in its order; a last line that is torn is
--- none. A value that is null is absent.
---@param path string
---@param name? string only rows that have it: most of a long file is passed over
---@return table[]
function M.read(path, name)
  local rows, number, key = {}, 0, name and core.json_encode(name)
  for line in read_all(path):gmatch("([^\n]*)\n") do
    number = number + 1
    if not key or line:find(key, 1, true) then
      rows[#rows + 1] = row_of(line, path, number)
    end
  end
  return rows
end

-- ---- CSV -----------------------------------------------------------------------------

local function field(value)
  if value == nil then
    return ""
  elseif math.type(value) == "float" then
    if value ~= value then
      return "nan"
    elseif not is_finite(value) then
      return value > 0 and "inf" or "-inf"
    end
    local short = ("%.15g"):format(value)
    return tonumber(short) == value and short or ("%.17g"):format(value)
  end
  local text = tostring(value)
  return text:find('[",\r\n]') and '"' .. text:gsub('"', '""') .. '"' or text
end

local function line_of(values, n)
  local fields = {}
  for i = 1, n do
    fields[i] = field(values[i])
  end
  return table.concat(fields, ",") .. "\n"
end

-- What comes first in a table that people read.
local FIRST = { step = 1, epoch = 2 }

local function before(a, b)
  local x, y = FIRST[a] or 3, FIRST[b] or 3
  if x ~= y then
    return x < y
  end
  return a < b
end

local function columns_of(rows)
  local names, known = {}, {}
  for _, row in ipairs(rows) do
    local new = {}
    for name in pairs(row) do
      new[#new + 1] = not known[name] and name or nil
      known[name] = true
    end
    table.sort(new, before)
    table.move(new, 1, #new, #names + 1, names)
  end
  return names
end

local function row_line(names, row)
  local values = {}
  for i, name in ipairs(names) do
    values[i] = row[name]
  end
  return line_of(values, #names)
end

-- ---- both ----------------------------------------------------------------------------

---@class lupine.run.Records
local Records = class.new("Records")

--- Opens both files of a folder for what comes behind their first `count` rows; the
--- others, which a run made after the checkpoint that it goes on from, are taken away.
--- errors: OSError, ValueError (a file that has no rows)
---@param folder string
---@param count integer
function Records:init(folder, count)
  self.jsonl_path, self.csv_path = folder .. "/metrics.jsonl", folder .. "/metrics.csv"
  local rows = self:cut(count)
  self.count = #rows
  self.names = columns_of(rows)
  self.known = tables.set(self.names)
  self:write_csv(rows)
  self.jsonl, self.csv = open(self.jsonl_path), open(self.csv_path)
end

function Records:cut(count)
  local rows, lines = M.read(self.jsonl_path), {}
  rows = table.move(rows, 1, math.min(count, #rows), 1, {})
  for i, row in ipairs(rows) do
    lines[i] = json_of(row)
  end
  local text = table.concat(lines)
  if text ~= read_all(self.jsonl_path) then
    core.write_text(self.jsonl_path, text)
  end
  return rows
end

-- The whole CSV, of rows of JSONL: what is no finite number is a value that is absent.
function Records:write_csv(rows)
  local lines = { #self.names > 0 and line_of(self.names, #self.names) or "" }
  for _, row in ipairs(rows) do
    lines[#lines + 1] = row_line(self.names, row)
  end
  local text = table.concat(lines)
  if text ~= read_all(self.csv_path) then
    core.write_text(self.csv_path, text)
  end
end

-- New columns at the end: a new head, and for each row as many empty fields.
function Records:widen(row)
  local old, new = #self.names, {}
  for name in pairs(row) do
    new[#new + 1] = not self.known[name] and name or nil
  end
  table.sort(new, before)
  table.move(new, 1, #new, old + 1, self.names)
  self.known = tables.set(self.names)
  local text = read_all(self.csv_path):gsub("^[^\n]*\n", "", 1)
  if old > 0 then
    text = text:gsub("\n", (","):rep(#new) .. "\n")
  end
  self.csv:close()
  core.write_text(self.csv_path, line_of(self.names, #self.names) .. text)
  self.csv = open(self.csv_path)
end

--- Writes a row: names with numbers, texts or truth values.
--- errors: OSError
---@param row table<string, any>
function Records:write(row)
  append(self.jsonl, self.jsonl_path, json_of(row))
  for name in pairs(row) do
    if not self.known[name] then
      self:widen(row)
      break
    end
  end
  append(self.csv, self.csv_path, row_line(self.names, row))
  self.count = self.count + 1
end

--- The rows so far are on the disk when this returns; the CSV is made of them again
--- where a run goes on.
--- error: OSError
function Records:sync()
  core.sync_file(self.jsonl_path)
end

--- The end of writing.
function Records:close()
  self.jsonl:close()
  self.csv:close()
end

M.Records = Records
return M
