-- Results written over operands that die, or over variables: the values stay
-- those of eager calls.
local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local lupine = require("lupine")
local torch = require("torch")

-- What fn makes is read once more: it is no result, which would have memory of
-- its own.
local function same_as_eager(fn, inputs)
  local function negative(...)
    return torch.neg(fn(...))
  end
  local want = negative(table.unpack(inputs))
  local got = lupine.compile(negative, inputs)(table.unpack(inputs))
  helper.near(got, want:tolist(), helper.exact)
end

describe("an operator that may write over its first operand", function()
  local x, index = torch.arange(6.0):reshape({ 2, 3 }), torch.tensor({ { 2, 0, 0 }, { 1, 1, 2 } })

  it("does not write over another one of the same shape", function()
    same_as_eager(function(t, at)
      return torch.zeros({ 2, 3 }):scatter_add(1, at, t * 2)
    end, { x, index })
    same_as_eager(function(t, at)
      local zeros = torch.zeros({ 2, 3 })
      return zeros:scatter_add(1, at, t * 2) + zeros:scatter_add(1, at, t * 3)
    end, { x, index })
    same_as_eager(function(t)
      return torch.zeros({ 2, 3 }):slice_scatter(t * 2, 1, 0, 3)
    end, { x })
  end)

  it("does not when it reads it as another operand, too", function()
    same_as_eager(function(t, at)
      local y = t * 2
      return y:scatter_add(1, at, y)
    end, { x, index })
  end)
end)

describe("a buffer that is written", function()
  local SIDE = 300
  local x = torch.arange(SIDE * SIDE):reshape(SIDE, SIDE):float()

  -- fn(b, x) makes the new value of b; two runs, fused and not.
  local function same_buffer(fn)
    local want = x:flip(0) * 0.5
    for _ = 1, 2 do
      want = fn(want, x)
    end
    for _, fuse in ipairs({ true, false }) do
      local b = x:flip(0) * 0.5
      local step = compiled.step(function(t)
        b:copy_(fn(b, t))
        return t:sum()
      end, { x }, { { "buffer", "b", b } })
      step:complete({})
      local at = compiled.vars(step)
      local exec = step:compile({ fuse = fuse })
      for _ = 1, 2 do
        exec:run(compiled.feed(at, { x }), {})
      end
      helper.near(exec:read(at["buffer b"]), want, { 1e-4, 1e-4 })
    end
  end

  it("is not written while it is read turned or shifted", function()
    same_buffer(function(b) return b - b:t() end)
    same_buffer(function(b, t) return t - b:t() end)
    same_buffer(function(b) return torch.exp(b * -1e-4) - b:t() end)
    same_buffer(function(b) return b - b["0:1"] end)
    same_buffer(function(b) return b:t() end)
    same_buffer(function(b) return b["150"]:expand(SIDE, SIDE) end)
    same_buffer(function(b, t) return t - b[":, 0:1"] end)
  end)

  it("is not written by an operator that reads it otherwise than element on element", function()
    same_buffer(function(b, t) return b:matmul(t * 1e-6) end)
    same_buffer(function(b, t) return (t * 1e-6):matmul(b) end)
    same_buffer(function(b, t) return b:gather(0, (t % SIDE):long()) end)
    same_buffer(function(b) return b:flip(0) end)
  end)
end)

describe("buffers that receive each other's values", function()
  it("or parts of them do not overwrite what is still to be copied", function()
    local start = torch.arange(12):float()
    local a, b, c = start:clone(), start * 10, start * 100
    local function turn()
      local x, y, z = a:clone(), b:clone(), c:clone()
      a:copy_(torch.cat({ y["6:12"], x["0:6"] }, 0))
      b:copy_(z:reshape(3, 4):t():flatten())
      c:copy_(x)
    end
    local step = compiled.step(function(t)
      turn()
      return t:sum()
    end, { start }, { { "buffer", "a", a }, { "buffer", "b", b }, { "buffer", "c", c } })
    step:complete({})
    local at = compiled.vars(step)
    local exec = step:compile({})
    for _ = 1, 3 do
      exec:run(compiled.feed(at, { start }), {})
      turn() -- the tensors themselves
    end
    for name, want in pairs({ a = a, b = b, c = c }) do
      assert.is_true(compiled.same_bits(exec:read(at["buffer " .. name]), want), name)
    end
  end)
end)

describe("a value that is read twice by its last reader", function()
  it("lends its memory", function()
    local x = torch.randn(64, 64)
    local function fn(t)
      local y = t:exp()
      return torch.tanh(y * y)
    end
    local got, exec = compiled.run(fn, { x }, { fuse = false })
    assert.is_true(compiled.same_bits(got[1], fn(x)))
    assert.equal(64 * 64 * 4, exec:stats().micro_arena_bytes)
  end)
end)
