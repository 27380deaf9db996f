-- Modules and optimizers as data (torch/objects.lua): what comes back prints, has and
-- computes the same. Files with them: spec/poptorch/executables_spec.lua.
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local objects = require("torch.objects")
local torch = require("torch")

local function again(value)
  local d, w = objects.describe({ value = value }, "save")
  local text = core.json_encode(d)
  return objects.restore(core.json_decode(text), w.names, w.tensors, "load").value, text
end

describe("a description of", function()
  it("layers of the library gives them back", function()
    local x = torch.randn({ 2, 4, 6 })
    for _, layer in ipairs({ nn.Linear(6, 2), nn.Conv1d(4, 3, 3, { padding = 1 }),
      nn.BatchNorm1d(4), nn.GRU(6, 2, { num_layers = 2 }), nn.PReLU(4), nn.Softmax(1),
      nn.LayerNorm(6), nn.MultiheadAttention(6, 2), nn.AdaptiveAvgPool1d(2),
      nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(0.2)),
      nn.ModuleList({ nn.Linear(2, 2), nn.Tanh() }), nn.TransformerEncoderLayer(6, 2),
      nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)) }) do
      layer:eval()
      local loaded = again(layer)
      assert.equal(tostring(layer), tostring(loaded))
      assert.same(helper.state_keys(layer), helper.state_keys(loaded))
      if not nn.ModuleList:is(layer) then
        local args = nn.MultiheadAttention:is(layer) and { x, x, x } or { x }
        local want, got = layer(table.unpack(args)), loaded(table.unpack(args))
        assert.is_true(torch.equal(want, got), tostring(layer))
      end
    end
  end)

  it("a tensor that is there twice has it once", function()
    local a = nn.Linear(3, 3)
    local _, w = objects.describe({ a.weight, a.weight, { again = a } }, "save")
    assert.equal(2, #w.tensors) -- weight and bias
  end)

  it("a module has buffers that are no part of its state, still", function()
    local a = nn.Linear(3, 3)
    a:register_buffer("kept", torch.ones(2))
    a:register_buffer("own", torch.ones(3), false)
    assert.same({ "weight", "bias", "kept" }, helper.state_keys(a))
    local loaded = again(a)
    assert.same({ "weight", "bias", "kept" }, helper.state_keys(loaded))
    helper.near(loaded.own, torch.ones(3))
  end)

  it("a module that its init makes again has the arguments that were left out", function()
    local Odd = nn.Module:extend("OddArguments")
    function Odd:init(scale, bias, names, last)
      self.given = function() return { scale, tostring(bias), names, last } end
    end
    assert.same({ 2, "nil", { "a" }, false }, again(Odd(2, nil, { "a" }, false)).given())
  end)

  it("shared parameters and modules keeps them shared, and what is trained of them", function()
    local a = nn.Linear(3, 3)
    local net = nn.ModuleDict({ a = a, b = a, c = nn.Linear(3, 3) })
    net.c.weight = a.weight
    net.c.bias:requires_grad_(false)
    local loaded = again(net)
    assert.is_true(rawequal(loaded.a, loaded.b))
    assert.is_true(rawequal(loaded.a.weight, loaded.c.weight))
    assert.is_true(loaded.a.weight.requires_grad)
    assert.is_false(loaded.c.bias.requires_grad)
  end)

  it("an optimizer with its groups, states and notes of schedulers goes on as it would", function()
    for _, make in ipairs({
      function(p) return torch.optim.Adam(p, { lr = 0.1, amsgrad = true }) end,
      function(p) return torch.optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end,
      function(p) return torch.optim.RMSprop(p, { lr = 0.1, centered = true }) end,
    }) do
      local net = nn.Linear(3, 2)
      local both = { net = net, optimizer = make(net:parameters()) }
      local schedule = torch.optim.lr_scheduler.StepLR(both.optimizer, 1, 0.5)
      local x = torch.randn({ 4, 3 })
      local function step(of)
        of.optimizer:zero_grad()
        of.net(x):pow(2):sum():backward()
        of.optimizer:step()
      end
      step(both)
      schedule:step()
      local loaded = again(both)
      assert.equal(0.05, loaded.optimizer.param_groups[1].lr)
      step(both)
      step(loaded)
      assert.is_true(torch.equal(net.weight, loaded.net.weight))
      assert.is_true(rawequal(loaded.net.weight, loaded.optimizer.param_groups[1].params[1]))
    end
  end)

  it("what no file can hold is refused by its place", function()
    local net = nn.Sequential(nn.Linear(2, 2))
    net[1].callback = function() end
    net[1].thread = coroutine.create(print)
    net[1]:register_full_backward_hook(function() end)
    helper.refuses("TypeError", "'value.0' %(Linear%) has a hook of its gradients", again, net)
    local cls = nn.Module:extend("ThreadedNet")
    function cls:init(thread)
      self.thread = thread
    end
    helper.refuses("TypeError", "'value' %(ThreadedNet%): its field 'thread' is a thread", again,
      cls(coroutine.create(print)))
    local cycle = {}
    cycle[1] = cycle
    helper.refuses("ValueError", "a cycle", again, cycle)
  end)
end)
