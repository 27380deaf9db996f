-- The replay of weight updates in which IPUs and replicas need each other's
-- values: clipped by the norm of all gradients, or with optimizer state, under every
-- strategy, with variables off chip or in shares.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

local OFF = { on_chip = false, min_off_chip = 2 }
local SHARED = { on_chip = true, sharded = true, min_sharded = 2 }
local OFF_SHARED = { on_chip = false, min_off_chip = 2, sharded = true, min_sharded = 2 }
local LOCATIONS = { {}, { accumulator = OFF }, { weight = OFF, accumulator = OFF },
  { optimizer = SHARED }, { weight = SHARED }, { weight = OFF_SHARED, optimizer = OFF_SHARED },
  { activation = OFF, weight = OFF_SHARED } }
local ACCUMULATION, ITERATIONS, ROWS, WIDTH = 8, 2, 2, 8

local RULES = {
  ["clipped by a norm"] = function(at, step, i, common)
    common.lr = common.lr or step:add_var("hyper", "lr", torch.tensor(1.0))
    common.most = common.most or step:add_var("hyper", "most", torch.tensor(1.0))
    local w = at["parameter w" .. i]
    return { op = "sgd_step", param = w, inputs = { w, "grad", false, common.lr },
      outputs = { w }, max_norm = common.most }
  end,
  ["with state"] = function(at, step, i)
    local w = at["parameter w" .. i]
    local m = step:add_var("state", "m" .. i, torch.ones(WIDTH, WIDTH), w)
    return { op = "sub", param = w, inputs = { m, "grad" }, outputs = { m },
      attrs = { alpha = 0.5 } }
  end,
  -- a new value waits for who reads the old one
  ["of the weights before"] = function(at, _, i)
    local w = at["parameter w" .. i]
    return { op = "sub", param = w, inputs = { at["parameter w" .. math.max(i - 1, 1)], "grad" },
      outputs = { w }, attrs = { alpha = 0.5 } }
  end,
}

local function chain(rule, ipus, replicas)
  return helper.chain(4, { ipus = ipus, phases = true, train = true, accumulation = ACCUMULATION,
    device_iterations = ITERATIONS, replicas = replicas, width = WIDTH, batch = ROWS,
    weight = function(i)
      return torch.sin(torch.arange(WIDTH * WIDTH) * 0.37 + i):reshape(WIDTH, WIDTH) * 0.4
    end,
    layer = function(h, w) return torch.matmul(h, w):tanh() end,
    rules = function(at, step)
      local rules, common = {}, {}
      for i = 1, 4 do
        rules[i] = rule(at, step, i, common)
      end
      return rules
    end })
end

describe("replay of an update", function()
  for name, rule in pairs(RULES) do
    for _, replicas in ipairs({ 1, 2 }) do
      for _, ipus in ipairs({ { 0, 1, 2, 3 }, { 0, 1, 0, 1 } }) do
        it(("equals micro-batch order: %s, %d replicas, IPUs %s"):format(name, replicas,
          table.concat(ipus, " ")), function()
          local step = chain(rule, ipus, replicas)
          local rows = ROWS * ACCUMULATION * ITERATIONS * replicas
          local inputs = { [compiled.vars(step)["input x"]] =
            torch.sin(torch.arange(rows * WIDTH)):reshape(rows, WIDTH) }
          local want = helper.replayed_bits(step, {}, inputs, { order = "micro_batches" })
          for _, strategy in ipairs({ "pipelined", "sharded", "serial_phased",
            "parallel_phased" }) do
            for _, location in ipairs(LOCATIONS) do
              local o = { strategy = strategy }
              for kind, at in pairs(location) do
                o[kind] = at
              end
              assert.equal(want, (helper.replayed_bits(step, o, inputs)))
            end
          end
        end)
      end
    end
  end

  it("has gradients off chip one by one, but all of them at once for their norm", function()
    local off = { accumulator = OFF, strategy = "sharded" }
    local bytes = WIDTH * WIDTH * 4
    local function most(name)
      local live = core.plan(chain(RULES[name], { 0, 0, 0, 0 }), off):liveness().ipus[0]
      local at = 0
      for i, stage in ipairs(live.stage) do
        at = stage == -1 and math.max(at, live.bytes[i]) or at
      end
      return at
    end
    assert.equal(bytes, most("with state"))
    assert.equal(5 * bytes, most("clipped by a norm") // bytes * bytes) -- and a square
  end)
end)
