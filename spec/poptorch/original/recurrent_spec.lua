--- PopTorch's own tests of recurrent layers (lstm, gru, rnn), on the device against
--- the host, in values and in training.
local device = require("spec.support.on_device")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local train = device.trains

local function randn(...)
  return torch.randn({ ... })
end

before_each(function()
  torch.manual_seed(42)
end)

describe("lstm_test", function()
  -- Both layers on sequences; the second call has the first one's state.
  local function check(lstm, x, hidden)
    local executor = poptorch.inferenceModel(lstm)
    for _ = 1, 2 do
      local out, new = lstm(x, hidden)
      local got, got_new = executor(x, hidden)
      device.close(got, out)
      device.close(got_new, new)
      hidden = { new[1]:detach(), new[2]:detach() }
    end
  end

  it("test_lstm", function()
    check(nn.LSTM(3, 3), randn(1, 1, 3), { randn(1, 1, 3), randn(1, 1, 3) })
  end)

  it("test_lstm2 and test_lstm_twice", function()
    check(nn.LSTM(3, 5), randn(5, 1, 3), { randn(1, 1, 5), randn(1, 1, 5) })
  end)

  it("test_lstm_batch_first", function()
    check(nn.LSTM(3, 5, { batch_first = true }), randn(1, 5, 3), { randn(1, 1, 5),
      randn(1, 1, 5) })
  end)

  it("test_lstm_batched", function()
    check(nn.LSTM(3, 5), randn(5, 4, 3), { randn(1, 4, 5), randn(1, 4, 5) })
  end)

  it("test_lstm_batched_batch_first", function()
    check(nn.LSTM(3, 5, { batch_first = true }), randn(4, 5, 3), { randn(1, 4, 5),
      randn(1, 4, 5) })
  end)

  it("test_lstm_fc", function()
    train(nn.LSTM(5, { hidden_size = 3, num_layers = 1, bias = true }), { randn(1, 2, 5) })
  end)

  it("test_gru", function()
    for _, bias in ipairs({ true, false }) do
      for _, batch_first in ipairs({ true, false }) do
        train(nn.GRU(5, 7, { bias = bias, batch_first = batch_first }),
          { batch_first and randn(3, 1, 5) or randn(1, 3, 5), randn(1, 3, 7) })
      end
    end
  end)

  it("test_rnn", function()
    for _, nonlinearity in ipairs({ "tanh", "relu" }) do
      for _, batch_first in ipairs({ true, false }) do
        train(nn.RNN(4, 3, 1, { nonlinearity = nonlinearity, batch_first = batch_first }),
          { batch_first and randn(8, 5, 4) or randn(5, 8, 4), randn(1, 8, 3) })
      end
    end
  end)
end)
