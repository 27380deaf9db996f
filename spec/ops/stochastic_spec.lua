--- Stochastic rounding by every operator: on the samples of spec/ops/samples in
--- half types, a result is one of the two numbers of its type beside what the
--- operator computes of the same operands in float32, and that on average; what
--- rounds nothing is that number.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local samples = require("spec.ops.samples")
local torch = require("torch")
local walk = require("spec.ops.samples.walk")

-- Of a sample, about.
local DRAWS = 12000

-- The numbers of `dtype` beside x, a float32 tensor, as float32. Twice x if it
-- is one, or beyond the largest: that rounds to nearest.
local function neighbours(x, dtype)
  local near = x:to(dtype)
  local wide = near:to(torch.float32)
  local function step(towards)
    return torch.nextafter(near, torch.full_like(near, towards)):to(torch.float32)
  end
  local largest = torch.finfo(dtype).max
  local stays = wide:eq(x):logical_or(x:abs():gt(largest)):logical_or(x:ne(x))
  local low = torch.where(stays:logical_or(wide:lt(x)), wide, step(-math.huge))
  local high = torch.where(stays:logical_or(wide:gt(x)), wide, step(math.huge))
  return low, high
end

-- How far results are from `want` on average over `runs` draws of each, in standard errors.
local function bias(draw, first, want, low, high, runs)
  local sum = first:double()
  for i = 2, runs do
    sum = sum + draw(i):double()
  end
  local gap, exact = (high - low):double(), want:double()
  local p = torch.where(gap:eq(0), gap, (exact - low:double()) / gap)
  local variance = (p * (1 - p) * gap * gap)
  local counts = variance:gt(0):logical_and(variance:isfinite()) -- infinities have no errors
  local off = torch.where(counts, sum - runs * exact, gap * 0):sum():item()
  local all = runs * torch.where(counts, variance, gap * 0):sum():item()
  return all > 0 and off / math.sqrt(all) or 0
end

-- Results of the step in `dtype`, how many of its nodes round, and a function that draws
-- result i again in run n.
local function rounded(call, tensors)
  local step = compiled.step(function(...)
    return table.unpack(call({ ... }))
  end, tensors)
  step:complete({ numerics = { stochastic = true } })
  local sites = 0
  local g = core.graph_parse(step:text("micro"))
  for _, node in ipairs(g:nodes()) do
    sites = sites + (node.site and node.site ~= 0 and 1 or 0)
  end
  local at = compiled.vars(step)
  local exec = step:compile({ threads = 2 })
  local feed = compiled.feed(at, tensors)
  exec:rng(11, 0)
  local got, out = exec:run(feed, {}), {}
  while at["output output_" .. #out + 1] do
    out[#out + 1] = got[at["output output_" .. #out + 1]]
  end
  return out, sites, function(i, n)
    exec:rng(11, n)
    return exec:run(feed, {})[at["output output_" .. i]]
  end
end

local function widened(tensors)
  local out = {}
  for i, t in ipairs(tensors) do
    out[i] = (t.dtype == torch.float16 or t.dtype == torch.bfloat16) and t:float() or t
  end
  return out
end

-- Checks one sample; true if something was rounded, and once.
local function check(op, sample, dtype, drawn)
  local call = walk.callable(op, sample)
  local tensors = walk.tensors(sample, { dtype = dtype })
  if not pcall(call, tensors) then
    return false -- not of half types
  end
  local got, sites, draw = rounded(call, tensors)
  if sites > 1 or walk.free(op, sample) then
    return false -- of several roundings none stands alone
  end
  local want = call(widened(tensors))
  for i, y in ipairs(got) do
    if y.dtype == dtype and want[i].dtype == torch.float32 then
      local low, high = neighbours(want[i], dtype)
      if sites == 1 and y:numel() > 0 then
        local runs = math.min(math.max(DRAWS // y:numel(), 20), 400)
        local far = bias(function(n) return draw(i, n) end, y, want[i], low, high, runs)
        assert(math.abs(far) < 4, ("result %d is %g standard errors off"):format(i - 1, far))
        drawn[op.name] = (drawn[op.name] or 0) + runs * y:numel()
      end
      y = y:float()
      local fits = y:eq(low):logical_or(y:eq(high)):logical_or(y:ne(y):logical_and(low:ne(low)))
      if sites == 0 then
        fits = fits:logical_and(low:eq(high):logical_or(low:ne(low)))
      end
      assert(fits:all():item(), ("result %d of %d sites is %s, in float32 %s"):format(i - 1,
        sites, y, want[i]))
    end
  end
  return sites == 1
end

-- What nextafter computes has no meaning in another type; bodies round at each
-- of their own nodes.
local APART = { nextafter = true, loop = true, branch = true, call = true }

describe("an operator that rounds at random", function()
  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    it("gives a number beside the exact one, in " .. tostring(dtype), function()
      local wrong, met, drawn, all = {}, 0, {}, 0
      for _, op in ipairs(core.ops()) do
        for k, sample in ipairs(samples.of[op.name] or {}) do
          if not (sample.loud or sample.dynamic or op.flags.dynamic or APART[op.name]) then
            local ok, once = pcall(check, op, sample, dtype, drawn)
            met = met + (once == true and 1 or 0)
            if not ok then
              wrong[#wrong + 1] = ("%s, sample %d: %s"):format(op.name, k, tostring(once))
            end
          end
        end
      end
      assert(met > 300, ("only %d samples round once"):format(met))
      for _, n in pairs(drawn) do
        all = all + n
      end
      assert(all > 10 ^ 6, all .. " draws")
      assert(#wrong == 0, #wrong .. " samples\n" .. table.concat(wrong, "\n"))
    end)
  end
end)
