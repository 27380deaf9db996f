--- The read-eval-print loop. The host (src/main_edit.c) gives line editing and
--- protected calls as the table `terminal`; everything else is here.
---
--- The history is a text file with an entry a line; the further lines of an
--- entry start with a tab. Each entry is appended at once, so several sessions
--- share the file and a killed one loses nothing.
local complete = require("lupine.complete")
local describe = require("lupine.describe")
local show = require("lupine.show")
require("lupine.base.suggest") -- for the host, which prints errors

local M = {}

local HELP = [[
An expression prints its value; _ is the last one. An unfinished line goes on.
Nothing is loaded at the start: torch = require("torch"), nn = torch.nn (or
lupine -l torch). Write no `local`: it ends with its line.
  ?NAME         what NAME is: forms or signature, description, source
                (?torch.nn.functional.conv2d, ?nn.LSTM, ?x:sum)
  :time EXPR    evaluates and tells the time it took
  :help         this
  Ctrl-C        stops what runs, or drops the line
  :quit, :q     leaves, as exit, quit and Ctrl-D do]]

-- ---- history ---------------------------------------------------------------

local function history_path(terminal)
  local state = os.getenv("XDG_STATE_HOME")
  if state and state:sub(1, 1) == "/" then
    return state .. "/lupine/history"
  end
  local home = os.getenv("HOME")
  if not home or home == "" then
    return nil
  elseif #terminal.files(home .. "/.local/state") > 0 then
    return home .. "/.local/state/lupine/history"
  end
  return home .. "/.lupine_history"
end

local function warn_history(message)
  io.stderr:write("lupine: history is not kept: ", message, "\n")
end

local function load_history(terminal)
  local path = history_path(terminal)
  if not path then
    return nil
  end
  local ok, message = terminal.private_file(path)
  if not ok then
    warn_history(message)
    return nil
  end
  local entry
  for line in io.lines(path) do
    if line:sub(1, 1) == "\t" and entry then
      entry = entry .. "\n" .. line:sub(2)
    else
      if entry then
        terminal.remember(entry)
      end
      entry = line
    end
  end
  if entry then
    terminal.remember(entry)
  end
  return path
end

-- Returns the path to use from now on: nil after a failure.
local function remember(terminal, path, text)
  text = text:gsub("^%s+", ""):gsub("%s+$", "")
  if text == "" then
    return path
  end
  terminal.remember(text)
  if not path then
    return nil
  end
  local f, message = io.open(path, "a")
  if not f then
    warn_history(message)
    return nil
  end
  f:setvbuf("full") -- one write: sessions do not mix within an entry
  local ok
  ok, message = f:write(text:gsub("\n", "\n\t"), "\n")
  if ok then
    ok, message = f:close()
  else
    f:close()
  end
  if not ok then
    warn_history(message)
    return nil
  end
  return path
end

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

--- Compiles a chunk, first as an expression list. Returns the function, or
--- nil and "unfinished", or nil and the error message.
--- `=expr` is an expression, as in Lua 5.1's loop.
---@param text string
---@return function? chunk
---@return string? why "unfinished", or the message
function M.compile(text)
  local expression = text:match("^%s*=(.*)$")
  local f, expression_error = load("return " .. (expression or text), "=stdin", "t")
  if f then
    return f
  end
  local message = expression_error
  if expression then
    return nil, message:find("near <eof>$") and "unfinished" or message
  end
  f, message = load(text, "=stdin", "t")
  if f then
    return f
  elseif message:find("near <eof>$") or expression_error:find("near <eof>$") then
    return nil, "unfinished"
  end
  return nil, message .. import(text)
end

local function prompt(name, default)
  local p = rawget(_G, name)
  return p == nil and default or tostring(p)
end

local function print_results(...)
  local texts = table.pack(...)
  local lines = false
  for i = 1, texts.n do
    texts[i] = show.show(texts[i])
    lines = lines or texts[i]:find("\n", 1, true) ~= nil
  end
  io.write(table.concat(texts, lines and "\n" or "\t"), "\n")
end

-- Runs f; its results are printed and the first kept in _.
local function evaluate(terminal, f)
  local results = table.pack(terminal.call(f))
  if not results[1] then
    return terminal.report(results[2])
  end
  if results.n > 1 then
    if results[2] ~= nil then
      rawset(_G, "_", results[2])
    end
    local ok, message = terminal.call(print_results, table.unpack(results, 2, results.n))
    if not ok then
      terminal.report(message)
    end
  end
end

-- ---- commands --------------------------------------------------------------

local function time(terminal, text)
  local f, message = M.compile(text)
  if not f then
    return terminal.report(message)
  end
  local wall, cpu = require("lupine.core").host.clock(), os.clock()
  evaluate(terminal, f)
  io.write(("%.6f s, processor %.6f s\n"):format(
    require("lupine.core").host.clock() - wall, os.clock() - cpu))
end

-- True if the line was a command.
local function command(terminal, line)
  local name = line:match("^%s*%?%s*([%a_][%w_%.:]*)%s*$")
  if name then
    local ok, text = terminal.call(describe, name, _G)
    if ok then
      io.write(text, "\n")
    else
      terminal.report(text)
    end
    return true
  end
  local word, rest = line:match("^%s*:([%a]+)%s*(.*)$")
  if word == "time" then
    time(terminal, rest)
  elseif word == "help" or line:find("^%s*%?%s*$") then
    io.write(HELP, "\n")
  elseif word then
    io.write("no command :", word, "; :help lists them\n")
  else
    return false
  end
  return true
end

local LEAVE = { exit = true, quit = true }
local LEAVE_COMMAND = { exit = true, quit = true, q = true }

-- :quit; exit, quit, with () or without, unless the script has such a name.
local function leaves(line)
  if LEAVE_COMMAND[line:match("^%s*:(%a+)%s*$") or ""] then
    return true
  end
  local name = line:match("^%s*(%a+)%s*;?%s*$") or line:match("^%s*(%a+)%s*%(%s*%)%s*;?%s*$")
  return name and LEAVE[name] and rawget(_G, name) == nil
end

-- ---- the loop --------------------------------------------------------------

-- Reads one chunk: text and function, or text alone if it does not compile
-- (reported) or was a command; nil at the end of input and where it leaves.
local function read_chunk(terminal, completer)
  local text, why = terminal.readline(prompt("_PROMPT", "> "), completer)
  if not text then
    return why == "interrupted" and "" or nil
  elseif leaves(text) then
    return nil
  elseif command(terminal, text) or text:find("^%s*$") then
    return text
  end
  while true do
    local f, message = M.compile(text)
    if f then
      return text, f
    elseif message ~= "unfinished" then
      terminal.report(message)
      return text
    end
    local more
    more, why = terminal.readline(prompt("_PROMPT2", ">> "), completer)
    if not more then
      if why == "end" then
        terminal.report(select(2, load(text, "=stdin", "t")))
      end
      return ""
    end
    text = text .. "\n" .. more
  end
end

--- Runs until the end of input.
---@param terminal table lupine.core's: interactive, read, files
function M.run(terminal)
  local path = terminal.interactive and load_history(terminal)
  if terminal.interactive then
    io.write("lupine ", require("lupine.core").version, " (", _VERSION, "); :help for help\n",
      'torch = require("torch") loads torch\n')
  end
  local function completer(text)
    return complete.complete(text, _G, terminal.files)
  end
  while true do
    local text, f = read_chunk(terminal, completer)
    if not text then
      return
    end
    if terminal.interactive then
      path = remember(terminal, path, text)
    end
    if f then
      evaluate(terminal, f)
    end
    io.stdout:flush()
  end
end

return M
