-- What a compiled training step takes and keeps, and what it refuses.
local compile = require("lupine.compile")
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local program = require("spec.support.program")
local torch = require("torch")
local F = nn.functional

local function sgd(model)
  return torch.optim.SGD(model:parameters(), { lr = 0.1 })
end

local function step_of(model, opts)
  opts = opts or {}
  opts.optimizer = opts.optimizer or sgd(model)
  return compile(model, opts)
end

local function sum_of(out)
  return out:sum()
end

describe("a compiled step", function()
  it("logs why its programs are dropped", function()
    local model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    local step, x = step_of(model, { loss = sum_of }), torch.ones({ 1, 2 })
    step(x)
    local log = helper.logged(function()
      step(x)
      model[2] = nn.ReLU()
      step(x)
    end)
    assert.equal("all programs are dropped: the model has other parameters, buffers or modules",
      log:match("^[^\n]*"))
    assert.matches("\ncompiled a training step in [%d.]+ s: ", log)
  end)

  it("is a step of its optimizer to a schedule", function()
    local model = nn.Linear(2, 2)
    local step = step_of(model, { loss = sum_of })
    local schedule = torch.optim.lr_scheduler.ExponentialLR(step.optimizer, 0.5)
    step(torch.ones({ 1, 2 }))
    assert.equal("", helper.logged(function()
      schedule:step()
    end))
  end)
end)

describe("the arguments of a compiled step", function()
  local Two = nn.Module:extend("Two")
  function Two:init()
    self.fc = nn.Linear(2, 2)
  end
  function Two:forward(x, mask)
    local y = self.fc(x)
    return mask and y * mask or y
  end

  local x, mask, target = torch.ones({ 3, 2 }), torch.zeros({ 3, 2 }), torch.zeros({ 3, 2 })

  it("are the model's and then the loss's, by position or by name", function()
    torch.manual_seed(1)
    local step = step_of(Two(), { optimizer = nil, loss = F.mse_loss })
    local model = step.model
    local function is_masked(...)
      return select(2, step:evaluate(...)):item() == 0
    end
    assert.is_false(is_masked(x, target))
    assert.is_true(is_masked(x, mask, target))
    assert.is_true(is_masked(x, target, { mask = mask }))
    assert.is_true(is_masked({ x = x, mask = mask, target = target }))
    assert.is_true(is_masked(x, mask, { target = target }))
    assert.is_false(is_masked(x, nil, target))
    helper.near(step:predict(x), model(x):tolist(), 1e-6)
    helper.raises("TypeError", "'target' is missing", function() step() end)
  end)

  it("give a loss as many as it names", function()
    local seen
    local step = step_of(Two(), { loss = function(out, a, weights)
      seen = { a.shape, weights.shape }
      return ((out - a) * weights):square():mean()
    end })
    step(x, mask, target, torch.ones(2))
    assert.same({ { 3, 2 }, { 2 } }, { { table.unpack(seen[1]) }, { table.unpack(seen[2]) } })
    step_of(Two(), { loss = sum_of })(x)
  end)

  it("are lists and dictionaries of tensors and values", function()
    local Deep = nn.Module:extend("Deep")
    function Deep:init()
      self.fc = nn.Linear(2, 2)
    end
    function Deep:forward(batch, scale)
      local y = self.fc(batch.x[1]) + batch.x[2]
      return { y = y * scale, parts = { y[0], "text", 7 } }
    end
    local model = Deep()
    local step = step_of(model, { loss = function(out) return out.y:sum() end })
    local out = step:evaluate({ x = { x, x } }, 2)
    helper.near(out.y, ((model.fc(x) + x) * 2):tolist(), 1e-6)
    assert.equal("text", out.parts[2])
    assert.equal(7, out.parts[3])
    step({ x = { x, x } }, 2)
    step({ x = { x, x } }, 3) -- values are compiled in
    assert.equal(3, step:cache_info().misses)
  end)

  it("come back where forward writes them", function()
    local Writes = nn.Module:extend("Writes")
    function Writes:init()
      self.fc = nn.Linear(2, 2)
    end
    function Writes:forward(t, count)
      count:add_(1)
      return self.fc(t)
    end
    local step, count = step_of(Writes(), { loss = sum_of }), torch.zeros(1)
    for i = 1, 3 do
      step(x, count)
      assert.equal(i, count:item())
    end
    helper.raises("RuntimeError", "count is written in place and shares memory with t", function()
      step(count:expand({ 1, 2 }), count)
    end)
  end)

  it("may have any type and any strides", function()
    local Ids = nn.Module:extend("Ids")
    function Ids:init()
      self.e = nn.Embedding(9, 2)
    end
    function Ids:forward(ids, keep)
      return self.e(ids) * keep:unsqueeze(-1)
    end
    local model = Ids()
    local step = step_of(model, { loss = sum_of })
    local ids = torch.arange(8):reshape({ 2, 4 }):t()
    local keep = torch.tensor({ { true, false }, { true, true }, { false, true }, { true, true } })
    for _, dtype in ipairs({ torch.int64, torch.int32 }) do
      helper.near(step:evaluate(ids:to(dtype), keep), model(ids, keep):tolist(), 1e-6)
    end
  end)
end)

