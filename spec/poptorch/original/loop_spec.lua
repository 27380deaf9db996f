-- PopTorch's tests of for_loop (tests/loop_test.py), and where it may stand.
local poptorch = require("poptorch")
local torch = require("torch")
local errors = require("lupine.base.errors")
local nn = torch.nn

local function module(forward, init)
  local Net = nn.Module:extend("Net")
  Net.init = init
  Net.forward = function(self, ...)
    return forward(self, ...)
  end
  return Net()
end

local function infer(forward, init, options)
  return poptorch.inferenceModel(module(forward, init), options)
end

local function fails(class, message, fn, ...)
  local ok, e = pcall(fn, ...)
  assert(not ok, "no error")
  assert(errors[class]:is(e), tostring(e))
  assert(tostring(e):find(message, 1, true), tostring(e))
end

describe("loop", function()
  it("test_loop_constant", function()
    local model = infer(function(_, x)
      return poptorch.for_loop(10, function(v) return v * 2 end, { x })[1]
    end)
    assert.equal(1024, model(torch.tensor({ 1.0 })):item())
  end)

  it("test_loop_simple", function()
    local model = infer(function(_, x, y)
      return poptorch.for_loop(10, function(v) return v * y end, { x })[1]
    end)
    assert.equal(1024, model(torch.tensor({ 1.0 }), torch.tensor({ 2.0 })):item())
  end)

  it("test_loop_multiple_inputs", function()
    local function body(x, y, z, w)
      return x * y, y + z, x * w, w + 1
    end
    local model = infer(function(_, x, y, z, w)
      return poptorch.for_loop(10, body, { x, y, z, w })
    end)
    local t = {}
    for i = 1, 4 do
      t[i] = torch.tensor({ i * 0.1 })
    end
    local got = model(table.unpack(t))
    for _ = 1, 10 do
      t = { body(table.unpack(t)) }
    end
    for i = 1, 4 do
      assert.equal(t[i]:item(), got[i]:item())
    end
  end)

  it("test_loop_non_tensor_in", function()
    local x, y = torch.tensor({ 1.0 }), torch.tensor({ 2.0 })
    local function body(a, b) return a * b, b + 1 end
    local element = infer(function(_, a) return poptorch.for_loop(10, body, { a, 5 }) end)
    fails("ValueError", "(Object contained in list at index 1 is not torch.tensor)", element, x, y)
  end)

  it("test_loop_non_list_in", function()
    local x, y = torch.tensor({ 1.0 }), torch.tensor({ 2.0 })
    local function body(a) return a * y end
    local whole = infer(function(_, a) return poptorch.for_loop(10, body, a) end)
    fails("ValueError", "(Object is not list)", whole, x, y)
    fails("ValueError", "(Object is not list)", poptorch.for_loop, 10, body, x)
  end)

  it("test_loop_weights", function()
    local model = module(function(self, x)
      return poptorch.for_loop(2, function(v)
        local act = self.layer1(v):reshape(1, 4, 8, 8)
        return self.layer2(act):flatten()
      end, { x })[1]
    end, function(self)
      self.layer1 = nn.Linear(1, 256)
      self.layer2 = nn.Conv2d(4, 1, { 8, 8 })
    end)
    local x = torch.tensor({ 1.0 })
    torch.testing.assert_close(poptorch.inferenceModel(model)(x), model(x):detach())
  end)

  it("test_loop_weights_use_twice", function()
    local twice = module(function(self, v)
      return poptorch.for_loop(2, function(u) return self.layer1(self.layer1(u)) end, { v })[1]
    end, function(self)
      self.layer1 = nn.Linear(4, 4)
    end)
    local ones = torch.ones({ 1, 4 })
    torch.testing.assert_close(poptorch.inferenceModel(twice)(ones), twice(ones):detach())
  end)

  it("test_loop_use_output", function()
    local model = infer(function(_, x)
      local out = poptorch.for_loop(2, function(v) return v + v end, { x })[1]
      return out, poptorch.identity_loss(out, "sum")
    end)
    local out, loss = model(torch.ones({ 1, 4 }))
    assert.same({ 4, 16 }, { out[0][3]:item(), loss:item() })
  end)

  it("test_loop_training", function()
    local net = module(function(self, x)
      local out = poptorch.for_loop(2, function(v) return self.layer1(v) end, { x })[1]
      return out, poptorch.identity_loss(out, "sum")
    end, function(self)
      self.layer1 = nn.Linear(4, 4)
    end)
    fails("Error", "poptorch.for_loop() is only supported in inference",
      poptorch.trainingModel(net), torch.ones({ 1, 4 }))
  end)

  -- What becomes of ones and what the loop gives: x grows by one before or
  -- after the loop, the body's own copy `times` a round.
  local function run(before, times, after)
    local model = infer(function(_, x)
      if before then
        x:add_(1)
      end
      local z = poptorch.for_loop(3, function(y)
        for _ = 1, times do
          y:add_(1)
        end
        return y
      end, { x })[1]
      if after then
        x:add_(1)
      end
      return z
    end)
    local x = torch.ones({ 1, 5 }, { dtype = torch.int32 })
    local out = model(x)
    return x[0][4]:item(), out[0][4]:item()
  end

  it("test_loop_body_inplace_ops_1", function()
    assert.same({ 1, 4 }, { run(false, 1) })
  end)

  it("test_loop_body_inplace_ops_2", function()
    assert.same({ 1, 7 }, { run(false, 2) })
  end)

  it("test_loop_body_inplace_ops_3", function()
    assert.same({ 2, 5 }, { run(true, 1) })
  end)

  it("test_loop_body_inplace_ops_4", function()
    assert.same({ 3, 5 }, { run(true, 1, true) })
  end)

  it("test_loop_with_constant_inputs_only", function()
    local model = infer(function()
      local t0 = torch.tensor({ 0.0, 0.0 }) + 8
      local out = poptorch.for_loop(5, function(x, y)
        x = x * 2
        return x, y * x
      end, { torch.tensor({ 1.0, 2.0 }), torch.tensor({ 3.0, 4.0 }) })
      return out[1], t0
    end)
    local a, b = model()
    assert.same({ 32, 64, 8 }, { a[0]:item(), a[1]:item(), b[1]:item() })
  end)

  it("test_loop_with_same_trip_count_on_multiple_ipus", function()
    local options = poptorch.Options()
    options:setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage("0"),
      poptorch.Stage("1")))
    local function add(x, y) return x + y, y end
    local model = infer(function(_, x, y)
      local v = { x, y }
      for i = 0, 1 do
        local _ <close> = poptorch.Block(tostring(i), { ipu_id = i })
        v = poptorch.for_loop(5, add, v)
      end
      return table.unpack(v)
    end, nil, options)
    local x = torch.tensor({ 1.0, 2.0 })
    assert(torch.equal(model(x, x), x * 11))
  end)

  it("lies in one block", function()
    local options = poptorch.Options()
    options:setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage("0"),
      poptorch.Stage("1")))
    local model = infer(function(_, x)
      local _ <close> = poptorch.Block("0", { ipu_id = 0 })
      return poptorch.for_loop(5, function(v)
        poptorch.Block.start("1", 1)
        return v + 1
      end, { x })[1]
    end, nil, options)
    fails("Error", "lies where that stands", model, torch.ones({ 2 }))
  end)

  it("lies in one phase", function()
    local core, control = require("lupine.core"), require("lupine.control")
    local trace = core.trace()
    local v = trace:declare("input", "x", nil, { 2 }, torch.float32)
    fails("Error", "lies where that stands", function()
      trace:run(false, function()
        trace:origin({ ipu = 0, stage = 0, phase = 0 })
        return control.loop(2, function(x)
          trace:origin({ ipu = 0, stage = 0, phase = 1 })
          return x + 1
        end, { v })
      end)
    end)
  end)

  it("is a Lua loop on the host", function()
    local x = torch.ones({ 2 }):requires_grad_(true)
    local out = poptorch.for_loop(3, function(v) return v * 2 end, { x })
    assert.equal(1, #out)
    out[1]:sum():backward()
    assert.same({ 8, 8 }, { out[1][0]:item(), x.grad[0]:item() })
  end)

  it("takes its arguments by name", function()
    local out = poptorch.for_loop({ count = 2, body = function(v) return v + 1 end,
      inputs = { torch.zeros({ 1 }) } })
    assert.equal(2, out[1]:item())
  end)
end)
