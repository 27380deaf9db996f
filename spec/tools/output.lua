-- busted's terminal output, plus what spec/tools/test.sh needs to know: the
-- counts, and which test was running when the process died.
local out = os.getenv("LUPINE_TEST_OUT")

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
