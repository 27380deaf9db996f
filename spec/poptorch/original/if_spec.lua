-- PopTorch's tests of cond (tests/if_test.py), those that it skips among them.
local poptorch = require("poptorch")
local torch = require("torch")
local errors = require("lupine.base.errors")
local nn = torch.nn

local function module(forward)
  local Net = nn.Module:extend("Net")
  Net.forward = function(_, ...)
    return forward(...)
  end
  return Net()
end

local function list(...)
  local first = ...
  return type(first) == "table" and first or { ... }
end

-- The results on both sides, on the host and on the device.
local function check(forward, yes, no, ...)
  local model = module(forward)
  local on_device = poptorch.inferenceModel(model)
  for _, case in ipairs({ { true, yes }, { false, no } }) do
    local c = torch.tensor({ case[1] })
    for _, run in ipairs({ model, on_device }) do
      local got, want = list(run(c, ...)), list(case[2])
      assert.equal(#want, #got)
      for i, w in ipairs(want) do
        torch.testing.assert_close(got[i], w)
      end
    end
  end
end

local function rand(...)
  return torch.rand({ ... })
end

describe("if", function()
  it("test_constants", function()
    check(function(c)
      return poptorch.cond(c, function() return torch.tensor({ 0.0 }) end, {},
        function() return torch.tensor({ 1.0 }) end, {})[1]
    end, torch.tensor({ 0.0 }), torch.tensor({ 1.0 }))
  end)

  it("test_operations_on_constants", function()
    check(function(c)
      local x, y = torch.tensor({ 1.0, 2.0 }), torch.tensor({ 3.0, 4.0 })
      return poptorch.cond(c, function(a, b)
        a = a * 2
        return a * b
      end, { x, y }, function(a, b) return b + (a - 2) end, { x, y })[1]
    end, torch.tensor({ 6.0, 16.0 }), torch.tensor({ 2.0, 4.0 }))
  end)

  it("test_inplace_op", function()
    local x, y = torch.tensor({ 1.0 }), torch.tensor({ 10.0 })
    check(function(c, a, b)
      return poptorch.cond(c, function(v) return v:add_(v) end, { a }, function(v) return v end,
        { b })[1]
    end, torch.tensor({ 2.0 }), y, x, y)
    assert.equal(1, x:item())
  end)

  it("test_operation_expecting_constant", function()
    local constant, z = torch.tensor({ 1.1, 2.3 }), rand(4)
    check(function(c, v)
      local x = torch.tensor({ 1.1, 2.3 })
      return poptorch.cond(c, function(a, b) return a * (torch.topk(b, 2)) end, { x, v },
        function(a, b) return b["0:2"] + (a - 2) end, { x, v })[1]
    end, (torch.topk(z, 2)) * constant, z["0:2"] + (constant - 2), z)
  end)

  it("test_body_args", function()
    local x, y = rand(1), rand(1)
    check(function(c, a, b)
      return poptorch.cond(c, function(v)
        local out = v + v
        return out + out
      end, { a }, function(v) return v end, { b })[1]
    end, x * 4, y, x, y)
  end)

  it("says which body returns fewer tensors than which, or others", function()
    local x = torch.ones(2)
    local function refused(second, message)
      local model = poptorch.inferenceModel(module(function(c, a, b)
        return poptorch.cond(c, function(p, q) return p, q end, { a, b }, second, { a, b })[1]
      end))
      local ok, e = pcall(model, torch.tensor({ true }), x, x)
      assert.is_false(ok)
      assert.matches(message, e.message, 1, true)
    end
    refused(function(p) return p end, "poptorch.cond: else_body returns 1 tensor, expected 2, as "
      .. "many as results of then_body")
    refused(function(p, q) return p, q:int() end, "result 1 of else_body is a torch.int32 "
      .. "torch.Size([2]) tensor, expected torch.float32 torch.Size([2]), as results of then_body")
  end)

  it("test_cond_training", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.layer1 = nn.Linear(4, 4)
    end
    function Net:forward(c, x)
      local function body(v) return self.layer1(v) end
      local out = poptorch.cond(c, body, { x }, body, { x })[1]
      return out, poptorch.identity_loss(out, "sum")
    end
    local ok, e = pcall(poptorch.trainingModel(Net()), torch.tensor({ true }), torch.ones({ 1, 4 }))
    assert(not ok and errors.Error:is(e), tostring(e))
    assert(tostring(e):find("poptorch.cond() is only supported in inference", 1, true), tostring(e))
  end)

  it("test_multi_outs", function()
    local x, y = rand(1), rand(1)
    check(function(c, a, b)
      return poptorch.cond(c, function(v) return v, a + b, b end, { a },
        function(v) return v * b, b, a - b end, { b })
    end, { x, x + y, y }, { y * y, y, x - y }, x, y)
  end)

  it("test_diff_num_of_args", function()
    local x, y = rand(1), rand(1)
    check(function(c, a, b)
      return poptorch.cond(c, function(p, q) return p + q end, { a, b },
        function(p) return p end, { a })[1]
    end, x + y, x, x, y)
  end)

  it("test_args_from_main_graph", function()
    local x, y = rand(1), rand(1)
    check(function(c, a, b)
      return poptorch.cond(c, function() return a * b end, {}, function() return a end, {})[1]
    end, x * y, x, x, y)
  end)

  it("test_call_outer_body", function()
    local x, y = rand(1), rand(1)
    check(function(c, a, b)
      local function outer() return a + b end
      return poptorch.cond(c, function() return outer() end, {}, function() return a end, {})[1]
    end, x + y, x, x, y)
  end)

  it("test_args_internal", function()
    local x = torch.tensor({ 5.0, -1.0 })
    check(function(c, v)
      local one = torch.tensor({ 10.0, -10.0 })
      return poptorch.cond(c, function(a, b) return v + a + b end,
        { one, torch.tensor({ 0.0, -2.0 }) }, function(a) return a + v end, { one })[1]
    end, torch.tensor({ 15.0, -13.0 }), torch.tensor({ 15.0, -11.0 }), x)
  end)

  it("test_single_body", function()
    local x, y = rand(1), rand(1)
    check(function(c, a, b)
      local function body(p, q) return p + q end
      return poptorch.cond(c, body, { a, b }, body, { a, a })[1]
    end, x + y, x + x, x, y)
  end)

  it("test_nested_cond", function()
    local function forward(c, nested, x, y)
      local function yes()
        return poptorch.cond(nested, function(a, b) return a + b end, { x, y },
          function() return x - y end, {})[1]
      end
      local function no(inner)
        return poptorch.cond(torch.logical_not(inner), function(b) return x * b end, { y },
          function() return x * 2 end, {})[1]
      end
      return poptorch.cond(c, yes, {}, no, { nested })[1]
        + poptorch.cond(c, yes, {}, no, { nested })[1]
    end
    local x, y = rand(1), rand(1)
    check(forward, (x + y) * 2, x * 4, torch.tensor({ true }), x, y)
    check(forward, (x - y) * 2, x * y * 2, torch.tensor({ false }), x, y)
  end)

  it("test_if_on_multiple_ipus", function()
    local x, y = torch.tensor({ 1.0, 2.0 }), torch.tensor({ 3.0, 4.0 })
    for _, name in ipairs({ "ShardedExecution", "ParallelPhasedExecution",
      "SerialPhasedExecution" }) do
      local options = poptorch.Options():autoRoundNumIPUs(true)
      options:setExecutionStrategy(poptorch[name](poptorch.Stage("0"), poptorch.Stage("1")))
      local function yes(a, b) return a + b, b end
      local function no(a, b) return a, a * b end
      local model = poptorch.inferenceModel(module(function(c, a, b)
        local v = { a, b }
        for i = 0, 1 do
          local _ <close> = poptorch.Block(tostring(i), { ipu_id = i })
          v = poptorch.cond(i == 0 and c or torch.logical_not(c), yes, v, no, v)
        end
        return v
      end), options)
      local got = model(torch.tensor({ true }), x, y)
      assert(torch.equal(got[1], x + y), name)
      assert(torch.equal(got[2], (x + y) * y), name)
    end
  end)

  it("takes lists of tensors", function()
    local x = rand(1)
    local function id(v) return v end
    local ok, e = pcall(poptorch.cond, torch.tensor(true), id, x, id, { x })
    assert(not ok and errors.ValueError:is(e))
    assert(tostring(e):find("poptorch.cond expects then_inps and else_inps", 1, true), tostring(e))
  end)
end)
