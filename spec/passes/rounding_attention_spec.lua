--- Attention of a step that rounds at random: run as one, by heads, or as the operators
--- that it is made of, it has the same bits.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local torch = require("torch")

local F = torch.nn.functional

local function pattern(shape, dtype, scale)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  return (torch.sin(torch.arange(n):float() * 1.91 + 0.3) * scale):reshape(shape):to(dtype)
end

-- What a step has made of query, key and value, whose gradients it takes off, and its result.
local function trained(step, at, inputs, options)
  local exec = step:compile(options)
  exec:rng(7, 3)
  local out = exec:run(compiled.feed(at, inputs), {})
  return { q = exec:read(at["parameter q"]), k = exec:read(at["parameter k"]),
    v = exec:read(at["parameter v"]), y = out[at["output output_2"]] }
end

describe("attention that rounds at random", function()
  for _, dtype in ipairs({ torch.float16, torch.bfloat16 }) do
    for _, causal in ipairs({ true, false }) do
      it(("has one value however it runs: %s%s"):format(dtype, causal and ", causal" or ""),
        function()
          -- batch, heads, queries, keys, size, that of values; the last is too long to be one
          for _, size in ipairs({ { 2, 3, 7, 9, 5, 6 }, { 1, 2, 64, 64, 32, 32 },
            { 2, 2, 45, 40, 16, 8 }, { 1, 1, 3, 300, 4, 4 } }) do
            local b, h, q, k, e, v = table.unpack(size)
            local declared = { { "parameter", "q", pattern({ b, h, q, e }, dtype, 1) },
              { "parameter", "k", pattern({ b, h, k, e }, dtype, 2) },
              { "parameter", "v", pattern({ b, h, k, v }, dtype, 0.7) } }
            local x = pattern({ 1, b * h * q * v }, dtype, 1)
            local step, losses = compiled.step(function(g)
              local y = F.scaled_dot_product_attention(declared[1][3], declared[2][3],
                declared[3][3], nil, 0.0, causal)
              local loss = (y * g:reshape({ b, h, q, v })):sum()
              return core.forms.internal.identity_loss(loss, "none"), y
            end, { x }, declared)
            local at = compiled.vars(step)
            step:complete({ loss = losses[1], rules = compiled.descent(at, declared),
              numerics = { stochastic = true } })
            local want = trained(step, at, { x }, { fuse = false })
            for _, options in ipairs({ {}, { threads = 1 }, { threads = 3 } }) do
              for name, t in pairs(trained(step, at, { x }, options)) do
                assert.is_true(compiled.same_bits(want[name], t),
                  name .. " " .. table.concat(size, " "))
              end
            end
          end
        end)
    end
  end
end)
