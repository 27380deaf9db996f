--- `lupine profile [options] script [arguments]`: runs the script as the host
--- does and reports at its end, however it ends.
local USAGE = [[
usage: lupine profile [options] script [arguments]
  -o FILE        write the tables to FILE (default: standard error)
  --trace FILE   write the trace to FILE (default: profile.json)
  --no-trace     write none
  --top N        rows of each table (default 20; 0: all)
  -h, --help     print this
]]

local M = {}

local function fail(...)
  io.stderr:write("lupine profile: ", string.format(...), "\n", USAGE)
  os.exit(1, true)
end

local VALUES = { ["-o"] = "output", ["--trace"] = "trace", ["--top"] = "top" }

-- The options, and the number of the argument that is the script.
local function read(args)
  local o, i = { trace = "profile.json", top = "20" }, 1
  while args[i] and args[i]:sub(1, 1) == "-" and args[i] ~= "-" do
    local name = args[i]
    if name == "--" then
      i = i + 1
      break
    elseif name == "-h" or name == "--help" then
      io.stdout:write(USAGE)
      os.exit(0, true)
    elseif name == "--no-trace" then
      o.trace = nil
    elseif VALUES[name] then
      i = i + 1
      o[VALUES[name]] = args[i] or fail("%s needs a value", name)
    else
      fail("unrecognized option '%s'", name)
    end
    i = i + 1
  end
  if not args[i] then
    fail("no script given")
  end
  local top = math.tointeger(tonumber(o.top))
  if not top or top < 0 then
    fail("--top: expected an int >= 0, got '%s'", o.top)
  end
  o.top = top
  return o, i
end

-- `arg` as the script has it when it runs by itself.
local function set_arg(args, script)
  local given = {}
  for i = 1, #args do
    given[i - script] = args[i]
  end
  _G.arg = given
end

-- A file that cannot be written is refused before the script runs.
local function check_writable(path)
  local file, why = io.open(path, "a")
  if not file then
    fail("cannot write %s", why)
  end
  file:close()
end

local function report(o)
  local profile = require("lupine.profile")
  local p = profile.stop()
  local text = p:text({ top = o.top })
  if o.output then
    local file = assert(io.open(o.output, "w"))
    assert(file:write(text))
    assert(file:close())
  else
    io.stdout:flush()
    io.stderr:write(text)
  end
  if o.trace then
    p:write_trace(o.trace)
    io.stderr:write("trace: ", o.trace, "\n")
  end
end

--- Runs with the words of the command line after "profile".
---@param ... string
function M.run(...)
  local args = { ... }
  local o, at = read(args)
  for _, path in pairs({ o.trace, o.output }) do
    check_writable(path)
  end
  local path = args[at]
  local chunk, why = loadfile(path ~= "-" and path or nil, "t")
  if not chunk then
    io.stderr:write("lupine profile: ", why, "\n")
    os.exit(1, true)
  end
  set_arg(args, at)
  local profile = require("lupine.profile")
  local reported = false
  local function finish()
    if not reported then
      reported = true
      report(o)
    end
  end
  local exit = os.exit
  function os.exit(...) -- luacheck: ignore 122
    finish()
    exit(...)
  end
  profile.start()
  local _ <close> = setmetatable({}, { __close = finish })
  chunk(table.unpack(args, at + 1))
end

return M
