-- A compiled step whose loss is not finite changes nothing, if it is guarded. Values: a
-- step that was not called at all.
local epochs = require("spec.support.epochs")
local lupine = require("lupine")
local torch = require("torch")
local nn = torch.nn

local function bits(t)
  return epochs.text(t:detach():contiguous())
end

-- Everything that a step may write, by name.
local function everything(model, optimizer)
  local out = {}
  for name, t in pairs(model:state_dict()) do
    out[name] = bits(t)
  end
  for i, state in pairs(optimizer:state_dict().state) do
    for name, t in pairs(state) do
      out[i .. name] = torch.is_tensor(t) and bits(t) or t
    end
  end
  return out
end

local function make(name, opts)
  torch.manual_seed(1)
  local model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
  local optimizer = torch.optim[name](model:parameters(), { lr = 0.01 })
  local given = { optimizer = optimizer, loss = nn.MSELoss(), guard = true }
  for key, value in pairs(opts or {}) do
    given[key] = value
  end
  return model, optimizer, lupine.compile(model, given)
end

local x, y = torch.randn({ 4, 3 }), torch.randn({ 4, 2 })
local BAD = { torch.full({ 4, 2 }, 0 / 0), torch.full({ 4, 2 }, math.huge) }

describe("a guarded step", function()
  for _, name in ipairs({ "SGD", "AdamW", "Adamax" }) do -- the last one's update is eager
    it("changes nothing by a loss that is not finite: " .. name, function()
      local model, optimizer, step = make(name)
      step(x, y)
      assert.is_false(step.held)
      local before, updates = everything(model, optimizer), step.updates
      for _, bad in ipairs(BAD) do
        local _, loss = step(x, bad)
        assert.is_true(step.held)
        assert.is_true(loss:item() ~= loss:item() or loss:item() == math.huge)
        assert.same(before, everything(model, optimizer))
        assert.equal(updates, step.updates)
      end
      local other, other_optimizer, other_step = make(name)
      other_step(x, y)
      other_step(x, y)
      step(x, y)
      assert.is_false(step.held)
      assert.same(everything(other, other_optimizer), everything(model, optimizer))
    end)
  end

  it("drops what was gathered", function()
    local model, optimizer, step = make("AdamW", { accumulation = 2, clip_grad_norm = 0.1 })
    step(x, y)
    step(x, BAD[1])
    assert.same({ true, 0, 0 }, { step.held, step.gathered, step.updates })
    step(x, y)
    step(x, y)
    assert.equal(1, step.updates)
    local other, _, other_step = make("AdamW", { accumulation = 2, clip_grad_norm = 0.1 })
    other_step(x, y)
    other_step(x, y)
    assert.equal(bits(other[1].weight), bits(model[1].weight))
    assert.equal(other_step.optimizer:state_dict().state[0].step:item(),
      optimizer:state_dict().state[0].step:item())
  end)

  it("watches each of several losses, and tells their sum", function()
    local model, optimizer, step = make("SGD", { loss = function(out, target)
      return { near = (out - target):pow(2):mean(), small = out:abs():mean() }
    end })
    local _, parts = step(x, y)
    assert.is_true(math.abs(parts.near:item() + parts.small:item() - step:loss()) < 1e-6)
    local before = everything(model, optimizer)
    step(x, BAD[1])
    assert.is_true(step.held)
    assert.same(before, everything(model, optimizer))
  end)

  it("is asked for: others write what they get", function()
    local model, _, step = make("SGD", { guard = false })
    step(x, BAD[1])
    assert.is_false(step.held)
    assert.is_true(model[1].weight:isnan():any():item())
  end)
end)

describe("draws of a compiled step", function()
  it("do not depend on the line that calls it", function()
    local function loss(call)
      torch.manual_seed(2)
      local model = nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5), nn.Linear(64, 2))
      local step = lupine.compile(model, { loss = nn.MSELoss(),
        optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }) })
      return bits(call(step))
    end
    local a = loss(function(step)
      return (select(2, step(x, y)))
    end)
    local b = loss(function(step)
      return (select(2, step(x, y)))
    end)
    assert.equal(a, b)
  end)

  it("depend on the line of forward that draws", function()
    torch.manual_seed(3)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc = nn.Linear(3, 2)
    end
    function Net:forward(input)
      local a = nn.functional.dropout(input, 0.5)
      local b = nn.functional.dropout(input, 0.5)
      return self.fc(a), a, b
    end
    local model = Net()
    local step = lupine.compile(model, { loss = nn.MSELoss(),
      optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }) })
    local _, p, q = step(torch.ones({ 40, 3 }), torch.zeros({ 40, 2 }))
    assert.is_false(torch.equal(p, q))
  end)
end)
