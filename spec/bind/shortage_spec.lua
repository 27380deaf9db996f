--- Memory runs short at every place of a training: each gives the right result
--- (after a collection) or OutOfMemoryError, leaves nothing behind, and what
--- comes after it is as if nothing had happened.
local compiled = require("spec.support.compiled")
local control = require("lupine.control")
local core = require("lupine.core")
local csv = require("lupine.csv")
local data = require("torch.utils.data")
local errors = require("lupine.base.errors")
local helper = require("spec.helper")
local images = require("lupine.images")
local lupine = require("lupine")
local nn = require("torch.nn")
local numpy = require("lupine.numpy")
local poptorch = require("poptorch")
local torch = require("torch")
local F = require("torch.nn.functional")

-- Blocks and bytes that live, after collections as long as these are more than `most`.
local function live(most)
  local now
  for _ = 1, 3 do -- what a finaliser drops goes with the next collection
    if most then
      now = { blocks = core.mem_live(), bytes = torch.memory().live }
      if now.blocks <= most.blocks and now.bytes <= most.bytes then
        return now
      end
    end
    collectgarbage()
  end
  return { blocks = core.mem_live(), bytes = torch.memory().live }
end

-- Runs fn with its n-th allocation failing, and if `lasting` all after it;
-- returns whether one failed.
local function starve(fn, want, n, lasting, before)
  core.mem_fail_at(n, lasting)
  local ok, got = pcall(fn)
  local struck = core.mem_fail_at(0) == 0
  local where = ("allocation %d%s failed"):format(n, lasting and " and all after it" or "")
  if not ok and not errors.OutOfMemoryError:is(got) then
    error(("%s: %s"):format(where, tostring(got)), 0)
  end
  if ok then
    assert.is_true(compiled.same_bits(got, want), where .. ": another result")
  end
  got = nil -- luacheck: ignore
  local after = live(before)
  assert(after.blocks <= before.blocks and after.bytes <= before.bytes,
    ("%s: %d blocks, %d bytes stay"):format(where, after.blocks - before.blocks,
      after.bytes - before.bytes))
  assert.is_true(compiled.same_bits(fn(), want), where .. ": another result afterwards")
  return struck
end

--- Sweeps n over `step`, 2 * step, … until no allocation fails; fn gives a
--- tensor, the same every time.
local function sweep(fn, step, lasting)
  fn()
  local want = fn()
  local n, before = 1, live()
  while starve(fn, want, n, lasting, before) do
    n = n + step
    assert(n < 20000, "the sweep does not end")
  end
end

local function network()
  torch.manual_seed(1)
  return nn.Sequential(nn.Conv2d(1, 3, 3, { padding = 1 }), nn.BatchNorm2d(3), nn.ReLU(),
    nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 5))
end

local function input()
  torch.manual_seed(2)
  return torch.randn(4, 1, 8, 8), torch.tensor({ 0, 1, 2, 3 })
end

