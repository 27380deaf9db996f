--- Stochastic rounding by every operator: on the samples of spec/ops/samples in
--- half types, a result is one of the two numbers of its type beside what the
--- operator computes of the same operands in float32; what rounds nothing is
--- that number.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local samples = require("spec.ops.samples")
local torch = require("torch")
local walk = require("spec.ops.samples.walk")

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

-- Results of the step in `dtype`, and how many of its nodes round.
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
  local got, out = exec:run(compiled.feed(at, tensors), {}), {}
  while at["output output_" .. #out + 1] do
    out[#out + 1] = got[at["output output_" .. #out + 1]]
  end
  return out, sites
end

local function widened(tensors)
  local out = {}
  for i, t in ipairs(tensors) do
    out[i] = (t.dtype == torch.float16 or t.dtype == torch.bfloat16) and t:float() or t
  end
  return out
end

-- Checks one sample; true if something was rounded, and once.
local function check(op, sample, dtype)
  local call = walk.callable(op, sample)
  local tensors = walk.tensors(sample, { dtype = dtype })
  if not pcall(call, tensors) then
    return false -- not of half types
  end
  local got, sites = rounded(call, tensors)
  if sites > 1 or walk.free(op, sample) then
    return false -- of several roundings none stands alone
  end
  local want = call(widened(tensors))
  for i, y in ipairs(got) do
    if y.dtype == dtype and want[i].dtype == torch.float32 then
      local low, high = neighbours(want[i], dtype)
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
      local wrong, met = {}, 0
      for _, op in ipairs(core.ops()) do
        for k, sample in ipairs(samples.of[op.name] or {}) do
          if not (sample.loud or sample.dynamic or op.flags.dynamic or APART[op.name]) then
            local ok, once = pcall(check, op, sample, dtype)
            met = met + (once == true and 1 or 0)
            if not ok then
              wrong[#wrong + 1] = ("%s, sample %d: %s"):format(op.name, k, tostring(once))
            end
          end
        end
      end
      assert(met > 300, ("only %d samples round once"):format(met))
      assert(#wrong == 0, #wrong .. " samples\n" .. table.concat(wrong, "\n"))
    end)
  end
end)
