--- `lupine report`: what the simulated system says of a program, from a file.
local codes = require("lupine.commands")
local errors = require("lupine.base.errors")
local files = require("lupine.report.file")
local insights = require("lupine.report.insights")
local report = require("lupine.report")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine report FILE [options]
Prints the report in FILE: what report:save(FILE) wrote, the profile.json of
autoReport.all, or a run's report.json. FILE may be the folder that has it.
]]

local OPTIONS = {
  { "--html", value = "FILE", doc = "write a page to be opened in a browser" },
  { "--trace", value = "FILE", doc = "write the schedule for Perfetto (ui.perfetto.dev)" },
}

local function help()
  return USAGE .. words.describe(OPTIONS) .. "  -h, --help        print this\n"
end

-- Writes what is asked for, else prints.
local function show(r, options)
  for name, value in pairs({ html = options.html, trace = options.trace }) do
    r[name](r, value)
    print(("wrote %s"):format(value))
  end
  if not options.html and not options.trace then
    io.stdout:write(r:summary(), "\nWhat stands out:\n", insights.text(r))
  end
  return codes.DONE
end

--- Runs the command.
---@param ... string
---@return integer?
function M.run(...)
  return words.run("report", OPTIONS, help, function(options, rest)
    if #rest ~= 1 then
      words.refuse("expected a file, got %d words", #rest)
    end
    return function()
      local ok, result = pcall(function()
        return show(report.read(files.find(rest[1])), options)
      end)
      if not ok and errors.Exception:is(result) then
        words.tell("report", result)
        return codes.ERROR
      end
      return ok and result or error(result, 0)
    end
  end, ...)
end

return M
