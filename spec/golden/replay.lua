--- Replays the golden cases and prints, for each area, how many pass, each
--- failure with its worst element, and what was skipped because a function is
--- not there. Usage: lupine spec/golden/replay.lua [DIR [AREA ...]]
package.path = "./?.lua;./?/init.lua;" .. package.path
local areas = require("spec.golden.areas")
local read = require("spec.golden.read")

local directory = arg[1] or "spec/golden"
local manifest = read.json(read.file(directory .. "/manifest.json"))

local chosen = {}
for i = 2, #arg do
  chosen[arg[i]] = true
end

local function sorted_keys(t)
  local out = {}
  for key in pairs(t) do
    out[#out + 1] = key
  end
  table.sort(out)
  return out
end

local function names(skipped)
  local out = {}
  for _, name in ipairs(sorted_keys(skipped)) do
    out[#out + 1] = ("%s (%d)"):format(name, skipped[name])
  end
  return table.concat(out, ", ")
end

local function replay(area, record)
  local run = areas[area] or areas.functions
  local n = { passed = 0, failed = 0, skipped = 0 }
  local missing = {}
  for _, file in ipairs(record.files) do
    local doc = read.json(read.file(("%s/%s.json"):format(directory, file)))
    local load = read.tensors(("%s/%s"):format(directory, doc.tensors))
    for _, case in ipairs(doc.cases) do
      local ok, e = pcall(run, case, load)
      if ok then
        n.passed = n.passed + 1
      elseif type(e) == "table" and rawget(e, "skipped") then
        n.skipped = n.skipped + 1
        missing[e.skipped] = (missing[e.skipped] or 0) + 1
      else
        n.failed = n.failed + 1
        print(("  %s: %s"):format(case.id, (tostring(e):gsub("\n.*", ""))))
      end
    end
  end
  print(("%-12s %5d of %5d passed, %d failed, %d skipped"):format(area, n.passed,
    n.passed + n.failed + n.skipped, n.failed, n.skipped))
  if n.skipped > 0 then
    print("  skipped: " .. names(missing))
  end
  return n
end

local total = { passed = 0, failed = 0, skipped = 0 }
for _, area in ipairs(sorted_keys(manifest.areas)) do
  if next(chosen) == nil or chosen[area] then
    for key, v in pairs(replay(area, manifest.areas[area])) do
      total[key] = total[key] + v
    end
  end
end
print(("golden: %d passed, %d failed, %d skipped"):format(total.passed, total.failed,
  total.skipped))
os.exit(total.failed == 0)