-- Resident MB that programs for six more shapes, and evaluations of them, add.
local GROWTH = [[
local torch, lupine = require("torch"), require("lupine")
local nn = torch.nn
local model = nn.Sequential(nn.Linear(512, 4096), nn.Linear(4096, 512))
local step = lupine.compile(model, { optimizer = torch.optim.Adam(model:parameters()),
  cache_size = 16, loss = function(out) return out:sum() end })
local function resident()
  collectgarbage()
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^VmRSS:%s*(%d+)")
    if kb then return tonumber(kb) / 1024 end
  end
end
local function both(rows)
  step(torch.ones({ rows, 512 }))
  step:evaluate(torch.ones({ rows, 512 }))
end
both(8)
both(7)
local before = resident()
for rows = 1, 6 do both(rows) end
print(resident() - before)
]]

describe("the programs that a compiled step keeps", function()
  local function called(step, rows)
    for _, n in ipairs(rows) do
      step(torch.ones({ n, 2 }))
    end
    return step:cache_info()
  end

  it("are so many at most, those that were called last", function()
    local step = step_of(nn.Linear(2, 2), { loss = sum_of, cache_size = 2 })
    assert.same({ hits = 1, misses = 3, maxsize = 2, currsize = 2 }, called(step, { 1, 2, 1, 3 }))
    assert.equal(2, called(step, { 1 }).hits)
    assert.equal(4, called(step, { 2 }).misses)
    assert.equal("TrainingStep(Linear, SGD, 6 updates, 2 of 2 programs)", tostring(step))
    step:reset()
    assert.equal(0, step:cache_info().currsize)
    assert.equal(5, called(step, { 2 }).misses)
  end)

  it("share weights, states and what they compute in", function()
    -- a sanitized host would keep what was freed
    local out, err = program.shell("ASAN_OPTIONS=quarantine_size_mb=1 " .. program.host .. " -",
      GROWTH)
    local grown = assert(tonumber(out), err)
    assert.is_true(grown < 16, ("%g MB"):format(grown)) -- as much as the weights alone
  end)

  it("are for what torch is set to", function()
    local step = step_of(nn.Linear(2, 2), { loss = sum_of })
    called(step, { 1 })
    torch.use_deterministic_algorithms(true)
    assert.equal(2, called(step, { 1 }).misses)
    torch.use_deterministic_algorithms(false)
    assert.equal(2, called(step, { 1 }).misses)
  end)

  it("say in the log why they were compiled", function()
    local level = core.host.log_level("info")
    local path = os.tmpname()
    core.host.log_copy(path)
    local step = step_of(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), { loss = sum_of,
      cache_size = 2 })
    called(step, { 1, 2 })
    step.model:eval()
    called(step, { 2, 3, 4, 5, 6, 7, 8 })
    core.host.log_copy(nil)
    core.host.log_level(level)
    local lines = assert(io.open(path)):read("a")
    os.remove(path)
    assert.matches("compiled a training step in .* s: the first one", lines)
    assert.matches("input: compiled for shape .*%[1, 2%].*, got .*%[2, 2%]", lines)
    assert.matches("makes room %(cache_size = 2%)", lines)
    assert.matches("modes, trained parameters or the kind of update", lines)
    assert.matches("8 programs were compiled for one step, the last one because: input", lines)
    assert.equal(1, select(2, lines:gsub("programs were compiled", "")))
  end)
end)

