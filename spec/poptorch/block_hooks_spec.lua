describe("a block that begins at a module", function()
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  -- IPUs of the operators that hooks put before and behind a layer's: mul, relu, neg.
  local function ipus(register)
    local net = nn.Sequential(nn.Tanh(), nn.ReLU())
    register(net[2], function(_, args)
      return { args[1] * 2 }
    end)
    net[2]:register_forward_hook(function(_, _, out)
      return -out
    end)
    local model = poptorch.inferenceModel(net, poptorch.Options():deviceIterations(2))
    model:compile(torch.ones(4))
    local of = {}
    for _, node in ipairs(model:report():nodes()) do
      of[node.operator] = node.ipu
    end
    return { of.tanh, of.mul, of.relu, of.neg }
  end

  it("has what hooks compute that were registered behind it", function()
    assert.same({ 0, 1, 1, 1 }, ipus(function(layer, hook)
      poptorch.BeginBlock(layer, "B", { ipu_id = 1 })
      layer:register_forward_pre_hook(hook)
    end))
  end)

  it("does not have what hooks compute that were registered before", function()
    assert.same({ 0, 0, 1, 1 }, ipus(function(layer, hook)
      layer:register_forward_pre_hook(hook)
      poptorch.BeginBlock(layer, "B", { ipu_id = 1 })
    end))
  end)

  it("is none any more once it was removed, hooks stay", function()
    assert.same({ 0, 0, 0, 0 }, ipus(function(layer, hook)
      poptorch.BeginBlock(layer, "B", { ipu_id = 1 })
      layer:register_forward_pre_hook(hook)
      poptorch.removeBlocks(layer)
    end))
  end)
end)

describe("Options.randomSeed", function()
  local program = require("spec.support.program")

  it("gives the same numbers in every process", function()
    local function draws(seed)
      local out, err = program.run({ "-e", ([[
        local torch, poptorch = require("torch"), require("poptorch")
        local Net = torch.nn.Module:extend("Net")
        function Net.forward(_, x)
          return torch.rand_like(x), torch.nn.functional.dropout(x, 0.5, true)
        end
        local options = poptorch.Options():randomSeed(%d):deviceIterations(2)
        local model = poptorch.inferenceModel(Net(), options)
        for _ = 1, 2 do
          local a, b = model(torch.ones(8))
          print(a, b, torch.rand(1):item())
        end]]):format(seed) })
      assert.equal("", err)
      return out
    end
    local first = draws(42)
    assert.equal(first, draws(42))
    assert.not_equal(first, draws(43))
  end)
end)
