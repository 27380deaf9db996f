--- The read-eval-print loop. The host (src/main_edit.c) gives line editing and
--- protected calls as the table `terminal`; everything else is here and in the
--- files of repl/.
local commands = require("lupine.repl.commands")
local complete = require("lupine.complete")
local core = require("lupine.core")
local history = require("lupine.repl.history")
local scope = require("lupine.repl.scope")
local show = require("lupine.show")
require("lupine.base.suggest") -- for the host, which prints errors

local M = {}

-- ---- chunks ----------------------------------------------------------------

-- What Python's import is here, for a line that is one.
local function import(text)
  local module, name = text:match("^%s*from%s+([%a_][%w_%.]*)%s+import%s+([%a_][%w_]*)")
  if module then
    return ('; write %s = require("%s").%s'):format(name, module, name)
  end
  local rest
  module, rest = text:match("^%s*import%s+([%a_][%w_%.]*)(.*)$")
  name = module and (rest:match("^%s+as%s+([%a_][%w_]*)") or module:match("^[%w_]+"))
  local whole = module and rest:find("^%s+as%s") and module or name
  return module and ('; write %s = require("%s")'):format(name, whole) or ""
end

-- Whether Lua takes a text, first as a list of expressions: the chunk's text and
-- whether it is such a list; or nil and "unfinished", or nil and the message.
local function parse(text)
  local expression = text:match("^%s*=(.*)$") -- as in Lua 5.1's loop
  local list = "return " .. (expression or text)
  local f, expression_error = load(list, "=stdin", "t")
  if f then
    return list, true
  end
  local message = expression_error
  if expression then
    return nil, message:find("near <eof>$") and "unfinished" or message
  end
  f, message = load(text, "=stdin", "t")
  if f then
    return text, false
  elseif message:find("near <eof>$") or expression_error:find("near <eof>$") then
    return nil, "unfinished"
  end
  return nil, message .. import(text)
end

--- Compiles a chunk, first as an expression list. Returns the function, or
--- nil and "unfinished", or nil and the error message.
---@param text string
---@param locals? lupine.repl.Scope what it sees and adds to
---@return function? chunk
---@return string|boolean why "unfinished", or the message; of a chunk: is it an expression list?
function M.compile(text, locals)
  local code, why = parse(text)
  if not code then
    return nil, why
  end
  local f, message = (locals or scope.new()):load(code, "=stdin")
  if not f then
    return nil, message
  end
  return f, why
end

local function prompt(name, default)
  local p = rawget(_G, name)
  return p == nil and default or tostring(p)
end

-- ---- a session -------------------------------------------------------------

---@class lupine.repl.Session
---@field terminal table the host's
---@field globals table
---@field scope lupine.repl.Scope
---@field entries lupine.repl.Entry[] what ran without an error
local Session = {}
Session.__index = Session

--- What an entry finds by name.
function Session:names()
  return self.scope:names(self.globals)
end

--- Keeps an entry for `:save`.
---@param entry lupine.repl.Entry
function Session:record(entry)
  self.entries[#self.entries + 1] = entry
end

-- A value as text, a tensor with its type and shape.
local function text_of(v)
  local text = show.show(v)
  if core.is_tensor(v) and not core.is_closed(v) then
    text = ("%s  -- %s [%s]"):format(text, tostring(v.dtype):gsub("^torch%.", ""),
      table.concat(v.shape, ", "))
  end
  return text
end

local function print_results(...)
  local texts = table.pack(...)
  local lines = false
  for i = 1, texts.n do
    texts[i] = text_of(texts[i])
    lines = lines or texts[i]:find("\n", 1, true) ~= nil
  end
  io.write(table.concat(texts, lines and "\n" or "\t"), "\n")
end

--- Prints an error and keeps it for :traceback.
---@param e any
function Session:report(e)
  self.failure = e
  self.terminal.report(e)
end

--- Runs f; its results are printed (unless `quiet`) and the first kept in _.
---@param f function
---@param quiet? boolean
---@return boolean ok
---@return boolean? valued whether it gave a value
function Session:evaluate(f, quiet)
  local results = table.pack(self.terminal.call(f))
  if not results[1] then
    self:report(results[2])
    return false
  end
  if results.n > 1 and not quiet then
    if results[2] ~= nil then
      rawset(self.globals, "_", results[2])
    end
    local ok, message = self.terminal.call(print_results, table.unpack(results, 2, results.n))
    if not ok then
      self:report(message)
    end
  end
  return true, results[2] ~= nil
end

local LEAVE = { exit = true, quit = true }
local LEAVE_COMMAND = { exit = true, quit = true, q = true }

-- :quit; exit, quit, with () or without, unless the script has such a name.
function Session:leaves(line)
  if LEAVE_COMMAND[line:match("^%s*:(%a+)%s*$") or ""] then
    return true
  end
  local name = line:match("^%s*(%a+)%s*;?%s*$") or line:match("^%s*(%a+)%s*%(%s*%)%s*;?%s*$")
  return name and LEAVE[name] and rawget(self.globals, name) == nil and not self.scope.cells[name]
end

-- ---- the loop --------------------------------------------------------------

-- Reads on until the code that begins with `code` is whole. Returns what was
-- typed, and the chunk with whether it is an expression, if it compiles.
function Session:read_on(text, code)
  while true do
    local f, why = M.compile(code, self.scope)
    if f then
      return text, code, f, why
    elseif why ~= "unfinished" then
      self:report(why)
      return text
    end
    local more
    more, why = self.terminal.readline(prompt("_PROMPT2", ">> "), self.completer)
    if not more then
      if why == "end" then
        self:report(select(2, load(code, "=stdin", "t")))
      end
      return ""
    end
    text, code = text .. "\n" .. more, code .. "\n" .. more
  end
end

-- Runs what was read, and keeps it if it raised nothing.
function Session:run(text, code, f, is_expression)
  local timed = text ~= code
  local ok, valued
  if timed then
    ok = commands.time(self, f, is_expression)
  else
    ok, valued = self:evaluate(f)
  end
  if ok then
    self:record({ command = timed and text or nil, code = code, valued = valued })
  end
end

-- One entry; false where the loop ends.
function Session:step()
  local text, why = self.terminal.readline(prompt("_PROMPT", "> "), self.completer)
  if not text then
    return why == "interrupted"
  elseif self:leaves(text) then
    return false
  end
  local code, f, is_expression
  local is_command = not text:find("^%s*:time%s+%S")
  if is_command and text:find("^%s*[:?]") then
    self:remember(text)
  end
  if text:find("^%s*$") or is_command and commands.run(self, text) then
    return true
  end
  text, code, f, is_expression = self:read_on(text, text:match("^%s*:time%s+(.*)$") or text)
  self:remember(text)
  if f then
    self:run(text, code, f, is_expression)
  end
  return true
end

function Session:remember(text)
  if self.history then
    self.history:add(text)
  end
end

--- Runs until the end of input.
---@param terminal table lupine.core's: interactive, read, files
function M.run(terminal)
  local session = setmetatable({ terminal = terminal, globals = _G, scope = scope.new(),
    entries = {} }, Session)
  if terminal.interactive then
    session.history = history.open(terminal)
    io.write("lupine ", core.version, " (", _VERSION, "); :help for help\n",
      'torch = require("torch") loads torch\n')
  end
  function session.completer(text)
    return complete.complete(text, session:names(), terminal.files)
  end
  while session:step() do
    io.stdout:flush()
  end
end

return M
