--- Suggestions for calls of nil.
local suggest = require("lupine.suggest")
require("torch").nn.Linear(1, 1)

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
