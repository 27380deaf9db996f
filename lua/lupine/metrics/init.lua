--- Metrics of a training, from outputs and targets batch by batch:
---
---     local accuracy = lupine.metrics.Accuracy()
---     for x, y in loader do
---       accuracy:update(model(x), y)
---     end
---     print(accuracy:compute())
---
--- Each has update(output, target), compute(), reset(), state_dict() and
--- load_state_dict(state). All work is tensors'. What outputs may look like:
--- lupine/metrics/classes.lua.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = {}

for _, module in ipairs({ "decisions", "values" }) do
  for name, metric in pairs(require("lupine.metrics." .. module)) do
    M[name] = metric
  end
end

-- Names in run files and options.
local NAMED = {
  accuracy = function()
    return M.Accuracy()
  end,
  perplexity = function()
    return M.Perplexity()
  end,
  f1 = function()
    return M.F1()
  end,
  confusion = function()
    return M.ConfusionMatrix()
  end,
}
function NAMED.accuracy_next()
  return M.Accuracy({ shift = true, ignore_index = -100 })
end
function NAMED.perplexity_next()
  return M.Perplexity({ shift = true })
end
for _, average in ipairs({ "macro", "micro", "weighted" }) do
  NAMED["f1_" .. average] = function()
    return M.F1({ average = average })
  end
end
for _, kind in ipairs({ "mse", "rmse", "mae", "r2" }) do
  NAMED[kind] = function()
    return M.RegressionError(kind)
  end
end

--- A metric by its name: accuracy, top5 (and any other number), perplexity, f1,
--- f1_macro, f1_micro, f1_weighted, confusion, mse, rmse, mae, r2; accuracy_next and
--- perplexity_next of language models whose labels are the text itself.
--- error: ValueError for another name
---@param name string
---@return lupine.metrics.Metric
function M.named(name)
  check.string(name, "metrics: a name")
  local k = name:match("^top(%d+)$")
  if k and tonumber(k) > 0 then
    return M.TopK(math.tointeger(tonumber(k)))
  end
  local known = require("lupine.base.tables").keys(NAMED)
  known[#known + 1] = "top5"
  errors.check(NAMED[name], "ValueError", "metrics: there is no metric '%s'%s; allowed are %s, or "
    .. "another number behind top", name, check.nearest(name, known), table.concat(known, ", "))
  return NAMED[name]()
end

return require("lupine.base.namespace").close(M, "lupine.metrics")