local function opened(net, x, y)
  local declared = {}
  for name, p in net:named_parameters() do
    declared[#declared + 1] = { "parameter", name, p }
  end
  for name, b in net:named_buffers() do
    declared[#declared + 1] = { "buffer", name, b }
  end
  local step, losses = compiled.step(function(h)
    local out = net(h)
    return out, F.cross_entropy(out, y)
  end, { x }, declared)
  return step, { loss = losses[#losses],
    rules = compiled.descent(compiled.vars(step), declared), system = {}, host = {} }
end

local function traced(net, x, y)
  local step, how = opened(net, x, y)
  step:complete(how)
  return step, compiled.vars(step)
end

-- Each case returns the function to sweep.
local cases = {
  ["tracing and compiling a training step"] = function()
    local net, x, y = network(), input()
    return function()
      local step, how = opened(net, x, y)
      local _, program = core.compile(step, how)
      local exec, at = program:executor(), compiled.vars(step)
      exec:rng(3, 0)
      return exec:run(compiled.feed(at, { x }), {})[at["output output_2"]]
    end
  end,
  ["tracing and compiling loops, branches and their gradients"] = function()
    local x, w, cot = torch.rand(3), torch.rand(3), torch.ones(3)
    local function body(v)
      local out = control.branch(v:sum():gt(0.5), function(u)
        u:add_(1)
        return u * w
      end, { v }, function() return v:sin() end, {})
      return control.call(function(u) return u + w end, out)
    end
    return function()
      local run = lupine.compile(function(a)
        return control.loop(3, body, { a })[1]
      end, { x }, { cotangents = { cot } })
      local y, grads = run(x, { cot })
      return y + grads[1]
    end
  end,
  ["one execution"] = function()
    local x, y = input()
    local step, at = traced(network(), x, y)
    local exec = step:compile({})
    local start = {}
    for name, i in pairs(at) do
      if name:find("^parameter") or name:find("^buffer") then
        start[i] = exec:read(i)
      end
    end
    local feed = compiled.feed(at, { x })
    return function()
      for i, t in pairs(start) do
        exec:write(i, t)
      end
      exec:rng(3, 0)
      local out = exec:run(feed, {})[at["output output_2"]]
      return out + exec:read(at["parameter 0.weight"]):sum()
    end
  end,
  ["a model for training and its first call"] = function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.body = network()
      self.loss = nn.CrossEntropyLoss()
    end
    function Net:forward(x, y)
      local out = self.body(x)
      return out, self.loss(out, y)
    end
    local x, y = input()
    return function()
      local net = Net()
      local opts = poptorch.Options()
      opts:deviceIterations(2):randomSeed(4)
      local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
      local model = poptorch.trainingModel(net, opts, optimizer)
      local ok, out = pcall(model, x, y)
      model:destroy()
      if not ok then
        error(out, 0)
      end
      return out
    end
  end,
  ["a forward and a backward pass"] = function()
    local net, x, y = network(), input()
    net:eval() -- the statistics of a failed call would stay
    return function()
      net:zero_grad()
      F.cross_entropy(net(x), y):backward()
      return net[1].weight.grad:clone()
    end
  end,
  ["gradients of gradients"] = function()
    return function()
      local w = torch.tensor({ 1.0, 2, 3 }, { requires_grad = true })
      local y = (w ^ 3):sum() + w:softmax(0):logsumexp(0)
      local g = torch.autograd.grad({ y }, { w }, { create_graph = true })[1]
      ;(g * w):sum():backward()
      return w.grad
    end
  end,
  ["a compiled function and its gradients"] = function()
    local x, c = torch.arange(20.0):reshape({ 4, 5 }), { torch.ones({}) }
    return function()
      local run = lupine.compile(function(a)
        return torch.diff(a):exp():sum() + a["1:2"]:sum() + a["3:3"]:sum() * 2 +
          F.softmax(a, 1):pow(2):sum()
      end, { x }, { cotangents = c })
      local _, grads = run(x, c)
      return grads[1]
    end
  end,
  ["a pipeline over two IPUs"] = function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.a, self.b, self.loss = nn.Linear(3, 4), nn.Linear(4, 3), nn.CrossEntropyLoss()
    end
    function Net:forward(x, y)
      local h = self.a(x):relu()
      local _ <close> = poptorch.Block("second", { ipu_id = 1 })
      return self.loss(self.b(h), y)
    end
    local x, y = torch.arange(12.0):reshape({ 4, 3 }), torch.tensor({ 0, 1, 2, 0 })
    return function()
      torch.manual_seed(1)
      local net, opts = Net(), poptorch.Options()
      opts:deviceIterations(1)
      opts.Training:gradientAccumulation(4)
      local optimizer = torch.optim.Adam(net:parameters(), { lr = 0.1 })
      local model = poptorch.trainingModel(net, opts, optimizer)
      local ok, e = pcall(function()
        model(x, y)
        model:copyWeightsToHost()
      end)
      model:destroy()
      if not ok then
        error(e, 0)
      end
      return net.a.weight:detach():clone()
    end
  end,
  ["an optimizer's step"] = function()
    local w = torch.ones(8)
    w.grad = torch.arange(8.0)
    local optimizer = torch.optim.AdamW({ w }, { lr = 0.1 })
    return function()
      w:fill_(1)
      optimizer.state[w] = nil
      optimizer:step()
      return w:clone()
    end
  end,
  ["loading a state_dict"] = function()
    local net, state = network(), network():state_dict()
    return function()
      net[1].weight.data:zero_()
      net:load_state_dict(state)
      return net[1].weight:detach():clone()
    end
  end,
  ["batches of a loader"] = function()
    local x, y = input()
    return function()
      torch.manual_seed(5)
      local sum = torch.zeros(1, 8, 8)
      local set = data.TensorDataset(x, y)
      for a in data.DataLoader(set, { batch_size = 2, shuffle = true }):iter() do
        sum = sum * 2 + a:sum(0)
      end
      return sum
    end
  end,
  ["files, written and read"] = function()
    local path = os.tmpname()
    local x = torch.arange(24.0):reshape({ 2, 3, 4 })
    local bytes = (x * 9):to(torch.uint8)
    return function()
      local name, sum = path .. ".x", x * 1
      local ok, e = pcall(function()
        numpy.save(name .. ".npy", x)
        sum = sum + numpy.load(name .. ".npy")
        numpy.savez_compressed(name .. ".npz", { a = x, b = x:reshape({ 24 }) })
        sum = sum + numpy.load(name .. ".npz").a
        torch.save({ x, { 1, "two" } }, name)
        sum = sum + torch.load(name)[1]
        images.write_png(bytes, name)
        sum = sum + images.read(name):float()
        core.read_idx("spec/fuzz/corpus/idx/gzip_u8")
        images.read("spec/io/images/progressive.jpg")
        csv.read("spec/io/table.csv")
      end)
      for _, file in ipairs({ path, name, name .. ".npy", name .. ".npz" }) do
        os.remove(file)
      end
      assert.equal("", io.popen(("ls -A %s* 2>/dev/null"):format(path)):read("a"))
      if not ok then
        error(e, 0)
      end
      return sum
    end
  end,
  ["writing in place through a view that has a history"] = function()
    return function()
      local w = torch.tensor({ 1.0, 2, 3, 4 }, { requires_grad = true })
      local h = w * 1
      h["1:3"]:mul_(w["0:2"])
      h["0:2"]:copy_(w["2:4"] * 2)
      h:add_(w)
      h:exp_()
      h:sum():backward()
      return torch.stack({ h:detach(), w.grad })
    end
  end,
  ["random numbers in place"] = function()
    local x = torch.zeros(6)
    return function()
      torch.manual_seed(9)
      x:fill_(1):uniform_()
      return x + torch.rand(6) + F.dropout(torch.ones(6), 0.5)
    end
  end,
}

-- The long ones are swept whole in the slow set.
local STEP = {
  ["a forward and a backward pass"] = 7,
  ["files, written and read"] = 5,
  ["a compiled function and its gradients"] = 9,
  ["a model for training and its first call"] = 31,
  ["a pipeline over two IPUs"] = 31,
  ["tracing and compiling a training step"] = 11,
  ["tracing and compiling loops, branches and their gradients"] = 7,
}

for manner, lasting in pairs({ ["runs short in"] = false, ["runs out in"] = true }) do
  describe("memory that " .. manner, function()
    local names = {}
    for name in pairs(cases) do
      names[#names + 1] = name
    end
    table.sort(names)
    for _, name in ipairs(names) do
      local step = STEP[name] or 1
      it(name .. " is reported or made up for", function()
        sweep(cases[name](), step, lasting)
      end)
      if step > 1 then
        it(name .. " is reported or made up for at every place #slow", function()
          sweep(cases[name](), 1, lasting)
        end)
      end
    end
  end)
end

describe("an operation in place that lacks memory", function()
  it("leaves the elements as they were", function()
    local w = torch.tensor({ 1.0, 2, 3 }, { requires_grad = true })
    for n = 1, 100 do
      local h = w * 1
      core.mem_fail_at(n)
      local ok = pcall(h.mul_, h, 2)
      local left = core.mem_fail_at(0)
      helper.near(h:detach(), ok and { 2.0, 4, 6 } or { 1.0, 2, 3 }, helper.exact)
      if left > 0 then
        return
      end
    end
    error("the sweep does not end")
  end)
end)
