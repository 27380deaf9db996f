-- poptorch.CPU beyond PopTorch's own tests: where a call may stand, how often it
-- is made, what goes wrong in it, and what it costs.
local core = require("lupine.core")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local report = require("lupine.report")
local session = require("lupine.session")
local torch = require("torch")
local models = require("spec.support.models")
local nn = torch.nn

local function model(fn, forward, id)
  local Model = nn.Module:extend("Model")
  function Model:init()
    self.fc = nn.Linear(2, 2)
    self.cpu = poptorch.CPU(fn, id or "op")
  end
  Model.forward = forward or function(self, x)
    return self.cpu(x)
  end
  return Model()
end

local function infer(fn, forward, options)
  return poptorch.inferenceModel(model(fn, forward), options)
end

-- The session that `make` opens.
local function opened(make)
  local open, got = session.open, nil
  session.open = function(...)
    got = open(...)
    return got
  end
  local ok, e = pcall(make)
  session.open = open
  assert(ok, e)
  return got
end

local x = torch.tensor({ { 1.0, 2 }, { 3, 4 } })

describe("a CPU op", function()
  it("runs once with zeros while the model is traced, then in every call", function()
    local seen = {}
    local inference = infer(function(a)
      seen[#seen + 1] = a:clone()
      return a + 1
    end)
    helper.near(inference(x), x + 1)
    helper.near(inference(x * 2), x * 2 + 1)
    assert.equal(3, #seen)
    helper.near(seen[1], torch.zeros(2, 2))
    helper.near(seen[2], x)
    helper.near(seen[3], x * 2)
  end)

  it("runs for each micro-batch of each replica, one after the other", function()
    local order = {}
    local options = poptorch.Options():deviceIterations(3):replicationFactor(2)
    local inference = infer(function(a)
      order[#order + 1] = a:sum():item()
      return a * 10
    end, nil, options)
    local data = torch.arange(6):to(torch.float32):reshape(6, 1)
    helper.near(inference(data), data * 10)
    assert.same({ 0, 0, 1, 2, 3, 4, 5 }, order)
  end)

  it("never runs on two threads, where replicas could run side by side", function()
    local threads <close> = setmetatable({ torch.get_num_threads() }, { __close = function(t)
      torch.set_num_threads(t[1])
    end })
    torch.set_num_threads(math.max(threads[1], 4))
    local calls, running = 0, 0
    local inference = infer(function(a)
      running = running + 1
      assert.equal(1, running)
      for i = 1, 200 do
        a:add_(i):sub_(i)
      end
      calls, running = calls + 1, running - 1
      return a * 10
    end, nil, poptorch.Options():deviceIterations(50):replicationFactor(4))
    local data = torch.arange(200):float():reshape(200, 1)
    helper.near(inference(data), data * 10)
    assert.equal(201, calls)
  end)

  it("mixes with others over two device iterations, replicas and stages", function()
    local m = model(function(a) return a * 2 end, function(self, a)
      local b
      do
        local _ <close> = poptorch.Block("one", { ipu_id = 0 })
        b = self.cpu(self.fc(a))
      end
      local _ <close> = poptorch.Block("two", { ipu_id = 1 })
      return self.cpu(self.other(b:relu(), a)), b
    end)
    m.other = poptorch.CPU(function(a, b) return a - b end, "other")
    local data = torch.randn(8, 2)
    local options = poptorch.Options():deviceIterations(2):replicationFactor(2)
    local got, inner = poptorch.inferenceModel(m, options)(data)
    local want, other = m(data)
    helper.near(got, want:detach())
    helper.near(inner, other:detach())
  end)

  it("may stand between layers, on several IPUs, in a loop, in a branch", function()
    local function forward(self, a)
      local b
      do
        local _ <close> = poptorch.Block("one", { ipu_id = 0 })
        b = self.cpu(self.fc(a))
      end
      local _ <close> = poptorch.Block("two", { ipu_id = 1 })
      b = poptorch.for_loop(3, function(c)
        return self.cpu(c)
      end, { b })[1]
      return poptorch.cond(b:sum():gt(1e9), function(c)
        return c
      end, { b }, function(c)
        return self.cpu(c)
      end, { b })[1]
    end
    local n = 0
    local m = model(function(a)
      n = n + 1
      return a * 2
    end, forward)
    local options = poptorch.Options():deviceIterations(2)
    local both = torch.cat({ x, x + 1 })
    local want = m.fc(both):detach() * 32
    helper.near(poptorch.inferenceModel(m, options)(both), want)
    assert.equal(3 + 2 * 5, n)
  end)

  it("runs as often as it is called, in this order, whatever uses its results", function()
    local seen = {}
    local options = poptorch.Options():deviceIterations(2):replicationFactor(4)
    local inference = infer(function(a)
      seen[#seen + 1] = a:sum():item()
      return a
    end, function(self, a)
      self.cpu(a)
      self.cpu(a)
      self.cpu(torch.ones(1) * 100)
      return a + 1
    end, options)
    local data = torch.arange(8):to(torch.float32):reshape(8, 1)
    inference:compile(data)
    seen = {}
    helper.near(inference(data), data + 1)
    local want = {}
    for i = 0, 7 do
      table.move({ i, i, 100 }, 1, 3, #want + 1, want)
    end
    assert.same(want, seen)
  end)

  it("gives results of other sizes and types, as one list if it is one", function()
    local inference = infer(function(a)
      local values, order = a:sort(1, { descending = true })
      return { values[":, 0"], order, a:gt(2) }
    end, function(self, a)
      local list = self.cpu(a * 1)
      return list[1], list[2], list[3]
    end)
    local values, order, mask = inference(x)
    helper.near(values, { 2, 4 })
    assert.equal(torch.int32, order.dtype)
    assert.same({ { 1, 0 }, { 1, 0 } }, order:tolist())
    assert.same({ { false, false }, { true, true } }, mask:tolist())
  end)

  it("takes nothing, and integers as the device has them", function()
    local m = model(function() return torch.tensor({ 7.5 }) end, function(self, n)
      return n * self.cpu()
    end)
    helper.near(poptorch.inferenceModel(m)(torch.tensor({ 2 })), { 15 })
    local dtype
    infer(function(n)
      dtype = n.dtype
      return n
    end)(torch.tensor({ 2 }))
    assert.equal(torch.int32, dtype)
  end)

  it("gets tensors of its own, which it may keep and write", function()
    local kept = {}
    local inference = infer(function(a)
      kept[#kept + 1] = a
      a:add_(1)
      return a:t():contiguous():t()
    end, function(self, a)
      return self.cpu(a:t()), a
    end)
    local y, same = inference(x)
    helper.near(y, x:t() + 1)
    helper.near(same, x)
    inference(x * 0)
    helper.near(kept[2], x:t() + 1)
  end)

  it("may return what another model has trained, as it is there", function()
    local sum = models.Sum(1, 2)
    local training = poptorch.trainingModel(sum, nil, torch.optim.SGD(sum:parameters(),
      { lr = 1.0 }))
    local inference = infer(function() return sum.w end)
    inference:compile(torch.zeros(2))
    training(torch.ones(2))
    helper.near(inference(torch.zeros(2)), { 0, 1 })
  end)

  it("calls the function outside a trace, with whatever it is given", function()
    local m = model(function(a, b)
      return a .. b, 3
    end)
    local text, n = m.cpu("a", "b")
    assert.equal("ab", text)
    assert.equal(3, n)
    assert.equal("CPU('op')", tostring(m.cpu))
  end)

  it("has persistent data after a trace", function()
    local m = model(function(a)
      return a + 1
    end)
    helper.raises("Error", "no call of it has been traced", function()
      m.cpu:registerPersistentData()
    end)
    helper.raises("Error", "registerPersistentData first", function()
      m.cpu:execute()
    end)
    poptorch.inferenceModel(m)(x)
    m.cpu:registerPersistentData()
    helper.near(m.cpu.inputs[1], torch.zeros(2, 2))
    m.cpu.inputs[1]:copy_(x)
    m.cpu:execute()
    helper.near(m.cpu.outputs[1], x + 1)
  end)
end)

describe("a CPU op that fails", function()
  it("raises its own error, and the executor can be called again", function()
    local own = setmetatable({}, { __tostring = function() return "mine" end })
    local fail = false
    local inference = infer(function(a)
      if fail then
        error(own)
      end
      return a
    end, nil, poptorch.Options():deviceIterations(2))
    inference(x)
    fail = true
    local ok, e = pcall(inference, x)
    assert.is_false(ok)
    assert.equal(own, e)
    fail = false
    helper.near(inference(x), x)
  end)

  it("leaves buffers as they were", function()
    local fail = false
    local m = model(function(a)
      assert(not fail, "no")
      return a
    end, function(self, a)
      self.count:add_(1)
      return self.cpu(a)
    end)
    m:register_buffer("count", torch.zeros(1))
    local inference = poptorch.inferenceModel(m)
    inference(x)
    fail = true
    assert.has_error(function() inference(x) end)
    fail = false
    inference(x)
    inference:copyWeightsToHost()
    assert.equal(2, m.count:item())
  end)

  it("leaves the trace as it is to a forward that goes on", function()
    local fail = infer(function() error("no") end, function(self, a)
      local done, e = pcall(self.cpu, a)
      assert(not done and tostring(e):find("no"))
      return a * 2
    end)
    helper.near(fail(x), x * 2)
    helper.near(fail(x + 1), x * 2 + 2)
  end)

  it("ends the trace when it fails there, which can be tried again", function()
    local fail = true
    local inference = infer(function(a)
      assert(not fail, "not yet")
      return a
    end)
    local ok, e = pcall(inference, x)
    assert(not ok and tostring(e):find("not yet"), tostring(e))
    assert.is_false(core.is_tracing() or poptorch.isRunningOnIpu())
    fail = false
    helper.near(inference(x), x)
  end)
end)

describe("a CPU op is refused", function()
  local function refused(pattern, fn, forward, input)
    return helper.raises("Error", pattern, function()
      infer(fn, forward)(input or x)
    end)
  end

  it("in training models", function()
    local m = model(function(a) return a end, function(self, a)
      return poptorch.identity_loss(self.fc(self.cpu(a)), "sum")
    end)
    helper.raises("Error", "'op': CPU ops are only supported in inference", function()
      poptorch.trainingModel(m)(x)
    end)
  end)

  it("with arguments or results that are no tensors", function()
    local function same(a)
      return a
    end
    helper.raises("TypeError", "argument 1 is int 3", function()
      infer(same, function(self, a) return self.cpu(a, 3) end)(x)
    end)
    helper.raises("TypeError", "result 0 is int 3", function()
      infer(function() return 3 end)(x)
    end)
    refused("returned nothing", function() end)
    refused("returned nothing", function() return {} end)
  end)

  it("for results that are other ones than in the trace", function()
    for _, case in ipairs({
      { "as result 0; the program was compiled for a tensor float32 %[2, 2%]", function(a)
        return a[0]
      end },
      { "returned 2 results; the program was compiled for 1", function(a) return a, a end },
      { "compiled for a tensor float32", function(a) return a:to(torch.int32) end },
    }) do
      local traced
      local e = refused(case[1], function(a)
        if traced then
          return case[2](a)
        end
        traced = true
        return a
      end)
      assert(e.message:find("'op'", 1, true), e.message)
    end
  end)

  it("if two of a model have one ID, or it cannot be called", function()
    refused("two CPU ops of the model have the ID 'op'", function(a) return a end,
      function(self, a)
        local other = poptorch.CPU(function(b) return b end, "op")
        return other(self.cpu(a))
      end)
    helper.raises("TypeError", "expected a function or a module, got int 3", function()
      poptorch.CPU(3, "op")
    end)
    helper.raises("TypeError", "poptorch.CPU%(ID%)", function()
      poptorch.CPU(print, 3)
    end)
    helper.raises("ValueError", "zero byte", function()
      poptorch.CPU(print, "a\0b")
    end)
  end)

  it("where it would change the executor that runs it", function()
    local inference, what
    local m = model(function(a)
      if what then
        what(a)
      end
      return a
    end)
    inference = poptorch.inferenceModel(m)
    inference(x)
    for name, f in pairs({ call = function() inference(x) end,
      rng_state = function() inference.rng_state = { 1, 2 } end,
      load_state_dict = function() inference:load_state_dict(m:state_dict()) end,
      save = function() inference:save("file") end }) do
      what = f
      helper.raises("Error", "^" .. name .. ": the model is running: a CPU op may not change the "
        .. "executor that runs it", function() inference(x) end)
    end
    for _, name in ipairs({ "destroy", "detachFromDevice", "attachToDevice", "copyWeightsToHost",
      "copyWeightsToHostIfNeeded", "copyWeightsToDevice", "copyNamedBuffersToDevice",
      "setOptimizer", "loadExecutable", "compileAndExport" }) do
      what = function() inference[name](inference, "file") end
      helper.raises("Error", "^" .. name .. ": the model is running", function() inference(x) end)
      assert.is_true(inference:isAttachedToDevice())
    end
    local input = torch.ones(2, 2)
    what = function() input:resize_({ 1000, 1000 }):zero_() end
    helper.near(inference(input), torch.ones(2, 2))
    what = nil
    helper.near(inference(x), x)
  end)

  it("and loses no update of a buffer where it tries to", function()
    local Counter, inference = nn.Module:extend("Counter"), nil
    function Counter:init()
      self:register_buffer("count", torch.zeros(1))
      self.cpu = poptorch.CPU(function(a)
        if inference then
          assert.is_false((pcall(inference.detachFromDevice, inference)))
        end
        return a
      end, "counts")
    end
    function Counter:forward(a)
      self.count:add_(1)
      return self.cpu(a) + self.count
    end
    local executor = poptorch.inferenceModel(Counter())
    executor:compile(torch.zeros(1))
    inference = executor
    for i = 1, 3 do
      helper.near(executor(torch.zeros(1)), { i })
    end
  end)

  it("where it takes tensors of the trace around it", function()
    local outer
    helper.raises("RuntimeError", nil, function()
      infer(function(a) return a + outer end, function(self, a)
        outer = a * 2
        return self.cpu(a)
      end)(x)
    end)
    assert.is_false(core.is_tracing())
  end)
end)

describe("a program with CPU ops", function()
  local function double(a)
    return a * 2
  end

  it("prints, and what is printed is parsed and runs with functions by ID", function()
    local s = opened(function() infer(double)(x) end)
    local text = s.exec:step():text("step")
    assert(text:find('host_call([%1], id="op", types="float32[2, 2]")', 1, true), text)
    local step = core.step_parse(text)
    assert.equal(text, step:text("step"))
    local exec = step:compile({})
    local e = helper.raises("Error", "calls the host's function 'op', and there is no function",
      function() exec:answer({}) end)
    assert.equal("host_function", e.hint) -- of which a front end speaks
    local inputs, outputs = {}, nil
    for i, v in ipairs(step:vars()) do
      inputs[i] = v.role == "input" and x or nil
      outputs = v.role == "output" and i or outputs
    end
    helper.raises("RuntimeError", "no function of that name was given", function()
      exec:run(inputs, {})
    end)
    exec:answer({ op = function(list) return { list[1] * 5 } end })
    helper.near(exec:run(inputs, {})[outputs], x * 5)
    exec:answer(require("poptorch.cpu").functions_of(model(function(a) return a + 7 end)))
    helper.near(exec:run(inputs, {})[outputs], x + 7)
  end)

  it("holds its inputs while it runs, whatever a function does to them", function()
    local step = opened(function()
      infer(double, nil, poptorch.Options():deviceIterations(4))(torch.ones(4, 512))
    end).exec:step()
    local exec = core.step_parse(step:text("step")):compile({})
    local input, inputs, last, filler = torch.ones(4, 512), {}, nil, {}
    for i, v in ipairs(step:vars()) do
      inputs[i] = v.role == "input" and input or nil
      last = v.role == "output" and i or last
    end
    exec:answer({ op = function(list)
      input.data = torch.zeros(1)
      for i = 1, 8 do
        filler[i] = torch.full({ 4, 512 }, -1.0) -- takes the memory, if that is free
      end
      return list
    end })
    helper.near(exec:run(inputs, {})[last], torch.ones(4, 512))
    assert.equal(8, #filler)
  end)

  it("has the device's types of what its functions return", function()
    local s = opened(function()
      infer(function(a)
        return a:double(), a:argmax(1), a:gt(2)
      end)(x)
    end)
    local text = s.exec:step():text("step")
    assert(text:find('types="float32[2, 2], int32[2], bool[2, 2]"', 1, true), text)
  end)

  it("is asked for those in loops and branches, too", function()
    for _, forward in ipairs({ function(self, a)
      return poptorch.for_loop(3, function(b) return self.cpu(b) end, { a })[1]
    end, function(self, a)
      return poptorch.cond(a:sum():gt(0), function(b) return b end, { a },
        function(b) return self.cpu(b) end, { a })[1]
    end }) do
      local s = opened(function() infer(double, forward)(x) end)
      local exec = core.step_parse(s.exec:step():text("step")):compile({})
      helper.raises("Error", "calls the host's function 'op', and there is no function",
        function() exec:answer({}) end)
    end
  end)

  describe("of a file", function()
    local path

    local function filed(forward)
      return model(double, forward, "filed")
    end

    before_each(function()
      path = os.tmpname()
      poptorch.inferenceModel(filed()):compileAndExport(path, x, { export_model = false })
    end)

    after_each(function()
      os.remove(path)
    end)

    local function load(m)
      local inference = poptorch.inferenceModel(m)
      inference:loadExecutable(path)
      return inference
    end

    it("calls those of its own model", function()
      local m = filed(function(self, a) return self.inner.list[1].op(a) end)
      m.cpu = nil
      m.inner = nn.Module()
      m.inner.list = { { op = poptorch.CPU(function(a) return a * 3 end, "filed") } }
      local others = { filed(), filed() }
      helper.near(load(m)(x), x * 3)
      m.inner.other = poptorch.CPU(double, "filed")
      local e = helper.raises("Error", "several CPU ops of the model have the ID 'filed'",
        function() load(m) end)
      assert(e.message:find(path, 1, true), e.message)
      assert(others)
    end)

    it("calls the only one that there is, never one of several", function()
      local op = poptorch.CPU(function(a) return a * 5 end, "filed")
      local m = filed(function(_, a) return op(a) end)
      m.cpu = nil
      helper.near(load(m)(x), x * 5)
      local other <const> = filed()
      helper.raises("Error", "several CPU ops outside the model's fields have the ID 'filed'",
        function() load(m) end)
      assert(other)
    end)

    it("is refused where there is none", function()
      local m = filed(function(_, a) return a end)
      m.cpu = nil
      helper.raises("Error", "no function of that name %(make a poptorch.CPU with this ID before "
        .. "the program is loaded%)", function() load(m) end)
    end)
  end)

  it("says what is wrong in the types of a text", function()
    local s = opened(function() infer(double)(x) end)
    local text = s.exec:step():text("step")
    for _, types in ipairs({ "", "float32", "float32[2, 2] float32[2]", "float99[2]",
      "float32[2, 2],", "float32[-2]" }) do
      local ok, e = pcall(core.step_parse, (text:gsub('types="[^"]*"', function()
        return ('types="%s"'):format(types)
      end)))
      assert(not ok and tostring(e):find("host_call 'op': types", 1, true), tostring(e))
    end
  end)

  it("is replayed in the order of its schedule", function()
    local m = model(double, function(self, a)
      local b
      do
        local _ <close> = poptorch.Block("one", { ipu_id = 0 })
        b = self.cpu(self.fc(a))
      end
      local _ <close> = poptorch.Block("two", { ipu_id = 1 })
      return self.cpu(b)
    end)
    local both = torch.randn(6, 2)
    local out
    local s = opened(function()
      out = poptorch.inferenceModel(m, poptorch.Options():deviceIterations(3))(both)
    end)
    local step, inputs, last = s.exec:step(), {}, nil
    for i, v in ipairs(step:vars()) do
      inputs[i] = v.role == "input" and both or nil
      last = v.role == "output" and i or last
    end
    local calls = { op = function(list) return { list[1] * 2 } end }
    for _, order in ipairs({ "schedule", "micro_batches" }) do
      local got = report.replay(step, { strategy = "pipelined" }, inputs,
        { order = order, calls = calls })
      helper.near(got[last], out)
    end
    helper.raises("Error", "calls the host's function 'op'", function()
      report.replay(step, {}, inputs)
    end)
  end)

  it("pays for the bytes to the host and back, and a sync", function()
    local small = infer(double)
    local large = infer(double)
    small(torch.zeros(1, 1000))
    large(torch.zeros(1, 11000))
    local function call(inference)
      local list = inference:report().operators
      for _, op in ipairs(list) do
        if op.name == "host_call" then
          return op
        end
      end
    end
    local one, other = call(small), call(large)
    assert.equal(1, one.nodes)
    -- 10,000 floats more there and back, at the M2000's 20.2 GB/s to its host
    local seconds = 2 * 4 * 10000 / 20.2e9
    local cycles = seconds * small:report().clock_hz
    assert(math.abs(other.cycles - one.cycles - cycles) <= 2, other.cycles - one.cycles)
    assert(one.cycles > cycles / 10)
  end)

  it("stops at Ctrl-C within an operator behind the call", function()
    local out, err = program.interrupted([[
      local torch, poptorch = require("torch"), require("poptorch")
      io.stdout:setvbuf("line")
      local Net = torch.nn.Module:extend("Net")
      local running = false
      function Net:init()
        self.cpu = poptorch.CPU(function(x)
          local y = x * 1
          if running then
            print("running")
          end
          return y
        end, "op")
      end
      function Net:forward(x)
        return torch.special.legendre_polynomial_p(self.cpu(x), 1 << 40)
      end
      local model = poptorch.inferenceModel(Net())
      model:compile(torch.rand(1))
      running = true
      local ok, e = pcall(model, torch.rand(1))
      print(ok, torch.errors.KeyboardInterrupt:is(e))
    ]])
    assert.equal("running\nfalse\ttrue\n", out, err)
  end)

  it("stops at Ctrl-C in the function, and before it", function()
    local out, err = program.interrupted([[
      local torch, poptorch = require("torch"), require("poptorch")
      io.stdout:setvbuf("line")
      local Net = torch.nn.Module:extend("Net")
      local running = false
      function Net:init()
        self.cpu = poptorch.CPU(function(x)
          if running then
            print("running")
            while running do end
          end
          return x
        end, "op")
      end
      function Net:forward(x) return self.cpu(x) end
      local model = poptorch.inferenceModel(Net())
      local x = torch.ones(1)
      model(x)
      running = true
      local ok, e = pcall(model, x)
      print(ok, torch.errors.KeyboardInterrupt:is(e))
      running = false
      print(model(x):item())
    ]])
    assert.equal("running\nfalse\ttrue\n1.0\n", out, err)
  end)
end)
