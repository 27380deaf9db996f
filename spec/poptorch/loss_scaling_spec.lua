--- Options.Training:setAutomaticLossScaling: the scale that a training model finds, where
--- it is kept, what it costs, and what becomes of an update that is not finite.
local helper = require("spec.helper")
local files = require("spec.support.files")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises

local Weights = nn.Module:extend("Weights")

function Weights:init(n)
  self.w = nn.Parameter(torch.ones({ n or 5 }):half())
end

function Weights:forward(x)
  return poptorch.identity_loss(self.w * x, "sum")
end

local function options(fields)
  local opts = poptorch.Options()
  opts.Training:setAutomaticLossScaling(true)
  opts:anchorTensor("scale", "finalLossScale", poptorch.OutputMode.Final)
  opts:anchorTensor("counts", "Accum___autoLossScaleStats", poptorch.OutputMode.Final)
  for name, value in pairs(fields or {}) do
    opts._Popart:set("automaticLossScalingSettings." .. name, value)
  end
  return opts
end

local function trained(kind, arguments, opts, n)
  local model = Weights(n)
  arguments.params = model:parameters()
  local optimizer = kind(arguments)
  return poptorch.trainingModel(model, opts or options(), optimizer), optimizer, model
end

describe("automatic loss scaling", function()
  for _, kind in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", "LAMB" }) do
    for _, first in ipairs({ 1.0, 2.0 }) do
      it(("OPTIM30: %s has its factor of %g in the state dict"):format(kind, first), function()
        local arguments = { lr = 0.0, loss_scaling = first }
        local model, optimizer = trained(poptorch.optim[kind], arguments)
        local x = torch.ones(5):half()
        model:compile(x)
        for i = 0, 4 do
          local factor = optimizer:state_dict().ipu_state.lossScaleUpdateFactor:item()
          model(x)
          assert.equal(2 ^ i, factor)
          assert.equal(first * factor, model:getAnchoredTensor("scale"):item())
        end
      end)
    end
  end

  it("compares what is beyond the edge with all there is", function()
    for share, want in pairs({ [0.5] = 2, [0.4] = 2, [0.25] = 0.5 }) do
      local model, optimizer = trained(poptorch.optim.SGD, { lr = 0.0, loss_scaling = 1.0 },
        options({ thresholdUpperCountProportion = share }))
      model(torch.tensor({ 1, 10000, 2, 10000, 3 }):half()) -- of w and of the sum; edge 8188
      assert.same({ 4, 2 }, model:getAnchoredTensor("counts"):tolist())
      assert.equal(want, optimizer:state_dict().ipu_state.lossScaleUpdateFactor:item())
    end
  end)

  it("counts a fused operator's results, and nothing within", function()
    local L, E, V = 6, 8, 5 -- queries and keys, their size, that of values
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.q, self.k = nn.Linear(E, E, { bias = false }), nn.Linear(E, E, { bias = false })
      self.v = nn.Linear(E, V, { bias = false })
    end
    function Net:forward(x)
      local y = nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
      return poptorch.identity_loss(y, "sum")
    end
    -- gradients of query, key and value, of the three weights; what the loss is
    -- differentiated by is no product
    local products = 2 * L * E + L * V + 2 * E * E + E * V
    for method, want in pairs({ [0] = products + 1, [1] = products }) do
      local net = Net():half()
      local model = poptorch.trainingModel(net, options({ gradientTensorTrackingMethod = method }),
        poptorch.optim.SGD({ params = net:parameters(), lr = 0.0, loss_scaling = 1.0 }))
      model(torch.randn(L, E):half())
      assert.equal(want, model:getAnchoredTensor("counts"):sum():item())
    end
  end)

  it("does not count what is the loss's own gradient times something", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.w = nn.Parameter(torch.ones({ 5 }):half())
    end
    function Net:forward(x)
      local s = (self.w * x):sum()
      return poptorch.identity_loss(s * torch.tanh(s), "none")
    end
    local net = Net()
    local model = poptorch.trainingModel(net, options(),
      poptorch.optim.SGD({ params = net:parameters(), lr = 0.0, loss_scaling = 1.0 }))
    model(torch.ones(5):half())
    assert.equal(8, model:getAnchoredTensor("counts"):sum():item())
  end)

  it("takes optimizers of PyTorch", function()
    for _, kind in ipairs({ "SGD", "Adam", "AdamW", "RMSprop" }) do
      local model = trained(torch.optim[kind], { lr = 0.01 })
      for i = 0, 2 do
        model(torch.ones(5):half())
        assert.equal(2 ^ i, model:getAnchoredTensor("scale"):item())
      end
    end
  end)

  it("makes loss_scaling variable", function()
    local model, optimizer = trained(poptorch.optim.SGD, { lr = 0.1 })
    model(torch.ones(5):half())
    assert.is_false(optimizer.variable_attrs:isConstant("loss_scaling"))
    optimizer.loss_scaling = 3.0
    model:setOptimizer(optimizer)
    model(torch.ones(5):half())
    assert.equal(6, model:getAnchoredTensor("scale"):item())
  end)

  it("has the settings of Options._Popart", function()
    local model = trained(poptorch.optim.SGD, { lr = 0.0, loss_scaling = 16.0 },
      options({ binEdgeLocation = 4 / 65504, thresholdUpperCountProportion = 0.5 }))
    local scales = {}
    for i = 1, 5 do -- gradients of 16, 8, 4; 4 is not beyond the edge
      model(torch.ones(5):half())
      scales[i] = model:getAnchoredTensor("scale"):item()
    end
    assert.same({ 16, 8, 4, 8, 4 }, scales)
    for name, value in pairs({ binEdgeLocation = 1.5, thresholdUpperCountProportion = -1.0,
      updatePeriod = 0, gradientTensorTrackingMethod = 2 }) do
      raises("Error", name, function()
        trained(poptorch.optim.SGD, { lr = 0.1 }, options({ [name] = value })):compile(
          torch.ones(5):half())
      end)
    end
  end)

  it("counts a small part of many elements against the threshold", function()
    local n, share = 4096, 1 / 1024
    local x = torch.ones(n):half()
    x[0], x[1], x[2], x[3] = 16, 16, 16, 16
    for threshold, want in pairs({ [share * 0.9] = 0.5, [share * 1.1] = 2 }) do
      local model, optimizer = trained(poptorch.optim.SGD, { lr = 0.0 },
        options({ binEdgeLocation = 4 / 65504, thresholdUpperCountProportion = threshold }), n)
      model(x)
      assert.equal(4, model:getAnchoredTensor("counts")[1]:item())
      assert.equal(want, optimizer:state_dict().ipu_state.lossScaleUpdateFactor:item())
    end
  end)

  it("leaves out an update that is not finite, and halves the scale", function()
    for kind, states in pairs({ SGD = { "Accl1" }, Adam = { "Accl1", "Accl2", "Step" },
      RMSprop = { "Accl1" }, LAMB = { "Accl1", "Accl2", "Step" } }) do
      local arguments = { lr = 0.1, loss_scaling = 2.0 }
      if kind == "SGD" then
        arguments.momentum = 0.9
      end
      local model, optimizer, module = trained(poptorch.optim[kind], arguments,
        options({ updatePeriod = 3 }))
      local x, wild = torch.ones(5):half(), torch.tensor({ 1.0, 2, math.huge, 1, 1 }):half()
      model(x)
      local w, before = module.w:detach():clone(), optimizer:state_dict().ipu_state
      assert.equal(2, before.lossScaleUpdateFactor:item())
      for i = 1, 2 do
        model(i == 1 and wild or x * (0 / 0))
        local after = optimizer:state_dict().ipu_state
        assert.equal(2 / 2 ^ i, after.lossScaleUpdateFactor:item())
        assert.is_true(torch.equal(w, module.w))
        for _, name in ipairs(states) do
          assert.is_true(torch.equal(before[name .. "___w"], after[name .. "___w"]), name)
        end
        assert.equal(math.huge, model:getAnchoredTensor("counts")[1]:item())
      end
      model(x)
      assert.is_true(torch.isfinite(module.w):all():item())
      assert.is_false(torch.equal(w, module.w))
    end
  end)

  it("does not grow without end where gradients are zero", function()
    local model, optimizer = trained(poptorch.optim.SGD, { lr = 0.1 },
      options({ binEdgeLocation = 1.0 }))
    for _ = 1, 40 do
      model(torch.zeros(5):half())
    end
    assert.equal(32768, optimizer:state_dict().ipu_state.lossScaleUpdateFactor:item())
  end)

  it("does not shrink without end where no gradient is finite", function()
    local model, optimizer = trained(poptorch.optim.SGD, { lr = 0.1 }, options())
    for _ = 1, 70 do
      model(torch.full({ 5 }, math.huge):half())
    end
    assert.equal(2.0 ^ -64, optimizer:state_dict().ipu_state.lossScaleUpdateFactor:item())
  end)

  it("goes on from a state dict", function()
    local x = torch.ones(5):half()
    local model, optimizer, module = trained(poptorch.optim.Adam, { lr = 0.01 })
    for _ = 1, 3 do
      model(x)
    end
    local dict = optimizer:state_dict()
    assert.equal(8, dict.ipu_state.lossScaleUpdateFactor:item())
    model:destroy()
    local again = poptorch.optim.Adam({ params = module:parameters(), lr = 0.01 })
    again:load_state_dict(dict)
    local other = poptorch.trainingModel(module, options(), again)
    other(x)
    assert.equal(8, other:getAnchoredTensor("scale"):item())
    again:load_state_dict(dict) -- and while it runs
    other(x)
    assert.equal(8, other:getAnchoredTensor("scale"):item())
  end)

  it("goes on from a checkpoint and from an executable", function()
    local folder <close> = setmetatable({ path = files.folder() }, { __close = function(f)
      files.remove(f.path)
    end })
    local checkpoint = require("lupine.checkpoint")
    local x = torch.ones(5):half()
    local function start()
      local model, optimizer, module = trained(poptorch.optim.SGD, { lr = 0.01, momentum = 0.9 },
        options({ updatePeriod = 2 }))
      return { model = model, optimizer = optimizer }, module
    end
    local one, module = start()
    for _ = 1, 3 do
      one.model(x)
    end
    checkpoint.save(folder.path .. "/c", one)
    one.model:save(folder.path .. "/e.poptorch")
    local want = {}
    for i = 1, 3 do
      one.model(x)
      want[i] = { one.model:getAnchoredTensor("scale"):item(), module.w:tolist() }
    end
    local two, second = start()
    two.model(x)
    checkpoint.restore(folder.path .. "/c", two)
    for i = 1, 3 do
      two.model(x)
      assert.same(want[i], { two.model:getAnchoredTensor("scale"):item(), second.w:tolist() })
    end
    local loaded = poptorch.load(folder.path .. "/e.poptorch")
    loaded(x)
    assert.is_number(loaded:getAnchoredTensor("scale"):item())
  end)

  it("accumulates and pipelines as without", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)
      self.loss = nn.MSELoss()
    end
    function Net:forward(x, y)
      poptorch.Block.start("a", { ipu_id = 0 })
      local h = self.a(x):relu()
      poptorch.Block.start("b", { ipu_id = self.two and 1 or 0 })
      return self.loss(self.b(h), y)
    end
    local function run(two, scaled)
      torch.manual_seed(0)
      local net = Net()
      net.two = two
      net:half()
      local opts = scaled and options() or poptorch.Options()
      opts.Training:gradientAccumulation(4)
      opts:deviceIterations(2)
      local optimizer = poptorch.optim.SGD({ params = net:parameters(), lr = 0.1,
        loss_scaling = 4.0 })
      local model = poptorch.trainingModel(net, opts, optimizer)
      local x, y = torch.randn(8, 8):half(), torch.randn(8, 4):half()
      for _ = 1, 2 do
        model(x, y)
      end
      return net, model, optimizer
    end
    local plain = run(false, false)
    local one, model, optimizer = run(false, true)
    local two, piped, second = run(true, true)
    for name, p in pairs({ w = "a", v = "b" }) do
      assert.is_true(torch.allclose(plain[p].weight:float(), one[p].weight:float(),
        { rtol = 5e-3, atol = 5e-3 }), name)
      assert.is_true(torch.equal(two[p].weight, one[p].weight))
    end
    assert.equal(16, optimizer:state_dict().ipu_state.lossScaleUpdateFactor:item())
    assert.equal(16, second:state_dict().ipu_state.lossScaleUpdateFactor:item())
    assert.is_true(piped:report().cycles > 0 and model:report().cycles > 0)
  end)

  it("costs cycles in each micro-batch", function()
    local function cycles(scaled, n)
      local opts = scaled and options() or poptorch.Options()
      local model = trained(poptorch.optim.SGD, { lr = 0.1, loss_scaling = 2.0 }, opts, n)
      model:compile(torch.ones(n):half())
      return model:report().cycles
    end
    assert.is_true(cycles(true, 1 << 18) > cycles(false, 1 << 18))
    assert.is_true(cycles(true, 1 << 20) - cycles(false, 1 << 20)
      > cycles(true, 1 << 16) - cycles(false, 1 << 16))
  end)

  it("needs gradients of float16", function()
    local model = Weights()
    model:float()
    raises("Error", "No tracked gradient tensors of type fp16 were found", function()
      poptorch.trainingModel(model, options(), torch.optim.SGD(model:parameters(), 0.1))(
        torch.ones(5))
    end)
  end)

  it("is noted in an inference model", function()
    local opts = poptorch.Options()
    opts.Training:setAutomaticLossScaling(true)
    local model = poptorch.inferenceModel(nn.Linear(2, 2), opts)
    model(torch.ones(1, 2))
    assert.matches("setAutomaticLossScaling", table.concat(model:report().no_effect, "\n"))
  end)
end)
