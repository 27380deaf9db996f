--- `lupine plan`: how many IPUs for the program of a script, and how.
local codes = require("lupine.commands")
local plan = require("lupine.plan")
local words = require("lupine.commands.words")

local M = {}

local USAGE = [[
usage: lupine plan [options] SCRIPT [-- arguments]
Runs the script up to the first program that it compiles, and tries on the simulated
system how many IPUs, cuts, replicas and which settings would be best for that.
]]

local OPTIONS = {
  { "--ipus", value = "N..M|N,…", doc = "numbers of IPUs to try (default 1,2,4,8,16)" },
  { "--accumulation", value = "N,…",
    doc = "gradient accumulations to try, in place of the one that keeps the batch" },
  { "--tries", value = "N", doc = "simulations for each number of stages (default 200)" },
}

local function help()
  return USAGE .. words.describe(OPTIONS) .. "  -h, --help        print this\n"
end

local function number(text, name)
  local n = math.tointeger(tonumber(text))
  return n and n >= 1 and n or words.refuse("--%s: expected numbers of 1 or more, got '%s'", name,
    text)
end

-- "1..4,8" -> {1, 2, 3, 4, 8}
local function numbers(text, name)
  local out = {}
  for part in text and (text .. ","):gmatch("(.-),") or function() end do
    local from, to = part:match("^(%d+)%.%.(%d+)$")
    local first, last = number(from or part, name), number(to or part, name)
    if first > last then
      words.refuse("--%s: %d is more than %d in '%s'", name, first, last, text)
    end
    for n = first, last do
      out[#out + 1] = n
    end
    if #out > 4096 then
      words.refuse("--%s: more than 4096 numbers: '%s'", name, text)
    end
  end
  return text and out or nil
end

-- Runs the script; `opened` gets its first program.
local function run_script(path, arguments, opened)
  local chunk, why = loadfile(path ~= "-" and path or nil, "t")
  if not chunk then
    io.stderr:write("lupine plan: ", why, "\n")
    return codes.ERROR
  end
  local given = table.move(arguments, 1, #arguments, 1, { [0] = path })
  _G.arg = given
  require("lupine.session").catch(opened)
  chunk(table.unpack(arguments))
  io.stderr:write("lupine plan: the script compiled no program\n")
  return codes.ERROR
end

--- Runs the command.
---@param ... string
---@return integer?
function M.run(...)
  return words.run("plan", OPTIONS, help, function(options, rest)
    local path = table.remove(rest, 1) or words.refuse("expected a script")
    local opts = { ipus = numbers(options.ipus, "ipus"),
      accumulation = numbers(options.accumulation, "accumulation"),
      tries = options.tries and number(options.tries, "tries") }
    return function()
      return run_script(path, rest, function(step, spec)
        opts.system, opts.smaller, opts.spelling = spec.system, spec.smaller, spec.spelling
        print(plan(step, opts))
        io.stdout:flush()
        os.exit(codes.DONE, true)
      end)
    end
  end, ...)
end

return M
