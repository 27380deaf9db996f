-- Random chains of views, copies and writes that end in memory seen by strides
-- of the chain's own: compiled as in eager calls, with gradients.
local compile = require("lupine.compile")
local torch = require("torch")

local CHAINS, STEPS = 300, 7

-- Small linear congruential numbers: the same chains everywhere.
local function numbers(seed)
  local state = seed * 7919 % 2147483646 + 1
  return function(n)
    state = state * 48271 % 2147483647
    return state % n
  end
end

-- Up to two sizes and strides, and an offset, within n elements.
local function geometry(random, n)
  local size, stride, left = {}, {}, n - 1
  for i = 1, 1 + random(2) do
    size[i], stride[i] = 1 + random(3), random(5)
    if (size[i] - 1) * stride[i] > left then
      size[i] = 1
    end
    left = left - (size[i] - 1) * stride[i]
  end
  return size, stride, random(left + 1)
end

local function distinct(size, stride)
  for i = 1, #size do
    if size[i] > 1 and (stride[i] == 0 or i == 2 and size[1] > 1
        and stride[1] <= (size[2] - 1) * stride[2]) then
      return false
    end
  end
  return true
end

-- Each makes a tensor of v, and tells whether it is in memory of its own or
-- shows but a part of v's.
local OWN, PART = "own", "part"
local steps = {
  function(v) return v:transpose(0, -1) end,
  function(v) return v:movedim(0, -1) end,
  function(v) return v:unsqueeze(0):expand(2, table.unpack(v.shape)) end,
  function(v) return v["0:1"]:expand(3, table.unpack(v.shape, 2)), PART end,
  function(v) return v["1:"], PART end,
  function(v) return v["..., ::2"], PART end,
  function(v) return v[0], PART end,
  function(v) return v:reshape(-1) end,
  function(v) return v:contiguous() end,
  function(v) return v * 1, OWN end,
  function(v) return v + v, OWN end,
  function(v) return v:flip(0), OWN end,
  function(v) return v:clone(), OWN end,
  function(v) return torch.zeros(v.shape):copy_(v), OWN end,
  function(v, random) return (v * 1):fill_(random(5)), OWN end,
  function(v)
    local w = v * 2
    w[0] = 3
    return w, OWN
  end,
  function(v)
    local w = v.mT * 2
    w["..., 0"]:mul_(2)
    return w, OWN
  end,
}

-- The chain of this seed, of x, and whether it always showed all of the memory
-- that as_strided saw, or wrote there: what lies beside a part gets no gradient
-- from an eager call that but reads it. The memory surely has as many elements
-- as as_strided may ask for.
local function chain(seed, x)
  local random = numbers(seed)
  local v, memory, all, strict = x, x:numel(), true, true
  local function see()
    local size, stride, offset = geometry(random, memory)
    v = v:as_strided(size, stride, offset)
    memory = math.min(memory, v:numel())
    local writes = distinct(size, stride) and random(2) == 0
    if writes then
      v:mul_(3)
    end
    strict, all = strict and (all or writes), false
  end
  for _ = 1, STEPS do
    local step, how = steps[1 + random(#steps)]
    if v:dim() >= 2 and v:dim() <= 4 and v:size(0) > 1 then
      v, how = step(v, random)
    else
      v, how = torch.cat({ v:reshape(1, -1), v:reshape(1, -1) }), OWN
    end
    memory = how == OWN and v:numel() or math.min(memory, v:numel())
    all = how == OWN or all and how ~= PART
    if random(4) == 0 then
      see()
    end
  end
  see()
  return v, strict
end

describe("random chains of views", function()
  it("compiled give the eager values and gradients", function()
    local compared = 0
    for seed = 1, CHAINS do
      local x = torch.arange(1, 13):float():reshape(3, 4)
      local leaf = x:clone():requires_grad_()
      local want, strict = chain(seed, leaf * 1)
      local up = torch.arange(1, want:numel() + 1):float():reshape(want.shape);
      (want * up):sum():backward()
      local got, g = compile(function(t) return (chain(seed, t * 1)) end, { x },
        { cotangents = { up } })(x, { up })
      local what = ("chain %d: "):format(seed)
      assert.same(want:detach():tolist(), got:tolist(), what .. "values")
      if strict then
        compared = compared + 1
        assert.same(leaf.grad:tolist(), g[1]:tolist(), what .. "gradients")
      end
    end
    assert.is_true(compared > CHAINS / 4)
  end)
end)
