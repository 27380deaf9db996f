-- Updates of optimizers as operators, against their formulas on numbers.
local both = require("spec.lupine.onnx.both")
local torch = require("torch")

local DOMAIN = "ai.onnx.preview.training"

-- update(t, x, g, states…) -> new x, new states, of two tensors' numbers.
local function check(op, values, rate, states, update)
  torch.manual_seed(16)
  for _, count in ipairs({ 0, 1, 5 }) do
    local given = { torch.tensor(rate), torch.tensor(count) }
    for _ = 1, states + 2 do
      given[#given + 1] = torch.rand({ 2 }) + 0.5
      given[#given + 1] = torch.rand({ 1, 3 }) + 0.5
    end
    local got = { both(op, given, values, { domain = DOMAIN, outputs = (states + 1) * 2 }) }
    for which = 1, 2 do
      local own = {}
      for i = which + 2, #given, 2 do
        own[#own + 1] = given[i]
      end
      for k = 1, states + 1 do
        both.near(got[(k - 1) * 2 + which], both.map(function(...)
          return (select(k, update(count, ...)))
        end, table.unpack(own)), { 1e-5, 1e-5 })
      end
    end
  end
end

describe("updates", function()
  it("Adagrad sums squares", function()
    check("Adagrad", { decay_factor = 0.1, epsilon = 1e-3, norm_coefficient = 0.01 }, 0.1, 1,
      function(t, x, g, h)
        g = g + 0.01 * x
        h = h + g * g
        return x - 0.1 / (1 + t * 0.1) * g / (math.sqrt(h) + 1e-3), h
      end)
  end)

  it("Adam averages, and corrects from the first update on", function()
    check("Adam", { alpha = 0.8, beta = 0.9, epsilon = 1e-2, norm_coefficient = 0.01,
      norm_coefficient_post = 0.1 }, 0.1, 2, function(t, x, g, v, h)
      g = g + 0.01 * x
      v, h = 0.8 * v + 0.2 * g, 0.9 * h + 0.1 * g * g
      local r = t > 0 and 0.1 * math.sqrt(1 - 0.9 ^ t) / (1 - 0.8 ^ t) or 0.1
      return (x - r * v / (math.sqrt(h) + 1e-2)) * 0.9, v, h
    end)
  end)

  for _, mode in ipairs({ "standard", "nesterov" }) do
    it("Momentum is " .. mode, function()
      check("Momentum", { alpha = 0.9, beta = 0.5, norm_coefficient = 0.01, mode = mode }, 0.1, 1,
        function(t, x, g, v)
          g = g + 0.01 * x
          v = 0.9 * v + (t > 0 and 0.5 or 1) * g
          return x - 0.1 * (mode == "nesterov" and g + 0.9 * v or v), v
        end)
    end)
  end

  it("name what is wrong", function()
    local one = torch.ones({ 1 })
    local given = { torch.tensor(0.1), torch.tensor(0), one, one }
    local options = { domain = DOMAIN, outputs = 2 }
    both.refuses("input 'inputs' has 2 tensors. Allowed: multiples of 3", "Adagrad", given, nil,
      options)
    given[5] = one
    both.refuses("attribute 'mode' is 'fast'. Allowed: 'standard', 'nesterov'", "Momentum", given,
      { alpha = 1.0, beta = 1.0, norm_coefficient = 0.0, mode = "fast" }, options)
    both.refuses("attribute 'alpha' is missing", "Momentum", given, {}, options)
  end)
end)
