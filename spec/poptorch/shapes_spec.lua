--- Models on device meta: compiled from shapes alone, they have the reports of models with
--- values and nothing to run.
local helper = require("spec.poptorch.helper")
local models = require("lupine.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local function raises(class_name, pattern, f, ...)
  assert.matches(pattern, tostring(helper.raises(class_name, f, ...)))
end

-- What f makes while tensors are made on a device.
local function on(device, f)
  torch.set_default_device(device)
  local got = table.pack(pcall(f))
  torch.set_default_device("cpu")
  assert(got[1], got[2])
  return table.unpack(got, 2, got.n)
end

local Cnn = nn.Module:extend("ShapesCnn")

function Cnn:init()
  self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
    nn.Linear(8 * 36, 10))
  self.loss = nn.CrossEntropyLoss()
end

function Cnn:forward(x, y)
  local out = self.net(x)
  return out, self.loss(out, y)
end

local Bert = nn.Module:extend("ShapesBert")

function Bert:init()
  self.bert = models.BertForPreTraining(models.BertConfig({ hidden_size = 32, vocab_size = 100,
    num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 64 }))
end

function Bert:forward(ids, labels, follows)
  local out = self.bert(ids, { labels = labels, next_sentence_label = follows })
  return poptorch.identity_loss(out.loss, "none")
end

local MODELS = {
  cnn = { Cnn, function()
    return torch.rand(8, 3, 8, 8), torch.zeros({ 8 }, { dtype = torch.int64 })
  end },
  bert = { Bert, function()
    local ids = torch.zeros({ 8, 16 }, { dtype = torch.int64 })
    return ids, ids, torch.zeros({ 8 }, { dtype = torch.int64 })
  end },
}

local OPTIMIZERS = {
  SGD = { lr = 0.1, momentum = 0.9 }, AdamW = { lr = 0.1 }, LAMB = { lr = 0.1 },
}

local function trainer(kind, optimizer)
  local model = MODELS[kind][1]()
  local options = poptorch.Options()
  options.Training:gradientAccumulation(4)
  return poptorch.trainingModel(model, options,
    poptorch.optim[optimizer](model:parameters(), OPTIMIZERS[optimizer])), MODELS[kind][2]()
end

describe("a model on device meta", function()
  for kind in pairs(MODELS) do
    for optimizer in pairs(OPTIMIZERS) do
      it(("(%s, %s) has the report of one with values"):format(kind, optimizer), function()
        local reports = {}
        for i, device in ipairs({ "cpu", "meta" }) do
          reports[i] = on(device, function()
            local made = table.pack(trainer(kind, optimizer))
            local executor = made[1]
            executor:compile(table.unpack(made, 2, made.n))
            local report = executor:report()
            executor:destroy()
            assert.is_false(executor:isCompiled())
            return report
          end)
        end
        assert.equal(reports[1].plan:json(), reports[2].plan:json())
        assert.equal(reports[1]:summary(), reports[2]:summary())
      end)
    end
  end

  it("does not run, and does once it has memory", function()
    local executor, x, y = on("meta", function()
      return trainer("cnn", "SGD")
    end)
    executor:compile(x, y)
    raises("Error", "compiled from shapes alone, as parameters are on device 'meta'.*to_empty",
      executor, torch.rand(8, 3, 8, 8), torch.zeros({ 8 }, { dtype = torch.int64 }))
    executor:destroy()
    local model = executor.model
    model:to_empty({ device = "cpu" })
    for _, p in model:named_parameters() do
      nn.init.ones_(p)
    end
    local again = poptorch.trainingModel(model, executor.options,
      poptorch.optim.SGD(model:parameters(), { lr = 0.1 }))
    local out = again(torch.rand(8, 3, 8, 8), torch.zeros({ 8 }, { dtype = torch.int64 }))
    assert.is_false(out.is_meta)
  end)

  it("infers shapes, in inference too", function()
    local executor, x, y = on("meta", function()
      return poptorch.inferenceModel(Cnn()), MODELS.cnn[2]()
    end)
    executor:compile(x, y)
    assert.equal(8, executor:report().samples)
  end)
end)

describe("a tensor on device meta", function()
  it("is written in place, which changes nothing", function()
    local x = torch.empty({ 3, 4 }, { device = "meta" })
    for _, f in ipairs({ function() x:zero_() end, function() x[0]:fill_(2) end,
      function() x:uniform_() end, function() x:mul_(2) end, function() x[1] = 3 end,
      function() x:copy_(torch.ones(3, 4)) end, function() x:add_(torch.ones(4)) end }) do
      f()
    end
    assert.same({ 3, 4 }, { table.unpack(x.shape) })
    raises("RuntimeError", "does not fit in place into shape", function()
      x:add_(torch.ones(2, 3, 4))
    end)
    raises("RuntimeError", "has no value", x[0][0].item, x[0][0])
  end)
end)
