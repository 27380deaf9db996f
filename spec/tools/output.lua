-- busted's terminal output, plus what spec/tools/test.sh needs to know: the
-- counts, the failures' names, the seconds of each file, and which test was
-- running when the process died. Each file has a simulated machine of its own,
-- since busted keeps what a file's blocks hold, and with it the IPUs, until the
-- end; and it begins with the log's level of the run.
local out = os.getenv("LUPINE_TEST_OUT")
local getenv, files, began = os.getenv, 0, 0
local now = require("system").monotime

local function new_file()
  files, began = files + 1, now()
  local folder = ("%s/%d"):format(getenv("LUPINE_DEVICES"), files)
  os.getenv = function(name) -- luacheck: ignore 122
    return name == "LUPINE_DEVICES" and folder or getenv(name)
  end
  require("lupine.core").host.log_level(getenv("LUPINE_LOG_LEVEL"))
  return nil, true
end

local function write(name, text, mode)
  local f = assert(io.open(out .. "/" .. name, mode or "w"))
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
  local function named(element)
    local trace = element.trace or {}
    return ("%s:%s: %s"):format(trace.short_src, trace.currentline, handler.getFullName(element))
  end
  local function failed(element)
    write("failed", named(element), "a")
    return nil, true
  end
  busted.subscribe({ "test", "start" }, function(element)
    write("current", named(element))
    return nil, true
  end)
  busted.subscribe({ "failure" }, failed)
  busted.subscribe({ "error" }, failed)
  busted.subscribe({ "file", "end" }, function(file)
    write("times", ("%8.2f %s"):format(now() - began, file.name), "a")
    return nil, true
  end)
  busted.subscribe({ "suite", "end" }, function()
    write("counts", ("%d %d"):format(handler.successesCount,
      handler.failuresCount + handler.errorsCount))
    return nil, true
  end)
  return handler
end
