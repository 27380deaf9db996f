--- Rows of texts as a table with aligned columns.
local M = {}

local function width(text)
  return utf8.len(text) or #text
end

local function is_number(text)
  return text:find("^[-+]?%.?%d[%d.]*[eE]?[-+]?%d*$") ~= nil
end

--- Lines of text: the heads, then the rows. Columns without any text are left out;
--- numbers stand at the right.
---@param heads string[]
---@param rows string[][] a cell is a text, "" for none
---@return string
function M.text(heads, rows)
  local widths, right, shown = {}, {}, {}
  for c, head in ipairs(heads) do
    local numbers, any = true, false
    widths[c] = width(head)
    for _, row in ipairs(rows) do
      widths[c] = math.max(widths[c], width(row[c]))
      numbers = numbers and (row[c] == "" or is_number(row[c]))
      any = any or row[c] ~= ""
    end
    right[c] = numbers
    shown[#shown + 1] = any and c or nil
  end
  local function line(row)
    local cells = {}
    for i, c in ipairs(shown) do
      local space = (" "):rep(widths[c] - width(row[c]))
      cells[i] = right[c] and space .. row[c] or row[c] .. space
    end
    return (table.concat(cells, "  "):gsub(" +$", "")) .. "\n"
  end
  local out = { line(heads) }
  for i, row in ipairs(rows) do
    out[i + 1] = line(row)
  end
  return table.concat(out)
end

--- A number as tables have it; "" for none.
---@param value any
---@return string
function M.number(value)
  if type(value) ~= "number" then
    return ""
  end
  return math.type(value) == "integer" and tostring(value) or ("%.5g"):format(value)
end

return M
