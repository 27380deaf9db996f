-- Sequences of different lengths: packed, each goes as it would go alone.
local helper = require("spec.helper")
local torch = require("torch")
local nn = torch.nn
local rnn = nn.utils.rnn
local near = helper.near

describe("pad_sequence", function()
  it("pads to the longest, and back", function()
    local list = { torch.tensor({ 1, 2, 3 }), torch.tensor({ 4 }) }
    assert.same({ { 1, 4 }, { 2, 0 }, { 3, 0 } }, rnn.pad_sequence(list):tolist())
    assert.same({ { 1, 2, 3 }, { 4, 9, 9 } },
      rnn.pad_sequence(list, { batch_first = true, padding_value = 9 }):tolist())
    assert.same({ { 1, 2, 3 }, { 0, 0, 4 } },
      rnn.pad_sequence(list, true, 0, "left"):tolist())
    local back = rnn.unpad_sequence(rnn.pad_sequence(list), { 3, 1 })
    assert.same({ 1, 2, 3 }, back[1]:tolist())
    assert.same({ 4 }, back[2]:tolist())
  end)
end)

describe("packing", function()
  local x = torch.arange(12):reshape({ 3, 4 }) -- batch first

  it("goes step by step, the longest sequences first", function()
    local p = rnn.pack_padded_sequence(x, { 2, 4, 1 }, { batch_first = true,
      enforce_sorted = false })
    assert.same({ 4, 0, 8, 5, 1, 6, 7 }, p.data:tolist())
    assert.same({ 3, 2, 1, 1 }, p.batch_sizes:tolist())
    assert.same({ 1, 0, 2 }, p.sorted_indices:tolist())
    assert.same({ 1, 0, 2 }, p.unsorted_indices:tolist())
    local back, lengths = rnn.pad_packed_sequence(p, { batch_first = true, padding_value = -1,
      total_length = 5 })
    assert.same({ { 0, 1, -1, -1, -1 }, { 4, 5, 6, 7, -1 }, { 8, -1, -1, -1, -1 } }, back:tolist())
    assert.same({ 2, 4, 1 }, lengths:tolist())
    local q = rnn.pack_sequence({ torch.tensor({ 1, 2 }), torch.tensor({ 3 }) })
    assert.same({ 1, 3, 2 }, q.data:tolist())
  end)

  it("is refused for lengths that do not fit", function()
    for _, c in ipairs({ { { 1, 2, 3 }, "sorted in decreasing order" },
      { { 5, 1, 1 }, "the longest sequence has 5" }, { { 2, 1, 0 }, "greater than 0" } }) do
      helper.raises("RuntimeError", c[2], function()
        rnn.pack_padded_sequence(x, c[1], true)
      end)
    end
    helper.raises("ValueError", "expected 3 of them, got 2", function()
      rnn.pack_padded_sequence(x, { 2, 1 }, true)
    end)
  end)
end)

describe("recurrent layers over packed sequences", function()
  local lengths = { 3, 5, 1, 4 }
  local cases = {
    { "LSTM", { num_layers = 2, bidirectional = true } }, { "LSTM", { proj_size = 2 } },
    { "GRU", { num_layers = 2 } }, { "RNN", { bidirectional = true } },
  }

  for _, c in ipairs(cases) do
    it(c[1] .. " gives what each sequence gives alone, gradients too", function()
      torch.manual_seed(1)
      local net = nn[c[1]](3, 4, c[2])
      local x = torch.randn({ 5, 4, 3 })
      local out, state = net(rnn.pack_padded_sequence(x, lengths, { enforce_sorted = false }))
      local padded = rnn.pad_packed_sequence(out)
      padded:pow(2):sum():backward()
      local packed_grad = {}
      for i, p in ipairs(net:parameters()) do
        packed_grad[i], p.grad = p.grad, nil
      end
      for i, n in ipairs(lengths) do
        local y, last = net(x:narrow(0, 0, n):narrow(1, i - 1, 1))
        near(padded:narrow(0, 0, n):narrow(1, i - 1, 1), y)
        assert.equal(0, padded:narrow(0, n, 5 - n):select(1, i - 1):abs():sum():item())
        local a, b = state, last
        if c[1] == "LSTM" then
          near(state[2]:narrow(1, i - 1, 1), last[2])
          a, b = state[1], last[1]
        end
        near(a:narrow(1, i - 1, 1), b)
        y:pow(2):sum():backward()
      end
      for i, p in ipairs(net:parameters()) do
        near(packed_grad[i], p.grad)
      end
    end)
  end

  it("take a first state in the order of the batch", function()
    local net = nn.GRU(2, 3)
    local x, h = torch.randn({ 2, 2, 2 }), torch.randn({ 1, 2, 3 })
    local _, last = net(rnn.pack_padded_sequence(x, { 1, 2 }, { enforce_sorted = false }), h)
    local _, want = net(x:narrow(0, 0, 1):narrow(1, 0, 1), h:narrow(1, 0, 1))
    near(last:narrow(1, 0, 1), want)
  end)
end)
