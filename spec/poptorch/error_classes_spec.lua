--- Classes of the errors that a wrapped model's forward runs into.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises

describe("poptorch.Error is raised", function()
  -- forward, and what the message says
  local UNTRACEABLE = {
    { "nonzero", function(_, x)
      return x:nonzero()
    end, "nonzero has a result whose shape depends on its data" },
    { "one_hot without a number of classes", function(_, x)
      return nn.functional.one_hot(x:long())
    end, "one_hot" },
    { "a mask as an index", function(_, x)
      return x[x:gt(0)]
    end, "a mask as an index" },
    { "bincount without minlength", function(_, x)
      return torch.bincount(x:long())
    end, "without minlength" },
    { "item", function(_, x)
      return x + x[0]:item()
    end, "a traced tensor has no value" },
    { "tolist in a sub-module", function(_, x)
      return models.of(function(_, v)
        return torch.tensor(v:tolist())
      end)(x)
    end, "a traced tensor has no value" },
  }
  for _, case in ipairs(UNTRACEABLE) do
    it("for " .. case[1] .. " in a traced forward", function()
      local e = raises("Error", case[3], function()
        models.infer(case[2])(torch.tensor({ 1.0, 0, 2 }))
      end)
      assert.matches("^poptorch_%w+_error$", e.type)
    end)
  end

  it("for arguments that forward needs and did not get", function()
    raises("Error", "without its argument%(s%) 'input': linear", function()
      poptorch.inferenceModel(nn.Linear(2, 2))()
    end)
    raises("Error", "without its argument%(s%) 'b'", function()
      models.infer(function(_, a, b)
        return a * b
      end)(torch.ones(1))
    end)
  end)

  it("for options that are none", function()
    raises("Error", "expected poptorch.Options, got a list of 1", function()
      poptorch.inferenceModel(nn.ReLU(), { 1 })
    end)
  end)
end)

describe("outside poptorch", function()
  it("a value that is asked for while tracing is a RuntimeError", function()
    local e = raises("RuntimeError", "has no value", function()
      require("lupine").compile(function(x)
        return x + x[0]:item()
      end, { torch.ones(2) })
    end)
    assert.equal("untraceable_error", e.type)
    assert.is_false(poptorch.Error:is(e))
  end)
end)
