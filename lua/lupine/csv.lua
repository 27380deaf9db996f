--- Tables of text (CSV, RFC 4180) as columns of tensors and strings.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

---@class lupine.csv.Table
---@field names string[] of the columns; "0", "1", … without a header
---@field columns (torch.Tensor|string[])[] int64 if all fields are whole
---       numbers, float64 if all are numbers or empty (NaN), else strings
---@field rows integer
local Table = class.new("csv.Table")

function Table:init(names, columns)
  self.names, self.columns = names, columns
  self.rows = core.is_tensor(columns[1]) and columns[1]:size(0) or #columns[1]
end

--- A column by its name.
---@param name string
---@return torch.Tensor|string[]
function Table:column(name)
  for i, known in ipairs(self.names) do
    if known == name then
      return self.columns[i]
    end
  end
  return errors.raise("KeyError", "csv: no column '%s'%s; the columns are %s", tostring(name),
    check.nearest(name, self.names), table.concat(self.names, ", "))
end

--- Columns of numbers side by side.
---@param names? string[] all columns unless given
---@param dtype? torch.dtype float32 unless given
---@return torch.Tensor [rows, columns]
function Table:tensor(names, dtype)
  local torch = require("torch")
  local list = {}
  for i, name in ipairs(names or self.names) do
    list[i] = self:column(name)
    errors.check(core.is_tensor(list[i]), "ValueError", "csv: column '%s' holds text", name)
    list[i] = list[i]:to(dtype or torch.float32)
  end
  return torch.stack(list, 1)
end

--- Reads a CSV file; all lines must have the same number of fields.
--- errors: OSError, ValueError (names the line)
---@param path string
---@param ... any {header = true, delimiter = ","}
---@return lupine.csv.Table
function M.read(path, ...)
  local a = check.arguments("csv.read", { "path", "header", "delimiter" }, nil, path, ...)
  check.string(a[1], "csv.read: path")
  local header = a[2] == nil or check.bool(a[2], "csv.read: header")
  local names, columns = core.read_csv(a[1], check.string(a[3] or ",", "csv.read: delimiter"),
    header)
  if not header then
    for i = 1, #columns do
      names[i] = tostring(i - 1)
    end
  end
  return Table(names, columns)
end

return require("lupine.base.namespace").close(M, "lupine.csv")
