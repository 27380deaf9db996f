--- Options of a Trainer. Those that a run file has, too, are described by the rows of its
--- schema (lua/lupine/run/schema.lua): the same names, defaults and limits.
local check = require("lupine.base.check")
local document = require("lupine.run.document")
local errors = require("lupine.base.errors")
local schema = require("lupine.run.schema")
local tables = require("lupine.base.tables")
local types = require("lupine.run.types")

local M = {}

-- Option -> the row of the schema.
local ROWS = {}
for _, name in ipairs({ "scheduler_every", "scheduler_metric", "mode", "precision", "epochs",
  "steps", "accumulation", "clip_grad_norm", "clip_grad_value", "validate_every", "ema_decay",
  "swa_start", "on_nan" }) do
  ROWS[name] = name
end
ROWS.checkpoint_every, ROWS.log_every, ROWS.progress = "checkpoint.every", "logging.every",
  "logging.progress"
local EARLY = { "metric", "mode", "patience", "min_delta" }
local OBJECTS = { "model", "optimizer", "loss", "scheduler", "train", "validation", "options",
  "metrics", "early_stopping", "callbacks", "checkpoints", "should_stop" }

local rows, names = {}, tables.keys(ROWS)
table.move(OBJECTS, 1, #OBJECTS, #names + 1, names)
for _, row in ipairs(schema) do
  rows[row.name] = row
end

-- {count = 2, unit = "epoch"} and {2, "epoch"} say the same as "2 epochs".
local function as_text(value)
  if type(value) == "table" and not getmetatable(value) then
    return ("%s %s"):format(value.count or value[1], value.unit or value[2])
  end
  return value
end

local function read(row, value, where)
  if row.type == "every" then
    value = as_text(value)
  end
  local ok, got = pcall(types[row.type].read, document.lua(value, "Trainer"), row, where)
  if not ok and errors.ConfigFileError:is(got) then
    errors.turn(got, errors.ValueError)
  end
  if not ok then
    error(got, 0)
  end
  return got
end

-- A value by its row, or the row's default.
local function of_row(name, value, where)
  local row = rows[name]
  if value == nil then
    value = row.default
  end
  return value ~= nil and read(row, value, where) or value
end

local function early_stopping(given)
  if given == nil then
    return nil
  end
  check.plain_table(given, "Trainer: early_stopping")
  local known, out = tables.set(EARLY), {}
  for name in pairs(given) do
    errors.check(known[name], "TypeError", "Trainer: early_stopping: unknown option '%s'%s; "
      .. "allowed are %s", tostring(name), check.nearest(name, EARLY), table.concat(EARLY, ", "))
  end
  for _, name in ipairs(EARLY) do
    out[name] = of_row("early_stopping." .. name, given[name], "early_stopping." .. name)
  end
  return out.metric and out or nil
end

local function check_names(given)
  local known = tables.set(names)
  for name in pairs(given) do
    errors.check(known[name], "TypeError", "Trainer: unknown option '%s'%s; known are %s",
      tostring(name), check.nearest(name, names), table.concat(names, ", "))
  end
end

local function has_methods(value, ...)
  for _, name in ipairs({ ... }) do
    if type(value) ~= "table" or type(value[name]) ~= "function" then
      return false
    end
  end
  return true
end

local function check_objects(o)
  errors.check(require("torch.nn").Module:is(o.model), "TypeError",
    "Trainer: model: expected a torch.nn.Module, got %s", check.describe(o.model))
  errors.check(has_methods(o.optimizer, "step", "zero_grad"), "TypeError",
    "Trainer: optimizer: expected an optimizer of torch.optim or poptorch.optim, got %s",
    check.describe(o.optimizer))
  errors.check(o.loss == nil or type(o.loss) == "function" or require("torch.nn").Module:is(o.loss),
    "TypeError", "Trainer: loss: expected a torch.nn.Module or function(output, target) … end, "
    .. "got %s", check.describe(o.loss))
  errors.check(o.scheduler == nil or has_methods(o.scheduler, "step", "state_dict"), "TypeError",
    "Trainer: scheduler: expected one of torch.optim.lr_scheduler, got %s",
    check.describe(o.scheduler))
  errors.check(o.should_stop == nil or type(o.should_stop) == "function", "TypeError",
    "Trainer: should_stop: expected a function, got %s", check.describe(o.should_stop))
  errors.check(o.checkpoints == nil or has_methods(o.checkpoints, "save", "restore_latest"),
    "TypeError", "Trainer: checkpoints: expected a lupine.checkpoint.Manager, got %s",
    check.describe(o.checkpoints))
end

-- Rules that tie options together.
local function check_together(o, given)
  errors.check(not (o.epochs and o.steps), "ValueError",
    "Trainer: epochs and steps are given: one of them tells the end")
  errors.check(o.mode == "poptorch" or o.options == nil, "ValueError",
    "Trainer: options: these act with mode \"poptorch\" only, the mode is \"%s\"", o.mode)
  for _, name in ipairs({ "clip_grad_norm", "clip_grad_value" }) do
    errors.check(not (o[name] and o.mode == "poptorch"), "ValueError", "Trainer: %s: allowed with "
      .. "the modes eager and compiled; optimizers of poptorch.optim have max_grad_norm", name)
  end
  errors.check(not (o.clip_grad_value and o.mode == "compiled"), "ValueError",
    "Trainer: clip_grad_value: allowed with mode \"eager\"; compiled steps have clip_grad_norm")
  errors.check(o.mode ~= "poptorch" or o.accumulation == 1, "ValueError", "Trainer: accumulation: "
    .. "with mode \"poptorch\" this is options.Training:gradientAccumulation")
  errors.check(o.mode ~= "poptorch" or o.on_nan == "stop", "ValueError", "Trainer: on_nan: allowed "
    .. "with mode \"poptorch\" is \"stop\": the device has made the update when the loss is known")
  errors.check(o.validation or given.validate_every == nil, "ValueError",
    "Trainer: validate_every: there is no validation loader")
end

--- The options of a Trainer, checked and with their defaults.
--- errors: TypeError, ValueError
---@param given table
---@return table
function M.read(given)
  check.plain_table(given, "Trainer: options")
  check_names(given)
  local o = {}
  for _, name in ipairs(OBJECTS) do
    o[name] = given[name]
  end
  for name, row in pairs(ROWS) do
    o[name] = of_row(row, given[name], name)
  end
  o.early_stopping = early_stopping(given.early_stopping)
  check_objects(o)
  check_together(o, given)
  if not o.epochs and not o.steps then
    o.epochs = 1
  end
  return o
end

return M
