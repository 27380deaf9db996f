--- Trainings that are stopped anywhere and go on from a checkpoint, in this process or
--- in another one (resumed.lua). A kind is a function of the number of workers and of
--- further options, which makes everything anew: {objects =, step = fn(x, y, n)}.
local checkpoint = require("lupine.checkpoint")
local epochs = require("spec.support.epochs")
local torch = require("torch")
local nn = torch.nn

local M = { kinds = {} }

-- ---- a run -----------------------------------------------------------------------

local function bits(t)
  return epochs.text(t:detach():contiguous())
end

--- Trains from step r.n on up to `total`, `visit(n)` after each one. Returns the losses'
--- bits by step.
function M.train(r, total, visit)
  local losses, n = {}, r.n or 0
  while n < total do
    for x, y in r.objects.loader do
      n = n + 1
      losses[n] = bits(r.step(x, y, n))
      if visit then
        visit(n)
      end
      if n == total then
        break
      end
    end
  end
  return losses
end

--- All that a run has in the end, as one text.
function M.ending(r)
  local out = {}
  local function add(path, value)
    if torch.is_tensor(value) then
      out[#out + 1] = path .. "=" .. bits(value)
    elseif type(value) == "table" then
      for key, v in pairs(value) do
        add(path .. "." .. tostring(key), v)
      end
    else
      out[#out + 1] = path .. "=" .. tostring(value)
    end
  end
  add("model", r.model:state_dict())
  add("optimizer", r.objects.optimizer:checkpoint_state())
  add("device", r.objects.trainer and r.objects.trainer:checkpoint_state().device)
  add("random", torch.rand({ 4 }))
  add("lua", math.random())
  table.sort(out)
  return table.concat(out, "\n")
end

local function close(r)
  if r.objects.trainer then
    r.objects.trainer:destroy()
  end
  if r.objects.loader.terminate then
    r.objects.loader:terminate()
  end
end

local function new(kind, workers, seed)
  torch.manual_seed(seed)
  math.randomseed(seed)
  return M.kinds[kind](workers)
end

--- Goes on from a checkpoint: losses by step and the ending.
function M.rest(kind, folder, total, workers)
  local r = new(kind, workers or 0, 99)
  local values = checkpoint.restore(folder, r.objects)
  r.n = values.n
  local losses = M.train(r, total)
  local ending = M.ending(r)
  close(r)
  return losses, ending
end

--- What is not as in the run that was not interrupted, for each stop: in new objects of
--- this process, for the first one in those that have been trained, and for `apart` in
--- another process. `workers`: of the first run and of those that go on.
function M.faults(kind, total, stops, apart, workers)
  workers = workers or { 0, 0 }
  local root = os.tmpname()
  os.remove(root)
  local r = new(kind, workers[1], 7)
  local losses = M.train(r, total)
  local ending = M.ending(r)
  close(r)
  r = new(kind, workers[1], 7)
  local again = M.train(r, total, function(n)
    for _, stop in ipairs(stops) do
      if n == stop then
        r.objects.n = n
        checkpoint.save(root .. "/" .. n, r.objects)
      end
    end
  end)
  local faults = {}
  local function compare(what, from, got, got_ending)
    for n = from, total do
      if got[n] ~= losses[n] then
        faults[#faults + 1] = ("%s: loss %d"):format(what, n)
        break
      end
    end
    faults[#faults + 1] = got_ending ~= ending and what .. ": ending" or nil
  end
  compare("saving", 1, again, M.ending(r))
  r.n = checkpoint.restore(root .. "/" .. stops[1], r.objects).n
  compare("back to " .. stops[1], stops[1] + 1, M.train(r, total), M.ending(r))
  close(r)
  for _, stop in ipairs(stops) do
    local folder = root .. "/" .. stop
    compare("after " .. stop, stop + 1, M.rest(kind, folder, total, workers[2]))
    if stop == apart then
      compare("elsewhere after " .. stop, stop + 1, M.elsewhere(kind, folder, total, workers[2]))
    end
  end
  os.execute("rm -rf " .. root)
  return faults
end

--- The same in another process.
function M.elsewhere(kind, folder, total, workers)
  local program = require("spec.support.program")
  local text, errors = program.run({ "spec/support/resumed.lua", kind, folder, tostring(total),
    tostring(workers) })
  local losses = {}
  for n, loss in text:gmatch("(%d+): (%x+)\n") do
    losses[math.tointeger(n)] = loss
  end
  return losses, text:match("ending\n(.*)\n$") or errors
end

-- ---- trained here ------------------------------------------------------------------

local function mlp()
  return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4),
    nn.Linear(8, 1))
end

local function noisy_loader(workers)
  return torch.utils.data.DataLoader(epochs.Noisy(12), { batch_size = 3, shuffle = true,
    num_workers = workers })
end

-- Optimizers and schedules, each of a model's parameters.
local OPTIMIZERS = {
  adam = function(model)
    local optimizer = torch.optim.Adam(model:parameters(), { lr = 0.02, amsgrad = true })
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
  end,
  sgd = function(model)
    local optimizer = torch.optim.SGD({ { params = { model[1].weight }, lr = 0.01 },
      { params = { model[1].bias, model[5].weight, model[5].bias } } },
      { lr = 0.005, momentum = 0.9, dampening = 0.1, weight_decay = 0.01 })
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, { max_lr = 0.02,
      total_steps = 30 })
  end,
  rmsprop = function(model)
    local optimizer = torch.optim.RMSprop(model:parameters(), { lr = 0.01, momentum = 0.5,
      centered = true })
    return optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, { patience = 1 })
  end,
  adamax = function(model)
    local optimizer = torch.optim.Adamax(model:parameters(), { lr = 0.01 })
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
  end,
}

