-- What a Trainer does, against loops that are written out.
local epochs = require("spec.support.epochs")
local lupine = require("lupine")
local torch = require("torch")
local nn = torch.nn
local poptorch = require("poptorch")
poptorch.setLogLevel("ERR")

local function net()
  torch.manual_seed(11)
  return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
end

local function data(n)
  torch.manual_seed(12)
  return torch.utils.data.TensorDataset(torch.randn({ n, 4 }), torch.randint(0, 3, { n }))
end

local function loader(n, size, shuffle)
  return torch.utils.data.DataLoader(data(n), { batch_size = size, shuffle = shuffle or false })
end

local function make(other)
  local model = net()
  local set = { model = model, loss = nn.CrossEntropyLoss(), mode = "eager", progress = false,
    optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 }) }
  for name, value in pairs(other) do
    set[name] = value
  end
  if type(set.scheduler) == "function" then
    set.scheduler = set.scheduler(set.optimizer)
  end
  return lupine.Trainer(set)
end

local function weights(model)
  local out = {}
  for name, t in pairs(model:state_dict()) do
    out[name] = epochs.text(t:detach():contiguous())
  end
  return out
end

local function refused(pattern, fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  assert.matches(pattern, e.message)
end

describe("the loop", function()
  it("is the plain one: eager, accumulation with a rest, clipping", function()
    local model = net()
    local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
    local loss, batches = nn.CrossEntropyLoss(), loader(36, 8, true)
    torch.manual_seed(1)
    for _ = 1, 2 do
      local k = 0
      for x, y in batches do -- 5 batches, groups of 2, 2 and 1
        if k == 0 then
          optimizer:zero_grad()
        end
        k = k + 1
        ;(loss(model(x), y) / 2):backward()
        if k == 2 then
          nn.utils.clip_grad_norm_(model:parameters(), 0.5)
          optimizer:step()
          k = 0
        end
      end
      for _, p in ipairs(model:parameters()) do
        p.grad:mul_(2)
      end
      nn.utils.clip_grad_norm_(model:parameters(), 0.5)
      optimizer:step()
    end
    local trainer = make({ train = loader(36, 8, true), epochs = 2, accumulation = 2,
      clip_grad_norm = 0.5 })
    torch.manual_seed(1)
    local result = trainer:fit()
    assert.same({ "finished", 6, 2 }, { result.reason, result.step, result.epoch })
    assert.same(weights(model), weights(trainer.model))
  end)

  it("is the plain one: compiled steps", function()
    local model = net()
    local step = lupine.compile(model, { loss = nn.CrossEntropyLoss(), accumulation = 2,
      optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 }),
      clip_grad_norm = 0.5 })
    local batches = loader(36, 8, true)
    torch.manual_seed(1)
    for _ = 1, 2 do
      for x, y in batches do
        step(x, y)
      end
      step:update()
    end
    local trainer = make({ train = loader(36, 8, true), epochs = 2, accumulation = 2,
      clip_grad_norm = 0.5, mode = "compiled" })
    torch.manual_seed(1)
    trainer:fit()
    assert.same(weights(model), weights(trainer.model))
  end)

  it("is the plain one: calls of a device", function()
    local Whole = nn.Module:extend("Whole")
    function Whole:init()
      self.net, self.loss = net(), nn.CrossEntropyLoss()
    end
    function Whole:forward(x, y)
      local out = self.net(x)
      return out, self.loss(out, y)
    end
    local whole, options = Whole(), poptorch.Options():deviceIterations(2)
    options.Training:gradientAccumulation(2)
    local executor = poptorch.trainingModel(whole, options,
      torch.optim.SGD(whole:parameters(), { lr = 0.1, momentum = 0.9 }))
    local batches = poptorch.DataLoader(options, data(36), { batch_size = 4, shuffle = true })
    torch.manual_seed(1)
    for x, y in batches do
      executor(x, y)
    end
    executor:destroy()
    local trainer = make({ train = loader(36, 4, true), options = options, mode = "poptorch" })
    torch.manual_seed(1)
    local result = trainer:fit()
    assert.same({ 4, 1 }, { result.step, result.epoch }) -- two calls of 16 samples
    trainer:close()
    assert.same(weights(whole.net), weights(trainer.model))
  end)

  it("puts the loss where a pipeline ends", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)
    end
    function Net:forward(x)
      do
        local _ <close> = poptorch.Block("a", { ipu_id = 0 })
        x = self.a(x):relu()
      end
      local _ <close> = poptorch.Block("b", { ipu_id = 1 })
      return self.b(x)
    end
    local options = poptorch.Options():deviceIterations(2)
    options.Training:gradientAccumulation(4)
    torch.manual_seed(1)
    local model = Net()
    local trainer = lupine.Trainer({ model = model, loss = nn.CrossEntropyLoss(), epochs = 2,
      optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }), mode = "poptorch",
      options = options, train = loader(64, 4), validation = loader(20, 4), progress = false })
    local result = trainer:fit()
    local places = trainer.executor:report():summary()
    trainer:close()
    assert.equal(8, result.step)
    assert.matches("IPU 1", places)
    local set = data(20)
    local want = nn.functional.cross_entropy(model(set.tensors[1]), set.tensors[2]):item()
    assert.is_true(math.abs(want - result.metrics["validation.loss"]) < 1e-5)
  end)

  it("tells callbacks in order", function()
    local told = {}
    local function noting(name)
      local c = { name = name }
      for _, event in ipairs(require("lupine.trainer.events").EVENTS) do
        c[event] = function(_, trainer)
          told[#told + 1] = ("%s %s %d"):format(name, event:sub(4), trainer.step)
        end
      end
      return c
    end
    make({ train = loader(16, 8), validation = loader(8, 8), epochs = 1, log_every = 2,
      callbacks = { noting("a"), noting("b") } }):fit()
    local want = {}
    for _, line in ipairs({ "start 0", "epoch_start 0", "step 1", "step 2", "log 2", "validation 2",
      "epoch_end 2", "stop 2" }) do
      table.move({ "a " .. line, "b " .. line }, 1, 2, #want + 1, want)
    end
    assert.same(want, told)
  end)

  it("tells the part of the time that waits for batches", function()
    local clock = require("lupine.core").host.clock
    local rows, batches = {}, {}
    for x, y in loader(24, 8) do
      batches[#batches + 1] = { x, y }
    end
    local i = 0
    local function slow() -- far longer than a step, from the second batch on
      i = i + 1
      local from = clock()
      while i > 1 and clock() - from < 0.05 do end
      if batches[i] then
        return table.unpack(batches[i])
      end
    end
    make({ train = slow, epochs = 1, log_every = 1, callbacks = { {
      on_log = function(_, _, row)
        rows[#rows + 1] = row.loader_share
      end,
    } } }):fit()
    assert.equal(3, #rows)
    assert.is_true(rows[1] < 0.9 and rows[2] > 0.5 and rows[3] > 0.5, table.concat(rows, " "))
  end)

  it("gives rows, with the rate of the step and the metrics of the epoch", function()
    local rows, logged = {}, {}
    local trainer = make({ train = loader(24, 8), epochs = 2, log_every = 2,
      metrics = { "accuracy" }, scheduler_every = "step", scheduler = function(optimizer)
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
      end, callbacks = { {
        on_step = function(_, _, row)
          rows[#rows + 1] = row
        end,
        on_log = function(_, _, row)
          logged[#logged + 1] = row
        end,
      } } })
    trainer:fit()
    assert.same({ 6, 3 }, { #rows, #logged })
    for i, row in ipairs(rows) do
      assert.same({ i, (i - 1) // 3 + 1, 0.1 * 0.5 ^ (i - 1) }, { row.step, row.epoch, row.lr })
      assert.is_number(row.loss)
    end
    assert.is_true(logged[1].accuracy >= 0 and logged[1].accuracy <= 1)
    assert.is_true(logged[1].samples_per_second > 0)
    assert.is_true(logged[1].loader_share >= 0 and logged[1].loader_share <= 1)
    local sum = 0
    for i = 4, 6 do
      sum = sum + rows[i].loss / 3
    end
    assert.is_true(math.abs(sum - trainer.metrics["train.loss"]) < 1e-9)
  end)

  it("ends behind steps, and validates then", function()
    local at = {}
    local trainer = make({ train = loader(24, 8), validation = loader(10, 4), steps = 5,
      validate_every = "2 steps", callbacks = { { on_validation = function(_, t)
        at[#at + 1] = t.step
      end } } })
    local result = trainer:fit()
    assert.same({ "finished", 5, 2 }, { result.reason, result.step, result.epoch })
    assert.same({ 2, 4, 5 }, at)
  end)

  it("is stopped from outside and goes on", function()
    local whole = make({ train = loader(40, 8, true), epochs = 2 })
    torch.manual_seed(1)
    whole:fit()
    local n = 0
    local trainer = make({ train = loader(40, 8, true), epochs = 2, should_stop = function()
      n = n + 1
      return n == 3 and "the machine is needed" or nil
    end, callbacks = { { on_step = function(_, t)
      if t.step == 7 then
        t:stop("enough")
      end
    end } } })
    torch.manual_seed(1)
    local first = trainer:fit()
    assert.same({ "stopped", "the machine is needed", 3 }, { first.reason, first.why, first.step })
    local second = trainer:fit()
    assert.same({ "stopped", "enough", 7 }, { second.reason, second.why, second.step })
    assert.equal("finished", trainer:fit().reason)
    assert.same(weights(whole.model), weights(trainer.model))
  end)

  it("names a callback that fails, and tells on_error", function()
    local seen
    local trainer = make({ train = loader(16, 8), callbacks = { { name = "good",
      on_error = function(_, _, e)
        seen = e
      end }, { name = "bad", on_step = function()
        error("no disk", 0)
      end } } })
    refused("^callback 'bad': on_step: no disk$", trainer.fit, trainer)
    assert.matches("no disk", seen.message)
  end)

  it("takes lists, and models that return their loss", function()
    local Own = nn.Module:extend("Own")
    function Own:init()
      self.fc = nn.Linear(4, 3)
    end
    function Own:forward(x, labels)
      local logits = self.fc(x)
      return { loss = nn.functional.cross_entropy(logits, labels), logits = logits }
    end
    for _, mode in ipairs({ "eager", "compiled", "poptorch" }) do
      local model, set = Own(), data(16)
      local batches = {}
      for x, y in torch.utils.data.DataLoader(set, { batch_size = 4 }) do
        batches[#batches + 1] = { x, y }
      end
      local trainer = lupine.Trainer({ model = model, train = batches, mode = mode, epochs = 2,
        optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }), validation = batches,
        metrics = { "accuracy" }, progress = false })
      local result = trainer:fit()
      trainer:close()
      local want = model(set.tensors[1], set.tensors[2])
      assert.equal(8, result.step)
      assert.is_true(math.abs(want.loss:item() - result.metrics["validation.loss"]) < 1e-5, mode)
      local right = want.logits:argmax(1):eq(set.tensors[2]):float():mean():item()
      assert.is_true(math.abs(right - result.metrics["validation.accuracy"]) < 1e-6)
    end
  end)
end)

describe("validation", function()
  it("looks at so many batches", function()
    local count = 0
    local trainer = make({ metrics = { seen = function(output)
      count = count + output:size(0)
      return 0
    end } })
    trainer:validate(loader(21, 4), 2)
    assert.equal(8, count)
    trainer:validate(loader(21, 4))
    assert.equal(29, count)
  end)

  for _, mode in ipairs({ "eager", "compiled", "poptorch" }) do
    it("is the mean over samples, in eval mode, and draws nothing: " .. mode, function()
      local set, model = data(21), net()
      model = nn.Sequential(model, nn.Dropout(0.5), nn.BatchNorm1d(3))
      local trainer = lupine.Trainer({ model = model, loss = nn.CrossEntropyLoss(), mode = mode,
        optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }), progress = false,
        train = loader(16, 4), metrics = { "accuracy", "confusion", two = function()
          return 2
        end }, validation = torch.utils.data.DataLoader(set, { batch_size = 4, shuffle = true }) })
      trainer:fit()
      local before = torch.get_rng_state()
      local got = trainer:validate()
      assert.is_true(torch.equal(before, torch.get_rng_state()))
      local predicted = trainer:predict(torch.utils.data.DataLoader(set, { batch_size = 4 }))
      trainer:close()
      assert.is_true(model.training)
      model:eval()
      local out = torch.no_grad(function()
        return model(set.tensors[1])
      end)
      local want = nn.functional.cross_entropy(out, set.tensors[2]):item()
      assert.is_true(math.abs(want - got["validation.loss"]) < 1e-5)
      assert.is_true((predicted - out):abs():max():item() < 1e-5)
      local right = out:argmax(1):eq(set.tensors[2]):sum():item()
      assert.equal(right / 21, got["validation.accuracy"])
      assert.equal(2, got["validation.two"])
      assert.equal(right, trainer.tables["validation.confusion"]:diagonal():sum():item())
    end)
  end

  it("stops a run that gets no better", function()
    local values, at = { 5, 4, 3.95, 4.5, 3.8, 3.9, 4 }, {}
    local trainer
    trainer = make({ train = loader(8, 8), validation = loader(8, 8), epochs = 20,
      early_stopping = { metric = "validation.made", patience = 2, min_delta = 0.1 },
      metrics = { made = function()
        at[#at + 1] = trainer.epoch
        return values[trainer.epoch]
      end } })
    local result = trainer:fit()
    -- 3.95 is not better by 0.1 than 4, nor 4.5: two without
    assert.same({ "early_stopping", 4 }, { result.reason, result.epoch })
    assert.matches("validation.made is no better than 4", result.why)
  end)

  it("drives a schedule that watches a metric", function()
    local trainer = make({ train = loader(8, 8), validation = loader(8, 8), epochs = 4,
      metrics = { flat = function()
        return 1
      end }, scheduler_metric = "validation.flat", scheduler = function(optimizer)
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, { patience = 1 })
      end })
    trainer:fit() -- epochs 2 and 3 are bad ones; the rate falls with the second
    assert.is_true(math.abs(trainer.optimizer.param_groups[1].lr - 0.01) < 1e-12)
  end)
end)

describe("averages of weights", function()
  for _, mode in ipairs({ "eager", "compiled", "poptorch" }) do
    it("have the values of their formulas: " .. mode, function()
      local snapshots = {}
      local trainer = make({ train = loader(32, 8), validation = loader(8, 8), epochs = 2,
        mode = mode, ema_decay = 0.75, swa_start = "3 steps", callbacks = { {
          on_step = function(_, t)
            snapshots[t.step] = t:objects().model[1].weight:detach():clone()
          end } } })
      trainer:fit()
      local ema, swa, n = snapshots[1], torch.zeros({ 8, 4 }), 0
      for i = 2, 8 do
        ema = 0.75 * ema + 0.25 * snapshots[i]
      end
      for i = 3, 8 do
        swa, n = swa + snapshots[i], n + 1
      end
      local _ <close> = torch.no_grad()
      assert.is_true((trainer.ema.module[1].weight - ema):abs():max():item() < 1e-6)
      assert.is_true((trainer.swa.module[1].weight - swa / n):abs():max():item() < 1e-6)
      -- validation is the moving mean's
      local set = data(8)
      local want = nn.functional.cross_entropy(trainer.ema.module(set.tensors[1]), set.tensors[2])
      assert.is_true(math.abs(want:item() - trainer.metrics["validation.loss"]) < 1e-5)
      want = nn.functional.cross_entropy(trainer.swa.module(set.tensors[1]), set.tensors[2])
      assert.is_true(math.abs(want:item() - trainer.metrics["swa.validation.loss"]) < 1e-5)
      trainer:close()
      assert.is_true(torch.equal(snapshots[8], trainer.model[1].weight:detach()))
    end)
  end
end)

describe("checkpoints", function()
  local root
  before_each(function()
    root = os.tmpname()
    os.remove(root)
  end)
  after_each(function()
    os.execute("rm -rf " .. root)
  end)

  it("are written, kept by the best, and resumed from", function()
    local values, paths = { 3, 1, 2, 4 }, {}
    local function new(manager)
      local trainer
      trainer = make({ train = loader(16, 8, true), validation = loader(8, 8), epochs = 4,
        checkpoints = manager, metrics = { made = function()
          return values[trainer.epoch]
        end }, callbacks = { { on_checkpoint = function(_, _, path)
          paths[#paths + 1] = path:match("[^/]+$")
        end } } })
      return trainer
    end
    local manager = lupine.checkpoint.Manager(root, { keep = 1,
      best = { metric = "validation.made" } })
    local trainer = new(manager)
    trainer:fit()
    assert.same({ "step-00000002", "step-00000004", "step-00000006", "step-00000008" }, paths)
    local kept = {}
    for i, entry in ipairs(manager:list()) do
      kept[i] = entry.step
    end
    assert.same({ 8, 4 }, kept)
    local again = new(manager)
    assert.matches("step%-00000008$", again:resume("latest"))
    assert.same({ 8, 4 }, { again.step, again.epoch })
    assert.same(weights(trainer.model), weights(again.model))
    assert.same({ "finished", 8 }, { again:fit().reason, again.step })
    assert.is_nil(new(lupine.checkpoint.Manager(root .. "/none")):resume("latest"))
  end)

  it("are written by steps, and where a run ends", function()
    local paths = {}
    local function new()
      return make({ train = loader(40, 8, true), steps = 7, checkpoint_every = "3 steps",
        checkpoints = lupine.checkpoint.Manager(root), callbacks = {
          { on_checkpoint = function(_, t)
            paths[#paths + 1] = t.step
          end } } })
    end
    new():fit()
    assert.same({ 3, 6, 7 }, paths)
    local longer = new()
    longer:resume(root .. "/step-00000003")
    longer:fit()
    assert.same({ 3, 6, 7, 6, 7 }, paths)
  end)
end)

describe("options", function()
  it("are refused with what is allowed", function()
    local train = loader(8, 8)
    for _, case in ipairs({
      { { epoch = 3 }, "unknown option 'epoch'.*nearest: 'epochs'" },
      { { epochs = 1.5 }, "Trainer: epochs: expected an int >= 0, got float 1.5" },
      { { epochs = 1, steps = 2 }, "one of them tells the end" },
      { { mode = "fast" }, "expected one of compiled, eager, poptorch" },
      { { accumulation = 0 }, "accumulation: expected an int >= 1" },
      { { mode = "compiled", clip_grad_value = 1.0 }, "clip_grad_value: allowed with mode" },
      { { mode = "poptorch", clip_grad_norm = 1.0 }, "max_grad_norm" },
      { { mode = "poptorch", on_nan = "skip" }, "on_nan: allowed" },
      { { mode = "poptorch", precision = "bfloat16" }, "Allowed: float32, float16" },
      { { options = poptorch.Options() }, "act with mode \"poptorch\" only" },
      { { validate_every = "1 epoch" }, "there is no validation loader" },
      { { early_stopping = { metrics = "x" } }, "early_stopping: unknown option 'metrics'" },
      { { early_stopping = { metric = "validation.loss" } },
        "early_stopping: there is no metric 'validation.loss'; there are train.loss" },
      { { metrics = { "acc" } }, "there is no metric 'acc'" },
      { { callbacks = { { on_steps = print } } }, "there is no event 'on_steps'.*on_step" },
      { { loss = 3 }, "loss: expected a torch.nn.Module or function" },
      { { swa_start = "3 weeks" }, "swa_start: expected a count of steps or epochs" },
    }) do
      case[1].train = train
      refused(case[2], make, case[1])
    end
    refused("there is no validation loader", function()
      make({ train = train }):validate()
    end)
    refused("validate: most: expected int >= 1", function()
      make({ train = train }):validate(train, 0)
    end)
    refused("the loader gave no batch", function()
      make({ train = {} }):fit()
    end)
  end)

  it("set the precision", function()
    for _, mode in ipairs({ "eager", "compiled" }) do
      for precision, dtype in pairs({ float64 = torch.float64, bfloat16 = torch.bfloat16,
        autocast_bfloat16 = torch.float32 }) do
        local trainer = make({ train = loader(16, 8), mode = mode, precision = precision,
          validation = loader(8, 8) })
        local result = trainer:fit()
        assert.equal(dtype, trainer.model[1].weight.dtype)
        assert.is_true(result.metrics["validation.loss"] < 5)
      end
    end
    for _, precision in ipairs({ "float16", "autocast_float16" }) do
      local trainer = make({ train = loader(16, 8), mode = "poptorch", precision = precision,
        validation = loader(8, 8) })
      assert.is_true(trainer:fit().metrics["validation.loss"] < 5)
      trainer:close()
    end
  end)
end)
