--- What jobs are compared by: the best value of a metric that a run has come to.
local records = require("lupine.run.records")

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
