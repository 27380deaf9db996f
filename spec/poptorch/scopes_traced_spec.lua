--- Scopes in a model that is traced: names of operators, and scopes that are
--- opened and never closed.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises

local function model_of(forward)
  local Net = nn.Module:extend("Net")
  function Net:init()
    self.fc = nn.Linear(4, 4)
  end
  Net.forward = forward
  return poptorch.inferenceModel(Net())
end

local x = torch.ones(2, 4)

describe("a scope that is never closed", function()
  it("is an error that names it, its place and the way to write it", function()
    local model = model_of(function(self, v)
      local b = poptorch.Block("encoder", { ipu_id = 0 })
      return self.fc(v), b and nil
    end)
    local e = raises("Error", "never closed", function()
      model(x)
    end)
    assert.matches("Block(user_id=encoder, ipu_id=0)", e.message, 1, true)
    assert.matches("scopes_traced_spec.lua:%d+", e.message)
    assert.matches("<close>", e.message, 1, true)
    assert.matches("Block.start", e.message, 1, true)
    assert.is_false(model:isCompiled())
  end)

  it("is one of names, too", function()
    local model = model_of(function(self, v)
      poptorch.NameScope("A")
      return self.fc(v)
    end)
    local e = raises("Error", "NameScope%(A%).*never closed", function()
      model(x)
    end)
    assert.is_nil(e.message:find("Block.start", 1, true))
  end)

  it("does not hide what forward raised, and is forgotten with it", function()
    local fails = true
    local model = model_of(function(self, v)
      if fails then
        poptorch.Block("A", 0)
        error("inside forward", 0)
      end
      return self.fc(v)
    end)
    assert.matches("inside forward", tostring(select(2, pcall(model, x))), 1, true)
    fails = false
    model(x)
  end)

  it("is none when it begins a block that lasts", function()
    for _, start in ipairs({
      function()
        poptorch.Block.start("A", 0)
      end,
      poptorch.BeginBlock(function() end, "A", 0),
      function()
        local _ <close> = poptorch.NameScope("A")
      end,
    }) do
      model_of(function(self, v)
        start()
        return self.fc(v)
      end)(x)
    end
  end)

  it("does nothing outside a trace", function()
    poptorch.Block("A")
    poptorch.NameScope("A")
    model_of(function(self, v)
      return self.fc(v)
    end)(x)
  end)
end)

describe("a name scope in a trace", function()
  it("stands in the report and changes no value", function()
    local model = model_of(function(self, v)
      return poptorch.NameScope("A", function()
        local _ <close> = poptorch.NameScope("B")
        return self.fc(v) * 2
      end)
    end)
    helper.near(model(x), model.model.fc(x) * 2)
    local scopes = {}
    for _, big in ipairs(model:report().memory[0].biggest) do
      scopes[big.scope] = true
    end
    assert.is_true(scopes["A/B/fc"])
  end)
end)
