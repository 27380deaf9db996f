--- The commands of the read-eval-print loop: lines that start with a colon, and
--- ?NAME.
local check = require("lupine.base.check")
local core = require("lupine.core")
local describe = require("lupine.describe")
local memory = require("lupine.repl.memory")
local script = require("lupine.repl.script")
local search = require("lupine.repl.search")
local tables = require("lupine.base.tables")

local M = {}

M.HELP = [[
An expression prints its value; _ is the last one. An unfinished line goes on.
A local lives on in the next entries (a <close> one is closed where its entry
ends). Nothing is loaded at the start: torch = require("torch"), nn = torch.nn
(or lupine -l torch).
  ?NAME             what NAME is: forms or signature, description, source
                    (?torch.nn.functional.conv2d, ?nn.LSTM, ?x:sum)
  ??TEXT            names and descriptions that have TEXT
  :time CODE        runs it and tells the time; an expression that takes less
                    than 0.1 s is evaluated again, for the mean (statements,
                    `local y = f(x)` among them, run once)
  :memory           the largest tensors by name, and bytes live, peak, cached
  :traceback        the last error's traceback, lupine's own frames too;
                    :traceback full or short sets what further errors show
  :save FILE        what ran without an error so far, as a script (:save! FILE
                    replaces one)
  :load FILE        runs a file here; its locals live on
  :help, ?          this
  Tab               completes names, options, keywords and files
  Ctrl-C            stops what runs, or drops the line
  :quit, :q         leaves, as exit, quit and Ctrl-D do]]

local function say(...)
  io.write(...)
  io.write("\n")
end

-- ---- asking ----------------------------------------------------------------

local function tell(session, f, ...)
  local ok, text = session.terminal.call(f, ...)
  if ok then
    say(text)
  else
    session:report(text)
  end
end

-- True if the line asked for something.
local function question(session, line)
  local text = line:match("^%s*%?%?%s*(.-)%s*$")
  local name = line:match("^%s*%?%s*([%a_][%w_%.:]*)%s*$")
  if text and text ~= "" then
    tell(session, search, text, session.terminal.files)
  elseif name then
    tell(session, describe, name, session:names())
  elseif line:find("^%s*%?") then
    say(M.HELP)
  else
    return false
  end
  return true
end

-- ---- commands --------------------------------------------------------------

local commands = {}

function commands.help()
  say(M.HELP)
end

local ENOUGH = 0.1 -- seconds

--- Runs a chunk and tells the time. `again`: it may run more than once.
---@param session lupine.repl.Session
---@param f function
---@param again boolean
---@return boolean ok
function M.time(session, f, again)
  local clock = core.host.clock
  local wall, cpu = clock(), os.clock()
  local ok = session:evaluate(f)
  local first, used = clock() - wall, os.clock() - cpu
  local n, total = 1, first
  wall = clock()
  while ok and again and total < ENOUGH and n < 100000 do
    ok = session:evaluate(f, true)
    n, total = n + 1, first + clock() - wall
  end
  if n == 1 then
    say(("%.6f s, processor %.6f s"):format(first, used))
  elseif ok then
    say(("%.3g s, the mean of %d; the first took %.3g s"):format(
      (total - first) / (n - 1), n - 1, first))
  end
  return ok
end

function commands.memory(session)
  local locals = session:names()
  setmetatable(locals, nil)
  tell(session, memory.text, locals, session.globals)
end

function commands.traceback(session, rest)
  if rest == "full" or rest == "short" then
    session.terminal.traceback(rest)
  elseif rest == "" then
    local e = session.failure
    local kept = type(e) == "table" and rawget(e, "traceback")
    say(type(kept) == "string" and kept or session.terminal.traceback() or "no error so far")
  else
    say(":traceback takes full, short or nothing, not ", rest)
  end
end

local function exists(path)
  local f = io.open(path)
  return f and f:close()
end

local function save(session, path, replaces)
  if path == "" then
    say(":save needs a file")
  elseif not replaces and exists(path) then
    say(path, " is there already; `:save! ", path, "` replaces it")
  else
    local text = script.text(session.entries)
    local ok, message = session.terminal.call(core.write_text, path, text)
    if not ok then
      return session:report(message)
    end
    local _, fault = load(text, "@" .. path, "t")
    say(("%s: %d entries"):format(path, #session.entries),
      fault and "; as a script it does not compile: " .. fault or "")
  end
end

function commands.save(session, rest)
  save(session, rest, false)
end

commands["save!"] = function(session, rest)
  save(session, rest, true)
end

function commands.load(session, rest, line)
  local f, message = io.open(rest)
  local text
  if f then
    text, message = f:read("a") -- a folder opens, and gives nothing
    f:close()
  end
  if not text then
    return say(message or rest .. " cannot be read")
  end
  text = text:gsub("^#[^\n]*", "")
  local chunk
  chunk, message = session.scope:load(text, "@" .. rest)
  if not chunk then
    session:report(message)
  elseif session:evaluate(chunk) then
    session:record({ command = line, code = text })
  end
end

-- :time and :quit are the loop's own.
local function names()
  local list = tables.keys(commands)
  list[#list + 1] = "time"
  list[#list + 1] = "quit"
  table.sort(list)
  return list
end
M.names = names

--- Runs a command. False if the line is none.
---@param session lupine.repl.Session
---@param line string
---@return boolean
function M.run(session, line)
  if question(session, line) then
    session:record({ command = line })
    return true
  end
  local word, rest = line:match("^%s*:(%a+!?)%s*(.-)%s*$")
  if not word or line:find("^%s*::") then
    return false
  end
  local command = commands[word]
  if not command then
    say("no command :", word, check.nearest(word, names()), "; :help lists them")
    return true
  end
  command(session, rest, line)
  if word ~= "load" then
    session:record({ command = line })
  end
  return true
end

return M
