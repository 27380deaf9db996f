--- The keys of run files as text, for `lupine run --help` and the manual: both are made
--- of the schema's rows.
local check = require("lupine.base.check")
local emit = require("lupine.run.emit")
local errors = require("lupine.base.errors")
local schema = require("lupine.run.schema")
local types = require("lupine.run.types")

local M = {}

--- What a row takes: "an int >= 1", "a mapping".
---@param row table
---@return string
function M.allowed(row)
  if row.type == "group" then
    return "a mapping"
  elseif row.type == "options" then
    return "a mapping of poptorch's options"
  end
  return types[row.type].allowed(row)
end

--- The default of a row as it is written; nil: it has none.
---@param row table
---@return string?
function M.default(row)
  return row.default ~= nil and emit.value(row.default) or nil
end

local WIDTH, INDENT = 92, 6

local function wrapped(text)
  local lines, line = {}, (" "):rep(INDENT)
  for word in text:gmatch("%S+") do
    if #line + #word + 1 > WIDTH then
      lines[#lines + 1], line = line, (" "):rep(INDENT)
    end
    line = line .. (line:find("%S") and " " or "") .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

local function entry(row)
  local default = row.required and "has to be given"
    or M.default(row) and "default " .. M.default(row) or "not set"
  local head = row.type == "group" and ("  %s"):format(row.name)
    or ("  %s  (%s)"):format(row.name, default)
  local text = row.doc .. (row.type == "group" and "" or " " .. M.allowed(row):gsub("^%l",
    string.upper) .. ".")
  return head .. "\n" .. wrapped(text) .. "\n"
end

--- All keys, in the schema's order.
---@return string
function M.all()
  local out = {}
  for i, row in ipairs(schema) do
    out[i] = entry(row)
  end
  return table.concat(out)
    .. "`lupine run --help options` lists poptorch's, `--help options.KEY` tells of one.\n"
end

local function option_keys(options)
  return require("lupine.run.options").keys(options)
end

-- One option of poptorch, or all of them.
local function of_poptorch(name)
  local out, names = {}, {}
  for i, key in ipairs(option_keys(require("poptorch").Options())) do
    names[i] = key.name
    if name == "options" or key.name == name or key.name:sub(1, #name + 1) == name .. "." then
      out[#out + 1] = ("  %s(%s)\n%s\n"):format(key.name, table.concat(key.row.params, ", "),
        wrapped(key.doc))
    end
  end
  errors.check(#out > 0, "ConfigFileError", "poptorch has no '%s'%s", name,
    check.nearest(name, names))
  return table.concat(out)
end

--- One key, or a group with its keys.
--- error: ConfigFileError with the nearest name
---@param name string
---@return string
function M.key(name)
  if name:find("^options%.") then
    return of_poptorch(name)
  end
  local out, names = {}, {}
  for i, row in ipairs(schema) do
    names[i] = row.name
    if row.name == name or row.name:sub(1, #name + 1) == name .. "." then
      out[#out + 1] = entry(row)
    end
  end
  errors.check(#out > 0, "ConfigFileError", "a run file has no key '%s'%s", name,
    check.nearest(name, names))
  return table.concat(out) .. (name == "options" and of_poptorch(name) or "")
end

local function cell(text)
  return (text:gsub("|", "\\|"))
end

--- All keys as a table of Markdown, for the manual.
---@return string
function M.markdown()
  local lines = { "| key | what it takes | default | what it is |", "| --- | --- | --- | --- |" }
  for _, row in ipairs(schema) do
    if row.type ~= "group" then
      local default = M.default(row) or ""
      lines[#lines + 1] = ("| `%s`%s | %s | %s | %s |"):format(row.name,
        row.resumable and " *" or "", cell(M.allowed(row)),
        row.required and "has to be given" or default ~= "" and "`" .. cell(default) .. "`" or "",
        cell(row.doc))
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

return M
