--- What jobs are compared by: the best value of a metric that a run has come to.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local records = require("lupine.run.records")
local tables = require("lupine.base.tables")

local M = {}

--- Whether a value is better than another; none is worse than all.
---@param a number?
---@param b number?
---@param mode "min"|"max"
---@return boolean
function M.better(a, b, mode)
  if a == nil or b == nil then
    return a ~= nil
  elseif mode == "max" then
    return a > b
  end
  return a < b
end

--- The best value of a metric in rows; nil: none has it.
---@param rows table[]
---@param metric string
---@param mode "min"|"max"
---@return number? value
---@return integer? step
function M.best(rows, metric, mode)
  local best, step
  for _, row in ipairs(rows) do
    local value = row[metric]
    if type(value) == "number" and value == value and M.better(value, best, mode) then
      best, step = value, row.step
    end
  end
  return best, step
end

--- Refuses a metric that the rows of a run will not have, before any is trained. What
--- callbacks write into a Trainer's metrics is not known before.
--- error: ConfigFileError
---@param metric string
---@param config lupine.run.Config a job's
function M.check(metric, config)
  local known = { "lr", "samples_per_second", "loader_share" }
  for _, part in ipairs({ "", "train.", config:get("data.validation") and "validation." or nil }) do
    for _, name in ipairs({ "loss", table.unpack(config:get("metrics")) }) do
      known[#known + 1] = part .. name
    end
  end
  errors.check(tables.set(known)[metric] or #config:get("callbacks") > 0, "ConfigFileError",
    "metric: the runs have no '%s'%s; they have %s", metric, check.nearest(metric, known),
    table.concat(known, ", "))
end

--- The names of the numbers that rows have, for messages.
---@param rows table[]
---@return string[]
function M.names(rows)
  local out, known = {}, { step = true, epoch = true, time = true }
  for _, row in ipairs(rows) do
    for name, value in pairs(row) do
      if not known[name] and type(value) == "number" then
        known[name], out[#out + 1] = true, name
      end
    end
  end
  table.sort(out)
  return out
end

--- The rows of a run's folder; none, and why, if they cannot be read.
---@param path string
---@param name? string only those that have it
---@return table[]
---@return string?
function M.rows(path, name)
  local ok, rows = pcall(records.read, path .. "/metrics.jsonl", name)
  if ok then
    return rows
  end
  return {}, type(rows) == "table" and rows.message or tostring(rows)
end

return M
