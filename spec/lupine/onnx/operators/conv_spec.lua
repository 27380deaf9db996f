-- Convolutions of ONNX against PyTorch's with explicit padding, and their gradients.
local F = require("torch.nn.functional")
local node = require("spec.lupine.onnx.node")
local recorded = require("spec.lupine.onnx.recorded")
local torch = require("torch")

local CONV = [[
Conv 1 auto_pad=VALID dilations=1 group=2 kernel_shape=3 strides=1 | 2,2,5 4,1,3 | 2,4,3:11.0184
Conv 1 auto_pad=VALID dilations=2,1 group=1 strides=1,3 | 1,2,5,6 2,2,1,1 2 | 1,2,5,2:2.79933
Conv 11 auto_pad=VALID dilations=1,1,1 group=1 kernel_shape=2,1,3 strides=1,3,2 | 1,1,7,5,5
 2,1,2,1,3 | 1,2,6,2,2:9.40785
Conv 11 dilations=2 group=2 kernel_shape=2 pads=0,2 strides=2 | 1,4,6 6,2,2 6 | 1,6,3:1.73132
Conv 11 dilations=1,2 group=3 pads=2,0,2,2 strides=3,2 | 2,6,6,8 9,2,1,1 | 2,9,4,5:-1.23375
Conv 1 dilations=1,1,2 group=2 kernel_shape=2,1,1 pads=1,1,0,2,0,1 strides=2,2,3 | 2,4,8,7,8
 6,2,2,1,1 | 2,6,5,4,3:1.66238
Conv 11 auto_pad=VALID dilations=1 group=1 kernel_shape=2 strides=1 | 2,2,8 2,2,2 2 |
 2,2,7:2.48021
Conv 11 dilations=1,1 group=2 kernel_shape=3,2 pads=1,2,0,1 strides=1,1 | 1,4,6,6 4,2,3,2 4 |
 1,4,5,8:20.2201
Conv 1 auto_pad=SAME_LOWER dilations=2,2,2 group=2 kernel_shape=3,3,3 strides=3,3,1 | 2,2,8,8,5
 6,1,3,3,3 6 | 2,6,3,3,5:9.1928
Conv 11 auto_pad=VALID dilations=1 group=3 kernel_shape=2 strides=3 | 1,3,5 3,1,2 3 |
 1,3,2:2.35349
Conv 11 dilations=2,2 group=1 kernel_shape=3,2 pads=1,1,1,1 strides=1,3 | 1,1,7,8 1,1,3,2 1 |
 1,1,5,3:2.64557
Conv 11 auto_pad=SAME_UPPER dilations=1,1,2 group=2 strides=1,3,2 | 1,4,5,7,7 6,2,1,3,1 |
 1,6,5,3,4:1.66607
Conv 11 auto_pad=SAME_UPPER dilations=1 group=1 strides=3 | 2,1,6 1,1,2 | 2,1,2:0.827565
Conv 1 dilations=2,2 group=3 kernel_shape=3,3 pads=1,0,1,0 strides=2,2 | 1,6,5,6 3,2,3,3 |
 1,3,2,1:0.765747
Conv 1 auto_pad=SAME_LOWER dilations=2,1,2 group=3 strides=2,3,1 | 2,6,7,5,8 9,2,1,3,1 9 |
 2,9,4,2,8:13.974
Conv 1 auto_pad=SAME_UPPER dilations=2 group=1 kernel_shape=1 strides=3 | 2,1,6 1,1,1 |
 2,1,2:0.673106
Conv 11 auto_pad=VALID dilations=1,1 group=1 kernel_shape=3,1 strides=2,1 | 2,1,7,6 3,1,3,1 |
 2,3,3,6:-0.401058
Conv 11 dilations=2,1,1 group=3 pads=0,0,1,2,2,0 strides=3,3,3 | 1,3,5,8,6 3,1,3,2,2 3 |
 1,3,1,3,2:1.7843
Conv 1 auto_pad=VALID dilations=1 group=1 kernel_shape=1 strides=2 | 2,1,5 1,1,1 | 2,1,3:1.37265
Conv 11 auto_pad=VALID dilations=2,2 group=3 strides=3,1 | 2,6,8,6 9,2,3,3 9 | 2,9,2,2:-19.0878
Conv 1 dilations=2,1,1 group=1 kernel_shape=2,2,2 pads=1,0,1,0,2,0 strides=1,3,1 | 2,2,7,5,6
 1,2,2,2,2 1 | 2,1,6,2,6:-135.177
Conv 11 auto_pad=SAME_UPPER dilations=2 group=1 kernel_shape=2 strides=2 | 2,2,6 3,2,2 3 |
 2,3,3:1.26786
Conv 11 dilations=2,1 group=3 kernel_shape=1,2 pads=1,1,0,0 strides=2,3 | 1,6,5,6 9,2,1,2 9 |
 1,9,3,2:18.3733
Conv 11 dilations=1,2,1 group=2 kernel_shape=3,3,3 pads=2,0,1,0,2,0 strides=2,3,2 | 2,4,6,8,5
 2,2,3,3,3 | 2,2,3,2,2:-33.8366
Conv 11 dilations=1 group=1 kernel_shape=2 pads=0,1 strides=2 | 1,2,5 3,2,2 3 | 1,3,3:-1.01552
Conv 1 dilations=2,2 group=2 pads=0,2,2,2 strides=3,1 | 1,2,5,7 4,1,2,3 | 1,4,2,7:-13.8274
Conv 1 auto_pad=SAME_UPPER dilations=2,1,1 group=3 strides=2,3,2 | 2,3,7,6,6 9,1,3,2,3 |
 2,9,4,2,3:-13.2225
Conv 11 auto_pad=VALID dilations=1 group=1 kernel_shape=1 strides=1 | 2,2,8 2,2,1 2 |
 2,2,8:0.913281
Conv 1 dilations=2,2 group=1 kernel_shape=2,1 pads=1,0,0,1 strides=2,2 | 2,1,6,5 2,1,2,1 2 |
 2,2,3,3:0.498352
Conv 11 auto_pad=VALID dilations=2,1,2 group=1 kernel_shape=2,1,1 strides=2,3,1 | 1,1,7,6,5
 1,1,2,1,1 1 | 1,1,3,2,5:-0.460395
Conv 1 auto_pad=VALID dilations=1 group=1 kernel_shape=3 strides=3 | 2,2,5 3,2,3 | 2,3,1:0.0958352
Conv 1 auto_pad=VALID dilations=1,2 group=1 strides=3,2 | 1,1,8,5 1,1,1,1 1 | 1,1,3,3:5.33499
Conv 11 auto_pad=SAME_LOWER dilations=2,2,1 group=3 kernel_shape=3,3,1 strides=3,3,1 | 1,3,7,6,6
 9,1,3,3,1 9 | 1,9,3,2,6:4.30972
Conv 11 auto_pad=SAME_UPPER dilations=1 group=2 kernel_shape=3 strides=3 | 1,2,5 6,1,3 |
 1,6,2:-2.10695
Conv 1 auto_pad=SAME_LOWER dilations=1,1 group=1 kernel_shape=1,2 strides=2,3 | 2,1,8,7 2,1,1,2 |
 2,2,4,3:1.68644
Conv 11 auto_pad=VALID dilations=2,2,1 group=2 kernel_shape=1,2,2 strides=1,3,2 | 1,2,6,5,5
 4,1,1,2,2 4 | 1,4,6,1,2:13.6762]]

