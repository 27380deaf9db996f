--- Replays the golden cases and prints, for each area and way, how many pass,
--- each failure with its worst element, and how many did not run, and why:
--- skipped, since a function is not there (a fault in the project's own set),
--- refused by tracing, or cases to which the way does not apply. Functions run
--- four ways (README.md, Replaying).
--- Usage: lupine spec/golden/replay.lua [--ways=WAY,…] [--deterministic]
--- [DIR [AREA …]]; --deterministic: with torch.use_deterministic_algorithms(true).
package.path = "./?.lua;./?/init.lua;" .. package.path
local book = require("spec.golden.book")
local torch = require("torch")

local OWN = "spec/golden"
local TITLES = { eager = "%s", compiled = "  %s, compiled", gradient = "  %s, compiled gradient",
  second = "  %s, gradient of the gradient" }

local function options(given)
  local wanted, chosen, directory = {}, {}, nil
  for _, way in ipairs(book.WAYS) do
    wanted[way] = 1
  end
  for _, a in ipairs(given) do
    local list = a:match("^%-%-ways=(.*)$")
    if list then
      wanted = {}
      for way in list:gmatch("[^,]+") do
        wanted[way] = TITLES[way] and 1 or error("no way " .. way)
      end
    elseif a == "--deterministic" then
      torch.use_deterministic_algorithms(true)
    elseif not directory then
      directory = a
    else
      chosen[a] = true
    end
  end
  return wanted, chosen, directory and directory:gsub("(.)/+$", "%1") or OWN
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

local function sum(counts)
  local n = 0
  for _, k in pairs(counts) do
    n = n + k
  end
  return n
end

local wanted, chosen, directory = options(arg)
local manifest = book.manifest(directory)
local passed, total, failed, skipped = 0, 0, 0, 0
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
      names("not applicable", n.beside)
      passed, total, failed = passed + n.passed, total + n.total, failed + n.failed
      skipped = skipped + sum(n.skipped)
    end
  end
end
print(("golden: %d/%d, %d failed, %d skipped"):format(passed, total, failed, skipped))
os.exit(failed == 0 and (skipped == 0 or directory ~= OWN))