describe("a compiled step refuses", function()
  local model = nn.Linear(2, 2)

  for text, case in pairs({
    ["LBFGS calls the model as often as it likes"] =
      { "NotImplementedError", { optimizer = torch.optim.LBFGS(model:parameters()) } },
    ["optimizer: expected a torch.optim.Optimizer, got string"] =
      { "TypeError", { optimizer = "sgd" } },
    ["unknown option 'accumulations' %(nearest: 'accumulation'%)"] =
      { "TypeError", { accumulations = 2 } },
    ["accumulation: expected an int of 1 or more, got int 0"] =
      { "ValueError", { accumulation = 0 } },
    ["cache_size: expected an int of 1 or more, got"] = { "ValueError", { cache_size = 0.5 } },
    ["clip_grad_norm: expected a number above 0, got %-1"] =
      { "ValueError", { clip_grad_norm = -1 } },
    ["grads: expected a bool"] = { "TypeError", { grads = 1 } },
    ["loss: expected function%(out, target%)"] = { "TypeError", { loss = 3 } },
    ["capturable must be false"] = { "ValueError",
      { optimizer = torch.optim.Adam(model:parameters(), { capturable = true }) } },
    ["is none of the model's"] = { "ValueError",
      { optimizer = torch.optim.SGD(nn.Linear(2, 2):parameters(), { lr = 1 }) } },
  }) do
    it(text, function()
      helper.raises(case[1], text, function() step_of(model, case[2]) end)
    end)
  end

  it("what is no module", function()
    helper.raises("TypeError", "expected a torch.nn.Module, got function", function()
      compile(function() end, { optimizer = sgd(model) })
    end)
  end)

  local function refused(class, text, net, opts)
    helper.raises(class, text, function() step_of(net, opts)(torch.ones({ 3, 2 })) end)
  end

  it("a forward without a loss, or with several", function()
    refused("ValueError", "forward returns no scalar that has a gradient: give loss", model)
    local Many = nn.Linear:extend("Many")
    function Many:forward(x)
      local y = nn.Linear.forward(self, x)
      return y:sum(), y:mean()
    end
    refused("ValueError", "forward returns 2 scalars that have gradients", Many(2, 2))
    refused("ValueError", "the loss: expected a floating tensor of one element", model,
      { loss = function(out) return out end })
    refused("RuntimeError", "does not depend on any parameter", model,
      { loss = function(out) return out:detach():sum() end })
  end)

  it("what cannot be compiled, and trains on afterwards", function()
    local Reads = nn.Linear:extend("Reads")
    function Reads:forward(x)
      local y = nn.Linear.forward(self, x)
      return self.bad and y * y:sum():item() or y
    end
    local net = Reads(2, 2)
    local step = step_of(net, { loss = sum_of })
    net.bad = true
    helper.raises("RuntimeError", "a traced tensor has no value", function()
      step(torch.ones({ 3, 2 }))
    end)
    net.bad = nil
    step(torch.ones({ 3, 2 }))
    assert.equal(1, step.updates)
  end)

  it("parameters with gradient hooks, while they have them", function()
    local net = nn.Linear(2, 2)
    local step, x = step_of(net, { loss = sum_of }), torch.ones({ 3, 2 })
    step(x)
    local hook = net.weight:register_hook(function(g) return g * 2 end)
    helper.raises("NotImplementedError", "'weight' has gradient hooks", function() step(x) end)
    hook:remove()
    step(x)
    assert.equal(2, step.updates)
  end)

  it("parameters that lie in one memory", function()
    local net = nn.Bilinear(2, 2, 2)
    net.twin = nn.Parameter(net.bias:detach())
    helper.raises("ValueError", "'twin' lies in the memory of another one", function()
      step_of(net, { loss = sum_of })(torch.ones({ 3, 2 }), torch.ones({ 3, 2 }))
    end)
  end)

  it("being traced", function()
    local step = step_of(model, { loss = sum_of })
    helper.raises("RuntimeError", "cannot be called in a traced function", function()
      compile(function(x) return (step(x)) end, { torch.ones({ 1, 2 }) })
    end)
  end)
end)

describe("forward in a compiled step", function()
  it("leaves fields of the module as they were", function()
    local Keeps = nn.Linear:extend("Keeps")
    function Keeps:forward(x)
      self.last = nn.Linear.forward(self, x)
      return self.last
    end
    local net = Keeps(2, 2)
    step_of(net, { loss = sum_of })(torch.ones({ 1, 2 }))
    assert.is_nil(net.last)
  end)

  it("may not replace a buffer, but write it", function()
    local Counts = nn.Linear:extend("Counts")
    function Counts:forward(x)
      if self.replace then
        self.n = self.n + 1
      else
        self.n:add_(1)
      end
      return nn.Linear.forward(self, x)
    end
    local net = Counts(2, 2)
    net:register_buffer("n", torch.zeros({}, { dtype = torch.int64 }))
    local step = step_of(net, { loss = sum_of })
    for _ = 1, 3 do
      step(torch.ones({ 1, 2 }))
    end
    assert.equal(3, net.n:item())
    net.replace = true
    step:reset()
    helper.raises("RuntimeError", "'n' is a registered buffer", function()
      step(torch.ones({ 1, 2 }))
    end)
  end)

  it("has parameters of the loss, too", function()
    local Scaled = nn.Module:extend("Scaled")
    function Scaled:init()
      self.scale = nn.Parameter(torch.ones(1))
    end
    function Scaled:forward(out, target)
      return (out * self.scale - target):square():mean()
    end
    local model, loss = nn.Linear(2, 2), Scaled()
    local all = model:parameters()
    all[#all + 1] = loss.scale
    local step = compile(model, { optimizer = torch.optim.SGD(all, { lr = 0.1 }), loss = loss })
    step(torch.ones({ 4, 2 }), torch.zeros({ 4, 2 }))
    assert.not_equal(1, loss.scale:item())
  end)
end)
