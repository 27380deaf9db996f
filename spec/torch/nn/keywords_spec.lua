--- Arguments of forward by name.
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("a call of a module by name", function()
  local Net = nn.Module:extend("Net")
  function Net:forward(ids, mask, labels)
    return ids, mask, labels
  end

  it("with a misspelt name next to a right one is an error with the nearest", function()
    local x = torch.ones(2)
    raises("TypeError", "forward has no parameter 'lables' %(nearest: 'labels'%)", function()
      Net()(x, { mask = x, lables = x })
    end)
  end)

  it("takes a dictionary that shares a name with forward as an argument", function()
    local batch = { input_ids = 1, labels = 2 }
    assert.equal(batch, (Net()(batch)))
    local options = { colour = 1 }
    assert.equal(options, select(2, Net()(1, options)))
  end)

  it("has nil for a None by name, which by position stays one", function()
    assert.same({ 1, nil, 3, n = 3 }, table.pack(Net()(1, { mask = torch.none, labels = 3 })))
    assert.equal(torch.none, select(2, Net()(1, torch.none)))
  end)

  it("of torch.nn's layers takes None for what is not given", function()
    local none, x, seq = torch.none, torch.randn({ 2, 4 }), torch.randn({ 3, 2, 4 })
    for _, call in ipairs({
      { nn.LSTM(4, 2), seq, none }, { nn.GRU(4, 2), seq, none }, { nn.RNN(4, 2), seq, none },
      { nn.LSTMCell(4, 2), x, none }, { nn.GRUCell(4, 2), x, none },
      { nn.ConvTranspose1d(2, 1, 2), seq, none },
      { nn.MultiheadAttention(4, 2), x, x, x, none, true, none },
      { nn.TransformerEncoderLayer(4, 2, 4):eval(), seq, none, { src_key_padding_mask = none } },
      { nn.Transformer(4, 2, 1, 1, 4):eval(), seq, seq, none, none, none },
    }) do
      local layer, given = call[1], 0
      for i = 2, #call do
        given = given + (core.is_tensor(call[i]) and 1 or 0)
      end
      local want = layer(table.unpack(call, 2, given + 1))
      helper.near((layer(table.unpack(call, 2))), want)
    end
    local compiled = require("poptorch").inferenceModel(nn.LSTM(4, 2))
    assert.same({ 3, 2, 2 }, { table.unpack(compiled(seq, none).shape) })
  end)

  it("with nothing but misspelt names is an error too", function()
    local A = nn.Module:extend("A")
    function A:forward(x, train)
      return x, train
    end
    raises("TypeError", "forward has no parameter 'trian' %(nearest: 'train'%)", function()
      A()(torch.ones(1), { trian = false })
    end)
  end)

  local q = torch.randn(2, 3, 4)

  it("takes only the names that a layer of torch.nn has", function()
    local m = torch.zeros(2, 2)
    raises("TypeError", "'h0' %(nearest: 'hx'%); allowed by name here: 'hx'", function()
      nn.GRU(4, 4)(q, { h0 = torch.zeros(1, 3, 4) })
    end)
    raises("TypeError", "no parameter 'reduction'; allowed by name here: none", function()
      nn.MSELoss()(q, q, { reduction = "sum" })
    end)
    raises("TypeError", "no parameter 'foo'", function()
      nn.ReLU()(q, { foo = 1 })
    end)
    raises("TypeError", "no parameter 'foo'", function()
      nn.Sequential(nn.ReLU())(q, { foo = 1 })
    end)
    raises("TypeError", "'need_weight' %(nearest: 'need_weights'%)", function()
      nn.MultiheadAttention(4, 2)(q, q, q, { need_weight = false })
    end)
    raises("TypeError", "'tgt_maks' %(nearest: 'tgt_mask'%)", function()
      nn.Transformer(4, 2, 1, 1, 8)(q, q, { tgt_maks = m })
    end)
    raises("TypeError", "'output_sise' %(nearest: 'output_size'%)", function()
      nn.ConvTranspose2d(1, 1, 2)(torch.ones(1, 1, 3, 3), { output_sise = { 4, 4 } })
    end)
    raises("TypeError", "'input' is given twice", function()
      nn.ReLU()(q, { input = q })
    end)
  end)

  it("does so with hooks", function()
    local layer = nn.ReLU()
    layer:register_forward_hook(function() end)
    raises("TypeError", "no parameter 'foo'", function()
      layer(q, { foo = 1 })
    end)
    helper.near(layer({ input = q }), q:relu())
  end)
end)

describe("more arguments than a layer of torch.nn takes", function()
  local x = torch.randn(2, 4)

  it("are an error, nil at the end is none", function()
    raises("TypeError", "forward takes 1 argument %(input%) but 2 were given", function()
      nn.Linear(4, 4)(x, 3)
    end)
    raises("TypeError", "forward takes 2 arguments %(input, target%) but 3", function()
      nn.MSELoss()(x, x, x)
    end)
    assert.equal(4, nn.Linear(4, 4)(x, nil):size(1))
  end)
end)