for name, optimize in pairs(OPTIMIZERS) do
  M.kinds["eager " .. name] = function(workers)
    local model = mlp()
    local optimizer, scheduler = optimize(model)
    return { model = model, step = function(x, y)
      optimizer:zero_grad()
      local loss = (model(x) - y):pow(2):mean()
      loss:backward()
      optimizer:step()
      scheduler:step(name == "rmsprop" and loss:item() or nil)
      return loss
    end, objects = { model = model, optimizer = optimizer, scheduler = scheduler,
      loader = noisy_loader(workers), random = checkpoint.random } }
  end
end

-- Gradients of two batches, a loss scale, and a checkpoint between the batches.
M.kinds["eager accumulated"] = function(workers)
  local model = mlp()
  local optimizer = torch.optim.AdamW(model:parameters(), { lr = 0.02 })
  local scaler = torch.amp.GradScaler({ device = "cpu", init_scale = 8, growth_interval = 2 })
  return { model = model, step = function(x, y, n)
    local loss = (model(x) - y):pow(2):mean()
    scaler:scale(loss / 2):backward()
    if n % 2 == 0 then
      scaler:step(optimizer)
      scaler:update()
      optimizer:zero_grad()
    end
    return loss
  end, objects = { model = model, optimizer = optimizer, scaler = scaler,
    gradients = checkpoint.gradients(model), loader = noisy_loader(workers),
    random = checkpoint.random } }
end

-- The step of the model is a compiled program, its update is not.
M.kinds.compiled = function(workers)
  local model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 1))
  local params = model:parameters()
  local F = nn.functional
  local function forward(x, y, w1, b1, w2, b2)
    return (F.linear(F.dropout(F.relu(F.linear(x, w1, b1)), 0.4), w2, b2) - y):pow(2):mean()
  end
  local inputs = { torch.zeros(3, 2), torch.zeros({ 3, 1 }, { dtype = torch.int64 }) }
  for i, p in ipairs(params) do
    inputs[i + 2] = p:detach()
  end
  local f = require("lupine.compile")(forward, inputs,
    { cotangents = { torch.tensor(1.0) }, wrt = { 3, 4, 5, 6 } })
  local optimizer = torch.optim.SGD(params, { lr = 0.01, momentum = 0.9 })
  return { model = model, step = function(x, y)
    local loss, gradients = f(x, y, params[1]:detach(), params[2]:detach(), params[3]:detach(),
      params[4]:detach(), { torch.tensor(1.0) })
    for i, p in ipairs(params) do
      p.grad = gradients[i]
    end
    optimizer:step()
    return loss
  end, objects = { model = model, optimizer = optimizer, loader = noisy_loader(workers),
    random = checkpoint.random } }
end

-- A step as one program, of two calls an update.
for name, optimize in pairs({ adam = OPTIMIZERS.adam, sgd = OPTIMIZERS.sgd,
  adamax = OPTIMIZERS.adamax }) do
  M.kinds["training step " .. name] = function(workers)
    local model = mlp()
    local optimizer, scheduler = optimize(model)
    local step = require("lupine.compile")(model, { optimizer = optimizer, accumulation = 2,
      loss = function(out, y)
        return (out - y):pow(2):mean()
      end })
    return { model = model, step = function(x, y)
      local _, loss = step(x, y)
      scheduler:step()
      return loss
    end, objects = { model = model, optimizer = optimizer, scheduler = scheduler, step = step,
      loader = noisy_loader(workers), random = checkpoint.random } }
  end
