--- Replays the golden cases and prints, for each area and way, how many pass,
--- each failure with its worst element, and what was skipped because a
--- function is not there. Functions run four ways (README.md, Replaying).
--- Usage: lupine spec/golden/replay.lua [--ways=WAY,…] [DIR [AREA …]]
package.path = "./?.lua;./?/init.lua;" .. package.path
local book = require("spec.golden.book")

local TITLES = { eager = "%s", compiled = "  %s, compiled", gradient = "  %s, compiled gradient",
  second = "  %s, gradient of the gradient" }

local function options(given)
  local wanted, chosen, directory = {}, {}, nil
  for _, way in ipairs(book.WAYS) do
    wanted[way] = true
  end
  for _, a in ipairs(given) do
    local list = a:match("^%-%-ways=(.*)$")
    if list then
      wanted = {}
      for way in list:gmatch("[^,]+") do
        wanted[way] = TITLES[way] ~= nil or error("no way " .. way)
      end
    elseif not directory then
      directory = a
    else
      chosen[a] = true
    end
  end
  return wanted, chosen, directory or "spec/golden"
end

local function sorted_keys(t)
  local out = {}
  for key in pairs(t) do
    out[#out + 1] = key
  end
  table.sort(out)
  return out
end

local function names(title, counts)
  local out = {}
  for _, name in ipairs(sorted_keys(counts)) do
    out[#out + 1] = ("%s (%d)"):format(name, counts[name])
  end
  if out[1] then
    print(("    %s: %s"):format(title, table.concat(out, ", ")))
  end
end

local wanted, chosen, directory = options(arg)
local manifest = book.manifest(directory)
local passed, total, failed = 0, 0, 0
for _, area in ipairs(sorted_keys(manifest.areas)) do
  local books = (next(chosen) == nil or chosen[area])
    and book.area(directory, area, manifest.areas[area], wanted) or {}
  for _, way in ipairs(book.WAYS) do
    local n = books[way]
    if n then
      print(("%s: %d/%d"):format(TITLES[way]:format(area), n.passed, n.total))
      for _, text in ipairs(n.failures) do
        print("    " .. text)
      end
      names("skipped", n.skipped)
      names("refused when traced", n.refused)
      passed, total, failed = passed + n.passed, total + n.total, failed + n.failed
    end
  end
end
print(("golden: %d/%d, %d failed"):format(passed, total, failed))
os.exit(failed == 0)
