-- A small transformer with tied embedding and a small convolutional network with
-- running statistics, with checkpoints that are views: every strategy and liveness,
-- recomputation or not, variables and activations off chip, stages that return to an
-- IPU or stay on one.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

local F = torch.nn.functional
local ACCUMULATION, ITERATIONS, ROWS = 9, 2, 2
local OFF = { on_chip = false, min_off_chip = 2 }
local SHARED = { on_chip = false, min_off_chip = 2, sharded = true, min_sharded = 2 }
local LOCATIONS = { {}, { weight = OFF, accumulator = OFF, activation = OFF },
  { weight = SHARED, optimizer = SHARED } }
local LIVENESS = { serial_phased = 3, parallel_phased = 1 }
local PLACES = { { 0, 1, 2, 3, 4 }, { 0, 1, 0, 1, 0 }, { 0, 0, 0, 0, 0 } }

local checkpoint = core.forms.internal.recomputation_checkpoint

local function values(seed, shape)
  local n = 1
  for _, d in ipairs(shape) do
    n = n * d
  end
  return torch.sin(torch.arange(n) * 0.37 + seed):reshape(shape) * 0.3
end

-- {role, name, shape} of what forward(inputs by name, on(layer)) reads; first the
-- input.
local MODELS = {
  transformer = {
    { "input", "x", { ROWS, 6 } }, { "parameter", "table", { 10, 8 } },
    { "parameter", "q", { 8, 8 } }, { "parameter", "k", { 8, 8 } }, { "parameter", "v", { 8, 8 } },
    { "parameter", "scale", { 8 } }, { "parameter", "bias", { 8 } },
    forward = function(of, on)
      on(1)
      local h = F.embedding(((of.x + 1) * 5):to(torch.int32), of.table)
      for layer = 2, 4 do
        on(layer)
        local a = torch.matmul(torch.matmul(h, of.q), torch.matmul(h, of.k):transpose(1, 2))
        h = h + F.dropout(torch.matmul(a:softmax(-1), torch.matmul(h, of.v)), 0.2, true)
        h = checkpoint(F.layer_norm(h, { 8 }, of.scale, of.bias))
      end
      on(5)
      return torch.matmul(h, of.table:transpose(0, 1)):log_softmax(-1)
    end,
  },
  ["convolutional network"] = {
    { "input", "x", { ROWS, 3, 8, 8 } }, { "parameter", "first", { 4, 3, 3, 3 } },
    { "parameter", "second", { 4, 4, 3, 3 } }, { "parameter", "scale", { 4 } },
    { "parameter", "bias", { 4 } }, { "parameter", "last", { 16, 5 } },
    { "buffer", "mean1", { 4 } }, { "buffer", "var1", { 4 } }, { "buffer", "mean2", { 4 } },
    { "buffer", "var2", { 4 } },
    forward = function(of, on)
      on(1)
      local h = F.relu(F.batch_norm(F.conv2d(of.x, of.first, nil, 1, 1), of.mean1, of.var1,
        of.scale, of.bias, true, 0.1))
      on(2)
      h = checkpoint(F.max_pool2d(h, 2):transpose(2, 3)):transpose(2, 3)
      on(3)
      local y = F.relu(F.batch_norm(F.conv2d(h, of.second, nil, 1, 1), of.mean2, of.var2,
        of.scale, of.bias, true, 0.1)) + h
      on(4)
      y = F.max_pool2d(y, 2)
      on(5)
      return torch.matmul(y:reshape(ROWS, 16), of.last)
    end,
  },
}

local function build(model, ipus, replicas)
  return helper.step(function(inputs, place)
    local of = {}
    for i, d in ipairs(model) do
      of[d[2]] = inputs[i]
    end
    return helper.loss(model.forward(of, function(layer)
      place(ipus[layer], layer - 1, nil, layer - 1)
    end))
  end, { train = true, accumulation = ACCUMULATION, device_iterations = ITERATIONS,
    replicas = replicas, declare = function(declare)
      local list = {}
      for i, d in ipairs(model) do
        if d[1] == "input" then
          list[i] = declare(d[1], d[2], nil, d[3])
        else
          list[i] = declare(d[1], d[2], d[1] == "buffer" and torch.ones(d[3]) or values(i, d[3]))
        end
      end
      return list
    end })
end

describe("replay of a", function()
  for name, model in pairs(MODELS) do
    for k, ipus in ipairs(PLACES) do
      local replicas = k == 2 and 2 or 1
      it(("%s equals micro-batch order, IPUs %s"):format(name, table.concat(ipus, " ")), function()
        local step = build(model, ipus, replicas)
        local shape = { table.unpack(model[1][3]) }
        shape[1] = ROWS * ACCUMULATION * ITERATIONS * replicas
        local inputs = { [compiled.vars(step)["input x"]] = values(5, shape) }
        local want = helper.replayed_bits(step, {}, inputs, { order = "micro_batches", seed = 3 })
        for _, strategy in ipairs({ "pipelined", "sharded", "serial_phased",
          k == 2 and "parallel_phased" or nil }) do
          for liveness = 0, LIVENESS[strategy] or 0 do
            for i, location in ipairs(LOCATIONS) do
              local o = { strategy = strategy, liveness = liveness,
                recompute = ({ "auto", "none", "all" })[(i + liveness) % 3 + 1] }
              for kind, at in pairs(location) do
                o[kind] = at
              end
              assert.equal(want, (helper.replayed_bits(step, o, inputs, { seed = 3 })))
            end
          end
        end
      end)
    end
  end
end)
