-- lupine.compile of a training step against the plain script.
local compile = require("lupine.compile")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local steps = require("spec.support.training_steps")
local torch = require("torch")
local F = nn.functional

local NEAR = 1e-5

local function small()
  return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
end

local function adam(params)
  return torch.optim.Adam(params, { lr = 0.01 })
end

local function momentum(params)
  return torch.optim.SGD(params, { lr = 0.1, momentum = 0.9 })
end

local function batch(rows)
  return torch.randn({ rows, 6 }), torch.randint(0, 3, { rows })
end

-- Both trained for some calls of so many rows; nothing differs by more.
local function trained(t, rows, near)
  for _, n in ipairs(rows) do
    assert.is_true(steps.call(t, batch(n)) <= (near or NEAR))
  end
  local d, where = steps.apart(t)
  assert.is_true(d <= (near or NEAR), ("%s differs by %g"):format(tostring(where), d))
end

describe("a compiled training step", function()
  it("does what the plain script does, for batches of any size", function()
    local t = steps.twins(small, adam, { loss = nn.CrossEntropyLoss() })
    trained(t, { 8, 8, 8, 5, 8, 8, 5, 2, 8 })
    assert.same({ hits = 6, misses = 3, maxsize = 8, currsize = 3 },
      t.compiled.step:cache_info())
    assert.equal(9, t.compiled.step.updates)
  end)

  it("takes a loss that is a function, or one that forward returns", function()
    trained(steps.twins(small, momentum, { loss = function(out, target)
      return F.cross_entropy(out, target) + 0.01 * out:square():mean()
    end }), { 4, 4 })
    trained(steps.twins(small, momentum, { loss = F.cross_entropy }), { 4, 4 })
    local Own = nn.Module:extend("Own")
    function Own:init()
      self.net = small()
    end
    function Own:forward(x, target)
      local y = self.net(x)
      return y, F.cross_entropy(y, target)
    end
    trained(steps.twins(Own, momentum), { 4, 4 })
  end)

  it("finds the loss in a table, and minimises the sum of several", function()
    local Many = nn.Module:extend("Many")
    function Many:init()
      self.net = small()
    end
    function Many:forward(x, target)
      local y = self.net(x)
      return { logits = y, penalty = y:square():mean(), loss = F.cross_entropy(y, target) }
    end
    torch.manual_seed(1)
    local model = Many()
    local step = compile(model, { optimizer = momentum(model:parameters()) })
    local first = step(batch(8))
    assert.same({ "logits", "loss", "penalty" },
      require("lupine.base.tables").keys(first))

    torch.manual_seed(1)
    local a, b = small(), small()
    b:load_state_dict(a:state_dict())
    local x, target = batch(8)
    local function losses(out, t)
      return { F.cross_entropy(out, t), out:square():mean() }
    end
    local oa = momentum(a:parameters())
    local two = losses(a(x), target);
    (two[1] + two[2]):backward()
    oa:step()
    local _, got = compile(b, { optimizer = momentum(b:parameters()), loss = losses })(x, target)
    assert.near(two[1]:item(), got[1]:item(), 1e-6)
    assert.near(two[2]:item(), got[2]:item(), 1e-6)
    helper.near(b[1].weight, a[1].weight:tolist(), 1e-6)
  end)

  it("has no history, and leaves gradients alone", function()
    local model = small()
    local step = compile(model, { optimizer = adam(model:parameters()),
      loss = nn.CrossEntropyLoss() })
    local x, target = batch(4)
    local out, loss = step(x:requires_grad_(), target)
    assert.is_false(out.requires_grad)
    assert.is_false(loss.requires_grad)
    assert.is_nil(x.grad)
    assert.is_nil(model[1].weight.grad)
    helper.raises("RuntimeError", "take the backward%(%) and optimizer:step%(%) calls out",
      function() loss:backward() end)
  end)

  it("shares modules with another one, as two that play against each other", function()
    local function made(compiled)
      torch.manual_seed(3)
      local maker, judge = nn.Linear(4, 6), nn.Linear(6, 1)
      local both = nn.Sequential(maker, judge)
      local function of(model, params)
        local optimizer = torch.optim.Adam(params, { lr = 0.01 })
        local sign = model == both and -1 or 1
        local function loss(out)
          return out:tanh():mean() * sign
        end
        if compiled then
          return compile(model, { optimizer = optimizer, loss = loss })
        end
        return function(x)
          both:zero_grad()
          loss(model(x)):backward()
          optimizer:step()
        end
      end
      return both, of(both, maker:parameters()), of(judge, judge:parameters())
    end
    local a, make, judge = made(false)
    local b, compiled_make, compiled_judge = made(true)
    for _ = 1, 4 do
      local noise, real = torch.randn({ 5, 4 }), torch.randn({ 5, 6 })
      make(noise)
      compiled_make(noise)
      judge(real)
      compiled_judge(real)
    end
    for name, p in a:named_parameters() do
      helper.near(b:state_dict()[name], p:tolist(), 1e-6)
    end
  end)

  it("takes turns with eager code at any time", function()
    local t = steps.twins(small, adam, { loss = F.cross_entropy })
    local eager = steps.eager(t.compiled.model, t.compiled.optimizer, F.cross_entropy)
    for i = 1, 9 do
      local x, target = batch(4)
      t.eager.step(x, target);
      (i % 3 == 0 and eager or t.compiled.step)(x, target)
      if i % 2 == 0 then -- weights and states that are written are seen
        for _, side in pairs(t) do
          torch.no_grad(function()
            side.model[1].weight:mul_(0.9)
            side.optimizer.state[side.model[1].weight].exp_avg:mul_(0.5)
          end)
        end
      end
    end
    assert.is_true(steps.apart(t) <= NEAR)
  end)

  it("takes turns with other programs of the model", function()
    local Own = nn.Module:extend("Own")
    function Own:init()
      self.net = nn.Sequential(nn.Linear(6, 128), nn.Tanh(), nn.Linear(128, 3))
    end
    function Own:forward(x, target)
      local y = self.net(x)
      return y, target and F.cross_entropy(y, target)
    end
    local t = steps.twins(Own, function(params)
      return torch.optim.SGD(params, { lr = 0.1 })
    end)
    local model = t.compiled.model
    local trainer = poptorch.trainingModel(model, nil, torch.optim.SGD(model:parameters(),
      { lr = 0.1 }))
    local seer, inputs = poptorch.inferenceModel(model.net), torch.ones({ 2, 6 })
    local predict = compile(model.net, { inputs })
    for i = 1, 6 do
      local x, target = batch(4)
      t.eager.step(x, target)
      if i % 2 == 0 then
        t.compiled.step(x, target)
      else
        if i > 1 then
          trainer:copyWeightsToDevice()
        end
        trainer(x, target)
      end
      local want = t.eager.model.net(inputs):detach()
      if i > 1 then
        seer:copyWeightsToDevice()
      end
      assert.is_true(steps.difference(want, predict(inputs)) <= NEAR)
      assert.is_true(steps.difference(want, seer(inputs)) <= NEAR)
    end
    assert.is_true(steps.apart(t) <= NEAR)
  end)

  it("sees memory that tensors get, and state that is loaded", function()
    local t = steps.twins(small, adam, { loss = F.cross_entropy })
    trained(t, { 4, 4 })
    local model, optimizer = t.eager.model:state_dict(), t.eager.optimizer:state_dict()
    local kept = { model = {}, optimizer = optimizer }
    for name, v in pairs(model) do
      kept.model[name] = v:clone()
    end
    for _, states in pairs(optimizer.state) do
      for name, v in pairs(states) do
        states[name] = v:clone()
      end
    end
    trained(t, { 4, 4, 4 })
    for _, side in pairs(t) do
      side.model:load_state_dict(kept.model)
      side.optimizer:load_state_dict(kept.optimizer)
      side.model[1].weight.data = side.model[1].weight.data:clone() + 0.125
    end
    trained(t, { 4, 4 })
    assert.equal(1, t.compiled.step:cache_info().misses)
  end)

  it("gives a dictionary of states that eager optimizers take", function()
    local t = steps.twins(small, adam, { loss = F.cross_entropy })
    trained(t, { 4, 4, 4 })
    local other = steps.twins(small, adam, { loss = F.cross_entropy })
    other.eager.model:load_state_dict(t.compiled.model:state_dict())
    other.eager.optimizer:load_state_dict(t.compiled.optimizer:state_dict())
    other.compiled.model:load_state_dict(t.eager.model:state_dict())
    other.compiled.optimizer:load_state_dict(t.eager.optimizer:state_dict())
    trained(other, { 4, 4 })
  end)

  it("follows train() and eval(), of parts too", function()
    local t = steps.twins(small, adam, { loss = F.cross_entropy })
    trained(t, { 4 })
    for _, side in pairs(t) do
      side.model[2]:eval()
    end
    trained(t, { 4, 4 })
    for _, side in pairs(t) do
      side.model:train()
    end
    trained(t, { 4 })
    assert.equal(2, t.compiled.step:cache_info().misses)
  end)

  it("follows requires_grad", function()
    local t = steps.twins(small, momentum, { loss = F.cross_entropy })
    for _, side in pairs(t) do
      side.model[1].weight:requires_grad_(false)
    end
    trained(t, { 4, 4 })
    for _, side in pairs(t) do
      side.model[1].weight:requires_grad_(true)
      side.model[4].bias:requires_grad_(false)
      side.optimizer:zero_grad()
    end
    trained(t, { 4, 4 })
  end)

  it("trains tied parameters, and leaves alone those that nothing reads", function()
    local Tied = nn.Module:extend("Tied")
    function Tied:init()
      self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, { bias = false })
      self.head.weight = self.embed.weight
      self.unused = nn.Linear(2, 2)
    end
    function Tied:forward(ids)
      return self.head(self.embed(ids):mean(1))
    end
    local t = steps.twins(Tied, adam, { loss = F.cross_entropy })
    for _ = 1, 3 do
      assert.is_true(steps.call(t, torch.randint(0, 7, { 5, 3 }), torch.randint(0, 7, { 5 }))
        <= NEAR)
    end
    assert.is_true(steps.apart(t) <= NEAR)
    assert.is_nil(t.compiled.optimizer:state_dict().state[1])
  end)

  it("has parameters that are views or not contiguous", function()
    local t = steps.twins(function()
      local model = small()
      local flat = torch.zeros(48)
      flat:copy_(model[1].weight:detach():reshape(-1))
      model[1].weight = nn.Parameter(flat:view({ 8, 6 }))
      model[4].weight = nn.Parameter(model[4].weight:detach():t():contiguous():t())
      return model
    end, adam, { loss = F.cross_entropy })
    trained(t, { 4, 4, 3 })
  end)

  it("compiles anew for parameters that are replaced or converted", function()
    local t = steps.twins(small, momentum, { loss = F.cross_entropy })
    trained(t, { 4, 4 })
    for _, side in pairs(t) do
      side.model:double()
      side.optimizer.state = torch.optim.Optimizer._new_state()
    end
    for _ = 1, 2 do
      local x, target = batch(4)
      assert.is_true(steps.call(t, x:double(), target) <= 1e-12)
    end
    assert.is_true(steps.apart(t) <= 1e-12)
    helper.raises("ValueError", "is none of the model's", function()
      local model = t.compiled.model
      model[1].weight = nn.Parameter(torch.zeros({ 8, 6 }))
      t.compiled.step(batch(4))
    end)
  end)

  it("shows a loss that is no number", function()
    local model = small()
    local step = compile(model, { optimizer = momentum(model:parameters()),
      loss = function(out) return (out - math.huge):mean() end })
    local _, loss = step(torch.randn({ 4, 6 }))
    assert.equal(-math.huge, loss:item())
    _, loss = step(torch.randn({ 4, 6 }))
    assert.is_true(loss:item() ~= loss:item() or loss:item() == -math.huge)
  end)
