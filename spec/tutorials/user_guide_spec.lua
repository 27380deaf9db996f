--- Programs of PopTorch's user guide and package that are no listings of their
--- own, ported line by line: the adder, the LSTM, the simple training with its
--- twin on the host, five best classes, the branches of error handling.
local faults = require("lupine.faults")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local close = torch.testing.assert_close

it("simple_adder", function()
  local SimpleAdder = nn.Module:extend("SimpleAdder")
  function SimpleAdder.forward(_, x, y)
    return x + y
  end
  local model = SimpleAdder()
  local inference_model = poptorch.inferenceModel(model)
  local t1 = torch.tensor({ 1. })
  local t2 = torch.tensor({ 2. })
  assert.is_true(inference_model(t1, t2):eq(3.0):item())
end)

it("lstm", function()
  local SimpleLSTM = nn.Module:extend("SimpleLSTM")
  function SimpleLSTM:init()
    self.lstm = nn.LSTM(3, 3)
  end
  function SimpleLSTM:forward(input_tensors, hidden)
    local Y, Y_hc = self.lstm(input_tensors, hidden)
    return Y, { Y_hc[1], Y_hc[2] }
  end
  torch.manual_seed(1)
  local inputs = {}
  for i = 1, 5 do
    inputs[i] = torch.randn(1, 3)
  end
  inputs = torch.cat(inputs):view(#inputs, 1, -1)
  local hidden = { torch.randn(1, 1, 3), torch.randn(1, 1, 3) }
  local model = SimpleLSTM()
  local inference_lstm = poptorch.inferenceModel(model)
  local want, want_hidden = model(inputs, hidden)
  local out
  out, hidden = inference_lstm(inputs, hidden)
  close(out, want)
  assert.equal(2, #hidden)
  close(hidden[1], want_hidden[1])
  close(hidden[2], want_hidden[2])
end)

describe("poptorch_training_simple", function()
  local ExampleModel = nn.Module:extend("ExampleModel")

  function ExampleModel:init()
    self.bias = torch.nn.Parameter(torch.zeros({}))
  end

  function ExampleModel:forward(x)
    return torch.cat({
      100 * torch.nn.LeakyReLU()(-x + self.bias),
      100 * torch.nn.LeakyReLU()(x - self.bias),
    }, { dim = -1 })
  end

  local ExampleModelWithLoss = nn.Module:extend("ExampleModelWithLoss")

  function ExampleModelWithLoss:init()
    self.model = ExampleModel()
  end

  function ExampleModelWithLoss:forward(input, target)
    local out = self.model(input)
    return torch.nn.functional.softmax(out, { dim = -1 }),
      torch.nn.CrossEntropyLoss({ reduction = "mean" })(out, target)
  end

  local ExampleDataset = torch.utils.data.Dataset:extend("ExampleDataset")

  function ExampleDataset:init(shape, length)
    self._shape = shape
    self._length = length
    self._all_data = {}
    self._all_labels = {}
    torch.manual_seed(0)
    for i = 1, length do
      local label = torch.rand({}):item() > 0.5 and 1 or 0
      local data = (torch.rand(self._shape) + label) * 0.5
      self._all_data[i] = data
      self._all_labels[i] = label
    end
  end

  function ExampleDataset:__len__()
    return self._length
  end

  function ExampleDataset:__getitem__(index)
    return self._all_data[index + 1], self._all_labels[index + 1]
  end

  -- A tenth of the page's samples at ten times its rate.
  local LENGTH, RATE = 2000, 0.01

  it("on the device", function()
    local opts = poptorch.Options()
    opts:deviceIterations(10)
    local training_data = poptorch.DataLoader({ options = opts,
      dataset = ExampleDataset({ 1 }, LENGTH), batch_size = 10, shuffle = true,
      drop_last = true })
    local model = ExampleModelWithLoss()
    model:train()
    local optimizer = torch.optim.AdamW(model:parameters(), { lr = RATE })
    local poptorch_model = poptorch.trainingModel(model, { options = opts,
      optimizer = optimizer })
    local momentum_loss
    for batch, target in training_data do
      local _, loss = poptorch_model(batch, target)
      if momentum_loss == nil then
        momentum_loss = loss
      else
        momentum_loss = momentum_loss * 0.95 + loss * 0.05
      end
      if momentum_loss:item() < 0.1 then
        poptorch_model:setOptimizer(torch.optim.AdamW(model:parameters(), { lr = RATE / 10 }))
      end
    end
    assert.is_true(model.model.bias:item() > 0.4 and model.model.bias:item() < 0.6)
  end)

  it("on the host", function()
    local training_data = torch.utils.data.DataLoader(ExampleDataset({ 1 }, LENGTH),
      { batch_size = 10, shuffle = true, drop_last = true })
    local model = ExampleModelWithLoss()
    model:train()
    local optimizer = torch.optim.AdamW(model:parameters(), { lr = RATE })
    local momentum_loss
    for batch, target in training_data do
      optimizer:zero_grad()
      local _, loss = model(batch, target)
      loss:backward()
      optimizer:step()
      if momentum_loss == nil then
        momentum_loss = loss
      else
        momentum_loss = momentum_loss * 0.95 + loss * 0.05
      end
      if momentum_loss:item() < 0.1 then
        optimizer = torch.optim.AdamW(model:parameters(), { lr = RATE / 10 })
      end
    end
    assert.is_true(model.model.bias:item() > 0.4 and model.model.bias:item() < 0.6)
  end)
end)

describe("error_handling", function()
  local PytorchModel = nn.Module:extend("PytorchModel")
  function PytorchModel.forward(_, x, y)
    return x + y
  end

  -- The page's run_example; `fault` happens in its call.
  local function run_example(fault)
    local rebooted, shutdown, printed = false, false, {}
    local function reboot_server()
      rebooted = true
    end
    local function shutdown_system()
      shutdown = true
    end
    local function print(...)
      printed[#printed + 1] = table.concat({ ... }, " ")
    end

    faults.clear()
    if fault then
      faults.inject(fault)
    end
    local ok, e = pcall(function()
      local inference_model = poptorch.inferenceModel(PytorchModel())
      local t1 = torch.tensor({ 1. })
      local t2 = torch.tensor({ 2. })
      assert(inference_model(t1, t2):item() == 3.0)
    end)
    faults.clear()
    if ok then
      printed[1] = "done"
    elseif poptorch.RecoverableError:is(e) then
      if e.recovery_action == "FULL_RESET" then
        reboot_server()
      elseif e.recovery_action == "IPU_RESET" then
        print("Need to reset the IPU")
      elseif e.recovery_action == "PARTITION_RESET" then
        print("Need to reset the partition")
      end
    elseif poptorch.UnrecoverableError:is(e) then
      print(("Unrecoverable error: machine needs to be taken offline: %s"):format(e.message))
      shutdown_system()
    elseif poptorch.Error:is(e) then
      print(("Received %s from component %s, location: %s"):format(e.message, e.type, e.location))
    else
      error(e)
    end
    return table.concat(printed, "\n"), rebooted, shutdown
  end

  it("without an error, and with each", function()
    assert.same({ "done", false, false }, { run_example() })
    assert.same({ "Need to reset the IPU", false, false },
      { run_example({ kind = "recoverable", action = "IPU_RESET", step = 1 }) })
    assert.same({ "Need to reset the partition", false, false },
      { run_example({ kind = "recoverable", action = "PARTITION_RESET", step = 1 }) })
    assert.same({ "", true, false },
      { run_example({ kind = "recoverable", action = "FULL_RESET", step = 1 }) })
    local text, rebooted, shutdown = run_example({ kind = "unrecoverable", step = 1 })
    assert.matches("^Unrecoverable error: machine needs to be taken offline: ", text)
    assert.same({ false, true }, { rebooted, shutdown })
    text, rebooted, shutdown = run_example({ kind = "application", step = 1 })
    assert.matches("^Received .+ from component poplar_", text)
    assert.same({ false, false }, { rebooted, shutdown })
  end)
end)
