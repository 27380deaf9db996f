local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local nn = require("torch.nn")
local program = require("spec.support.program")
local session = require("lupine.session")
local stored = require("lupine.session.stored")
local torch = require("torch")

local near, raises = helper.near, helper.raises

-- Step of fn over parameters and buffers {name = tensor}.
local function trace(fn, inputs, tensors)
  local declared = {}
  for _, role in ipairs({ "parameter", "buffer" }) do
    for name, t in pairs(tensors and tensors[role] or {}) do
      declared[#declared + 1] = { role, name, t }
    end
  end
  return compiled.step(fn, inputs, declared)
end

-- Stochastic gradient descent with momentum, whose tensors are in plain tables.
local Descent = {}
Descent.__index = Descent

local function descent(fields)
  fields.velocity, fields.started = fields.velocity or {}, 0
  return setmetatable(fields, Descent)
end

function Descent:rules()
  local list = {}
  for i, name in ipairs(self.names) do
    list[i] = { param = name, group = 1, op = "popart_sgd_step",
      inputs = { "param", "grad", "state:velocity", "hyper:lr", "hyper:momentum" },
      outputs = { "param", "state:velocity" }, max_norm = self.clipped }
  end
  return list
end

function Descent:hyper(_, name)
  return torch.tensor(self[name]), name
end

function Descent:room(rule)
  local own = self.velocity[rule.param]
  self.velocity[rule.param] = own or torch.empty(self.shapes[rule.param])
  return self.velocity[rule.param], not own
end

function Descent:start(state)
  self.started = self.started + 1
  state.tensor:zero_()
end

function Descent:tensor(state)
  return self.velocity[state.rule.param]
end

-- loss = mean of (w x - t)^2 over the rows of a micro-batch.
local function line(w, fields)
  local tensors = { parameter = { w = w } }
  local x = torch.empty(2)
  local step, losses = trace(function(a, t)
    local y = w * a
    return y, nn.functional.mse_loss(y, t)
  end, { x, x }, tensors)
  fields.names, fields.shapes = { "w" }, { w = w.shape }
  local optimizer = descent(fields)
  return step, { tensors = tensors, optimizer = optimizer, compile = { loss = losses[1] } }
end

-- The same by hand, numbers alone: w, velocity and losses after all updates of
-- `accumulation` micro-batches each.
local function by_hand(w, v, xs, ts, accumulation, lr, momentum)
  local losses = {}
  for u = 0, #xs // (2 * accumulation) - 1 do
    local grad = 0
    for m = 0, accumulation - 1 do
      local at, loss = (u * accumulation + m) * 2, 0
      for i = at + 1, at + 2 do
        local d = w * xs[i] - ts[i]
        loss, grad = loss + d * d / 2, grad + d * xs[i] / accumulation
      end
      losses[#losses + 1] = loss
    end
    v = momentum * v + grad
    w = w - lr * v
  end
  return w, v, losses
end

local XS, TS = { 1, 2, -1, 0.5, 3, -2, 0.25, 1 }, { 2, 1, 0, 1, -1, 2, 0.5, 3 }

local function training(spec_of, fields)
  local w = torch.tensor({ 0.5 })
  w.requires_grad = true
  local step, spec = line(w, fields or { lr = 0.1, momentum = 0.5 })
  for key, value in pairs(spec_of or {}) do
    spec.compile[key] = value
  end
  return session.open(step, spec), w, spec.optimizer
end

describe("lupine.session", function()
  it("does without poptorch", function()
    local out = program.run({ "-e", [[
      require("lupine.session")
      for name in pairs(package.loaded) do
        assert(not name:find("^pop"), name)
      end
      print("fine")]] })
    assert.equal("fine\n", out)
  end)

  describe("without a loss", function()
    local scale = torch.tensor({ 2.0, 3.0 })
    local x = torch.arange(8, { dtype = torch.float32 }):reshape({ 4, 2 })

    local function double(spec)
      local step = trace(function(a)
        return a * scale
      end, { torch.empty(1, 2) }, { parameter = { scale = scale } })
      spec.tensors = { parameter = { scale = scale } }
      return session.open(step, spec)
    end

    it("returns every result", function()
      local s = double({ compile = { device_iterations = 4 } })
      assert.is_false(s.training)
      near(s:run({ x })[1], { { 0, 3 }, { 4, 9 }, { 8, 15 }, { 12, 21 } })
    end)

    it("returns what the output mode says", function()
      for mode, want in pairs({ final = { { 12, 21 } }, everyn = { { 4, 9 }, { 12, 21 } },
        sum = { { 24, 48 } } }) do
        local s = double({ compile = { device_iterations = 4 }, output = { mode = mode,
          period = 2 } })
        near(s:run({ x })[1], want)
      end
    end)

    it("refuses a period that leaves iterations over", function()
      for _, period in ipairs({ 3, 5 }) do
        local s = double({ compile = { device_iterations = 4 }, output = { mode = "everyn",
          period = period } })
        local ok, e = pcall(s.run, s, { x })
        assert.is_false(ok)
        assert.matches("must divide the device iterations, got " .. period .. " and 4", e.message)
      end
    end)

    it("gives groups of replicas the rows that they share", function()
      local rows = torch.tensor({ { 1.0, 1.0 }, { 2.0, 2.0 } })
      for orthogonal, order in pairs({ [false] = { 1, 1, 2, 2 }, [true] = { 1, 2, 1, 2 } }) do
        local s = double({ compile = { replicas = 4 },
          input_groups = { size = 2, orthogonal = orthogonal } })
        local want = {}
        for i, n in ipairs(order) do
          want[i] = { 2 * n, 3 * n }
        end
        near(s:run({ rows })[1], want)
      end
    end)

    it("has the host's tensors after upload", function()
      local s = double({ compile = {} })
      local one = torch.ones(1, 2)
      near(s:run({ one })[1], { { 2, 3 } })
      scale:fill_(7)
      near(s:run({ one })[1], { { 2, 3 } })
      s:upload()
      near(s:run({ one })[1], { { 7, 7 } })
      scale:copy_(torch.tensor({ 2.0, 3.0 }))
      s:upload_named("buffer", { scale = true })
      near(s:run({ one })[1], { { 7, 7 } })
      s:upload_named("parameter", { scale = true })
      near(s:run({ one })[1], { { 2, 3 } })
    end)

    it("tells what the simulated system says of it", function()
      local s = double({ compile = { replicas = 2, device_iterations = 3 },
        system = { chip = "ipu1" } })
      assert.equal("ipu1", s.report.chip)
      assert.equal(2, s.report.replicas)
      assert.is_true(s.report.cycles > 0)
    end)

    it("runs on made-up data of the same kind, every time the same", function()
      local s = double({ compile = { device_iterations = 4 }, seed = 3 })
      local first = s:run({ x }, true)[1]
      assert.same({ 4, 2 }, { table.unpack(first.shape) })
      near(s:run({ x }, true)[1], first)
      assert.is_true((first - s:run({ x })[1]):abs():max():item() > 1e-3)
    end)

    it("draws the same numbers again from the same random state", function()
      local ones = torch.ones(64)
      local step = trace(function(a)
        return nn.functional.dropout(a, 0.5)
      end, { ones })
      local s = session.open(step, { compile = {}, tensors = {}, seed = 11 })
      local seed, drawn = s:random_state()
      assert.same({ 11, 0 }, { seed, drawn })
      local first = s:run({ ones })[1]
      local second = s:run({ ones })[1]
      assert.is_true((first - second):abs():max():item() > 0)
      s:random_state(seed, drawn)
      near(s:run({ ones })[1], first)
      near(s:run({ ones })[1], second)
    end)

    it("gives inputs that the step wrote", function()
      local step = trace(function(a)
        a:mul_(3)
        return a + 1
      end, { torch.empty(2) })
      local s = session.open(step, { compile = {}, tensors = {} })
      local results, written = s:run({ torch.tensor({ 1.0, 2.0 }) })
      near(results[1], { 4, 7 })
      near(written[1], { 3, 6 })
    end)
  end)

  describe("with a loss", function()
    it("updates parameters and states by the rules", function()
      local s, w, optimizer = training({ device_iterations = 2, gradient_accumulation = 2 })
      assert.equal(1, optimizer.started)
      local want, velocity, losses = by_hand(0.5, 0, XS, TS, 2, 0.1, 0.5)
      near(s:run({ torch.tensor(XS), torch.tensor(TS) })[2], losses)
      near(w:detach(), { want })
      s:states_to_host()
      near(optimizer.velocity.w, { velocity })
    end)

    it("averages over replicas as over micro-batches", function()
      local s, w = training({ replicas = 2, device_iterations = 2 })
      s:run({ torch.tensor(XS), torch.tensor(TS) })
      near(w:detach(), { (by_hand(0.5, 0, XS, TS, 2, 0.1, 0.5)) })
    end)

    it("takes new hyper-parameters between runs", function()
      local s, w, optimizer = training()
      local x, t = { 1.0, 2.0 }, { 2.0, 1.0 }
      s:run({ torch.tensor(x), torch.tensor(t) })
      local one, velocity = by_hand(0.5, 0, x, t, 1, 0.1, 0.5)
      optimizer.lr, optimizer.momentum = 0.01, 0.9
      s:upload_hypers()
      s:run({ torch.tensor(x), torch.tensor(t) })
      near(w:detach(), { (by_hand(one, velocity, x, t, 1, 0.01, 0.9)) })
    end)

    it("gets weights, hyper-parameters and states when it comes back", function()
      local s, w, optimizer = training()
      local x, t = { 1.0, 2.0 }, { 2.0, 1.0 }
      s:enter_device(nil)
      s:run({ torch.tensor(x), torch.tensor(t) })
      s:settle()
      s:leave_device()
      torch.no_grad(function() w:fill_(0.25) end)
      optimizer.lr, optimizer.velocity.w = 0.01, torch.tensor({ -2.0 })
      s:enter_device(nil)
      s:run({ torch.tensor(x), torch.tensor(t) })
      near(w:detach(), { (by_hand(0.25, -2, x, t, 1, 0.01, 0.5)) })
    end)

    it("takes states that the optimizer has, and later ones", function()
      local s, w, optimizer = training(nil, { lr = 0.1, momentum = 0.5,
        velocity = { w = torch.tensor({ 4.0 }) } })
      local x, t = { 1.0, 2.0 }, { 2.0, 1.0 }
      assert.equal(0, optimizer.started)
      s:run({ torch.tensor(x), torch.tensor(t) })
      local one = by_hand(0.5, 4, x, t, 1, 0.1, 0.5)
      near(w:detach(), { one })
      optimizer.velocity.w = torch.tensor({ -2.0 })
      s:upload_states()
      s:run({ torch.tensor(x), torch.tensor(t) })
      near(w:detach(), { (by_hand(one, -2, x, t, 1, 0.1, 0.5)) })
    end)

    it("undoes the loss scale and clips where the optimizer says so", function()
      local w = torch.tensor({ 0.5 })
      w.requires_grad = true
      local step, spec = line(w, { lr = 0.1, momentum = 0.0, scale = 64.0, most = 0.25 })
      spec.optimizer.loss_scale, spec.optimizer.clipped = "scale", "most"
      local s = session.open(step, spec)
      s:run({ torch.tensor({ 1.0, 2.0 }), torch.tensor({ 2.0, 1.0 }) })
      -- the gradient is -1.5 + 0 of norm 1.5; it is clipped to 0.25
      near(w:detach(), { 0.5 + 0.1 * 0.25 }, { 1e-6, 1e-5 })
    end)

    it("keeps anchors, each with its mode, behind the results", function()
      local w = torch.tensor({ 0.5 })
      w.requires_grad = true
      local step, spec = line(w, { lr = 0.1, momentum = 0.5 })
      spec.compile.device_iterations = 4
      spec.output = { mode = "final", period = 1 }
      spec.anchors = { { name = "Gradient___w", mode = "all", period = 1 },
        { name = "UpdatedVar___w" } }
      local s = session.open(step, spec)
      local results, _, anchors = s:run({ torch.tensor(XS), torch.tensor(TS) })
      assert.equal(1, results[2]:numel())
      local want, at, v = {}, 0.5, 0
      for m = 0, 3 do
        want[m + 1] = 0
        for i = 2 * m + 1, 2 * m + 2 do
          want[m + 1] = want[m + 1] + (at * XS[i] - TS[i]) * XS[i]
        end
        v = 0.5 * v + want[m + 1]
        at = at - 0.1 * v
      end
      near(anchors[1], want)
      near(anchors[2], { at })
    end)

    it("of a file needs the optimizer that the file's step has", function()
      local path = os.tmpname()
      stored.write(path, stored.take((training())))
      local function load(names)
        local w = torch.tensor({ 0.5 })
        local step, spec = stored.open(stored.read(path))
        spec.tensors = { parameter = { w = w } }
        spec.optimizer = descent({ lr = 0.1, momentum = 0.5, names = names,
          shapes = { w = w.shape } })
        return session.open(step, spec), w
      end
      local e = raises("Error", "the optimizer has no %a+ '[^']+' of the compiled program",
        function() load({}) end)
      assert.truthy(e.message:find(path, 1, true))
      local s, w = load({ "w" })
      os.remove(path)
      s:run({ torch.tensor({ 1.0, 2.0 }), torch.tensor({ 2.0, 1.0 }) })
      near(w:detach(), { (by_hand(0.5, 0, { 1, 2 }, { 2, 1 }, 1, 0.1, 0.5)) })
    end)

    it("refuses a rule for a parameter that the step does not have", function()
      local w = torch.tensor({ 0.5 })
      w.requires_grad = true
      local step, spec = line(w, { lr = 0.1, momentum = 0.5 })
      spec.optimizer.names = { "u" }
      raises("ValueError", "'u'", function()
        session.open(step, spec)
      end)
    end)
  end)

  describe("beside another that has the same tensor", function()
    local function pair()
      local s, w = training()
      local step = trace(function(a)
        return a * w
      end, { torch.empty(2) }, { parameter = { w = w } })
      return s, w, session.open(step, { compile = {}, tensors = { parameter = { w = w } } })
    end

    it("takes what somebody else wrote only when it is uploaded, also after that", function()
      local s, w, other = pair()
      local one = torch.ones(2)
      s:run({ torch.tensor({ 1.0, 2.0 }), torch.tensor({ 2.0, 1.0 }) })
      local want = by_hand(0.5, 0, { 1, 2 }, { 2, 1 }, 1, 0.1, 0.5)
      near(other:run({ one })[1], { want, want })
      w.data:fill_(7)
      near(other:run({ one })[1], { want, want })
      other:upload()
      near(other:run({ one })[1], { 7, 7 })
    end)

    it("runs with what the other has trained", function()
      local s, w, other = pair()
      local one = torch.ones(2)
      near(other:run({ one })[1], { 0.5, 0.5 })
      s:run({ torch.tensor({ 1.0, 2.0 }), torch.tensor({ 2.0, 1.0 }) })
      local want = by_hand(0.5, 0, { 1, 2 }, { 2, 1 }, 1, 0.1, 0.5)
      near(other:run({ one })[1], { want, want })
      near(w:detach(), { want })
    end)

    it("keeps what it trained when the device is given back", function()
      local s, w = pair()
      s:run({ torch.tensor({ 1.0, 2.0 }), torch.tensor({ 2.0, 1.0 }) })
      s:settle()
      assert.is_false(s:download_newer())
      s:close()
      near(w:detach(), { (by_hand(0.5, 0, { 1, 2 }, { 2, 1 }, 1, 0.1, 0.5)) })
    end)

    it("loses what it trained when the host's values overwrite it", function()
      local s, w = pair()
      local x, t = torch.tensor({ 1.0, 2.0 }), torch.tensor({ 2.0, 1.0 })
      s:run({ x, t })
      s:overwrite()
      near(w:detach(), { 0.5 })
      near(s:run({ x, t })[1], { 0.5, 1 })
    end)
  end)
end)
