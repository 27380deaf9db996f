-- Recurrent layers of ONNX against its equations in float64, and PyTorch's layers.
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local recorded = require("spec.lupine.onnx.recorded")
local torch = require("torch")

local LAYERS = [[
RNN 14 activations=ThresholdedRelu direction=reverse hidden_size=1 layout=1 | 2,2,3 1,1,3 1,1,1
 1,2 i:1,1 2,1,1 | 2,2,1,1:0 2,1,1:0
GRU 14 clip=0.43 hidden_size=3 layout=1 | 1,1,3 1,9,3 1,9,3 1,18 | 1,1,1,3:-0.323996
 1,1,3:-0.323996
LSTM 14 activations=Tanh,Softsign,Relu,Softsign,Affine,HardSigmoid direction=bidirectional
 hidden_size=3 | 2,1,3 2,12,3 2,12,3 2,24 - 2,1,3 | 2,2,1,3:0.816699 2,1,3:0.636647 2,1,3:-1.52186
RNN 14 clip=0.61 direction=bidirectional hidden_size=2 | 3,3,2 2,2,2 2,2,2 2,4 i:2,1,3 | -
 2,3,2:-4.69092
GRU 14 activation_alpha=0.68,0.35 activation_beta=0.56
 activations=Tanh,LeakyRelu,HardSigmoid,Softplus direction=bidirectional hidden_size=2
 linear_before_reset=1 | 3,2,3 2,6,3 2,6,2 - - 2,2,2 | 3,2,2,2:4.10826 2,2,2:-12.0579
LSTM 14 clip=0.45 direction=reverse hidden_size=2 layout=1 | 3,2,1 1,8,1 1,8,2 - i:2,2,2 3,1,2 |
 3,2,1,2:-0.814726 3,1,2:-0.737952 3,1,2:-1.37895
RNN 14 activation_alpha=0.57 activation_beta=0.31 activations=Affine,Relu clip=0.55
 direction=bidirectional hidden_size=1 layout=1 | 1,4,1 2,1,1 2,1,1 2,2 | 1,4,2,1:-0.0128472
 1,2,1:-0.0035
GRU 14 activation_alpha=0.89,0.19 activation_beta=0.45,0.58
 activations=HardSigmoid,Softplus,ScaledTanh,Relu clip=0.64 direction=bidirectional hidden_size=3
 | 1,2,3 2,9,3 2,9,3 - - 2,2,3 | 1,2,2,3:3.73479 2,2,3:3.73479
LSTM 14 activation_alpha=0.17,0.37,0.76 activation_beta=0.18,0.31,0.23
 activations=HardSigmoid,HardSigmoid,HardSigmoid clip=0.87 direction=reverse hidden_size=2 | 2,3,2
 1,8,2 1,8,2 1,16 - 1,3,2 | 2,1,3,2:0.276474 1,3,2:0.0875203 1,3,2:0.916424
RNN 7 activations=Elu,ThresholdedRelu direction=bidirectional hidden_size=1 | 3,3,2 2,1,2 2,1,1 -
 - 2,3,1 | 3,2,3,1:2.48835 2,3,1:0.354424
GRU 7 direction=reverse hidden_size=2 linear_before_reset=1 | 2,1,3 1,6,3 1,6,2 1,12 - 1,1,2 |
 2,1,1,2:1.54432 1,1,2:1.03472
LSTM 14 activation_alpha=0.62,0.74,0.63 activation_beta=0.17,0.83
 activations=ThresholdedRelu,Affine,HardSigmoid,Softsign,Softsign,Relu direction=bidirectional
 hidden_size=1 layout=1 | 2,3,1 2,4,1 2,4,1 2,8 i:3,2 - 2,2,1 | 2,3,2,1:0.216658 2,2,1:0.0120317
 2,2,1:0.028688
RNN 7 activation_alpha=0.76 activation_beta=0.88 activations=HardSigmoid,Softplus
 direction=bidirectional hidden_size=1 | 1,3,1 2,1,1 2,1,1 2,2 - 2,3,1 | - 2,3,1:1.28306
GRU 7 clip=0.45 direction=bidirectional hidden_size=1 linear_before_reset=1 | 1,3,3 2,3,3 2,3,1
 2,6 - 2,3,1 | 1,2,3,1:1.03205 2,3,1:1.03205
LSTM 14 hidden_size=2 input_forget=1 | 1,3,2 1,8,2 1,8,2 1,16 | 1,1,3,2:0.616825 1,3,2:0.616825
 1,3,2:2.65379
RNN 14 hidden_size=3 | 2,1,2 1,3,2 1,3,3 1,6 | - 1,1,3:0.291079
GRU 14 clip=0.5 hidden_size=3 layout=1 | 1,3,1 1,9,1 1,9,3 - i:3, 1,1,3 | 1,3,1,3:-1.88375
 1,1,3:-1.00525
LSTM 7 clip=0.37 direction=reverse hidden_size=2 | 2,3,3 1,8,3 1,8,2 1,16 i:1,2,1 1,3,2 |
 2,1,3,2:0.308247 1,3,2:0.220571 1,3,2:0.551668
RNN 7 activations=ScaledTanh hidden_size=1 | 4,1,3 1,1,3 1,1,1 1,2 - 1,1,1 | 4,1,1,1:-2.15679
 1,1,1:-0.998882
GRU 14 activations=Tanh,Tanh direction=reverse hidden_size=1 | 4,2,3 1,3,3 1,3,1 1,6 i:2,3 1,2,1 |
 4,1,2,1:-0.249207 1,2,1:-1.46279
LSTM 14 clip=0.33 direction=reverse hidden_size=3 | 3,2,1 1,12,1 1,12,3 1,24 i:1,3 |
 3,1,2,3:-0.00296892 1,2,3:0.0125824 1,2,3:0.0257407
RNN 14 clip=0.73 hidden_size=1 | 3,1,2 1,1,2 1,1,1 - - 1,1,1 | - 1,1,1:0.623065
GRU 7 activation_alpha=0.11 activations=Relu,LeakyRelu direction=reverse hidden_size=2 | 3,3,1
 1,6,1 1,6,2 1,12 i:3,3,2 1,3,2 | 3,1,3,2:0.426999 1,3,2:-0.0140939
LSTM 14 activations=Affine,Softplus,Sigmoid,ScaledTanh,ThresholdedRelu,Relu clip=0.68
 direction=bidirectional hidden_size=3 layout=1 | 3,4,2 2,12,2 2,12,3 2,24 i:3,2,3 - 3,2,3 | -
 3,2,3:-0.901655 3,2,3:0.362397
RNN 14 activation_alpha=0.25 activations=LeakyRelu direction=forward hidden_size=1 | 2,2,2 1,1,2
 1,1,1 1,2 i:1,1 | - 1,2,1:-0.113302
GRU 14 clip=0.87 hidden_size=1 layout=1 | 2,2,3 1,3,3 1,3,1 1,6 | 2,2,1,1:-0.587715
 2,1,1:-0.102022
LSTM 7 activations=Elu,Softplus,ScaledTanh direction=reverse hidden_size=3 input_forget=1 | 4,1,2
 1,12,2 1,12,3 1,24 | 4,1,1,3:2.29819 1,1,3:0.86441 1,1,3:-8.93204
RNN 14 activations=Tanh,ScaledTanh direction=bidirectional hidden_size=1 layout=1 | 1,2,1 2,1,1
 2,1,1 | 1,2,2,1:2.36268 1,2,1:1.17514
GRU 14 activations=HardSigmoid,LeakyRelu hidden_size=3 layout=1 linear_before_reset=1 | 1,4,3
 1,9,3 1,9,3 - i:4, | 1,4,1,3:1.4227 1,1,3:1.27621
LSTM 7 activations=Sigmoid,ThresholdedRelu,LeakyRelu direction=reverse hidden_size=2 | 1,2,3 1,8,3
 1,8,2 1,16 - 1,2,2 - 1,6 | 1,1,2,2:0.224115 1,2,2:0.224115 1,2,2:1.57286
RNN 14 direction=reverse hidden_size=2 | 3,3,3 1,2,3 1,2,2 1,4 i:2,1,2 1,3,2 | 3,1,3,2:-5.12693
 1,3,2:-3.1657
GRU 7 activations=Tanh,Sigmoid,Elu,LeakyRelu clip=0.79 direction=bidirectional hidden_size=1 |
 4,2,2 2,3,2 2,3,1 - - 2,2,1 | 4,2,2,1:2.23881 2,2,1:0.95853
LSTM 14 activation_alpha=0.2,0.36 activation_beta=0.37
 activations=Sigmoid,ScaledTanh,ThresholdedRelu direction=reverse hidden_size=1 | 4,1,1 1,4,1
 1,4,1 - i:1, 1,1,1 - 1,3 | 4,1,1,1:0 1,1,1:0 1,1,1:0.0127679
RNN 14 activations=Softplus,LeakyRelu clip=0.88 direction=bidirectional hidden_size=2 | 1,2,2
 2,2,2 2,2,2 2,4 i:1,1 | 1,2,2,2:1.7524 2,2,2:1.7524
GRU 7 direction=bidirectional hidden_size=1 | 4,3,3 2,3,3 2,3,1 2,6 - 2,3,1 | 4,2,3,1:-0.266254
 2,3,1:1.85355
LSTM 14 activation_alpha=0.64,0.2,0.16,0.75 activation_beta=0.61,0.5
 activations=Softplus,LeakyRelu,ScaledTanh,Softplus,Affine,LeakyRelu direction=bidirectional
 hidden_size=2 | 2,1,2 2,8,2 2,8,2 2,16 - 2,1,2 - 2,6 | - 2,1,2:0.49101 2,1,2:7.08134
RNN 14 direction=bidirectional hidden_size=2 layout=1 | 2,1,1 2,2,1 2,2,2 - - 2,2,2 |
 2,1,2,2:-1.29569 2,2,2:-1.29569
GRU 14 clip=0.6 direction=reverse hidden_size=2 layout=1 | 2,3,1 1,6,1 1,6,2 - i:1,2 2,1,2 |
 2,3,1,2:-0.203196 2,1,2:-0.438839
LSTM 14 direction=reverse hidden_size=1 layout=1 | 2,4,1 1,4,1 1,4,1 1,8 i:4,4 2,1,1 |
 2,4,1,1:-0.371938 2,1,1:-0.129513 2,1,1:-0.433549
RNN 14 hidden_size=3 layout=1 | 1,2,1 1,3,1 1,3,3 - - 1,1,3 | 1,2,1,3:1.1185 1,1,3:0.0236218
GRU 7 hidden_size=1 linear_before_reset=1 | 2,1,3 1,3,3 1,3,1 - i:1, 1,1,1 | 2,1,1,1:-0.380641
 1,1,1:-0.380641
LSTM 14 activation_alpha=0.3,0.66,0.12 activation_beta=0.87,0.35
 activations=Affine,HardSigmoid,Elu hidden_size=2 layout=1 | 1,1,3 1,8,3 1,8,2 1,16 i:1, - - 1,6 |
 1,1,1,2:0.452517 1,1,2:0.452517 1,1,2:1.38097
RNN 14 direction=bidirectional hidden_size=2 layout=1 | 2,4,3 2,2,3 2,2,2 2,4 i:3,2 |
 2,4,2,2:-2.98713 2,2,2:-2.13505
GRU 14 activation_alpha=0.58 activation_beta=0.84 activations=ScaledTanh,Softplus clip=0.31
 hidden_size=3 layout=1 | 2,3,1 1,9,1 1,9,3 1,18 - 2,1,3 | 2,3,1,3:4.71698 2,1,3:3.11404
LSTM 14 activations=Softplus,Elu,HardSigmoid,Relu,LeakyRelu,Softplus direction=bidirectional
 hidden_size=1 | 3,3,1 2,4,1 2,4,1 2,8 i:1,3,1 2,3,1 2,3,1 | 3,2,3,1:1.13296 2,3,1:1.09493
 2,3,1:0.103387
RNN 14 activation_alpha=0.39 activation_beta=0.82 activations=HardSigmoid clip=0.55
 direction=reverse hidden_size=3 | 4,1,1 1,3,1 1,3,3 - - 1,1,3 | - 1,1,3:2.17969
GRU 14 activations=Softsign,Relu direction=forward hidden_size=3 linear_before_reset=1 | 1,2,1
 1,9,1 1,9,3 1,18 i:1,1 | 1,1,2,3:0.108804 1,2,3:0.108804
LSTM 14 activations=HardSigmoid,Sigmoid,Relu hidden_size=2 | 4,3,2 1,8,2 1,8,2 - - 1,3,2 1,3,2 |
 4,1,3,2:1.29625 1,3,2:0.929327 1,3,2:3.77232
RNN 14 hidden_size=3 | 5,3,4 1,3,4 1,3,3 1,6 | 5,1,3,3:2.04854 1,3,3:-5.18067
RNN 14 direction=bidirectional hidden_size=3 | 5,3,4 2,3,4 2,3,3 2,6 | 5,2,3,3:-5.64013
 2,3,3:-3.92943
GRU 14 hidden_size=3 linear_before_reset=1 | 5,3,4 1,9,4 1,9,3 1,18 | 5,1,3,3:-4.60545
 1,3,3:2.16214
GRU 14 direction=bidirectional hidden_size=3 linear_before_reset=1 | 5,3,4 2,9,4 2,9,3 2,18 |
 5,2,3,3:-0.222581 2,3,3:2.53233
LSTM 14 hidden_size=3 | 5,3,4 1,12,4 1,12,3 1,24 | 5,1,3,3:-1.14661 1,3,3:0.488674 1,3,3:1.84786
LSTM 14 direction=bidirectional hidden_size=3 | 5,3,4 2,12,4 2,12,3 2,24 | 5,2,3,3:-0.0665141
 2,3,3:0.772853 2,3,3:2.31155]]

