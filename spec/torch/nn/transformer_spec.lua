-- Attention and the Transformer: values of PyTorch 2 for the same parameters.
local helper = require("spec.helper")
local torch = require("torch")

local raises = helper.raises

local nn, F = torch.nn, torch.nn.functional

describe("scaled_dot_product_attention", function()
  it("hides later keys if causal", function()
    local q = torch.arange(6):float():reshape({ 3, 2 }) * 0.1
    local want = { { 0, 0.1 }, { 0.10353406, 0.20353405 }, { 0.21692492, 0.31692493 } }
    helper.near(F.scaled_dot_product_attention(q, q, q, { is_causal = true }), want)
    local mask = torch.ones({ 3, 3 }):tril():to(torch.bool)
    helper.near(F.scaled_dot_product_attention(q, q, q, mask), want)
  end)
end)

describe("MultiheadAttention", function()
  it("gives weights that sum to one and leaves hidden keys out", function()
    local m = nn.MultiheadAttention(4, 2)
    local x = torch.randn({ 3, 2, 4 })
    local hidden = torch.tensor({ { false, false, true }, { false, true, true } })
    local out, weights = m(x, x, x, { key_padding_mask = hidden })
    assert.same({ 3, 2, 4 }, { table.unpack(out.shape) })
    helper.near(weights:sum(-1), torch.ones({ 2, 3 }))
    helper.near(weights[1][":, 1:"], torch.zeros({ 3, 2 }))
    local _, none = m(x, x, x, { need_weights = false })
    assert.is_nil(none)
  end)

  it("takes is_causal for the mask where no weights are asked for", function()
    local m = nn.MultiheadAttention(2, 1, { add_zero_attn = true })
    local eye = torch.eye(2)
    torch.no_grad(function()
      m.in_proj_weight:copy_(torch.cat({ eye, eye, eye }))
      m.out_proj.weight:copy_(eye)
    end)
    local x = torch.tensor({ { { 1.0, 2 } }, { { 3, -1 } }, { { 0.5, 0.5 } } })
    local mask = torch.ones({ 3, 3 }):triu(1):to(torch.bool)
    -- PyTorch's values: the mask lets every row see the key of zeros, the hint none
    local seen = { { { 0.9716821, 1.9433641 } }, { { 2.9940221, -0.9939985 } },
      { { 1.319347, 0.6076550 } } }
    helper.near(m(x, x, x, { attn_mask = mask, is_causal = true }), seen)
    helper.near(m(x, x, x, { attn_mask = mask, need_weights = false }), seen)
    helper.near(m(x, x, x, { attn_mask = mask, is_causal = true, need_weights = false }),
      { { { 1, 2 } }, { { 2.9965608, -0.9948412 } }, { { 1.5274292, 0.703492 } } })
  end)

  it("takes no queries and no batch", function()
    local m = nn.MultiheadAttention(4, 2)
    local out, weights = m(torch.zeros({ 0, 2, 4 }), torch.zeros({ 2, 2, 4 }),
      torch.zeros({ 2, 2, 4 }))
    assert.same({ 0, 2, 4 }, { table.unpack(out.shape) })
    assert.same({ 2, 0, 2 }, { table.unpack(weights.shape) })
    local layer = nn.TransformerEncoderLayer(4, 2, 8)
    assert.same({ 3, 0, 4 }, { table.unpack(layer(torch.zeros({ 3, 0, 4 })).shape) })
  end)

  it("prints and names its parameters as PyTorch", function()
    local m = nn.MultiheadAttention(4, 2, { kdim = 3, add_bias_kv = true })
    assert.equal("MultiheadAttention(\n  (out_proj): NonDynamicallyQuantizableLinear("
      .. "in_features=4, out_features=4, bias=True)\n)", tostring(m))
    local keys = {}
    for key in pairs(m:state_dict()) do
      keys[#keys + 1] = key
    end
    assert.same({ "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k",
      "bias_v", "out_proj.weight", "out_proj.bias" }, keys)
  end)
end)

describe("the Transformer", function()
  it("encodes as PyTorch", function()
    local m = nn.TransformerEncoderLayer(4, 2, 8, { dropout = 0.0, batch_first = true })
    torch.no_grad(function()
      for i, p in ipairs(m:parameters()) do
        local n = torch.arange(p:numel()) % 5 - 2
        p:copy_(n:reshape(p.shape):float() * 0.1 + 0.01 * (i - 1))
      end
    end)
    local x = torch.arange(12):float():reshape({ 1, 3, 4 }):sin()
    local mask = nn.Transformer.generate_square_subsequent_mask(3)
    helper.near(m(x, { src_mask = mask })[0], {
      { -0.021746, 0.01, 0.174934, 0.462738 }, { -0.011298, 0.01, 0.092668, 0.546407 },
      { 0.065627, 0.01, 0.181383, 0.413613 },
    })
  end)

  it("has stacks of copies", function()
    local m = nn.Transformer(8, 2, 2, 1, { dim_feedforward = 16, batch_first = true })
    assert.equal(2, #m.encoder.layers)
    assert.not_equal(m.encoder.layers[1].linear1.weight, m.encoder.layers[2].linear1.weight)
    local out = m(torch.randn({ 2, 5, 8 }), torch.randn({ 2, 3, 8 }))
    assert.same({ 2, 3, 8 }, { table.unpack(out.shape) })
    out:sum():backward()
    assert.truthy(m.decoder.layers[1].multihead_attn.in_proj_weight.grad)
  end)
end)

describe("a static method of Transformer", function()
  it("may be called of an object", function()
    local t = nn.Transformer({ d_model = 4, nhead = 2, dim_feedforward = 4 })
    assert.is_true(torch.equal(t:generate_square_subsequent_mask(3),
      nn.Transformer.generate_square_subsequent_mask(3)))
  end)
end)

describe("a mask of another shape", function()
  it("is refused with the allowed ones", function()
    local q = torch.randn(2, 3, 4)
    local layer = nn.TransformerEncoderLayer(4, 2, 8)
    raises("RuntimeError", "key_padding_mask must have shape %(3, 2%), got %(2, 2%)", function()
      layer(q, { src_key_padding_mask = torch.zeros(2, 2):bool() })
    end)
    raises("RuntimeError", "attn_mask must have shape %(2, 2%) or %(6, 2, 2%), got %(3, 2%)",
      function() layer(q, { src_mask = torch.zeros(3, 2) }) end)
  end)
end)
