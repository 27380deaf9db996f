-- Where tensors are: on the chip, in streaming memory, shared out between replicas. It
-- changes what a program costs, not what it computes.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")
local Location, Storage = popart.TensorLocation, popart.TensorStorage
local Sharding = popart.ReplicatedTensorSharding

-- Weights after a run, and the session. given: batches, replicas, options, optimizer
local function train(given)
  local replicas, batches = given.replicas or 1, given.batches or 1
  local b, ids = helper.layers(3, 3)
  local s = helper.training(b, popart.DataFlow(batches, { [ids.loss] = ALL }), ids.loss,
    given.optimizer or popart.ConstSGD(0.05),
    { options = helper.loops(2, replicas, given.options), device = helper.device(replicas) })
  torch.manual_seed(3)
  helper.run(s, { [ids.x] = torch.randn(batches * 2 * replicas, 3, 4) })
  return helper.weights(s, ids.weights), s, ids
end

local function equal(want, got)
  for id, t in pairs(want) do
    assert.is_true(torch.allclose(t, got[id], { rtol = 1e-5, atol = 1e-6 }), id)
  end
end

local function bytes_off_chip(s)
  return s:getReport().memory[0].off_chip
end

-- Notes of the report on single tensors.
local function notes(s)
  local out = {}
  for _, line in ipairs(s:getReport().no_effect) do
    out[#out + 1] = line:match("^SessionOptions%.tensorLocationSettingsOverride of (.*)$")
  end
  return out
end

describe("tensors' locations", function()
  it("M3: change no weight, for any optimizer", function()
    local off = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip),
      0, 0)
    local kinds = { "weight", "optimizerState", "accumulator", "activation" }
    local options = { {} }
    for _, kind in ipairs(kinds) do
      local name = kind .. "TensorLocationSettings"
      options[1][name], options[#options + 1] = off, { [name] = off }
    end
    for _, optimizer in ipairs({ popart.SGD({ defaultLearningRate = { 0.05, true },
      defaultMomentum = { 0.9, true } }), popart.Adam({ defaultLearningRate = { 0.05, true } }),
      popart.Adam({ defaultLearningRate = { 0.05, true } }, popart.AdamMode.Lamb) }) do
      local want = train({ optimizer = optimizer, batches = 2 })
      for _, o in ipairs(options) do
        equal(want, (train({ optimizer = optimizer, batches = 2, options = o })))
      end
    end
  end)

  local ADAM = popart.Adam({ defaultLearningRate = { 0.05, true } })
  local OFF = Location(Storage.OffChip)

  it("M3: of single ones hold for these alone", function()
    local want, on, ids = train({ optimizer = ADAM })
    assert.equal(0, bytes_off_chip(on))
    local w, h = ids.weights, ids.hidden
    -- bytes of 4x4 and 3x4 elements of float32
    for _, case in ipairs({ { { w[1] }, 64 }, { { w[1], w[3] }, 128 },
      { { "Accl1___" .. w[2] }, 64 }, { { "Accum___" .. w[2], "Accl2___" .. w[2] }, 128 },
      { { h[1] }, 48 }, { { h[1], h[2], w[2] }, 160 } }) do
      local override = {}
      for _, id in ipairs(case[1]) do
        override[id] = OFF
      end
      local got, s = train({ optimizer = ADAM,
        options = { tensorLocationSettingsOverride = override } })
      equal(want, got)
      assert.equal(case[2], bytes_off_chip(s), table.concat(case[1], " "))
      assert.same({}, notes(s))
      assert.is_true(s:getReport().cycles > on:getReport().cycles)
    end
  end)

  it("M3: of single ones stand in place of those of their kind", function()
    local kind = popart.TensorLocationSettings(OFF, 0, 0)
    local function session(override, settings)
      return select(2, train({ options = { weightTensorLocationSettings = settings or kind,
        tensorLocationSettingsOverride = override } }))
    end
    local _, _, ids = train({})
    assert.equal(3 * 64, bytes_off_chip(session({})))
    assert.equal(2 * 64, bytes_off_chip(session({ [ids.weights[2]] = Location() })))
    -- what is too small for its kind's settings stays
    local large = popart.TensorLocationSettings(Location(), 17, 0)
    assert.equal(0, bytes_off_chip(session({ [ids.weights[2]] = OFF }, large)))
  end)

  it("G10: of single ones are shared out", function()
    local sharded = Location(Storage.OffChip, Sharding.On)
    local small = popart.TensorLocationSettings(Location(), 0, 0)
    local want, _, ids = train({ replicas = 4 })
    local got, s = train({ replicas = 4, options = { weightTensorLocationSettings = small,
      tensorLocationSettingsOverride = { [ids.weights[1]] = sharded } } })
    equal(want, got)
    assert.equal(16, bytes_off_chip(s)) -- of 64, a fourth
  end)

  it("test_accumulator_tensor_location_settings, _plus_override: of combined SGD", function()
    local sgd = popart.SGD({ defaultLearningRate = { 0.1, true }, defaultMomentum = { 0.0, false },
      defaultWeightDecay = { 0.0, false }, defaultDampening = { 0.0, true } })
    local on, off = popart.TensorLocationSettings(Location(), 0, 0),
      popart.TensorLocationSettings(OFF, 0, 0)
    local want, _, ids = train({ optimizer = sgd })
    -- its velocities gather the gradients: they are accumulators, and the update moves them too
    local one = "Accl___" .. ids.weights[2]
    for _, case in ipairs({ { off, {}, 3 }, { on, { [one] = OFF }, 1 },
      { off, { [one] = Location() }, 2 } }) do
      local got, s = train({ optimizer = sgd, options = { tensorLocationSettingsOverride = case[2],
        accumulatorTensorLocationSettings = case[1] } })
      equal(want, got)
      assert.equal(64 * case[3], bytes_off_chip(s))
      assert.same({}, notes(s))
      local moved = { phase = 0, update = 0 }
      for _, row in ipairs(s:getReport().schedule) do
        for _, e in ipairs(row.entries) do
          local streams = e.kind == "load" or e.kind == "store"
          moved[row.kind] = moved[row.kind] + (streams and e.bytes * row.count or 0)
        end
      end
      assert.equal(2 * 64 * case[3], moved.update)
      assert.is_true(moved.phase >= 2 * 64 * case[3])
    end
    local _, s = train({ optimizer = sgd, options = {
      optimizerStateTensorLocationSettings = off } })
    assert.equal(0, bytes_off_chip(s))
    assert.equal(3 * 64, s:getReport().memory[0].categories.optimizer_state)
  end)

  it("of what has none, or is not there, are named by the report", function()
    local _, _, ids = train({})
    local _, s = train({ options = { tensorLocationSettingsOverride = { [ids.x] = OFF,
      nothing = OFF, ["Gradient___" .. ids.weights[1]] = OFF, ["Accl1___w"] = OFF } } })
    local none, of = "the program has no such tensor", "only weights, optimizer states, "
      .. "accumulators and activations have a location"
    assert.same({ "'Accl1___w': " .. none, ("'Gradient___%s': %s"):format(ids.weights[1], of),
      ("'%s': %s"):format(ids.x, of), "'nothing': " .. none }, notes(s))
    assert.equal(0, bytes_off_chip(s))
    local b, x, y = helper.identity({ 2 })
    local infers = helper.inference(b, popart.DataFlow(1, { y }), { options = {
      tensorLocationSettingsOverride = { [y] = OFF } } })
    assert.same({ ("'%s': inference keeps no activations"):format(y) }, notes(infers))
    helper.run(infers, { [x] = torch.ones(2) })
  end)
end)
