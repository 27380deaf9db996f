--- The jobs of a sweep: which values each has. A job's values are {key, text} in the
--- order of the parameters.
local errors = require("lupine.base.errors")

local M = {}

local MOST = 100000 -- jobs

-- ---- numbers of a range ----------------------------------------------------------------

-- A number as it is told, and given to the job.
local function rounded(p, value)
  if p.integer then
    return ("%d"):format(math.max(p.low, math.min(p.high, math.floor(value + 0.5))))
  end
  local short = tonumber(("%.6g"):format(value)) + 0.0
  local text = ("%.6g"):format(value)
  if short < p.low or short > p.high then
    text = ("%.17g"):format(math.max(p.low, math.min(p.high, value)))
  end
  return text:find("[.en]") and text or text .. ".0"
end

-- The number at a share (0 to 1) of a range.
local function at(p, share)
  if p.log then
    local low, high = math.log(p.low), math.log(p.high)
    return rounded(p, math.exp(low + (high - low) * share))
  end
  return rounded(p, p.low + (p.high - p.low) * share)
end

-- ---- every combination -----------------------------------------------------------------

local function grid_values(p)
  if p.values then
    return p.values
  end
  errors.check(p.points, "ConfigFileError", "%s: %s: a grid takes points of a range: {min, max, "
    .. "points: 5}", p.at, p.key)
  local out, last = {}, nil
  for i = 0, p.points - 1 do
    local text = at(p, i / (p.points - 1))
    out[#out + 1] = text ~= last and text or nil -- few integers may be in the range
    last = text
  end
  return out
end

local function grid(parameters)
  local jobs = { {} }
  for _, p in ipairs(parameters) do
    local values, next_jobs = grid_values(p), {}
    errors.check(#jobs * #values <= MOST, "ConfigFileError", "%s: %s: the grid has more than %d "
      .. "jobs", p.at, p.key, MOST)
    for _, job in ipairs(jobs) do
      for _, text in ipairs(values) do
        local longer = table.move(job, 1, #job, 1, {})
        longer[#longer + 1] = { p.key, text }
        next_jobs[#next_jobs + 1] = longer
      end
    end
    jobs = next_jobs
  end
  return jobs
end

-- ---- draws -----------------------------------------------------------------------------

-- Numbers of [0, 1) that are the same everywhere for a seed.
-- Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
local function generator(seed)
  local state = seed
  return function()
    state = state + 0x9e3779b97f4a7c15
    local z = state
    z = (z ~ z >> 30) * 0xbf58476d1ce4e5b9
    z = (z ~ z >> 27) * 0x94d049bb133111eb
    return ((z ~ z >> 31) >> 11) * 2.0 ^ -53
  end
end

local function draw(parameters, random)
  local job, key = {}, {}
  for i, p in ipairs(parameters) do
    local share = random()
    local text = p.values and p.values[math.floor(share * #p.values) + 1] or at(p, share)
    job[i], key[i] = { p.key, text }, text
  end
  return job, table.concat(key, "\0")
end

-- How many different jobs there are; nil: no end of them.
local function combinations(parameters)
  local n = 1
  for _, p in ipairs(parameters) do
    local of = p.values and #p.values or p.integer and p.high - p.low + 1 or math.huge
    n = n * of
  end
  return n
end

local function random_jobs(parameters, count, seed)
  errors.check(combinations(parameters) >= count, "ConfigFileError", "count: %d jobs are to be "
    .. "drawn, and there are %d different ones", count, combinations(parameters))
  local random, jobs, seen = generator(seed), {}, {}
  while #jobs < count do
    local job, key
    for _ = 1, 1000 do -- the same values twice tell nothing new
      job, key = draw(parameters, random)
      if not seen[key] then
        break
      end
    end
    seen[key] = true
    jobs[#jobs + 1] = job
  end
  return jobs
end

--- The jobs, each a list of {key, text}.
--- error: ConfigFileError
---@param config table<string, any> of lua/lupine/run/sweep/config.lua, with a seed
---@return table[]
function M.jobs(config)
  for _, p in ipairs(config.parameters) do
    errors.check(not p.points or config.method == "grid" or not config.count, "ConfigFileError",
      "%s: %s: points are of a grid; here values are drawn", p.at, p.key)
  end
  if config.count then
    return random_jobs(config.parameters, config.count, config.seed)
  end
  return grid(config.parameters)
end

--- The rounds of halving: how long those that take part have trained at the end of each.
---@param config table<string, any>
---@return {count: integer, unit: string}[]
function M.rungs(config)
  local low, high = config["halving.min"], config["halving.max"]
  local out, count = {}, low.count
  while count < high.count do
    out[#out + 1] = { count = count, unit = low.unit }
    count = count * config["halving.factor"]
  end
  out[#out + 1] = { count = high.count, unit = high.unit }
  return out
end

return M
