--- A session as a script: what `:save` writes.
local lex = require("lupine.repl.lex")

local M = {}

-- Entries behind i that read what the loop keeps in `_`, before another value.
local function is_asked_for(entries, i)
  for k = i + 1, #entries do
    local e = entries[k]
    if e.code and lex.chunk(e.code).names._ then
      return true
    elseif e.valued then
      return false
    end
  end
  return false
end

-- A list of values as the loop shows it.
local function printed(list, asked_for)
  if asked_for then
    return ("_ = %s\nprint(_)"):format(list)
  end
  return ("print(%s)"):format(list)
end

-- A chunk as a part of a larger one: what it returns is printed.
local function statement(code, asked_for)
  code = code:gsub("^%s*=", "return ")
  if not asked_for and load(code, "=stdin", "t") and not lex.chunk(code).results then
    return code
  elseif load("return " .. code, "=stdin", "t") then
    code = "return " .. code
  end
  local results = lex.chunk(code).results
  if not results then
    return code
  end
  local before = code:sub(1, results.from - 1)
  local list = code:sub(results.to + 1, results.stop):gsub("^%s+", "")
  return before .. (list ~= "" and printed(list, asked_for) or "")
end

-- What an entry closes at its end is closed there in the script too.
local function enclosed(code)
  local close, kept = false, false
  for _, d in ipairs(lex.chunk(code).locals) do
    close = close or d.close
    kept = kept or not d.close
  end
  return close and not kept and "do\n" .. code .. "\nend" or code
end

---@class lupine.repl.Entry
---@field command string? as it was typed
---@field code string? what ran
---@field valued boolean? it gave a value

--- The text of a script.
---@param entries lupine.repl.Entry[]
---@return string
function M.text(entries)
  local lines = {}
  for i, e in ipairs(entries) do
    if e.command then
      lines[#lines + 1] = "-- " .. e.command:gsub("\n", "\n-- ")
    end
    if e.code then
      lines[#lines + 1] = enclosed(statement(e.code, e.valued and is_asked_for(entries, i)))
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

return M