end)

describe("a compiled step's random numbers", function()
  local function losses(seed)
    torch.manual_seed(2)
    local model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 3))
    local step = compile(model, { optimizer = momentum(model:parameters()),
      loss = F.cross_entropy })
    local x, target = torch.ones({ 4, 6 }), torch.tensor({ 0, 1, 2, 0 })
    torch.manual_seed(seed)
    local out = {}
    for i = 1, 4 do
      out[i] = select(2, step(x, target)):item()
    end
    return out
  end

  it("follow torch.manual_seed", function()
    assert.same(losses(5), losses(5))
    assert.not_same(losses(5), losses(6))
  end)

  it("go on where a state of the generator says", function()
    torch.manual_seed(2)
    local model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5))
    local step = compile(model, { optimizer = torch.optim.SGD(model:parameters(), { lr = 0.0 }),
      loss = function(out) return out:square():mean() end })
    local x = torch.ones({ 4, 6 })
    step(x)
    local state = torch.get_rng_state()
    local first = select(2, step(x)):item()
    assert.not_equal(first, select(2, step(x)):item())
    torch.set_rng_state(state)
    assert.equal(first, select(2, step(x)):item())
  end)
end)

describe("evaluating with a compiled step", function()
  it("shares the weights, in eval mode", function()
    local t = steps.twins(small, adam, { loss = F.cross_entropy })
    trained(t, { 8, 8 })
    local x, target = batch(5)
    local before = t.compiled.model[2].running_mean:clone()
    local out, loss = t.compiled.step:evaluate(x, target)
    local guess = t.compiled.step:predict(x)
    assert.is_true(t.compiled.model.training)
    assert.is_true(t.compiled.model[2].training)
    helper.near(t.compiled.model[2].running_mean, before:tolist(), helper.exact)
    t.eager.model:eval()
    local want = t.eager.model(x)
    assert.is_true(steps.difference(want:detach(), out) <= NEAR)
    assert.is_true(steps.difference(want:detach(), guess) <= NEAR)
    assert.near(F.cross_entropy(want, target):item(), loss:item(), NEAR)
    t.eager.model:train()
    trained(t, { 8 })
    assert.is_true(steps.difference(guess, t.compiled.step:predict(x)) > 1e-4)
  end)
end)
