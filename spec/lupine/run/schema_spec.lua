-- Each key of a run file acts: for every row of the schema there is a run here that shows
-- what it does. A row that is not here, or that nothing reads, fails. (Expectations 19,
-- 31.)
local config = require("lupine.run.config")
local core = require("lupine.core")
local files = require("spec.support.files")
local folder = require("lupine.run.folder")
local helper = require("spec.helper")
local job = require("lupine.run.job")
local records = require("lupine.run.records")
local runs = require("spec.support.runs")
local safetensors = require("lupine.safetensors")
local schema = require("lupine.run.schema")
local torch = require("torch")

describe("a key of a run file", function()
  local place, output

  setup(function()
    place = runs.project()
  end)
  before_each(function()
    output = io.output()
    io.output(place .. "/output.txt")
  end)
  after_each(function()
    io.output():close()
    io.output(output)
  end)
  teardown(function()
    files.remove(place)
  end)

  local function merged(old, new)
    local out = {}
    for key, value in pairs(old) do
      out[key] = value
    end
    for key, value in pairs(new) do
      local both = type(out[key]) == "table" and type(value) == "table" and #value == 0
        and not value.class
      out[key] = both and merged(out[key], value) or value
    end
    return out
  end

  local function parts(name)
    return place .. "/parts.lua:" .. name
  end

  local function base()
    return { model = { class = parts("Net"), args = { hidden = 4 } }, loss = "CrossEntropyLoss",
      seed = 1, folder = place .. "/runs", steps = 2,
      data = { train = { class = parts("points"), args = { count = 16, seed = 1 } },
        batch_size = 4 },
      optimizer = { class = "SGD", args = { lr = 0.1 } },
      logging = { every = 1, progress = false } }
  end

  local VALIDATION = { class = "points", args = { count = 8, seed = 2 } }

  local function with_validation(keys)
    VALIDATION.class = parts("points")
    return merged({ data = { validation = VALIDATION } }, keys)
  end

  local plain

  -- What a run does: its trainer, folder, rows, exit code.
  local function run(keys)
    if not keys and plain then
      return plain
    end
    local all = merged(base(), keys or {})
    all.steps = not all.epochs and all.steps or nil
    local c = config.of_table(all)
    local j = job.Job(c)
    local r = { trainer = j.trainer, o = j.trainer._o, run = folder.create(c, { seed = all.seed }) }
    r.code = j:train(r.run)
    r.path, r.facts = r.run.path, r.run.facts
    r.rows = records.read(r.path .. "/metrics.jsonl")
    r.weights = safetensors.load_file(r.path .. "/model.safetensors")
    plain = plain or not keys and r or nil
    return r
  end

  local function losses(r)
    local out = {}
    for _, row in ipairs(r.rows) do
      out[#out + 1] = row.loss
    end
    return out
  end

  local function same(a, b)
    return torch.equal(a.weights["first.weight"], b.weights["first.weight"])
  end

  -- Whether two values of keys make other weights.
  local function differ(a, b)
    assert.is_false(same(run(a), run(b)))
  end

  local function steps_of(rows, name)
    local out = {}
    for _, row in ipairs(rows) do
      out[#out + 1] = row[name] and row.step
    end
    return out
  end

  local ACTS = {}

  function ACTS.include()
    files.write(place .. "/other.yaml", "include: run.yaml\nepochs: 1\n")
    assert.equal("SGD", config.read(place .. "/other.yaml"):get("optimizer").class)
  end

  function ACTS.name()
    assert.matches("/called%-001$", run({ name = "called" }).path)
  end

  function ACTS.folder()
    assert.matches("/elsewhere/run%-001$", run({ folder = place .. "/elsewhere" }).path)
  end

  function ACTS.seed()
    assert.is_true(same(run({ seed = 3 }), run({ seed = 3 })))
    differ({ seed = 3 }, { seed = 4 })
    math.randomseed(5)
    local expected = math.random(1 << 40)
    job.Job(config.of_table(merged(base(), { seed = 5 }))) -- draws none of Lua's
    assert.equal(expected, math.random(1 << 40))
  end

  function ACTS.model()
    assert.equal(6, run({ model = { class = parts("Net"), args = { hidden = 6 } } })
      .weights["first.weight"]:size(0))
  end

  function ACTS.weights()
    local first = run()
    local r = run({ weights = first.path .. "/model.safetensors",
      optimizer = { class = "SGD", args = { lr = 0.0 } } })
    assert.is_true(same(first, r))
  end

  function ACTS.weights_strict()
    local w = run().weights
    local path = place .. "/part.safetensors"
    safetensors.save_file({ ["first.weight"] = w["first.weight"] }, path)
    helper.refuses("RuntimeError", "table: weights: .*first.bias", run, { weights = path })
    local r = run({ weights = path, weights_strict = false,
      optimizer = { class = "SGD", args = { lr = 0.0 } } })
    assert.is_true(torch.equal(w["first.weight"], r.weights["first.weight"]))
  end

  function ACTS.loss()
    local hard = losses(run({ loss = "cross_entropy" }))
    assert.same(losses(run()), hard)
    local smooth = losses(run({ loss = { class = "cross_entropy",
      args = { label_smoothing = 0.5 } } }))
    assert.same(losses(run({ loss = { class = "CrossEntropyLoss",
      args = { label_smoothing = 0.5 } } })), smooth)
    assert.is_false(hard[1] == smooth[1])
  end

  ACTS["data.train"] = function()
    differ({}, { data = { train = { class = parts("points"), args = { count = 16, seed = 9 } } } })
  end

  ACTS["data.validation"] = function()
    assert.is_nil(run().facts.metrics["validation.loss"])
    assert.is_number(run(with_validation({})).facts.metrics["validation.loss"])
  end

  ACTS["data.batch_size"] = function()
    assert.equal(8, run({ data = { batch_size = 2 }, epochs = 1 }).facts.step)
  end

  ACTS["data.validation_batch_size"] = function()
    assert.equal(4, run(with_validation({})).o.validation.batch_size)
    assert.equal(3, run(with_validation({ data = { validation_batch_size = 3 } }))
      .o.validation.batch_size)
  end

  ACTS["data.shuffle"] = function()
    differ({ data = { shuffle = true } }, { data = { shuffle = false } })
  end

  ACTS["data.drop_last"] = function()
    assert.equal(4, run({ data = { batch_size = 5 }, epochs = 1 }).facts.step)
    assert.equal(3, run({ data = { batch_size = 5, drop_last = true }, epochs = 1 }).facts.step)
  end

  ACTS["data.num_workers"] = function()
    local r = run({ data = { num_workers = 2 } })
    assert.equal(2, r.o.train.num_workers)
    assert.is_true(same(run(), r))
  end

  function ACTS.optimizer()
    differ({}, { optimizer = "Adam" })
    differ({}, { optimizer = { class = "SGD", args = { lr = 0.2 } } })
  end

  local STEP_LR = { class = "StepLR", args = { step_size = 1, gamma = 0.5 } }

  local function rates(r)
    local out = {}
    for _, row in ipairs(r.rows) do
      out[#out + 1] = row.lr
    end
    return out
  end

  function ACTS.scheduler()
    assert.same({ 0.1, 0.1, 0.1, 0.1, 0.05 }, rates(run({ scheduler = STEP_LR, steps = 5 })))
  end

  function ACTS.scheduler_every()
    assert.same({ 0.1, 0.05 }, rates(run({ scheduler = STEP_LR, scheduler_every = "step" })))
  end

  function ACTS.scheduler_metric()
    local plateau = { class = "ReduceLROnPlateau", args = { patience = 0, threshold = 100.0,
      threshold_mode = "abs", factor = 0.5 } }
    local r = run({ scheduler = plateau, scheduler_metric = "train.loss", epochs = 4 })
    assert.equal(0.025, r.rows[#r.rows - 1].lr) -- of epoch 4
    helper.refuses("ValueError", "no metric 'validation.loss'", run, { scheduler = plateau,
      epochs = 1 })
  end

  function ACTS.mode()
    assert.equal("eager", run({ mode = "eager" }).o.mode)
    assert.matches("Memory Usage:", files.read(run({ mode = "poptorch" }).path .. "/report.txt"),
      1, true)
  end

  function ACTS.options()
    local r = run({ mode = "poptorch", options = { Training = { gradientAccumulation = 2 } } })
    assert.is_true(#r.rows >= 2)
    assert.equal(2, r.o.options.Training.gradient_accumulation)
    helper.refuses("Error", "replicationFactor must be greater than 0, got 0", run,
      { mode = "poptorch", options = { replicationFactor = 0 } })
  end

  function ACTS.options_file()
    files.write(place .. "/poptorch.conf", "deviceIterations(2)\nreplicationFactor(1)\n")
    local r = run({ mode = "poptorch", options_file = place .. "/poptorch.conf" })
    assert.equal(2, r.o.options.device_iterations)
    r = run({ mode = "poptorch", options_file = place .. "/poptorch.conf",
      options = { deviceIterations = 1 } })
    assert.equal(1, r.o.options.device_iterations)
  end

  function ACTS.precision()
    assert.equal(torch.float64, run({ precision = "float64" }).weights["first.weight"].dtype)
    assert.equal(torch.float32, run({ precision = "autocast_bfloat16" })
      .weights["first.weight"].dtype)
    differ({}, { precision = "autocast_bfloat16" })
  end

  function ACTS.epochs()
    assert.equal(12, run({ epochs = 3 }).facts.step)
  end

  function ACTS.steps()
    assert.equal(5, run({ steps = 5 }).facts.step)
  end

  function ACTS.accumulation()
    assert.equal(2, run({ accumulation = 2, epochs = 1 }).facts.step)
  end

  function ACTS.clip_grad_norm()
    differ({}, { clip_grad_norm = 1e-3 })
  end

  function ACTS.clip_grad_value()
    differ({ mode = "eager" }, { mode = "eager", clip_grad_value = 1e-3 })
  end

  function ACTS.validate_every()
    local r = run(with_validation({ validate_every = "2 steps", steps = 6 }))
    assert.same({ 2, 4, 6 }, steps_of(r.rows, "validation.loss"))
  end

  function ACTS.metrics()
    local r = run(with_validation({ metrics = { "accuracy", "top5" } }))
    for _, name in ipairs({ "validation.accuracy", "validation.top5" }) do
      assert.is_number(r.facts.metrics[name])
    end
  end

  local function early(keys)
    keys.metric = keys.metric or "train.loss"
    return run({ epochs = 9, early_stopping = keys }).facts
  end

  ACTS["early_stopping.metric"] = function()
    helper.refuses("ValueError", "early_stopping: .*'train.los' %(nearest: 'train.loss'%)",
      early, { metric = "train.los" })
  end

  ACTS["early_stopping.mode"] = function()
    local f = early({ mode = "max", min_delta = 100.0, patience = 1 })
    assert.same({ "early_stopping", 2, "finished" }, { f.reason, f.epoch, f.status })
    assert.equal(0, f.metrics["train.loss"] < 0 and 1 or 0)
  end

  ACTS["early_stopping.patience"] = function()
    assert.equal(4, early({ min_delta = 100.0, patience = 3 }).epoch)
    assert.equal(3, early({ min_delta = 100.0, patience = 2 }).epoch)
  end

  ACTS["early_stopping.min_delta"] = function()
    assert.equal("finished", early({ min_delta = 0.0, patience = 9 }).reason)
    assert.equal("early_stopping", early({ min_delta = 100.0, patience = 1 }).reason)
  end

  function ACTS.ema_decay()
    local r = run({ ema_decay = 0.5 })
    local mean = safetensors.load_file(r.path .. "/model-ema.safetensors")["first.weight"]
    assert.is_false(torch.equal(mean, r.weights["first.weight"]))
  end

  function ACTS.swa_start()
    local r = run({ swa_start = "1 step", steps = 4 })
    assert.is_truthy(io.open(r.path .. "/model-swa.safetensors"))
    assert.equal(4, r.trainer.swa.n_averaged:item())
  end

  function ACTS.on_nan()
    files.write(place .. "/nan.lua", "return function(x) return x:sum() * (0 / 0) end")
    helper.logged(function()
      local keys = { loss = place .. "/nan.lua", on_nan = "skip" }
      assert.equal(2, run(keys).trainer.skipped)
      keys.on_nan = "stop"
      local ok = pcall(run, keys) -- which finds no weights of the end
      assert.is_false(ok)
    end)
  end

  function ACTS.callbacks()
    files.write(place .. "/callback.lua", "return function(name) return { on_stop = "
      .. "function() io.open(name, 'w'):close() end } end")
    run({ callbacks = { { class = place .. "/callback.lua", args = { place .. "/told" } } } })
    assert.is_truthy(io.open(place .. "/told"))
  end

  local function checkpoints(keys)
    local r = run(with_validation({ validate_every = "1 step", steps = 6, checkpoint = keys }))
    local names = core.list_folder(r.path .. "/checkpoints")
    table.sort(names)
    local out = {}
    for i, name in ipairs(names) do
      out[i] = tonumber(name:match("%d+$"))
    end
    return out, r
  end

  ACTS["checkpoint.every"] = function()
    assert.same({ 2, 4, 6 }, (checkpoints({ every = "2 steps", keep = 9 })))
  end

  ACTS["checkpoint.keep"] = function()
    assert.same({ 4, 5, 6 }, (checkpoints({ every = 1, keep = 3 })))
  end

  -- The step with the least or the greatest loss.
  local function extreme(r, sign)
    local best
    for _, row in ipairs(r.rows) do
      local loss = row["validation.loss"]
      best = loss and (not best or sign * loss < sign * best.loss) and { loss = loss,
        step = row.step } or best
    end
    return best.step
  end

  ACTS["checkpoint.best"] = function()
    local steps, r = checkpoints({ every = 1, keep = 1, best = "validation.loss" })
    local best = extreme(r, 1)
    assert.same(best == 6 and { 6 } or { best, 6 }, steps)
  end

  ACTS["checkpoint.best_mode"] = function()
    local steps, r = checkpoints({ every = 1, keep = 1, best = "validation.loss",
      best_mode = "max" })
    local best = extreme(r, -1)
    assert.same(best == 6 and { 6 } or { best, 6 }, steps)
  end

  ACTS["logging.every"] = function()
    assert.same({ 2, 4 }, steps_of(run({ logging = { every = 2 }, steps = 5 }).rows, "loss"))
  end

  local function has(path, pattern)
    for _, name in ipairs(select(2, core.list_folder(path))) do
      if name:find(pattern) then
        return true
      end
    end
    return false
  end

  ACTS["logging.tensorboard"] = function()
    assert.is_false(has(run().path, "^events"))
    assert.is_true(has(run({ logging = { tensorboard = true } }).path, "^events"))
  end

  ACTS["logging.progress"] = function()
    local made, progress = 0, package.loaded["lupine.progress"]
    package.loaded["lupine.progress"] = function(total, options)
      made, options.stream = made + 1, io.output()
      return progress(total, options)
    end
    local ok, e = pcall(function()
      run()
      assert.equal(0, made)
      run({ logging = { progress = true } })
      assert.equal(1, made)
    end)
    package.loaded["lupine.progress"] = progress
    assert(ok, e)
  end

  ACTS["logging.report"] = function()
    local r = run({ mode = "poptorch", logging = { report = true } })
    assert.is_true(core.json_decode(files.read(r.path .. "/report.json")).report ~= nil)
    for _, keys in ipairs({ { logging = { report = false } }, { steps = 0 } }) do
      assert.is_false(has(run(merged({ mode = "poptorch" }, keys)).path, "^report"))
    end
  end

  for _, row in ipairs(schema) do
    if row.type ~= "group" then
      it(row.name .. " acts", function()
        assert(ACTS[row.name], "no run shows what it does")()
      end)
    end
  end

  it("has a row in the schema for every run that is here", function()
    for name in pairs(ACTS) do
      assert.is_truthy(config.rows[name], name)
    end
  end)
end)