local TRANSPOSED = [[
ConvTranspose 1 auto_pad=SAME_UPPER dilations=2 group=1 output_padding=0 strides=2 | 1,2,2 2,1,2 1
 | 1,1,4:3.50294
ConvTranspose 11 dilations=2,2 group=1 pads=1,0,2,0 strides=2,1 | 1,2,3,2 2,2,2,1 2 |
 1,2,4,2:8.04959
ConvTranspose 1 auto_pad=SAME_LOWER dilations=1,2,2 group=1 output_padding=1,0,1 strides=2,3,1 |
 2,1,4,3,2 1,2,1,1,3 | 2,2,8,9,2:-0.83539
ConvTranspose 11 auto_pad=SAME_UPPER dilations=2 group=1 strides=1 | 1,2,3 2,2,3 2 |
 1,2,3:-2.38003
ConvTranspose 11 auto_pad=SAME_UPPER dilations=2,1 group=1 output_padding=0,0 strides=2,2 |
 1,2,2,4 2,2,3,1 | 1,2,4,8:-4.12827
ConvTranspose 11 auto_pad=SAME_LOWER dilations=2,1,2 group=1 strides=1,1,1 | 1,2,2,3,3 2,2,1,3,1 2
 | 1,2,2,3,3:4.84387
ConvTranspose 11 dilations=2 group=1 pads=1,1 strides=3 | 1,1,2 1,2,2 | 1,2,4:1.778
ConvTranspose 11 dilations=2,1 group=1 output_padding=1,0 pads=0,0,2,2 strides=3,2 | 2,1,2,3
 1,1,1,2 1 | 2,1,3,4:3.59939
ConvTranspose 11 auto_pad=SAME_LOWER dilations=2,1,2 group=1 output_padding=0,0,1 strides=1,3,3 |
 1,1,4,4,3 1,1,1,1,3 1 | 1,1,4,12,9:0.892888
ConvTranspose 11 dilations=2 group=1 pads=2,0 strides=2 | 2,1,3 1,1,3 1 | 2,1,7:7.5269
ConvTranspose 1 dilations=2,1 group=2 output_shape=6,4 strides=2,3 | 2,4,3,2 4,1,1,1 |
 2,2,6,4:-0.434068
ConvTranspose 1 dilations=1,1,2 group=1 pads=2,0,1,0,0,0 strides=2,1,2 | 1,2,2,3,3 2,3,3,1,1 |
 1,3,3,3,4:0.249746
ConvTranspose 11 dilations=2 group=1 output_padding=0 pads=1,0 strides=1 | 2,1,3 1,3,1 3 |
 2,3,2:3.2807
ConvTranspose 11 dilations=2,1 group=1 pads=2,0,1,1 strides=2,2 | 1,2,2,2 2,3,3,2 |
 1,3,4,3:-7.0318
ConvTranspose 11 dilations=1,2,2 group=1 pads=1,0,0,1,0,0 strides=2,3,2 | 2,1,4,3,2 1,1,3,2,1 |
 2,1,7,9,3:0.580513
ConvTranspose 1 auto_pad=SAME_LOWER dilations=2 group=1 strides=1 | 2,2,4 2,2,3 | 2,2,4:0.937501
ConvTranspose 11 dilations=2,2 group=1 output_padding=0,0 output_shape=6,6 strides=2,2 | 2,1,3,2
 1,1,2,3 1 | 2,1,6,6:2.30688
ConvTranspose 11 dilations=2,1,1 group=1 output_padding=0,0,0 output_shape=3,5,2 strides=2,1,1 |
 2,2,3,4,4 2,3,1,3,1 3 | 2,3,3,5,2:-2.63083
ConvTranspose 11 auto_pad=SAME_LOWER dilations=1 group=1 strides=2 | 1,1,4 1,1,2 1 | 1,1,8:6.32056
ConvTranspose 11 dilations=1,1 group=2 pads=0,0,1,0 strides=1,1 | 1,4,3,4 4,1,2,1 2 |
 1,2,3,4:2.57572
ConvTranspose 11 dilations=1,1,2 group=1 output_shape=4,2,1 strides=1,1,1 | 2,2,4,2,3 2,2,1,2,1 2
 | 2,2,4,2,1:1.72176
ConvTranspose 1 auto_pad=SAME_UPPER dilations=2 group=1 strides=2 | 2,1,2 1,1,2 | 2,1,4:4.17763
ConvTranspose 11 auto_pad=SAME_UPPER dilations=1,1 group=1 output_padding=0,1 strides=1,3 |
 2,1,3,4 1,2,3,3 | 2,2,3,12:-13.003
ConvTranspose 11 dilations=2,1,1 group=2 pads=0,0,0,2,0,2 strides=3,1,2 | 1,4,3,2,3 4,2,2,1,2 |
 1,4,7,2,4:-4.03494
ConvTranspose 1 dilations=1 group=1 output_padding=0 pads=0,1 strides=1 | 2,2,3 2,3,3 3 |
 2,3,4:6.98554
ConvTranspose 1 dilations=2,1 group=1 pads=1,0,2,0 strides=1,3 | 1,1,4,4 1,1,2,2 1 |
 1,1,3,11:2.72538
ConvTranspose 11 auto_pad=SAME_UPPER dilations=1,2,1 group=1 strides=1,1,3 | 2,2,3,4,3 2,1,1,1,3 |
 2,1,3,4,9:15.592
ConvTranspose 11 auto_pad=SAME_UPPER dilations=2 group=2 output_padding=1 strides=1 | 1,4,3 4,1,1
 | 1,2,3:3.23817
ConvTranspose 11 dilations=1,2 group=1 output_shape=5,7 strides=2,2 | 1,1,4,4 1,1,1,2 |
 1,1,5,7:4.2547
ConvTranspose 11 auto_pad=SAME_LOWER dilations=1,2,2 group=2 strides=3,1,1 | 1,2,2,4,4 2,1,1,3,3 2
 | 1,2,6,4,4:-35.568
ConvTranspose 11 dilations=2 group=1 pads=0,1 strides=1 | 1,2,4 2,3,2 3 | 1,3,5:2.56859
ConvTranspose 11 auto_pad=SAME_UPPER dilations=1,2 group=2 output_padding=0,2 strides=1,3 |
 1,4,3,4 4,2,1,2 | 1,4,3,12:7.27702
ConvTranspose 1 dilations=1,1,1 group=1 output_shape=8,5,6 strides=2,1,2 | 2,2,3,4,3 2,2,3,1,2 |
 2,2,8,5,6:-0.936483
ConvTranspose 1 auto_pad=SAME_LOWER dilations=1 group=1 strides=1 | 1,1,2 1,3,3 3 | 1,3,2:-2.78952
ConvTranspose 11 dilations=2,1 group=1 pads=1,1,1,0 strides=2,3 | 1,2,2,2 2,3,1,1 3 |
 1,3,1,3:-1.40136
ConvTranspose 1 dilations=1,1,1 group=2 output_padding=0,0,0 pads=0,1,0,2,1,0 strides=1,1,1 |
 1,4,3,2,2 4,3,3,3,2 | 1,6,3,2,3:38.1313]]