describe("ONNX", function()
  it("recurrent layers have the values of their equations", function()
    recorded.check(LAYERS, 2)
  end)

  it("recurrent layers have the gradients of differences, step by step and as a whole", function()
    for name, gates in pairs({ RNN = 1, GRU = 3, LSTM = 4 }) do
      local inputs = { recorded.wave({ 3, 2, 2 }, 1), recorded.wave({ 1, gates * 2, 2 }, 2),
        recorded.wave({ 1, gates * 2, 2 }, 3), recorded.wave({ 1, gates * 4 }, 4) }
      for i, t in ipairs(inputs) do
        inputs[i] = t:double():requires_grad_(true)
      end
      for _, clip in ipairs({ false, 9.0 }) do -- a clip that clips nothing: steps
        assert.is_true(torch.autograd.gradcheck(function(...)
          return node(name, { ... }, { clip = clip or nil })
        end, inputs))
      end
    end
  end)

  it("steps and whole layers agree", function()
    for name, gates in pairs({ RNN = 1, GRU = 3, LSTM = 4 }) do
      local inputs = { recorded.wave({ 4, 2, 3 }, 1), recorded.wave({ 2, gates * 2, 3 }, 2),
        recorded.wave({ 2, gates * 2, 2 }, 3) }
      local attributes = { direction = "bidirectional", linear_before_reset = name == "GRU" and 1
        or nil }
      local whole = node(name, inputs, attributes)
      attributes.clip = 99.0
      assert.is_true(torch.allclose(whole, node(name, inputs, attributes), 1e-5, 1e-6))
    end
  end)

  it("recurrent layers say what does not fit", function()
    local x, w, r = torch.ones(3, 2, 4), torch.ones(1, 8, 4), torch.ones(1, 8, 2)
    local function refuses(text, inputs, attributes)
      node.refuses("node 0 (LSTM): " .. text, "LSTM", inputs, attributes)
    end
    refuses("W: expected the shape torch.Size([1, 8, 4]), got torch.Size([1, 8, 3])",
      { x, torch.ones(1, 8, 3), r })
    refuses("attribute 'hidden_size' is 3, R has 2", { x, w, r }, { hidden_size = 3 })
    refuses("attribute 'direction': got 'both'. Allowed: forward, reverse, bidirectional",
      { x, w, r }, { direction = "both" })
    refuses("attribute 'activations': expected 3, got 1", { x, w, r },
      { activations = { "Tanh" } })
    refuses("sequence_lens: expected the shape torch.Size([2])",
      { x, w, r, false, torch.ones(3):int() })
  end)

  it("clip what activations get, also where PyTorch's layer is the rest", function()
    local x = torch.tensor({ 3.0, -2.0, 0.05 }):reshape({ 3, 1, 1 })
    local w, none = torch.ones(1, 1, 1), torch.zeros(1, 1, 1)
    local y = node("RNN", { x, w, none }, { hidden_size = 1, clip = 0.25 })
    helper.near(y:reshape({ -1 }), torch.tensor({ 0.25, -0.25, 0.05 }):tanh())
    local h = 0.0
    for i = 1, 3 do -- a GRU of gates z and n
      local a = math.max(-0.25, math.min(0.25, ({ 3.0, -2.0, 0.05 })[i]))
      local z, n = 1 / (1 + math.exp(-a)), torch.tensor(a):tanh():item()
      h = (1 - z) * n + z * h
    end
    y = node("GRU", { x, torch.ones(1, 3, 1), torch.zeros(1, 3, 1) }, { hidden_size = 1,
      clip = 0.25, linear_before_reset = 1 })
    helper.near(y[2]:reshape({ -1 }), { h })
  end)

  -- as ONNX Runtime has it: gates 0, so that the cell is half of 3 and is not clipped
  it("clip no cell of an LSTM before its last activation", function()
    local none = torch.zeros(1, 4, 1)
    local _, h, c = node("LSTM", { torch.ones(1, 1, 1), none, none, false, false,
      torch.zeros(1, 1, 1), torch.full({ 1, 1, 1 }, 3.0) }, { hidden_size = 1, clip = 0.25 },
      { outputs = 3 })
    assert.near(0.5 * (math.exp(3) - 1) / (math.exp(3) + 1), h:item(), 1e-6)
    assert.near(1.5, c:item(), 1e-6)
  end)
end)
