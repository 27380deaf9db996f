--- Programs of PopTorch's tutorials that classify pictures, ported line by line:
--- the basics and mixed precision. The data are seeded
--- pictures instead of what the originals download, fewer epochs are run, and
--- what plots is left out.
local ClassificationModel = require("spec.support.classifier")
local Pictures = require("spec.support.pictures")
local poptorch = require("poptorch")
local torch = require("torch")
local transforms = require("lupine.transforms")

local close = torch.testing.assert_close

local function normalized(more)
  local list = { transforms.Normalize({ 0.5 }, { 0.5 }) }
  list[2] = more
  return transforms.Compose(list)
end

describe("basics", function()
  local opts, saved, eval_accuracy

  it("trains, saves, evaluates", function()
    torch.manual_seed(42)
    local train_dataset = Pictures(480, { transform = normalized() })
    local test_dataset = Pictures(96, { transform = normalized(), seed = 1 })
    local model = ClassificationModel(972, 1)
    model:train()
    opts = poptorch.Options()
    local train_dataloader = poptorch.DataLoader(opts, train_dataset,
      { batch_size = 16, shuffle = true, num_workers = 2 })
    local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.02, momentum = 0.9 })
    local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })

    local epochs, total = 2, {}
    for epoch = 1, epochs do
      local total_loss = 0.0
      for data, labels in train_dataloader do
        local output, loss = poptorch_model(data, labels)
        assert.equal("torch.Size([16, 10])", tostring(output.shape))
        total_loss = total_loss + loss
      end
      total[epoch] = total_loss:item() / #train_dataloader
    end
    poptorch_model:detachFromDevice()
    assert.is_true(total[2] < total[1], ("%g, %g"):format(total[1], total[2]))
    saved = os.tmpname()
    torch.save(model:state_dict(), saved)

    model = model:eval()
    local poptorch_model_inf = poptorch.inferenceModel(model, { options = opts })
    local test_dataloader = poptorch.DataLoader(opts, test_dataset,
      { batch_size = 32, num_workers = 2 })
    local predictions, labels = {}, {}
    for data, label in test_dataloader do
      local _, indices = poptorch_model_inf(data).data:max({ dim = 1 })
      predictions[#predictions + 1] = indices
      labels[#labels + 1] = label
    end
    poptorch_model_inf:detachFromDevice()
    assert.is_false(poptorch_model_inf:isAttachedToDevice())
    eval_accuracy = torch.cat(predictions):eq(torch.cat(labels)):float():mean():item()
    assert.is_true(eval_accuracy >= 0.89, eval_accuracy)
  end)

  it("predicts from the saved weights, on the device and on the host", function()
    local model = ClassificationModel(972, 1)
    model:load_state_dict(torch.load(saved))
    model:eval()
    local poptorch_model = poptorch.inferenceModel(model, { options = poptorch.Options() })
    local img_tensor, label = table.unpack(Pictures(1, { transform = normalized(), seed = 2 })[0])
    img_tensor = img_tensor:unsqueeze(0)
    local output = poptorch_model(img_tensor)
    local prediction_idx = output:argmax():item()
    poptorch_model:detachFromDevice()

    model = ClassificationModel(972, 1)
    model:load_state_dict(torch.load(saved))
    model:eval()
    local native = model(img_tensor)
    close(output, native)
    assert.equal(label, prediction_idx)
    assert.equal(label, native:argmax():item())
    os.remove(saved)
  end)

  it("chains options", function()
    opts = poptorch.Options():deviceIterations(20):replicationFactor(2):randomSeed(123)
      :useIpuModel(true)
    assert.equal(20, opts.device_iterations)
    assert.equal(2, opts.replication_factor)
    assert.equal(123, opts.random_seed)
  end)
end)

describe("mixed precision", function()
  -- The walkthrough's switches: execution, optimizer, stochastic rounding,
  -- partials; the accuracy and what came out.
  local function walkthrough(execution_half, optimizer_half, stochastic_rounding, partials_half)
    torch.manual_seed(7)
    local model = ClassificationModel(972, 1)
    if execution_half then
      model = model:half()
    end
    local transform = normalized(execution_half and transforms.ConvertImageDtype(torch.half) or nil)
    local train_dataset = Pictures(360, { transform = transform })
    local test_dataset = Pictures(96, { transform = transform, seed = 1 })

    local accum, loss_scaling
    if optimizer_half then
      accum, loss_scaling = torch.float16, 1024
    else
      accum, loss_scaling = torch.float32, nil
    end
    local optimizer = poptorch.optim.AdamW({ params = model:parameters(), lr = 0.003,
      accum_type = accum, loss_scaling = loss_scaling })

    local opts = poptorch.Options()
    if stochastic_rounding then
      opts.Precision:enableStochasticRounding(true)
    end
    if partials_half then
      opts.Precision:setPartialsType(torch.half)
    else
      opts.Precision:setPartialsType(torch.float)
    end
    local train_dataloader = poptorch.DataLoader(opts, train_dataset,
      { batch_size = 12, shuffle = true })
    model:train()
    local poptorch_model = poptorch.trainingModel(model, { options = opts, optimizer = optimizer })
    local output, loss
    for _ = 1, 2 do
      for data, labels in train_dataloader do
        output, loss = poptorch_model(data, labels)
      end
    end
    local dtype = execution_half and torch.float16 or torch.float32
    assert.equal(dtype, output.dtype)
    assert.is_true(loss:isfinite():item())
    poptorch_model:detachFromDevice()

    model:eval()
    local poptorch_model_inf = poptorch.inferenceModel(model, { options = opts })
    local test_dataloader = poptorch.DataLoader(opts, test_dataset, { batch_size = 32 })
    local predictions, labels = {}, {}
    for data, label in test_dataloader do
      local _, indices = poptorch_model_inf(data).data:float():max({ dim = 1 })
      predictions[#predictions + 1] = indices
      labels[#labels + 1] = label
    end
    poptorch_model_inf:detachFromDevice()
    assert.equal(dtype, model.fc1.weight.dtype)
    local wrong = torch.count_nonzero(torch.sub(torch.cat(labels), torch.cat(predictions)))
    return 1 - wrong:item() / 96
  end

  for name, switches in pairs({
    ["float32"] = {},
    ["half model and data"] = { true },
    ["half accumulation too"] = { true, true },
    ["stochastic rounding too"] = { true, true, true },
  }) do
    it(name, function()
      local got = walkthrough(table.unpack(switches, 1, 4))
      assert.is_true(got > 0.8, got)
    end)
  end
end)
