--- Compiled convolutions against eager ones, in values and in time:
---     lupine spec/sweep/conv.lua
--- For each shape and way (ways.lua) values against float64, and the least times of
--- both by turns. A way fails if its values are wrong or if compiled takes more
--- than LIMIT times eager and CALL seconds (what calling a compiled function costs),
--- after every one of several rounds of measuring.
---
--- Environment: SHAPES, separated by semicolons ("conv2d 8x8x16x16 16 p1; …"),
--- instead of the chosen and the drawn ones; COUNT, how many are drawn; SEED, of
--- drawing and of the numbers; THREADS (1: other programs disturb several threads
--- more); VALUES=1 measures no times.
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local shapes = require("spec.sweep.shapes")
local torch = require("torch")
local ways = require("spec.sweep.ways")

local LIMIT, CALL = 1.2, 30e-6
local ROUNDS, SLICE = 24, 0.002
local clock = core.host.clock

local function setting(name, default)
  local n = tonumber(os.getenv(name) or default)
  if math.type(n) ~= "integer" or n < 0 then
    error(("sweep: %s must be a whole number, not '%s'"):format(name, os.getenv(name)), 0)
  end
  return n
end

local function listed(text)
  local out = {}
  for shape in text:gmatch("[^;]+") do
    out[#out + 1] = shape:match("^%s*(.-)%s*$")
  end
  return out
end

local function all_shapes(seed)
  local out = { table.unpack(shapes.chosen) }
  math.randomseed(seed)
  for _ = 1, setting("COUNT", 120) do
    out[#out + 1] = shapes.draw(math.random)
  end
  return out
end

-- The least time of a call, of those that begin within some seconds.
local function least(f, seconds, best)
  local stop = clock() + seconds
  repeat
    local t = clock()
    f()
    best = math.min(best, clock() - t)
  until clock() >= stop
  return best
end

-- Seconds of both; stops as soon as compiled is fast enough, else takes ever longer
-- slices.
local function measure(way)
  local eager, compiled = math.huge, math.huge
  for round = 1, ROUNDS do
    eager = least(way.eager, round * SLICE, eager)
    compiled = least(way.compiled, round * SLICE, compiled)
    if round > 2 and compiled - CALL <= LIMIT * eager then
      break
    end
  end
  return eager, compiled
end

local function try(way, timed)
  local row = { off = ways.difference(way) }
  local right = row.off <= 1 -- no comparison with not a number holds
  if timed then
    row.eager, row.compiled = measure(way)
    row.ratio = (row.compiled - CALL) / row.eager
  end
  row.why = not right and "WRONG" or timed and row.ratio > LIMIT and "SLOW" or nil
  return row
end

local function print_row(text, name, row)
  local times = row.eager and ("%10.1f %10.1f %6.2f"):format(row.eager * 1e6,
    row.compiled * 1e6, row.ratio) or ""
  print(("%-46s %-10s %8.3f %s %s"):format(text, name, row.off, times, row.why or ""))
  io.stdout:flush()
end

local function main()
  local seed, timed = setting("SEED", 1), os.getenv("VALUES") ~= "1"
  torch.set_num_threads(math.max(1, setting("THREADS", 1)))
  local list = os.getenv("SHAPES") and listed(os.getenv("SHAPES")) or all_shapes(seed)
  print(("%d shapes, seed %d; difference in units of what is allowed; times in us")
    :format(#list, seed))
  print(("%-46s %-10s %8s %10s %10s %6s"):format("shape", "way", "off", "eager", "compiled",
    "ratio"))
  local failed = 0
  for _, text in ipairs(list) do
    for _, way in ipairs(ways.of(shapes.parse(text), seed)) do
      local row = try(way, timed)
      print_row(text, way.name, row)
      failed = failed + (row.why and 1 or 0)
    end
    collectgarbage()
  end
  print(("%d of %d failed"):format(failed, 4 * #list))
  return failed == 0
end

os.exit(main(), true)
