--- PopTorch's rules of its own operators and of PyTorch's on the device, a numbered
--- case each.
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = nn.functional

local near, raises = helper.near, helper.raises
local for_loop, infer = poptorch.for_loop, device.infer

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

-- `body` is no part of a training model.
local function no_training(body)
  local module = models.of(function(self, x)
    return poptorch.identity_loss(body(x * self.w), "sum")
  end)
  module.w = nn.Parameter(torch.ones(1))
  raises("Error", "inference", function()
    poptorch.trainingModel(module)(torch.ones(2))
  end)
end

describe("conformance, loops and branches:", function()
  it("OPS01 a loop, with a tensor from outside", function()
    near(infer(function(x)
      return for_loop(10, function(v) return v * 2 end, { x })[1]
    end)(vec(1)), { 1024 })
    near(infer(function(x, y)
      return for_loop(10, function(v) return v * y end, { x })[1]
    end)(vec(1), vec(2)), { 1024 })
  end)

  it("OPS03 what a loop refuses", function()
    local function same(v) return v end
    raises("ValueError", "list", infer(function(x) return for_loop(2, same, x) end), vec(1))
    raises("ValueError", "index 1", function()
      infer(function(x) return for_loop(2, function(a, b) return a, b end, { x, 5 }) end)(vec(1))
    end)
    no_training(function(x) return for_loop(2, same, { x })[1] end)
  end)

  it("OPS04 the body has a copy of its own", function()
    for times, want in ipairs({ 4, 7 }) do
      local x = torch.ones(1, 5)
      near(infer(function(v)
        return for_loop(3, function(y)
          for _ = 1, times do
            y:add_(1)
          end
          return y
        end, { v })[1]
      end)(x), torch.full({ 1, 5 }, want))
      near(x, torch.ones(1, 5))
    end
  end)

  it("OPS06 constants in and beside a loop", function()
    local x, beside = infer(function()
      local none = torch.zeros(2) + 8
      return for_loop(5, function(v, y)
        v = v * 2
        return v, y * v
      end, { vec(1, 2), vec(3, 4) })[1], none
    end)()
    near(x, { 32, 64 })
    near(beside, { 8, 8 })
  end)

  it("OPS07 loops on two sharded IPUs", function()
    local options = poptorch.Options():setExecutionStrategy(
      poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu))
    near(infer(function(x, y)
      local function add(u, v) return u + v, v end
      local values = { x, y }
      for i = 0, 1 do
        local _ <close> = poptorch.Block({ ipu_id = i })
        values = for_loop(5, add, values)
      end
      return values[1]
    end, options)(vec(1, 2), vec(3, 5)), { 31, 52 })
  end)

  it("OPS09 branches in branches", function()
    local function f(c, n, x, y)
      local cond = poptorch.cond
      local function call()
        return cond(c, function(a, b)
          return cond(n, function(p, q) return p + q end, { a, b },
            function(p, q) return p - q end, { a, b })[1]
        end, { x, y }, function(a, b)
          return cond(n, function(p) return p * 2 end, { a },
            function(p, q) return p * q end, { a, b })[1]
        end, { x, y })[1]
      end
      return call() + call()
    end
    local model, x, y = infer(f), vec(3, 5), vec(7, 2)
    for _, case in ipairs({ { true, true, (x + y) * 2 }, { true, false, (x - y) * 2 },
      { false, false, x * y * 2 }, { false, true, x * 4 } }) do
      local c, n = torch.tensor({ case[1] }), torch.tensor({ case[2] })
      near(model(c, n, x, y), case[3])
      near(f(c, n, x, y), case[3])
    end
  end)

  it("OPS10 branches of different operands, in inference", function()
    local model = infer(function(c, x, y)
      return poptorch.cond(c, function(a) return a end, { x }, function(a, b) return a * b end,
        { x, y })[1]
    end)
    near(model(torch.tensor({ true }), vec(3), vec(4)), { 3 })
    near(model(torch.tensor({ false }), vec(3), vec(4)), { 12 })
    no_training(function(x)
      return poptorch.cond(x:sum():gt(0), function(a) return a end, { x },
        function(a) return -a end, { x })[1]
    end)
  end)
end)

local EIGHT = vec(2, 2, 3, 4, 5, 6, 7, 8)

local function slice(start, size, step)
  return infer(function(x, at)
    return poptorch.dynamic_slice(x, 0, at, size, step)
  end)(EIGHT, torch.tensor({ start }))
end

local function update(src, start, size)
  return infer(function(x, s, at)
    return poptorch.dynamic_update(x, s, 0, at, size)
  end)(EIGHT, src, torch.tensor({ start }))
end

