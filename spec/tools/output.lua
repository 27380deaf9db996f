-- busted's terminal output, plus what spec/tools/test.sh needs to know: the
-- counts, and which test was running when the process died. Each file has a
-- simulated machine of its own, since busted keeps what a file's blocks hold, and
-- with it the IPUs, until the end; and it begins with the log's level of the run.
local out = os.getenv("LUPINE_TEST_OUT")
local getenv, files = os.getenv, 0

local function new_file()
  files = files + 1
  local folder = ("%s/%d"):format(getenv("LUPINE_DEVICES"), files)
  os.getenv = function(name) -- luacheck: ignore 122
    return name == "LUPINE_DEVICES" and folder or getenv(name)
  end
  require("lupine.core").host.log_level(getenv("LUPINE_LOG_LEVEL"))
  return nil, true
end

local function write(name, text)
  local f = assert(io.open(out .. "/" .. name, "w"))
  f:write(text, "\n")
  f:close()
end

return function(options)
  local busted = require("busted")
  local handler = require("busted.outputHandlers.utfTerminal")(options)
  if not out then
    return handler
  end
  busted.subscribe({ "file", "start" }, new_file)
  busted.subscribe({ "test", "start" }, function(element)
    local trace = element.trace or {}
    write("current", ("%s:%s: %s"):format(trace.short_src, trace.currentline,
      handler.getFullName(element)))
    return nil, true
  end)
  busted.subscribe({ "suite", "end" }, function()
    write("counts", ("%d %d"):format(handler.successesCount,
      handler.failuresCount + handler.errorsCount))
    return nil, true
  end)
  return handler
end
