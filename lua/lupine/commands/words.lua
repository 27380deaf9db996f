--- Words of a command's line: options by their rows, and what is left. A row is
---
---   { "--resume", short = "-r", value = "RUN", optional = true, doc = "…" }
---
--- where `value` is what an option is followed by (--seed 3, --seed=3) and `optional` lets
--- it be left out; the option's name without dashes names its value then.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = {}

-- What is wrong with the words of a line; commands print it and give USAGE.
local Usage = {}
Usage.__index = Usage
Usage.__tostring = function(e)
  return e.message
end

--- Raises for words that are wrong.
---@param fmt string
---@param ... any
function M.refuse(fmt, ...)
  error(setmetatable({ message = fmt:format(...) }, Usage), 0)
end

local HELP = { "--help", short = "-h", value = "KEY", optional = true, doc = "print this" }

local function find(rows, name)
  local names = {}
  for _, row in ipairs(rows) do
    if row[1] == name or row.short == name then
      return row
    end
    names[#names + 1] = row[1]
  end
  return M.refuse("unrecognized option '%s'%s", name, check.nearest(name, names))
end

-- Whether a word can be the value of an option that may have none.
local function may_follow(word, row)
  return word and word:sub(1, 1) ~= "-" and not (row.optional and word:find("=", 1, true))
end

--- Reads words: options by their names without dashes (true for one without a value),
--- and the others in a list.
--- error: of M.refuse
---@param rows table[]
---@param words string[]
---@return table<string, any> options
---@return string[] rest
function M.read(rows, words)
  local options, rest, i = {}, {}, 1
  while words[i] do
    local word = words[i]
    local name, given = word:match("^(%-%-?[%a-]+)=(.*)$")
    name = name or word
    if word == "--" then
      table.move(words, i + 1, #words, #rest + 1, rest)
      return options, rest
    elseif word:sub(1, 1) ~= "-" or word == "-" then
      rest[#rest + 1] = word
    else
      local row = find(rows, name)
      local key = row[1]:gsub("^%-+", "")
      if given and not row.value then
        M.refuse("%s takes no value", row[1])
      elseif row.value and not given and may_follow(words[i + 1], row) then
        i = i + 1
        given = words[i]
      elseif row.value and not given and not row.optional then
        M.refuse("%s needs a value: %s %s", row[1], row[1], row.value)
      end
      options[key] = given or true
    end
    i = i + 1
  end
  return options, rest
end

--- Lines that say what options there are.
---@param rows table[]
---@return string
function M.describe(rows)
  local lines = {}
  for _, row in ipairs(rows) do
    local value = row.value and (row.optional and " [%s]" or " %s"):format(row.value) or ""
    local head = (row.short and row.short .. ", " or "") .. row[1] .. value
    local text = row.doc:gsub("\n", "\n" .. (" "):rep(20))
    lines[#lines + 1] = #head < 17 and ("  %-17s %s"):format(head, text)
      or ("  %s\n%s%s"):format(head, (" "):rep(20), text)
  end
  return table.concat(lines, "\n") .. "\n"
end

--- Runs a command. `prepare(options, rest)` looks at the words and gives what does the
--- work, a function that gives the exit code; --help prints what `help` gives. Words, and
--- run files, that are wrong are told on standard error without a traceback, and the
--- code is USAGE.
---@param name string
---@param rows table[]
---@param help fun(key: string?): string
---@param prepare fun(options: table, rest: string[]): fun(): integer?
---@param ... string words
---@return integer?
function M.run(name, rows, help, prepare, ...)
  local codes, words = require("lupine.commands"), { ... }
  local all = table.move(rows, 1, #rows, 1, {})
  all[#all + 1] = HELP
  local ok, job = pcall(function()
    local options, rest = M.read(all, words)
    if options.help then
      io.stdout:write(help(options.help ~= true and options.help or nil))
      return nil
    end
    return prepare(options, rest)
  end)
  if ok then
    return job and job()
  elseif getmetatable(job) == Usage then
    io.stderr:write(("lupine %s: %s\n%s`lupine %s --help` tells more\n"):format(name, job.message,
      help():match("^[^\n]*\n"), name))
  elseif errors.Exception:is(job) then
    M.tell(name, job)
  else
    error(job, 0)
  end
  return codes.USAGE
end

--- Tells an error in one line.
---@param name string of the command
---@param e table
function M.tell(name, e)
  io.stderr:write(("lupine %s: %s\n"):format(name, e.message))
end

return M
