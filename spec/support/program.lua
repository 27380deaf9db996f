-- Runs the programs of the build and gives what they printed; drives the
-- host on a pseudo-terminal (script of bsdutils).
local M = {}

M.build = os.getenv("LUPINE_BUILD") or "build"
M.host = M.build .. "/lupine"

function M.quote(s)
  return "'" .. s:gsub("'", "'\\''") .. "'"
end

local function read_file(path)
  local f = io.open(path)
  local text = f and f:read("a") or ""
  if f then
    f:close()
  end
  return text
end

--- A file of the given text, removed by the caller.
function M.temporary(text)
  local path = os.tmpname()
  local f = assert(io.open(path, "w"))
  f:write(text or "")
  f:close()
  return path
end

--- Runs a shell command. Returns standard output, standard error, exit code. Its
--- programs log warnings and errors only, unless the environment says otherwise.
function M.shell(command, input)
  local stdin, stderr = M.temporary(input), M.temporary()
  local p = assert(io.popen(("LUPINE_LOG_LEVEL=${LUPINE_LOG_LEVEL:-warn} timeout 100 sh -c %s "
    .. "<%s 2>%s"):format(M.quote(command), stdin, stderr)))
  local out = p:read("a")
  local _, how, code = p:close()
  local err = read_file(stderr)
  os.remove(stdin)
  os.remove(stderr)
  return out, err, how == "signal" and -code or code
end

--- Runs the host with arguments (a list); input is its standard input.
function M.run(arguments, input)
  local words = { M.host }
  for i, a in ipairs(arguments) do
    words[i + 1] = M.quote(a)
  end
  return M.shell(table.concat(words, " "), input)
end

local Session = {}
Session.__index = Session

local terminal

--- Whether pseudo-terminals can be made here.
function M.has_terminal()
  if terminal == nil then
    terminal = select(3, M.shell("script -qec true /dev/null")) == 0
  end
  return terminal
end

--- Starts the read-eval-print loop on a terminal. env: assignments for the
--- shell. Close with session:close(). What is typed after the end of the loop
--- is read all the same: a broken pipe would end the program that types.
function M.session(env)
  local screen = M.temporary()
  local command = ("TERM=xterm LUPINE_CPU= %s exec %s"):format(env or "", M.host)
  local pipe = assert(io.popen(("timeout 60 script -qfec %s %s >/dev/null 2>&1; code=$?; " ..
    "cat >/dev/null; exit $code"):format(M.quote(command), screen), "w"))
  return setmetatable({ pipe = pipe, path = screen, seen = 0 }, Session)
end

--- Waits until the screen has got the text after what was seen before;
--- returns what came up to its end.
function Session:expect(text)
  local all
  for _ = 1, 1000 do
    all = read_file(self.path)
    local _, last = all:find(text, self.seen + 1, true)
    if last then
      local part = all:sub(self.seen + 1, last)
      self.seen = last
      return part
    end
    os.execute("sleep 0.01")
  end
  error(("expected %q, the screen has %q"):format(text, all:sub(self.seen + 1)), 2)
end

--- Waits for the prompt, then types.
function Session:type(text, prompt)
  self:expect(prompt or "> ")
  self:send(text)
end

function Session:send(text)
  self.pipe:write(text)
  self.pipe:flush()
end

--- Leaves the loop; returns the exit code.
function Session:close()
  self.pipe:write("\21\4") -- drop what is on the line, then end
  local _, _, code = self.pipe:close()
  os.remove(self.path)
  return code
end

--- Runs a script that says "running" (on standard output) before a long call;
--- the shell then sends what Ctrl-C does.
function M.interrupted(script)
  local path = M.temporary(script)
  local command = ([[
    fifo=$(mktemp -u); mkfifo "$fifo"
    %s %s >"$fifo" & pid=$!
    exec 3<"$fifo"; rm -f "$fifo"
    while read -r line <&3; do
      echo "$line"
      [ "$line" = running ] && { sleep 0.1; kill -INT $pid; }
    done
    wait $pid]]):format(M.host, path)
  local out, err, code = M.shell(command)
  os.remove(path)
  return out, err, code
end

return M
