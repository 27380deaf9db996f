local helper = require("spec.passes.ipu.helper")
local multi_conv = require("lupine.multi_conv")
local nn = require("torch").nn
local popart = require("popart")
local popart_helper = require("spec.popart.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local N, WIDTH = 24, 32

-- N convolutions of fields of different heights, of which the tiles are drawn; their weights
-- of 1,024 floats lie on 32 tiles of 128 bytes each.
local function all(x, conv)
  local sum = 0
  for i = 1, N do
    sum = sum + conv(x:narrow(2, 0, i), i):sum()
  end
  return sum
end

local function report(settings)
  local o = {}
  function o.declare(declare)
    local list = { declare("input", "x", nil, { 1, WIDTH, N, 4 }) }
    for i = 1, N do
      list[i + 1] = declare("parameter", "w" .. i, torch.ones(WIDTH, WIDTH, 1, 1))
    end
    return list
  end
  return helper.simulate(helper.step(function(inputs, place, trace)
    place(0, 0)
    trace:origin({ ipu = 0, stage = 0, multi_conv = settings or "" })
    return all(inputs[1], function(x, i) return torch.conv2d(x, inputs[i + 1]) end)
  end, o))
end

local function text(dithering)
  return multi_conv.text(-1, { plan = "convolutions", reserved = 0, back_off = 0,
    dithering = dithering })
end

describe("convolutions that have not all tiles", function()
  it("have their weights at the last ones, unless they dither", function()
    local plain, drawn = report(), report(text({ true }))
    -- the last 32 tiles have the weights of all convolutions
    local more = plain.memory[0].max_tile - drawn.memory[0].max_tile
    assert.is_true(more > 0 and more < N * 128, more)
    assert.is_true(plain.memory[0].fullest_tile >= 1472 - 64)
    assert.equal(plain.memory[0].categories.weights, drawn.memory[0].categories.weights)
    assert.equal(plain.cycles, drawn.cycles)
    assert.equal(plain:json(), report(text({ false })):json())
  end)
end)

-- The fullest tile of a model that poptorch runs, with what its report notes.
local function of_poptorch(options, scope)
  local Net = nn.Module:extend("Net")
  function Net:init()
    self.layers = nn.ModuleList()
    for _ = 1, N do
      self.layers:append(nn.Conv2d(WIDTH, WIDTH, 1, { bias = false }))
    end
  end
  function Net:forward(x)
    return all(x, function(part, i)
      local layer = self.layers[i]
      return scope and scope()(function() return layer(part) end) or layer(part)
    end)
  end
  local model = poptorch.inferenceModel(Net(), options)
  model:compile(torch.zeros(1, WIDTH, N, 4))
  local r = model:report()
  return r.memory[0].max_tile, table.concat(r.no_effect, "\n")
end

describe("dithering", function()
  it("is asked for by Training.setConvolutionDithering and by MultiConv", function()
    local plain = of_poptorch(poptorch.Options())
    local opts = poptorch.Options()
    opts.Training:setConvolutionDithering(true)
    local drawn, notes = of_poptorch(opts)
    assert.is_true(drawn < plain)
    assert.is_nil(notes:find("ithering", 1, true))
    local scope
    scope, notes = of_poptorch(poptorch.Options(), function()
      return poptorch.MultiConv():enableConvDithering(true)
    end)
    assert.equal(drawn, scope)
    assert.is_nil(notes:find("ithering", 1, true))
  end)

  it("is asked for by PopART's convolutionOptions and by nodes", function()
    local function fullest(options, mark)
      local b = popart.Builder()
      local sums = {}
      for i = 1, N do
        local x = b:addInputTensor("FLOAT", { 1, WIDTH, i, 4 })
        local w = b:addInitializedInputTensor(torch.zeros(WIDTH, WIDTH, 1, 1))
        local y = b.aiOnnx:conv({ x, w })
        if mark ~= nil then
          b:setEnableConvDithering(y, mark)
        end
        sums[i] = b.aiOnnx:reducesum({ y }, { 0, 1, 2, 3 })
      end
      local x = b.aiOnnx:sum(sums)
      local s = popart_helper.inference(b, popart.DataFlow(1, { x }), { options = options })
      return s:getReport().memory[0].max_tile
    end
    local plain = fullest({})
    local drawn = fullest({ convolutionOptions = { enableConvDithering = true } })
    assert.is_true(drawn < plain)
    assert.equal(drawn, fullest({}, true))
    assert.equal(plain, fullest({ convolutionOptions = { enableConvDithering = true } }, false))
  end)
end)