describe("conformance, operators of its own:", function()
  it("OPS11 dynamic_slice and its steps", function()
    for step, want in ipairs({ { 2, 3, 4, 5 }, { 2, 4 }, { 2, 5 } }) do
      near(slice(1, 4, step), want)
    end
  end)

  it("OPS13 sizes that cannot be", function()
    for size, words in pairs({ [0] = "different", [-2] = "", [7] = "factor" }) do
      raises("Error", words, function() slice(1, size, 1) end)
      if size ~= 7 then
        raises("Error", words, function() update(vec(1), 1, size) end)
      end
    end
  end)

  it("OPS14 dynamic_update", function()
    near(update(vec(-1), 1, 1), { 2, -1, 3, 4, 5, 6, 7, 8 })
    near(update(vec(-1, -1, -1, -1), 1, 4), { 2, -1, -1, -1, -1, 6, 7, 8 })
  end)

  it("OPS16 serializedMatMul is matmul", function()
    local Mode = poptorch.MatMulSerializationMode
    local x, y = torch.randn(1, 10, 200), torch.randn(200, 45)
    local want = torch.matmul(x, y)
    for size, mode in pairs({ [10] = Mode.InputChannels, [200] = Mode.ReducingDim,
      [45] = Mode.OutputChannels }) do
      for _, factor in ipairs({ 2, 5, 10 }) do
        local model = infer(function(a, b)
          return poptorch.serializedMatMul(a, b, mode, factor)
        end)
        if size % factor == 0 then
          near(model(x, y), want, { 1e-4, 1e-4 })
        else
          raises("Error", "factor", function() model(x, y) end)
        end
      end
    end
  end)

  it("OPS17 what MultiConv refuses", function()
    raises("Error", "Nested", function()
      infer(function(x)
        return poptorch.MultiConv(function()
          return poptorch.MultiConv(function() return x end)
        end)
      end)(vec(1))
    end)
    raises("Error", "convolution", function()
      infer(function(x)
        return poptorch.MultiConv(function() return x + 1 end)
      end)(vec(1))
    end)
    local scope = poptorch.MultiConv()
    raises("ValueError", "half", function() scope:partialsTypes("half") end)
    raises("AssertionError", "parallel", function() scope:planType("parallel") end)
  end)

  it("OPS19 the decoder's sizes", function()
    local p, n, path = infer(function(x, l)
      return poptorch.ctc_beam_search_decoder(x, l, { top_paths = 1 })
    end)(torch.randn(9, 3, 10), torch.randint(5, 9, { 3 }, { dtype = torch.int32 }))
    local got = {}
    for i, t in ipairs({ p, n, path }) do
      got[i] = { table.unpack(t.shape) }
    end
    assert.same({ { 3, 1 }, { 3, 1 }, { 3, 1, 9 } }, got)
  end)

  it("OPS28 recomputationCheckpoint and nop", function()
    local check = poptorch.recomputationCheckpoint
    local model = infer(function(a, b)
      local one = check(a)
      local two, three = check(a, b)
      local list = check({ a, b })
      assert.equal(2, #list)
      return one, two, three, list[1], list[2]
    end)
    local got = { model(vec(1), vec(2)) }
    for i, want in ipairs({ 1, 1, 2, 1, 2 }) do
      near(got[i], { want })
    end
    raises("ValueError", "", function() check(5) end)
    raises("Error", "", function() poptorch.nop(5) end)
  end)

  it("OPS29 set_available_memory", function()
    raises("Error", "", function() poptorch.set_available_memory(5, 0.5) end)
    local x = torch.randn(256, 256)
    local function product(proportion)
      local model = infer(function(v)
        return poptorch.set_available_memory(torch.matmul(v, v), proportion)
      end)
      return model(x), model:report().cycles
    end
    local bound, more = product(0.01)
    local free, fewer = product(0.9)
    near(bound, free, helper.exact)
    near(bound, torch.matmul(x, x), { 1e-3, 1e-4 })
    assert.is_true(more > fewer)
  end)
end)

-- Which class of error each wrong argument has: {class, function, arguments…}.
describe("an argument that an operator cannot take is an error of the class", function()
  local x, at, one = torch.ones(4), torch.tensor({ 0 }), torch.ones(1)
  local function same(v) return v end
  local list = { x }
  local REFUSED = {
    AssertionError = {
      { poptorch.identity_loss, x }, { poptorch.NameScope, 5 },
      { poptorch.serializedMatMul, x, x, "none" },
      { poptorch.serializedMatMul, x, x, poptorch.MatMulSerializationMode.Disabled, "2" },
      { poptorch.serializedMatMul, x, x, poptorch.MatMulSerializationMode.Disabled, 1, 1 },
    },
    ValueError = {
      { for_loop, 2, same, x }, { for_loop, 2, same, { x, 5 } },
      { poptorch.cond, one, same, x, same, list }, { poptorch.cond, one, same, list, same, x },
      { poptorch.recomputationCheckpoint, 5 }, { poptorch.recomputationCheckpoint, { x, 5 } },
      { poptorch.custom_op, list, "Cube", "com.acme", 1, list, { [1] = 2 } },
      { poptorch.custom_op, list, "Cube", "com.acme", 1, list, { a = { 1, "b" } } },
      { poptorch.custom_op, list, "Cube", "com.acme", 1, list, { a = same } },
      { poptorch.custom_op, list, "Cube", "com.acme", 1, list, { a = "\u{e9}" } },
      { poptorch.custom_op, list, "Cube", "com.acme", 1, list, { ["\u{e9}"] = 1 } },
    },
    Error = {
      { poptorch.nop, 5 }, { poptorch.ipu_print_tensor, 5 },
      { poptorch.set_available_memory, 5, 0.5 },
      { poptorch.ctc_beam_search_decoder, 5, at }, { poptorch.ctc_beam_search_decoder, x, 5 },
      { poptorch.ctc_beam_search_decoder, torch.ones(2, 3), at },
      { poptorch.dynamic_slice, x, 0, x["0:1"], 2, 1 }, { poptorch.dynamic_slice, x, 0, 1, 2, 1 },
      { poptorch.dynamic_slice, x, "0", at, 2, 1 }, { poptorch.dynamic_slice, x, 0, at, 2.5, 1 },
      { poptorch.dynamic_slice, x, 0, at, 2, 0 }, { poptorch.dynamic_slice, x, 0, at, 2, "1" },
      { poptorch.dynamic_update, x, torch.ones(1, 2), 0, at, 2 },
      { poptorch.dynamic_update, x, torch.ones(2):int(), 0, at, 2 },
      { poptorch.set_overlap_for_input, 5, poptorch.OverlapMode.NoOverlap },
    },
  }
  for class, cases in pairs(REFUSED) do
    it(class, function()
      for i, case in ipairs(cases) do
        local ok, e = pcall(table.unpack(case, 1, 8))
        assert.is_false(ok, ("case %d raises nothing"):format(i))
        assert.equal(class, getmetatable(e).__name, ("case %d: %s"):format(i, tostring(e)))
      end
    end)
  end

  it("that MultiConv's settings have", function()
    local scope = poptorch.MultiConv()
    for _, case in ipairs({ { "AssertionError", "perConvReservedTiles", 1.5 },
      { "AssertionError", "cycleBackOff", "a" }, { "AssertionError", "planType", 1 },
      { "AssertionError", "availableMemoryProportions", "a" },
      { "ValueError", "enableConvDithering", 1 }, { "ValueError", "partialsTypes", 5 },
      { "ValueError", "enableConvDithering", { true, 1 } } }) do
      raises(case[1], "", function() scope[case[2]](scope, case[3]) end)
    end
  end)
end)

describe("conformance, operators of PyTorch:", function()
  it("OPS20 one_hot knows its classes", function()
    local x = torch.tensor({ 0, 3, 4, 1 })
    raises("Error", "one_hot", function() infer(function(v) return F.one_hot(v, -1) end)(x) end)
    device.same(function(v) return F.one_hot(v, 5) end, { x })
  end)

  -- PopTorch refuses linear and trilinear, which have a kernel here.
  it("OPS22 Upsample", function()
    for mode, size in pairs({ nearest = { 1, 2, 3, 4 }, bicubic = { 1, 2, 3, 4 },
      linear = { 1, 2, 3 }, trilinear = { 1, 2, 3, 4, 5 } }) do
      device.same(nn.Upsample({ scale_factor = 2, mode = mode }), { torch.randn(size) },
        { rtol = 1e-4, atol = 1e-5 })
    end
  end)

  it("OPS23 a mask is no index, but may be assigned to", function()
    local x = torch.randn(3, 4)
    raises("Error", "mask", function() infer(function(v) return v[v:gt(0)] end)(x) end)
    device.same(function(v)
      v[v:gt(0)] = 0
      return v
    end, { x })
  end)

  it("OPS25 sums and products of truths count as integers", function()
    local x = torch.tensor({ { 1.0, 2, 3 }, { 4, 5, 6 } })
    local y = torch.tensor({ { 1.0, 0, 3 }, { 4, 5, 6 } })
    local sum, rows, product = infer(function(a, b)
      local same = a:eq(b)
      return same:sum(), same:sum(1), same:prod(1)
    end)(x, y)
    assert.same({ torch.int32, torch.int32, torch.int32 }, { sum.dtype, rows.dtype, product.dtype })
    assert.same({ 5, { 2, 3 }, { 0, 1 } }, { sum:item(), rows:tolist(), product:tolist() })
  end)

  it("OPS26 activations at -1", function()
    for name, want in pairs({ relu = 0, elu = -0.632121, gelu = -0.158655, silu = -0.268941,
      selu = -1.111331, softplus = 0.313262, mish = -0.303401 }) do
      near(infer(F[name])(vec(-1)), { want }, { 2e-6, 0 })
    end
  end)
end)
