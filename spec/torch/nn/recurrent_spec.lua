-- Recurrent layers against their equations on single numbers, and the names,
-- shapes and texts of PyTorch 2.
local helper = require("spec.helper")
local torch = require("torch")

local raises = helper.raises

local nn = torch.nn

local function sigmoid(x)
  return 1 / (1 + math.exp(-x))
end

local function tanh(x)
  return 2 * sigmoid(2 * x) - 1
end

-- All parameters of a net of one unit are w.
local function constant(m, w)
  for _, p in ipairs(m:parameters()) do
    nn.init.constant_(p, w)
  end
  return m
end

describe("recurrent layers", function()
  local x = torch.tensor({ { { 1.0 } }, { { -2.0 } } }) -- two steps, batch of one

  it("follow their equations", function()
    local w, h, c = 0.5, 0.0, 0.0
    local want = { LSTM = {}, GRU = {}, RNN = {} }
    for t, v in ipairs({ 1.0, -2.0 }) do
      local s = w * v + w + w * h + w
      c = sigmoid(s) * c + sigmoid(s) * tanh(s)
      h = sigmoid(s) * tanh(c)
      want.LSTM[t] = { { h } }
    end
    local g, r = 0.0, 0.0
    for t, v in ipairs({ 1.0, -2.0 }) do
      local z = sigmoid(w * v + w + w * g + w)
      local n = tanh(w * v + w + z * (w * g + w))
      g = (1 - z) * n + z * g
      r = tanh(w * v + w + w * r + w)
      want.GRU[t], want.RNN[t] = { { g } }, { { r } }
    end
    for name, rows in pairs(want) do
      local out, last = constant(nn[name](1, 1), w)(x)
      helper.near(out, rows)
      helper.near(name == "LSTM" and last[1] or last, { rows[2] })
    end
    local _, state = constant(nn.LSTM(1, 1), w)(x)
    helper.near(state[2], { { { c } } })
  end)

  it("read backwards too and stack", function()
    local m = nn.LSTM(3, 4, { num_layers = 2, bidirectional = true, batch_first = true })
    local out, state = m(torch.ones({ 5, 7, 3 }))
    assert.same({ 5, 7, 8 }, { table.unpack(out.shape) })
    assert.same({ 4, 5, 4 }, { table.unpack(state[1].shape) })
    local forward, back = nn.RNN(1, 1), nn.RNN(1, 1, { bidirectional = true })
    constant(forward, 0.3)
    constant(back, 0.3)
    local want = forward(x:flip({ 0 })):flip({ 0 })
    helper.near(back(x)[":, :, 1:2"], want)
  end)

  it("have PyTorch's names, order and texts", function()
    local names = {}
    for name in nn.LSTM(2, 3, { bidirectional = true, proj_size = 1 }):named_parameters() do
      names[#names + 1] = name
    end
    assert.same({ "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0",
      "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
      "bias_hh_l0_reverse", "weight_hr_l0_reverse" }, names)
    assert.equal("LSTM(2, 3, num_layers=2, batch_first=True)",
      tostring(nn.LSTM(2, 3, 2, { batch_first = true })))
    assert.equal("GRUCell(2, 3)", tostring(nn.GRUCell(2, 3)))
  end)

  it("step as cells", function()
    local cell = constant(nn.LSTMCell(1, 1), 0.5)
    local h, c = cell(torch.ones({ 1, 1 }))
    local s = sigmoid(1.5)
    helper.near(c, { { s * tanh(1.5) } })
    helper.near(h, { { s * tanh(s * tanh(1.5)) } })
    assert.same({ 1 }, { table.unpack(nn.GRUCell(1, 1)(torch.ones({ 1 })).shape) })
  end)

  it("have gradients of 0 for a batch of nothing", function()
    for _, name in ipairs({ "RNN", "GRU", "LSTM" }) do
      for _, sizes in ipairs({ { 2, 3 }, { 64, 128 } }) do
        local m = nn[name](sizes[1], sizes[2], { bidirectional = true })
        for _ = 1, 100 do -- memory that is taken again does not hold zeros
          torch.full({ sizes[1] * sizes[2] }, 1e27)
        end
        collectgarbage()
        local out = m(torch.zeros({ 3, 0, sizes[1] }))
        assert.same({ 3, 0, 2 * sizes[2] }, { table.unpack(out.shape) })
        out:sum():backward()
        for key, p in m:named_parameters() do
          assert.equal(0, p.grad:abs():max():item(), name .. " " .. key)
        end
      end
    end
  end)

  it("refuse states and inputs of other sizes", function()
    helper.raises("RuntimeError", "Expected hidden size %(1, 1, 1%)", function()
      nn.GRU(1, 1)(x, torch.zeros({ 1, 2, 1 }))
    end)
    helper.raises("TypeError", "list {h_0, c_0}", function()
      nn.LSTM(1, 1)(x, torch.zeros({ 1, 1, 1 }))
    end)
    helper.raises("RuntimeError", "equal to input_size", function()
      nn.RNN(2, 1)(x)
    end)
  end)

  it("refuse what is no state of theirs", function()
    local function refuses(layer, expected, state)
      raises("TypeError", expected, function()
        layer(x[0], state)
      end)
    end
    local stacked = torch.zeros(3, 1, 1)
    for _, state in ipairs({ stacked, 3, { stacked[0] }, { 1, 2 },
      { stacked[0], stacked[1], stacked[2] } }) do
      refuses(nn.LSTM(1, 1), "^LSTM: the state is a list {h_0, c_0}, got", state)
      refuses(nn.LSTMCell(1, 1), "^LSTMCell: the state is a list {h_0, c_0}, got", state)
    end
    refuses(nn.GRU(1, 1), "^GRU: the state is a tensor, got a list of 1", { stacked[0] })
    refuses(nn.RNNCell(1, 1), "^RNNCell: the state is a tensor, got int 3", 3)
    local out = nn.LSTM(1, 1)(x[0], { stacked[0], stacked[1] })
    assert.same({ 1, 1 }, { table.unpack(out.shape) })
  end)

  it("refuse a cell's state of another batch, which would broadcast", function()
    for _, name in ipairs({ "RNNCell", "GRUCell", "LSTMCell" }) do
      local cell = nn[name](3, 4)
      local function step(x_size, size)
        local s = torch.zeros(size)
        local out = cell(torch.zeros(x_size), name == "LSTMCell" and { s, s } or s)
        return out.shape
      end
      local function refuses(expected, ...)
        local sizes = table.pack(...)
        raises("RuntimeError", "^" .. name .. ": " .. expected, function()
          step(table.unpack(sizes))
        end)
      end
      refuses("Expected a state of size %(2, 4%), got torch.Size%(%[1, 4%]%)", { 2, 3 }, { 1, 4 })
      refuses("Expected a state of size %(1, 4%)", { 1, 3 }, { 3, 4 })
      refuses("Expected a state of size %(2, 4%)", { 2, 3 }, { 4 })
      refuses("Expected a state of size %(2, 4%)", { 2, 3 }, { 2, 1 })
      refuses("Expected a state of size %(4%), got torch.Size%(%[2, 4%]%)", { 3 }, { 2, 4 })
      refuses("input.size.* equal to input_size. Expected 3, got 5", { 2, 5 }, { 2, 4 })
      raises("ValueError", "^" .. name .. ": Expected input to be 1D or 2D, got nil", cell)
      assert.same({ 2, 4 }, { table.unpack(step({ 2, 3 }, { 2, 4 })) })
      assert.same({ 4 }, { table.unpack(step({ 3 }, { 4 })) })
    end
  end)
end)

describe("a state of another kind", function()
  it("is described", function()
    local q = torch.randn(2, 3, 4)
    raises("TypeError", "got Tensor torch.float32 %[1, 3, 4%]", function()
      nn.LSTM(4, 4)(q, torch.zeros(1, 3, 4))
    end)
  end)
end)
