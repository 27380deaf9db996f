--- What a configuration describes, made: seed, model, weights, loss, data, optimizer,
--- scheduler, callbacks, and the Trainer of them. Random numbers are seeded before the
--- first object is made, and objects are made in a fixed order, so that a configuration
--- makes the same ones each time.
local build = require("lupine.run.build")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local schema = require("lupine.run.schema")

local M = {}

local rows = {}
for _, row in ipairs(schema) do
  rows[row.name] = row
end

local function refuse(config, key, ...)
  errors.raise("ConfigFileError", "%s: %s: %s", config:origin(key), key, string.format(...))
end

-- The object of a key; nil if it has none.
local function made(config, key, ...)
  local spec = config:get(key)
  return spec and build.make(spec, key, rows[key].within, ...)
end

-- ---- model and loss ------------------------------------------------------------------

--- Seeds torch's random numbers and Lua's.
---@param seed integer
function M.seed(seed)
  require("torch").manual_seed(seed)
  math.randomseed(seed)
end

-- First weights.
local function load_weights(config, model)
  local path = config:get("weights")
  if path then
    errors.within(("%s: weights"):format(config:origin("weights")), function()
      model:load_state_dict(require("lupine.safetensors").load_file(path),
        config:get("weights_strict"))
    end)
  end
end

local function make_model(config)
  local model = made(config, "model")
  if not require("torch").nn.Module:is(model) then
    refuse(config, "model", "'%s' makes a %s; a model is a torch.nn.Module",
      config:get("model").class, check.describe(model))
  end
  load_weights(config, model)
  return model
end

-- A class is made; a function is the loss itself, whose arguments come behind output
-- and target.
local function make_loss(config)
  local spec = config:get("loss")
  if not spec then
    return nil
  end
  local value = build.find(spec, "loss", rows.loss.within)
  if class.is_class(value) then
    return made(config, "loss")
  end
  local args = spec.args
  if next(args) == nil then
    return value
  elseif #args > 0 then
    return function(output, target)
      return value(output, target, table.unpack(args))
    end
  end
  return function(output, target)
    return value(output, target, args)
  end
end

-- ---- data ----------------------------------------------------------------------------

local function is_dataset(data, value)
  return data.Dataset:is(value) or class.of(value) and value.__getitem__ ~= nil
end

-- A loader of a set; what is a loader already stays as it is.
local function make_loader(config, key, options)
  local set = made(config, key)
  if set == nil then
    return nil
  end
  local data = require("torch").utils.data
  if data.DataLoader:is(set) or require("poptorch").DataLoader:is(set) then
    return set
  elseif not is_dataset(data, set) then
    refuse(config, key, "'%s' makes a %s; a set is a torch.utils.data.Dataset or a DataLoader",
      config:get(key).class, check.describe(set))
  end
  if data.IterableDataset:is(set) then
    options.shuffle = nil -- it has an order of its own
  end
  return data.DataLoader(set, options)
end

local function train_loader(config)
  return make_loader(config, "data.train", { batch_size = config:get("data.batch_size"),
    shuffle = config:get("data.shuffle"), drop_last = config:get("data.drop_last"),
    num_workers = config:get("data.num_workers") })
end

local function validation_loader(config)
  return make_loader(config, "data.validation", {
    batch_size = config:get("data.validation_batch_size") or config:get("data.batch_size"),
    num_workers = config:get("data.num_workers") })
end

-- ---- optimizer, options --------------------------------------------------------------

-- Optimizers of poptorch know what a device needs; its mode looks there first.
local function make_optimizer(config, model)
  local within = rows.optimizer.within
  if config:get("mode") == "poptorch" then
    within = { "poptorch.optim", "torch.optim" }
  end
  return build.make(config:get("optimizer"), "optimizer", within, model:parameters())
end

--- Options of poptorch: those of the file, then those of the run file.
--- error: ConfigFileError
---@param config lupine.run.Config
---@return poptorch.Options? nil in other modes
function M.options(config)
  if config:get("mode") ~= "poptorch" then
    return nil
  end
  local options = require("poptorch").Options()
  local path = config:get("options_file")
  if path then
    errors.within(("%s: options_file"):format(config:origin("options_file")),
      options.loadFromFile, options, path)
  end
  if config:get("options") then
    require("lupine.run.options").apply(options, config:get("options"))
  end
  return options
end

local function make_callbacks(config)
  local out = {}
  for i, spec in ipairs(config:get("callbacks")) do
    out[i] = build.make(spec, ("callbacks[%d]"):format(i), rows.callbacks.of.within)
  end
  return out
end

local function early_stopping(config)
  local out = { metric = config:get("early_stopping.metric") }
  for _, name in ipairs({ "mode", "patience", "min_delta" }) do
    out[name] = config:get("early_stopping." .. name)
  end
  return out.metric and out or nil
end

-- ---- all -----------------------------------------------------------------------------

-- Keys that a Trainer has under the same name.
local SAME = { "mode", "precision", "epochs", "steps", "accumulation", "clip_grad_norm",
  "clip_grad_value", "metrics", "ema_decay", "swa_start", "on_nan", "scheduler_every",
  "scheduler_metric" }

--- Everything that a Trainer is made of, as its options.
--- errors: ConfigFileError; what the objects' own classes raise, with file and line
---@param config lupine.run.Config with a seed
---@return table
function M.parts(config)
  M.seed(config:get("seed"))
  local o = { model = make_model(config), loss = make_loss(config) }
  o.train, o.validation = train_loader(config), validation_loader(config)
  o.optimizer = make_optimizer(config, o.model)
  o.scheduler = made(config, "scheduler", o.optimizer)
  o.callbacks, o.options = make_callbacks(config), M.options(config)
  o.early_stopping = early_stopping(config)
  for _, name in ipairs(SAME) do
    o[name] = config:get(name)
  end
  o.validate_every = o.validation and config:get("validate_every") or nil
  o.checkpoint_every, o.log_every = config:get("checkpoint.every"), config:get("logging.every")
  o.progress = config:get("logging.progress")
  return o
end

--- The Trainer of a run's parts. What it refuses of them is a matter of the run file.
--- errors: those of lupine.Trainer
---@param config lupine.run.Config
---@param parts table
---@return lupine.Trainer
function M.trainer(config, parts)
  local ok, trainer = pcall(require("lupine.trainer"), parts)
  if ok then
    return trainer
  end
  local e = trainer
  local text = errors.Exception:is(e) and e.origin == "" and e.message or ""
  if text:find("^Trainer: ") or text:find("^metrics: ") then
    e.message = ("%s: %s"):format(config.path or "table", text:gsub("^Trainer: ", ""))
    e.of_run_file = true
  elseif text ~= "" and errors.Error:is(e) then -- of counts that no model allows
    e.message, e.of_run_file = ("%s: options: %s"):format(config.path or "table", text), true
  end
  error(e, 0)
end

--- The checkpoints of a run, by the rule that its configuration has.
---@param config lupine.run.Config
---@param folder string
---@return lupine.checkpoint.Manager
function M.checkpoints(config, folder)
  local metric = config:get("checkpoint.best")
  return require("lupine.checkpoint").Manager(folder, { keep = config:get("checkpoint.keep"),
    best = metric and { metric = metric, mode = config:get("checkpoint.best_mode") } or nil })
end

return M
