--- Suggestions for calls of nil.
local suggest = require("lupine.base.suggest")
require("torch").nn.Linear(1, 1)

describe("A float where an integer is needed", function()
  it("is explained, wherever it was given", function()
    local torch, poptorch = require("torch"), require("poptorch")
    local x = torch.arange(6)
    for at, use in pairs({
      index = function() return x[4 / 2] end,
      assignment = function() x[{ 4 / 2 }] = 1 end,
      size = function() return torch.zeros(4 / 2) end,
      element = function() return torch.zeros({ 3, 2 ^ 3 }) end,
      reshape = function() return x:reshape(4 / 2, 3) end,
      layer = function() return torch.nn.Linear(8 / 2, 2) end,
      int = function() return torch.randperm(5 / 2) end,
      seed = function() return torch.manual_seed(4 / 2) end,
      batch = function() return torch.utils.data.DataLoader({ 1 }, { batch_size = 4 / 2 }) end,
      option = function() return poptorch.Options():deviceIterations(4 / 2) end,
    }) do
      local ok, e = pcall(use)
      assert.is_false(ok, at)
      assert.matches("; // divides integers", e.message, 1, true)
    end
    local _, e = pcall(torch.randperm, "2")
    assert.not_matches("divides", e.message)
  end)
end)

describe("A call of nil", function()
  it("gets the nearest names", function()
    local said = suggest("x.lua:3: attempt to call a nil value (method 'parametres')\ntrace")
    assert.equal("x.lua:3: attempt to call a nil value (method 'parametres') (nearest: "
      .. "'parameters', 'parameter')\ntrace", said)
    assert.matches("'zero_grad'",
      suggest("attempt to call a nil value (method 'zero_gard')"))
  end)

  it("says that a method needs a colon", function()
    assert.matches("'self'%); a method is called with a colon: object:method%(%.%.%.%)\ntrace",
      suggest("x.lua:3: attempt to index a nil value (local 'self')\ntrace"))
  end)

  it("says where lists begin", function()
    assert.matches("; lists count from 1, tensors from 0$",
      suggest("attempt to index a nil value (field 'integer index')"))
  end)

  it("stays as it is when nothing is near, or the name exists", function()
    for _, text in ipairs({
      "attempt to call a nil value (method 'qqqqqqq')",
      "attempt to call a nil value (method 'parameters')",
      "attempt to call a nil value (global 'parametres')",
      "attempt to index a nil value (field 'parametres')",
    }) do
      assert.equal(text, suggest(text))
    end
  end)

  it("of a module that is not loaded says what loads it", function()
    local program = require("spec.support.program")
    for code, says in pairs({ ["torch.ones(2)"] = 'local torch = require("torch")',
      ["F.relu(1)"] = 'local F = require("torch").nn.functional',
      ["poptorch.Options()"] = 'local poptorch = require("poptorch")' }) do
      local _, err = program.run({ "-e", code })
      assert.matches("; write " .. says .. " first\n", err, 1, true)
    end
    local _, err = program.run({ "-e", "torchh.ones(2)" })
    assert.not_matches("; write", err, 1, true)
  end)

  it("of a field of a module gets the names that the module has", function()
    local program = require("spec.support.program")
    for use, verb in pairs({ ["self.fc2(x)"] = "call", ["self.fc2.weight"] = "index" }) do
      local _, err = program.run({ "-e", ([[local nn = require("torch").nn
        local Net = nn.Module:extend("Net")
        function Net:init() self.fc1 = nn.Linear(2, 2) end
        function Net:forward(x) return %s end
        Net()(1)]]):format(use) })
      assert.matches(("attempt to %s a nil value (field 'fc2') (nearest: 'fc1')"):format(verb),
        err, 1, true)
    end
  end)

  it("of an executor or of a tensor names them at once", function()
    local torch, poptorch = require("torch"), require("poptorch")
    local model = poptorch.inferenceModel(torch.nn.Linear(1, 1))
    local _, e = pcall(function() model:copyWeightToHost() end)
    assert.matches("'copyWeightsToHost'", e.message)
    _, e = pcall(function() model:parametres() end)
    assert.matches("'parameters'", e.message)
    _, e = pcall(function() torch.ones(1):reshpae(1) end)
    assert.matches("'reshape'", e.message)
  end)

  it("names nothing that is not near", function()
    local torch = require("torch")
    for _, name in ipairs({ "jot", "fff", "distribute", "onyx" }) do
      local ok, e = pcall(function() return torch[name] end)
      assert.is_false(ok)
      assert.equal(("module 'torch' has no attribute '%s'"):format(name), e.message)
    end
  end)

  it("tables of functions and classes raise for a name that they do not have", function()
    local torch, lupine = require("torch"), require("lupine")
    for near, use in pairs({
      relu = function() return torch.nn.functional.reluu end,
      AdamW = function() return torch.optim.AdmW end,
      SGD = function() return torch.optim.Sgd end,
      transforms = function() return lupine.tranforms end,
      Resize = function() return require("lupine.transforms").Resise end,
      rotate = function() return require("lupine.transforms").functional.rotat end,
      load_file = function() return require("lupine.safetensors").loadfile end,
      FashionMNIST = function() return lupine.datasets.FashonMNIST end,
      read = function() return lupine.csv.raed end,
      write_png = function() return lupine.images.write_pgn end,
      savez = function() return lupine.numpy.svez end,
      StepLR = function() return torch.optim.lr_scheduler.StpLR end,
      xavier_uniform_ = function() return torch.nn.init.xavier_unifrom_ end,
      DataLoader = function() return torch.utils.data.Dataloader end,
      clip_grad_norm_ = function() return torch.nn.utils.clip_grad_nrom_ end,
    }) do
      local ok, e = pcall(use)
      assert.is_false(ok)
      assert.is_true(torch.errors.AttributeError:is(e))
      assert.matches("did you mean '" .. near .. "'?", e.message, 1, true)
    end
  end)

  it("tells param groups about misspelt options", function()
    local torch = require("torch")
    local opt = torch.optim.SGD({ torch.ones(1):requires_grad_() }, { lr = 0.1 })
    local ok, e = pcall(function() opt.param_groups[1].momentun = 0.9 end)
    assert.is_false(ok)
    assert.matches("'momentum'", e.message)
    opt.param_groups[1].lr = 0.2
    opt.param_groups[1].my_own_note = 1
    assert.equal(1, opt.param_groups[1].my_own_note)
  end)
end)
