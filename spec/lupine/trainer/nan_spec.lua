-- A loss that is not finite names the module and the step, stops or skips, and leaves no
-- trace in weights, states and buffers. Values: the run that never met the batch.
local epochs = require("spec.support.epochs")
local lupine = require("lupine")
local torch = require("torch")
local nn = torch.nn
require("poptorch").setLogLevel("ERR")

-- x / 0 for a batch that has the mark.
local Divide = nn.Module:extend("Divide")

function Divide:forward(x)
  return x / x:ne(100):all():to(x.dtype)
end

local function model()
  torch.manual_seed(3)
  return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Sequential(Divide(), nn.ReLU()),
    nn.Linear(4, 1))
end

-- Divides where the input, not the first layer's output, has the mark.
local Marked = nn.Module:extend("Marked")

function Marked:init()
  self.net = model()
  self.gate = Divide()
end

function Marked:forward(x)
  return self.net(x) + 0 * self.gate(x):sum()
end

local function bits(t)
  return epochs.text(t:detach():contiguous())
end

local function all_bits(m)
  local out = {}
  for name, t in pairs(m:state_dict()) do
    out[name] = bits(t)
  end
  return out
end

-- Batches of numbers; those of `bad` have the mark.
local function batches(n, bad)
  local list = {}
  torch.manual_seed(5)
  for i = 1, n do
    local x, y = torch.randn({ 4, 2 }), torch.randn({ 4, 1 })
    if bad[i] then
      x[0] = 100
    end
    list[i] = { x, y }
  end
  return list
end

local function trainer(mode, list, other)
  local m = Marked()
  local set = { model = m, optimizer = torch.optim.Adam(m:parameters(), { lr = 0.05 }),
    loss = nn.MSELoss(), mode = mode, train = list, progress = false }
  for name, value in pairs(other or {}) do
    set[name] = value
  end
  return lupine.Trainer(set)
end

describe("a loss that is not finite", function()
  for _, mode in ipairs({ "eager", "compiled" }) do
    it("stops and names module and step: " .. mode, function()
      local t = trainer(mode, batches(6, { [4] = true }))
      local result = t:fit()
      assert.equal("nan", result.reason)
      assert.equal(3, result.step)
      assert.equal("gate", result.nan.module)
      assert.equal(4, result.nan.step)
      assert.matches("step 4 .*loss is %-?nan.*'gate' %(Divide%)", result.why)
      local clean = trainer(mode, batches(3, {}))
      clean:fit()
      assert.same(all_bits(clean.model), all_bits(t.model))
    end)

    it("is skipped without a trace: " .. mode, function()
      local list = batches(6, { [2] = true, [5] = true })
      local t = trainer(mode, list, { on_nan = "skip" })
      local result = t:fit()
      assert.same({ "finished", 6, 2 }, { result.reason, result.step, t.skipped })
      local clean = trainer(mode, { list[1], list[3], list[4], list[6] })
      clean:fit()
      assert.same(all_bits(clean.model), all_bits(t.model))
      local a, b = t.optimizer:state_dict(), clean.optimizer:state_dict()
      for i, state in pairs(a.state) do
        for name, value in pairs(state) do
          assert.equal(bits(b.state[i][name]), bits(value))
        end
      end
    end)

    it("drops the group that it is in: " .. mode, function()
      local list = batches(6, { [4] = true })
      local t = trainer(mode, list, { on_nan = "skip", accumulation = 2 })
      t:fit()
      local want = trainer(mode, { list[1], list[2], list[5], list[6] }, { accumulation = 2 })
      want:fit()
      for name, p in t.model:named_parameters() do
        assert.equal(bits(want.model:get_parameter(name)), bits(p), name)
      end
    end)

    it("tells of inputs that are not finite: " .. mode, function()
      local list = batches(2, {})
      list[2][1][1] = 0 / 0
      local result = trainer(mode, list):fit()
      assert.equal("net.0", result.nan.module)
      assert.matches("argument x of the model", result.why)
    end)

    it("tells of parameters that are not finite: " .. mode, function()
      local t = trainer(mode, batches(2, {}))
      torch.no_grad(function()
        t.model.net[4].bias:fill_(math.huge)
      end)
      local result = t:fit()
      assert.equal(0, result.step)
      assert.equal("net.3.bias", result.nan.parameter)
      assert.equal("net.3", result.nan.module)
    end)
  end

  it("stops a device, and names the module", function()
    local t = trainer("poptorch", batches(6, { [4] = true }))
    local result = t:fit()
    assert.equal("nan", result.reason)
    assert.equal(3, result.step)
    assert.equal("gate", result.nan.module)
    assert.is_true(t.model.net[1].weight:isfinite():all():item())
    t:close()
  end)

  it("is not awaited by a checkpoint of weights that are not finite", function()
    local root = os.tmpname()
    os.remove(root)
    finally(function()
      os.execute("rm -rf " .. root)
    end)
    local manager = lupine.checkpoint.Manager(root)
    local t
    t = trainer("eager", batches(4, {}), { checkpoints = manager, checkpoint_every = "1 step",
      callbacks = { { on_step = function()
        if t.step == 3 then
          torch.no_grad(function()
            t.model.net[1].bias:fill_(0 / 0)
          end)
        end
      end } } })
    local result = t:fit()
    assert.same({ "nan", 3 }, { result.reason, result.step })
    assert.matches("after step 3 the parameter 'net.0.bias' is not finite", result.why)
    local _, entry = manager:latest()
    assert.equal(2, entry.step)
  end)

  it("keeps the last good checkpoint", function()
    local root = os.tmpname()
    os.remove(root)
    finally(function()
      os.execute("rm -rf " .. root)
    end)
    local list = batches(6, { [4] = true })
    local manager = lupine.checkpoint.Manager(root, { keep = 1 })
    local result = trainer("compiled", list, { checkpoints = manager,
      checkpoint_every = "2 steps" }):fit()
    assert.equal("nan", result.reason)
    local _, entry = manager:latest()
    assert.equal(2, entry.step)
  end)
end)
