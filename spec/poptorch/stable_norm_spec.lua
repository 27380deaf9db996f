--- enableStableNorm: statistics of float16 in float32 and two passes, else halves
--- of one pass; what running averages are; what it costs.
local half_sums = require("spec.support.half_sums")
local nn = require("torch.nn")
local popart = require("popart")
local helper = require("spec.popart.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional

local function options(stable)
  return poptorch.Options():enableStableNorm(stable)
end

-- 4 x 8 x 5 x 5 numbers of float16 around `at`, whose deviation is 0.3.
local function around(at)
  local t = torch.arange(4 * 8 * 25):double()
  return (torch.sin(t * 1.91 + 0.37) * 0.42 + at):half():reshape(4, 8, 5, 5)
end

local function results(fn, x, stable, float)
  local Net = nn.Module:extend("Net")
  function Net:forward(v) -- luacheck: ignore self
    return fn(v)
  end
  return poptorch.inferenceModel(Net(), options(stable))(float and x:float() or x)
end

local NORMS = {
  layer = function(v) return F.layer_norm(v, { 8, 5, 5 }) end,
  group = function(v) return F.group_norm(v, 2) end,
  instance = function(v) return F.instance_norm(v) end,
  batch = function(v) return F.batch_norm(v, nil, nil, nil, nil, true) end,
}

-- The rows of x (n numbers each) normalised with half statistics, number by number.
local function reference(x, n)
  local list, out = x:double():reshape(-1):tolist(), {}
  for first = 0, #list - 1, n do
    local sum, square = 0.0, 0.0
    for i = 1, n do
      sum, square = sum + list[first + i], square + list[first + i] ^ 2
    end
    local mean = sum / n
    local variance = math.max(square / n - mean * mean, 0)
    local rstd = half_sums.f16(half_sums.f32(1 / math.sqrt(variance + 1e-5)))
    mean = half_sums.f16(half_sums.f32(mean))
    for i = 1, n do
      out[first + i] = (list[first + i] - mean) * rstd
    end
  end
  return torch.tensor(out):reshape(x.shape)
end

describe("enableStableNorm", function()
  for name, norm in pairs(NORMS) do
    it("gives float16 the statistics of float32: " .. name, function()
      for _, at in ipairs({ 0, 3, 100 }) do
        local x = around(at)
        local exact = norm(x:float())
        local stable, plain = results(norm, x, true), results(norm, x, false)
        assert.is_true(torch.allclose(exact, stable:float(), { atol = 2e-3, rtol = 1e-3 }))
        local off = (plain:float() - exact):abs():max():item()
        -- a mean of 100 is off by up to 2^-5, of a deviation of 0.3
        assert.is_true(at < 100 and off < 0.02 or at == 100 and off < 0.2, off)
        assert.is_false(torch.equal(stable, plain))
        assert.is_true(torch.equal(results(norm, x, true, true), results(norm, x, false, true)))
      end
    end)
  end

  it("is without it what halves make of it", function()
    local x = around(3) + torch.arange(4):reshape(4, 1, 1, 1):half() * 0.0625
    local want, exact = reference(x, 200), NORMS.layer(x:float())
    local got = results(NORMS.layer, x, false):float()
    -- but for the rounding of the results, and where float32 leaves that of rstd open
    assert.is_true((want - got):abs():max():item() < 1.5e-3)
    assert.is_true((exact - want):abs():max():item() > 2.5e-3)
  end)

  local function trained(stable, accumulation, at, norm)
    torch.manual_seed(3)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.norm, self.loss = norm or nn.BatchNorm2d(8), nn.MSELoss()
    end
    function Net:forward(x)
      local y = self.norm(x)
      return self.loss(y * y, torch.zeros_like(y) + 1)
    end
    local net = Net()
    net.norm.weight.data:copy_(net.norm.weight.data:half())
    local o = options(stable)
    o.Training:gradientAccumulation(accumulation)
    local model = poptorch.trainingModel(net, o, poptorch.optim.SGD(net:parameters(), { lr = 0.1 }))
    for _ = 1, 3 do
      model(torch.cat({ around(at), around(at) }))
    end
    return net, model
  end

  it("trains by the statistics it normalises with", function()
    for _, norm in ipairs({ nn.BatchNorm2d, nn.GroupNorm }) do
      local function weights(stable, at)
        local net = trained(stable, 2, at, norm == nn.GroupNorm and nn.GroupNorm(2, 8) or nil)
        return net.norm.weight:detach():float()
      end
      assert.is_true(torch.allclose(weights(true, 0), weights(false, 0), { atol = 5e-3 }))
      assert.is_false(torch.equal(weights(true, 100), weights(false, 100)))
    end
  end)

  it("leaves running averages in their buffers' type, made of float32", function()
    for _, stable in ipairs({ true, false }) do
      local net = trained(stable, 1, 100)
      assert.equal(torch.float32, net.norm.running_mean.dtype)
      local x = torch.cat({ around(100), around(100) }):double()
      local mean, left = x:mean({ 0, 2, 3 }), 0.9 ^ 3
      assert.is_true(torch.allclose(mean * (1 - left), net.norm.running_mean:double(),
        { rtol = 1e-6 }))
      local variance = x:var({ dim = { 0, 2, 3 } })
      assert.is_true(torch.allclose(variance * (1 - left) + left,
        net.norm.running_var:double(), { rtol = 2e-3 }))
    end
  end)

  it("costs a pass more", function()
    local function cycles(stable)
      local _, model = trained(stable, 1, 0)
      return model:report().cycles
    end
    assert.is_true(cycles(true) > cycles(false))
  end)

  it("is popart's as well", function()
    local function run(stable)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT16", { 4, 8, 5, 5 })
      local y = b.aiGraphcore:groupnormalization({ x,
        b:addInitializedInputTensor(torch.ones(8):half()),
        b:addInitializedInputTensor(torch.zeros(8):half()) }, 2)[1]
      local s = helper.inference(b, popart.DataFlow(1, { y }),
        { options = { enableStableNorm = stable } })
      return helper.run(s, { [x] = around(100) })[y]:float(), s:getReport()
    end
    local exact = F.group_norm(around(100):float(), 2)
    local stable, dear = run(true)
    local plain, cheap = run(false)
    assert.is_true((stable - exact):abs():max():item() < 2e-3)
    assert.is_true((plain - exact):abs():max():item() > 0.02)
    assert.is_true(dear.cycles > cheap.cycles)
    assert.is_nil(table.concat(dear.no_effect, "\n"):find("StableNorm"))
  end)
end)