end

-- ---- trained on the device -----------------------------------------------------------

local poptorch = require("poptorch")
poptorch.setLogLevel("ERR")

local Net = nn.Module:extend("Net")

function Net:init(dtype)
  self.one = nn.Linear(2, 8)
  self.norm = nn.BatchNorm1d(8)
  self.two = nn.Linear(8, 1)
  self.dtype = dtype
end

function Net:forward(x, y)
  do
    local _ <close> = poptorch.Block("a", { ipu_id = 0 })
    x = nn.functional.dropout(self.norm(self.one(x)), 0.3, self.training)
  end
  local _ <close> = poptorch.Block("b", { ipu_id = 1 })
  x = self.two(x)
  return x, poptorch.identity_loss((x - y:float()):pow(2):mean(), "mean")
end

local function adamw(model)
  return poptorch.optim.AdamW(model:parameters(), { lr = 0.02, betas = { 0.9, 0.99 },
    loss_scaling = 4.0 })
end

-- set(options) makes the kind; optimizer and loader may be others.
local function device_kind(set, optimize, loader)
  return function(workers)
    local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
    set(options)
    local model = Net()
    local optimizer = (optimize or adamw)(model)
    local trainer = poptorch.trainingModel(model, options, optimizer)
    local scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    local keywords = { batch_size = 2, shuffle = true, num_workers = workers }
    for key, value in pairs(loader or {}) do
      keywords[key] = value
    end
    return { model = model, step = function(x, y, n)
      local _, loss = trainer(x, y)
      scheduler:step()
      if n % 3 ~= 0 then -- the device is behind the schedule now and then
        trainer:setOptimizer(optimizer)
      end
      return loss
    end, objects = { trainer = trainer, optimizer = optimizer, scheduler = scheduler,
      loader = poptorch.DataLoader(options, epochs.Noisy(62), keywords),
      random = checkpoint.random } }
  end
end

local function accumulate(n)
  return function(options)
    options.Training:gradientAccumulation(n)
  end
end

local function strategy(s, n)
  return function(options)
    options:setExecutionStrategy(s)
    accumulate(n or 1)(options)
  end
end

local function replicas(options)
  options:replicationFactor(2)
  options:broadcastBuffers(false)
end

local function native(name, keywords)
  return function(model)
    return torch.optim[name](model:parameters(), keywords)
  end
end

local Mode = poptorch.DataLoaderMode
local device = {
  ["one IPU"] = device_kind(strategy(poptorch.ShardedExecution(poptorch.Stage("a", "b")))),
  sharded = device_kind(strategy(poptorch.ShardedExecution())),
  pipelined = device_kind(strategy(poptorch.PipelinedExecution(), 4)),
  ["phases in turn"] = device_kind(strategy(poptorch.SerialPhasedExecution("a", "b"), 2)),
  ["parallel phases"] = device_kind(strategy(poptorch.ParallelPhasedExecution("a", "b"), 2)),
  replicas = device_kind(function(options)
    strategy(poptorch.PipelinedExecution(), 4)(options)
    replicas(options)
  end),
  ["replicas, several steps a call"] = device_kind(function(options)
    strategy(poptorch.ShardedExecution())(options)
    replicas(options)
    options:deviceIterations(2)
  end, native("SGD", { lr = 0.01, momentum = 0.9 })),
  ["stochastic rounding"] = device_kind(function(options)
    accumulate(4)(options)
    options.Precision:enableStochasticRounding(true)
  end, native("Adam", { lr = 0.01 })),
  combined = device_kind(accumulate(4), function(model)
    return poptorch.optim.SGD(model:parameters(), { lr = 0.01, momentum = 0.9,
      weight_decay = 0.01, use_combined_accum = true })
  end),
  rmsprop = device_kind(accumulate(4), function(model)
    return poptorch.optim.RMSprop(model:parameters(), { lr = 0.01, momentum = 0.5,
      centered = true })
  end),
  lamb = device_kind(accumulate(4), function(model)
    return poptorch.optim.LAMB(model:parameters(), { lr = 0.01 })
  end),
  async = device_kind(accumulate(4), nil, { mode = Mode.Async }),
  rebatched = device_kind(accumulate(4), nil, { mode = Mode.AsyncRebatched,
    rebatched_worker_size = 3 }),
}
M.device = device
for name, kind in pairs(device) do
  M.kinds[name] = kind
end

return M