describe("ONNX", function()
  it("Conv has PyTorch's values", function()
    recorded.check(CONV, 2)
  end)

  it("ConvTranspose has PyTorch's values", function()
    recorded.check(TRANSPOSED, 2)
  end)

  it("convolutions have the gradients of differences", function()
    local x, w = recorded.wave({ 1, 2, 5 }, 1):double(), recorded.wave({ 2, 2, 3 }, 2):double()
    for op, attributes in pairs({
      Conv = { pads = { 2, 0 }, strides = { 2 } },
      ConvTranspose = { output_shape = { 12 }, strides = { 2 } },
    }) do
      assert.is_true(torch.autograd.gradcheck(function(...)
        return node(op, { ... }, attributes)
      end, { x:requires_grad_(true), w:requires_grad_(true) }))
    end
  end)

  it("ConvInteger takes zero points off", function()
    local x = torch.arange(12):to(torch.uint8):reshape(1, 2, 6)
    local w = torch.tensor({ 1, 2, 3, 4, 5, 6, 7, 8 }):to(torch.int8):reshape(2, 2, 2)
    local zero = torch.tensor({ 1, 3 }):to(torch.int8)
    local y = node("ConvInteger", { x, w, torch.tensor(2):to(torch.uint8), zero }, {},
      { version = 10 })
    local want = F.conv1d(x:float() - 2, w:float() - zero:float():reshape(2, 1, 1))
    assert.equal(torch.int32, y.dtype)
    assert.same(want:int():tolist(), y:tolist())
  end)

  it("QLinearConv rounds, clips and has its own scale for each channel", function()
    local x = torch.arange(12):to(torch.uint8):reshape(1, 2, 6)
    local w = torch.tensor({ 1, -2, 3, 4, 5, -6, 7, 8 }):to(torch.int8):reshape(2, 2, 2)
    local scales, b = torch.tensor({ 0.5, 0.25 }), torch.tensor({ 10, -20 }):int()
    local function byte(v)
      return torch.tensor(v):to(torch.uint8)
    end
    local y = node("QLinearConv", { x, torch.tensor(0.1), byte(3), w, scales,
      torch.tensor({ 0, 1 }):to(torch.int8), torch.tensor(0.4), byte(128), b }, { pads = { 1, 1 } })
    local sum = F.conv1d(x:double() - 3, w:double()
      - torch.tensor({ 0.0, 1.0 }, { dtype = torch.float64 }):reshape(2, 1, 1), nil, 1, 1)
      + b:double():reshape(1, 2, 1)
    local factor = (scales:double() * 0.1 / 0.4):reshape(1, 2, 1)
    assert.same(((sum * factor):round() + 128):clamp(0, 255):int():tolist(), y:int():tolist())
  end)

  it("convolutions refuse windows that do not fit, by the node's name", function()
    local x, w = torch.ones(1, 1, 4), torch.ones(1, 1, 3)
    for text, attributes in pairs({
      ["node 0 (Conv): attribute 'kernel_shape': dimension 0 is 2, the weight has 3"] =
        { kernel_shape = { 2 } },
      ["'pads': expected 2 numbers, got 1"] = { pads = { 1 } },
      ["'strides': expected numbers from 1 on, got 0"] = { strides = { 0 } },
      ["'auto_pad': got 'ALL'. Allowed: NOTSET"] = { auto_pad = "ALL" },
    }) do
      node.refuses(text, "Conv", { x, w }, attributes)
    end
  end)
end)
