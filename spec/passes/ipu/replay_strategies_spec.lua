-- Every strategy with every liveness that it has, separate backward phases or not, and every
-- choice of what is off chip: the schedule's order gives the bits of micro-batch
-- order.
local compiled = require("spec.support.compiled")
local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

local ACCUMULATION, ITERATIONS, ROWS = 7, 2, 2
local KINDS = { "activation", "weight", "optimizer", "accumulator" }
local OFF = { on_chip = false, min_off_chip = 2 }

local function values(i)
  return torch.sin(torch.arange(64) * 0.37 + i):reshape(8, 8) * 0.4
end

local function declarations(declare)
  return { declare("input", "x", nil, { ROWS, 8 }), declare("parameter", "a", values(1)),
    declare("parameter", "b", values(2)), declare("parameter", "c", values(3)),
    declare("buffer", "mean", torch.ones(8)) }
end

-- m' = m + gradient, p' = m' * rate of the parameter before: state that the
-- update reads and writes.
local function rules(at, step)
  local list = {}
  for i, name in ipairs({ "a", "b", "c" }) do
    local p = at["parameter " .. name]
    local m = step:add_var("state", "m" .. name, values(i + 5), p)
    list[i] = name == "b" and { op = "sub", param = p, inputs = { p, "grad" }, outputs = { p },
      attrs = { alpha = 0.1 } } or { op = "sub", param = p, inputs = { m, "grad" },
      outputs = { m }, attrs = { alpha = 0.5 } }
  end
  return list
end

local function dense(h, w)
  return torch.nn.functional.dropout(torch.tanh(torch.matmul(h, w)), 0.25, true)
end

-- forward(inputs, on(layer)) -> result; layer n is stage n, phase n.
local MODELS = {
  ["a shared weight"] = function(inputs, on)
    local h = inputs[1]
    for layer, w in ipairs({ 2, 3, 2, 4 }) do
      on(layer - 1)
      h = dense(h, inputs[w])
    end
    return h
  end,
  ["a skip connection"] = function(inputs, on)
    on(0)
    local first = dense(inputs[1], inputs[2])
    on(1)
    local h = dense(first, inputs[3])
    on(2)
    h = dense(h + inputs[1], inputs[4])
    on(3)
    return h * first
  end,
  ["a carried buffer"] = function(inputs, on)
    on(0)
    local h, mean = dense(inputs[1], inputs[2]), inputs[5]
    on(1)
    h = h * mean -- the old value, which the gradient needs again
    mean:mul_(0.5)
    mean:add_(h:detach():sum(0))
    h = dense(h * mean, inputs[3])
    on(2)
    return dense(h, inputs[4])
  end,
  ["stages that exchange"] = function(inputs, on)
    local left, right = inputs[1], inputs[1]
    for phase = 0, 1 do
      for _ = 1, 2 do
        on(phase, phase)
        local l = dense(left, inputs[2])
        on(2 + phase, phase)
        left, right = dense(right, inputs[3]), l
      end
    end
    return left + torch.matmul(right, inputs[4])
  end,
}
-- One that returns to a stage cannot be pipelined.
local RETURNS = { ["stages that exchange"] = true }

local function build(forward)
  return helper.step(function(inputs, place)
    return helper.loss(forward(inputs, function(layer, phase)
      place(layer, layer, nil, phase or layer)
    end))
  end, { train = true, accumulation = ACCUMULATION, device_iterations = ITERATIONS,
    declare = declarations, rules = rules })
end

local function replayed(step, options, order)
  local rows = ACCUMULATION * ITERATIONS * ROWS
  local x = torch.cos(torch.arange(rows * 8) * 0.91):reshape(rows, 8)
  local text, n = helper.replayed_bits(step, options,
    { [compiled.vars(step)["input x"]] = x }, { seed = 7, order = order })
  assert.is_true(n > 200)
  return text
end

-- The last liveness of phases.
local LIVENESS = { serial_phased = 3, parallel_phased = 1 }

-- {options} of a strategy.
local function combinations(strategy)
  local list, last = {}, LIVENESS[strategy]
  for liveness = 0, last or 0 do
    for separate = 0, last and 1 or 0 do
      for off = 0, 15 do
        local o = { strategy = strategy, liveness = liveness, separate_backward = separate == 1 }
        for i, kind in ipairs(KINDS) do
          o[kind] = off >> (i - 1) & 1 == 1 and OFF or nil
        end
        o.recompute = off % 3 == 0 and "all" or "none"
        list[#list + 1] = o
      end
    end
  end
  return list
end

for name, forward in pairs(MODELS) do
  describe("replay of a model with " .. name, function()
    local step = build(forward)
    local want = replayed(step, { strategy = "sharded" }, "micro_batches")

    for _, strategy in ipairs({ "pipelined", "sharded", "serial_phased", "parallel_phased" }) do
      if strategy ~= "pipelined" or not RETURNS[name] then
        it("equals micro-batch order, " .. strategy, function()
          local list = combinations(strategy)
          local last = LIVENESS[strategy]
          assert.equal(last and (last + 1) * 2 * 16 or 16, #list)
          for _, options in ipairs(list) do
            if replayed(step, options) ~= want then
              local what = { strategy, options.liveness, options.separate_backward,
                options.recompute }
              for i, kind in ipairs(KINDS) do
                what[4 + i] = options[kind] and kind or "-"
              end
              for i = 1, #what do
                what[i] = tostring(what[i])
              end
              error("differs: " .. table.concat(what, " "))
            end
          end
        end)
      end
    end
  end)
end
