--- The table of keys in docs/run_files.md, from the rows of the schema, which
--- `lupine run --help` and the reader of run files have as well.
---
---     build/lupine docs/site/run_keys.lua        writes it into the page
---
--- spec/manual_spec.lua compares the page with it.
local schema = require("lupine.run.schema")
local tables = require("lupine.base.tables")
local types = require("lupine.run.types")

local M = { page = "docs/run_files.md" }

local FIRST, LAST = "<!-- keys -->\n", "<!-- end of keys -->"

local function shown(value)
  if type(value) ~= "table" then
    return tostring(value)
  end
  local parts = {}
  for _, key in ipairs(tables.keys(value)) do
    parts[#parts + 1] = ("%s: %s"):format(key, shown(value[key]))
  end
  return (#value > 0 and "[%s]" or next(value) == nil and "[]" or "{%s}"):format(
    table.concat(parts, ", "))
end

local function default_of(row)
  return row.required and "has to be given" or row.default ~= nil
    and ("`%s`"):format(shown(row.default)) or ""
end

--- The table as Markdown.
---@return string
function M.text()
  local lines = { "| key | what | allowed | default |", "| --- | --- | --- | --- |" }
  for _, row in ipairs(schema) do
    lines[#lines + 1] = ("| `%s` | %s | %s | %s |"):format(row.name, row.doc,
      row.type == "options" and "methods of poptorch.Options" or row.type ~= "group"
        and types[row.type].allowed(row) or "", default_of(row))
  end
  return table.concat(lines, "\n") .. "\n"
end

--- A page with the table in its place.
---@param page string text
---@return string
function M.renewed(page)
  local start, stop = page:find(FIRST, 1, true), page:find(LAST, 1, true)
  assert(start and stop, "no place for the keys")
  return page:sub(1, start + #FIRST - 1) .. M.text() .. page:sub(stop)
end

if arg and arg[0] and arg[0]:find("run_keys%.lua$") then
  local file <close> = assert(io.open(M.page))
  local renewed = M.renewed(file:read("a"))
  local out <close> = assert(io.open(M.page, "w"))
  assert(out:write(renewed))
end

return M
