describe("operators that cannot be compiled", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  local function model_of(forward)
    local Net = nn.Module:extend("Net")
    function Net.forward(_, x, i)
      return forward(x, i)
    end
    return poptorch.inferenceModel(Net())
  end

  -- The line of this file that calls this.
  local function line()
    return debug.getinfo(2, "l").currentline
  end

  it("are all told at once, each with its place in the script", function()
    local first
    local model = model_of(function(x, i)
      first = line()
      local positions = x:nonzero()
      local chosen = x[x:gt(0)]
      local different = torch.unique(x)
      local counts = torch.bincount(i)
      local classes = nn.functional.one_hot(i)
      return positions, chosen + different, counts, classes
    end)
    local e = helper.raises("Error", model, torch.ones(4), torch.arange(4))
    assert.matches("the model uses 5 operators that cannot be compiled:", e.message, 1, true)
    for i, what in ipairs({ "nonzero has", "a mask as an index: nonzero has", "unique has",
      "without minlength.*bincount has", "one_hot has" }) do
      assert.matches(("refused_spec.lua:%d: [^\n]*%s"):format(first + i, what), e.message)
    end
    assert.matches("Allowed: x[mask] = values, torch.where, masked_fill", e.message, 1, true)
    assert.is_false(model:isCompiled())
  end)

  it("are told also if forward fails on what they would have given", function()
    local e = helper.raises("Error", model_of(function(x)
      return x:nonzero() + torch.ones(3, 3)
    end), torch.ones(4))
    assert.matches("uses 1 operator that cannot be compiled", e.message)
    assert.matches("and then forward failed, .* do not broadcast", e.message)
  end)

  it("leave the model as it was: it may be mended and called again", function()
    local mended = false
    local model = model_of(function(x)
      return mended and torch.where(x:gt(0), x, 0) or x[x:gt(0)]
    end)
    helper.raises("Error", model, torch.ones(4))
    mended = true
    assert.same({ 0, 2 }, model(torch.tensor({ -1.0, 2.0 })):tolist())
  end)

  it("are told of the body of a loop", function()
    local e = helper.raises("Error", model_of(function(x)
      return poptorch.for_loop(2, function(y)
        return y + y:nonzero():sum()
      end, { x })
    end), torch.ones(4))
    assert.matches("refused_spec.lua:%d+: nonzero has", e.message)
  end)
end)
