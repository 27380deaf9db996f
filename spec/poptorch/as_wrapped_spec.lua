describe("poptorch wrappers keep the model as it was when it was wrapped", function()
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  local Net = nn.Module:extend("Net")
  function Net:init()
    self.fc = nn.Linear(4, 4)
    self.dropout = nn.Dropout(0.5)
    self.factor = 2
  end
  function Net:forward(x, target)
    local y = self.dropout(self.fc(x)) * self.factor
    if self.training then
      return y, nn.functional.mse_loss(y, target)
    end
    return y
  end

  local function ones()
    return torch.ones({ 8, 4 })
  end

  it("in its mode, of all its parts (user guide, listing 4.5)", function()
    torch.manual_seed(1)
    local net = Net()
    net:eval()
    local inference = poptorch.inferenceModel(net)
    net:train()
    local trainer = poptorch.trainingModel(net)
    assert.is_true(trainer.training)
    assert.is_false(inference.training)
    local _, loss = trainer(ones(), ones())
    assert.equal(0, loss:dim())
    local one, two = inference(ones()), inference(ones())
    assert.is_true(torch.equal(one, two)) -- nothing is dropped
    assert.is_true(net.training and net.dropout.training)
    net:eval()
    torch.testing.assert_close(one, net(ones()))
    assert.equal(2, select("#", trainer(ones(), ones()))) -- still trains
  end)

  it("when it is compiled again, too", function()
    local net = Net():eval()
    local inference = poptorch.inferenceModel(net)
    net:train()
    inference(ones())
    inference:destroy()
    assert.equal(1, select("#", inference(ones())))
    assert.is_true(net.training)
  end)

  it("in its numbers, strings and booleans; not in its weights", function()
    local net = Net():eval()
    local inference = poptorch.inferenceModel(net)
    net.factor = 100
    torch.no_grad(function()
      net.fc.weight:fill_(1)
      net.fc.bias:zero_()
    end)
    assert.equal(8, inference(ones())["0, 0"]:item())
    assert.equal(100, net.factor)
  end)

  it("unless its `model` is changed, which for inference is another object", function()
    local net = Net()
    local inference = poptorch.inferenceModel(net)
    local trainer = poptorch.trainingModel(net)
    assert.equal(net, trainer.model)
    inference.model:eval()
    inference.model.factor = 0
    assert.same({ true, false, 2 }, { net.training, inference.training, net.factor })
    assert.equal(net.fc.weight, inference.model.fc.weight)
    assert.equal(0, inference(ones()):abs():sum():item())
    assert.equal(2, select("#", trainer(ones(), ones())))
    torch.testing.assert_close(inference.model(ones()), torch.zeros(8, 4))
  end)

  it("unless the executor itself changes it", function()
    local net = Net()
    local inference = poptorch.inferenceModel(net)
    assert.equal(inference, inference:eval())
    inference.factor = 0
    assert.is_false(net.training or net.dropout.training or inference.training)
    assert.equal(0, net.factor)
    assert.equal(0, inference(ones()):abs():sum():item())
  end)

  it("and forward's own assignments stay", function()
    local Counts = nn.Module:extend("Counts")
    function Counts:init()
      self.rows = 0
    end
    function Counts:forward(x)
      self.rows = x.shape[1]
      return x + 1
    end
    local net = Counts()
    poptorch.inferenceModel(net, poptorch.Options():deviceIterations(2))(torch.ones({ 6, 1 }))
    assert.equal(3, net.rows)
  end)

  it("and print as their module, with its blocks", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    poptorch.BeginBlock(net[2], { ipu_id = 0 })
    poptorch.BeginBlock(net[3], "B", 1)
    assert.equal([[
Sequential(
  (0): Linear(in_features=2, out_features=3, bias=True)
  (1): BeginBlock(user_id=None, ipu_id=0) ReLU()
  (2): BeginBlock(user_id=B, ipu_id=1) Linear(in_features=3, out_features=1, bias=True)
)]], tostring(poptorch.inferenceModel(net)))
    assert.is_nil(tostring(net):find("BeginBlock", 1, true))
  end)
end)
