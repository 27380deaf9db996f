-- Poolings of ONNX against loops over windows, and their gradients.
local node = require("spec.lupine.onnx.node")
local recorded = require("spec.lupine.onnx.recorded")
local torch = require("torch")

local wave = recorded.wave

local POOLS = [[
MaxPool 12 auto_pad=VALID kernel_shape=2 strides=3 | 1,2,7 | 1,2,2:0.523566 1,2,2:21.219616
MaxPool 12 ceil_mode=1 dilations=2,1 kernel_shape=2,3 pads=0,2,0,0 strides=2,1 | 2,2,5,4 |
 2,2,2,4:-1.15173 2,2,2,4:-629.01992
MaxPool 12 dilations=2,2,2 kernel_shape=3,2,3 pads=1,0,2,0,0,2 storage_order=1 strides=1,2,3 |
 1,2,5,4,4 | 1,2,2,1,2:7.06301 1,2,2,1,2:564.25447
MaxPool 12 auto_pad=VALID kernel_shape=2 strides=2 | 2,2,7 | 2,2,3:2.15155 2,2,3:98.827777
MaxPool 12 auto_pad=SAME_LOWER kernel_shape=3,2 strides=2,3 | 1,2,7,5 | 1,2,4,2:7.46158
 1,2,4,2:223.06126
MaxPool 12 kernel_shape=2,3,3 pads=0,2,0,0,0,0 strides=1,3,1 | 2,2,4,4,5 | 2,2,3,2,3:5.57518
 2,2,3,2,3:2501.0083
MaxPool 12 auto_pad=SAME_LOWER kernel_shape=3 storage_order=1 strides=1 | 1,2,4 | 1,2,4:5.10466
 1,2,4:22.118322
MaxPool 12 ceil_mode=1 dilations=2,1 kernel_shape=3,3 pads=0,0,0,2 strides=1,3 | 2,2,5,5 |
 2,2,1,2:6.47877 2,2,1,2:299.41014
MaxPool 12 dilations=1,2,2 kernel_shape=3,2,2 pads=1,1,1,0,1,1 strides=1,1,1 | 1,2,6,7,6 |
 1,2,5,7,6:7.63927 1,2,5,7,6:4067.6165
MaxPool 12 ceil_mode=1 kernel_shape=2 pads=1,0 strides=2 | 2,2,7 | 2,2,4:2.15275 2,2,4:80.374112
MaxPool 12 ceil_mode=1 dilations=1,2 kernel_shape=3,3 pads=2,0,1,0 strides=1,3 | 1,2,5,7 |
 1,2,6,2:5.03634 1,2,6,2:-130.19877
MaxPool 12 dilations=2,1,2 kernel_shape=2,3,1 pads=0,2,0,1,2,0 strides=2,3,2 | 2,2,5,5,7 |
 2,2,2,3,4:-3.81921 2,2,2,3,4:-6311.293
MaxPool 12 auto_pad=VALID ceil_mode=1 kernel_shape=2 storage_order=1 strides=2 | 1,2,7 |
 1,2,4:0.384838 1,2,4:45.386484
MaxPool 12 dilations=1,2 kernel_shape=2,2 pads=0,1,1,0 strides=3,3 | 2,2,5,7 | 2,2,2,2:5.71183
 2,2,2,2:412.24102
MaxPool 12 auto_pad=SAME_LOWER ceil_mode=1 dilations=2,1,1 kernel_shape=3,3,2 strides=1,2,2 |
 1,2,6,7,5 | 1,2,6,4,3:-0.990566 1,2,6,4,3:-1507.6587
MaxPool 12 kernel_shape=3 pads=2,1 strides=3 | 2,2,5 | 2,2,2:1.64722 2,2,2:57.446264
MaxPool 12 auto_pad=SAME_UPPER ceil_mode=1 kernel_shape=1,2 storage_order=1 strides=1,2 | 1,2,4,5
 | 1,2,4,3:0.0397095 1,2,4,3:-36.985837
MaxPool 12 ceil_mode=1 dilations=1,1,2 kernel_shape=2,3,2 pads=0,1,1,0,2,1 storage_order=1
 strides=2,2,1 | 2,2,5,7,7 | 2,2,3,4,7:-4.27957 2,2,3,4,7:-6307.8722
AveragePool 11 count_include_pad=1 kernel_shape=3 pads=2,0 strides=3 | 1,2,7 | 1,2,3:-0.0622217
AveragePool 11 auto_pad=VALID kernel_shape=3,3 strides=3,3 | 2,2,7,5 | 2,2,2,1:-0.216227
AveragePool 11 kernel_shape=3,3,3 pads=1,2,2,0,1,0 strides=1,3,1 | 1,2,4,7,7 | 1,2,3,3,7:0.731133
AveragePool 11 auto_pad=SAME_UPPER ceil_mode=1 count_include_pad=1 kernel_shape=3 strides=1 |
 2,2,6 | 2,2,6:-0.291052
AveragePool 11 ceil_mode=1 count_include_pad=1 kernel_shape=2,3 pads=1,1,0,0 strides=3,3 | 1,2,5,6
 | 1,2,2,3:2.06122
AveragePool 11 auto_pad=SAME_LOWER ceil_mode=1 kernel_shape=3,1,3 strides=2,1,3 | 2,2,7,5,7 |
 2,2,4,5,3:0.801297
AveragePool 11 auto_pad=SAME_UPPER count_include_pad=1 kernel_shape=2 strides=3 | 1,2,6 |
 1,2,2:0.480883
AveragePool 11 auto_pad=VALID ceil_mode=1 count_include_pad=1 kernel_shape=3,1 strides=2,3 |
 2,2,4,6 | 2,2,2,2:0.338741
AveragePool 11 ceil_mode=1 kernel_shape=2,1,1 pads=1,0,0,1,0,0 strides=1,2,2 | 1,2,6,6,4 |
 1,2,7,3,2:1.98372
AveragePool 11 auto_pad=SAME_UPPER kernel_shape=1 strides=3 | 2,2,5 | 2,2,2:0.903823
AveragePool 11 ceil_mode=1 count_include_pad=1 kernel_shape=1,2 pads=0,1,0,0 strides=3,3 | 1,2,7,7
 | 1,2,3,3:0.828787
AveragePool 11 auto_pad=VALID ceil_mode=1 count_include_pad=1 kernel_shape=2,2,3 strides=1,2,1 |
 2,2,6,6,5 | 2,2,5,3,3:0.277501
AveragePool 11 auto_pad=VALID count_include_pad=1 kernel_shape=2 strides=3 | 1,2,4 | 1,2,1:1.35889
AveragePool 11 auto_pad=SAME_LOWER kernel_shape=2,2 strides=1,1 | 2,2,6,5 | 2,2,6,5:0.835127
AveragePool 11 auto_pad=SAME_LOWER ceil_mode=1 count_include_pad=1 kernel_shape=1,3,1
 strides=1,1,3 | 1,2,6,6,4 | 1,2,6,6,2:1.09892
AveragePool 11 kernel_shape=2 pads=1,0 strides=2 | 2,2,5 | 2,2,3:1.11654
AveragePool 11 auto_pad=SAME_UPPER kernel_shape=1,3 strides=3,3 | 1,2,6,5 | 1,2,2,2:3.19676
AveragePool 11 kernel_shape=3,2,3 pads=1,1,2,0,1,1 strides=1,3,1 | 2,2,6,7,5 | 2,2,5,3,6:6.37134
LpPool 11 auto_pad=SAME_LOWER kernel_shape=1 p=3 strides=2 | 1,2,5 | 1,2,3:3.87595
LpPool 11 auto_pad=VALID kernel_shape=3,1 p=2 strides=1,2 | 2,2,7,7 | 2,2,5,4:7.38947
LpPool 11 kernel_shape=2,2,2 p=1 pads=0,1,0,1,1,0 strides=2,3,1 | 1,2,5,6,4 | 1,2,3,3,3:-6.44242
LpPool 11 auto_pad=VALID kernel_shape=1 p=1 strides=3 | 2,2,7 | 2,2,3:5.59337
LpPool 11 auto_pad=SAME_LOWER kernel_shape=2,1 p=3 strides=3,2 | 1,2,6,7 | 1,2,2,4:8.35875
LpPool 11 kernel_shape=1,2,2 p=3 pads=0,1,1,0,1,0 strides=2,2,2 | 2,2,4,6,6 | 2,2,2,4,3:-7.08743
LpPool 11 kernel_shape=2 p=1 pads=1,1 strides=1 | 1,2,6 | 1,2,7:11.708
LpPool 11 auto_pad=SAME_LOWER kernel_shape=3,3 p=3 strides=1,1 | 2,2,7,7 | 2,2,7,7:8.7015
LpPool 11 auto_pad=SAME_LOWER kernel_shape=1,2,2 p=3 strides=1,1,1 | 1,2,5,7,4 |
 1,2,5,7,4:-5.78967
LpPool 11 auto_pad=VALID kernel_shape=3 p=3 strides=2 | 2,2,5 | 2,2,2:7.63922
LpPool 11 kernel_shape=3,3 p=1 pads=2,2,1,2 strides=3,3 | 1,2,4,5 | 1,2,2,3:19.0291
LpPool 11 kernel_shape=1,3,1 p=1 pads=0,1,0,0,0,0 strides=1,2,1 | 2,2,4,6,5 | 2,2,4,3,5:15.1532
LpPool 11 auto_pad=SAME_UPPER kernel_shape=2 p=3 strides=3 | 1,2,4 | 1,2,2:3.03644
LpPool 11 kernel_shape=3,1 p=2 pads=0,0,2,0 strides=1,2 | 2,2,7,7 | 2,2,7,4:-2.25521
LpPool 11 auto_pad=SAME_UPPER kernel_shape=2,3,1 p=1 strides=1,3,2 | 1,2,5,5,4 |
 1,2,5,2,2:-19.0371
LpPool 11 kernel_shape=1 p=1 pads=0,0 strides=3 | 2,2,4 | 2,2,2:4.94244
LpPool 11 auto_pad=VALID kernel_shape=2,1 p=3 strides=2,3 | 1,2,5,7 | 1,2,2,3:7.80152
LpPool 11 auto_pad=VALID kernel_shape=1,1,2 p=3 strides=3,3,3 | 2,2,5,4,6 | 2,2,2,2,2:-2.48514]]

describe("ONNX", function()
  it("poolings have the values of loops over windows", function()
    recorded.check(POOLS, 2)
  end)

  it("poolings have the gradients of differences", function()
    local x = recorded.wave({ 1, 2, 5, 4 }, 1):double():requires_grad_(true)
    local attributes = { kernel_shape = { 3, 2 }, pads = { 2, 0, 0, 1 }, strides = { 2, 1 } }
    for _, op in ipairs({ "MaxPool", "AveragePool", "LpPool", "GlobalLpPool" }) do
      assert.is_true(torch.autograd.gradcheck(function(v)
        return node(op, { v }, op ~= "GlobalLpPool" and attributes or {})
      end, { x }))
    end
  end)

  it("MaxUnpool puts back what MaxPool took", function()
    local x = recorded.wave({ 2, 2, 4, 6 }, 1)
    local attributes = { kernel_shape = { 2, 2 }, strides = { 2, 2 } }
    local y, at = node("MaxPool", { x }, attributes, { outputs = 2, version = 11 })
    local back = node("MaxUnpool", { y, at }, attributes, { version = 11 })
    assert.same(tostring(x.shape), tostring(back.shape))
    local flat, kept = x:reshape(-1), back:reshape(-1)
    assert.same(flat:index_select(0, at:reshape(-1)):tolist(), y:reshape(-1):tolist())
    assert.equal(y:numel(), kept:ne(0):sum():item())
    assert.same(kept:ne(0):mul(flat):tolist(), kept:tolist())
  end)

  -- torch's pooling has the same places, counted in each plane
  it("MaxUnpool counts in what MaxPool took, whatever shape is wanted", function()
    local onnx, proto = require("lupine.onnx"), require("lupine.onnx.proto")
    local function both(ceil, wanted)
      local windows = { proto.attribute("kernel_shape", { 2, 2 }),
        proto.attribute("strides", { 2, 2 }) }
      return onnx.load({ ir_version = 8, opset_import = { { domain = "", version = 11 } },
        graph = { name = "g", input = { proto.info("x", torch.float32, { 1, 2, 9, 10 }) },
          output = { proto.info("z") }, initializer = wanted and { onnx.numpy_helper.from_array(
            torch.tensor(wanted, { dtype = torch.int64 }), "s") } or {},
          node = { { op_type = "MaxPool", input = { "x" }, output = { "y", "i" }, attribute =
            { windows[1], windows[2], proto.attribute("ceil_mode", ceil) } },
            { op_type = "MaxUnpool", input = { "y", "i", wanted and "s" or nil },
              output = { "z" }, attribute = windows } } } })
    end
    local F, x = torch.nn.functional, recorded.wave({ 1, 2, 9, 10 }, 1):float()
    for ceil = 0, 1 do
      local y, at = F.max_pool2d(x, { kernel_size = 2, stride = 2, ceil_mode = ceil == 1,
        return_indices = true })
      local want = F.max_unpool2d(y, at, 2, 2, 0, { 9, 10 })
      assert.is_true(torch.equal(want, both(ceil, { 1, 2, 9, 10 })(x)))
      assert.is_true(torch.equal(F.pad(want, { 0, 1, 0, 0 }), both(ceil, { 1, 2, 9, 11 })(x)))
      assert.is_true(torch.equal(F.pad(want, { 0, 0, 0, ceil == 1 and 1 or -1 }),
        both(ceil)(x)))
      local compiled = require("lupine.compile")(both(ceil, { 1, 2, 9, 10 }), { x })
      assert.is_true(torch.equal(want, compiled(x)))
    end
  end)

  it("MaxRoiPool has the maxima of cells", function()
    local x = wave({ 2, 2, 5, 6 }, 1)
    local regions = { { 1, 1, 0, 4, 3 }, { 0, 2, 2, 2, 2 }, { 1, 4.4, 3.6, 9, 9 } }
    -- a cell's first and last place: floor and ceil of its ends
    local function cell(k, from, to, count, size)
      local width = math.max(to - from + 1, 1) / count
      return math.min(math.max(math.floor(k * width) + from, 0), size),
        math.min(math.max(math.ceil((k + 1) * width) + from, 0), size)
    end
    local want = {}
    for _, r in ipairs(regions) do
      local function at(i)
        return math.floor(r[i] * 0.75 + 0.5)
      end
      for c = 0, 1 do
        for i = 0, 1 do
          for j = 0, 2 do
            local top, bottom = cell(i, at(3), at(5), 2, 5)
            local left, right = cell(j, at(2), at(4), 3, 6)
            local part = x[{ r[1], c }]:narrow(0, top, math.max(bottom - top, 0))
              :narrow(1, left, math.max(right - left, 0))
            want[#want + 1] = part:numel() > 0 and part:max():item() or 0
          end
        end
      end
    end
    for _, compiled in ipairs({ false, true }) do
      local y = node("MaxRoiPool", { x, torch.tensor(regions) }, { pooled_shape = { 2, 3 },
        spatial_scale = 0.75 }, { compiled = compiled })
      assert.same({ 3, 2, 2, 3 }, { table.unpack(y.shape) })
      assert.is_true(torch.allclose(torch.tensor(want), y:reshape(-1)))
    end
  end)

  it("poolings of integers know the least one", function()
    local x = torch.tensor({ -3, -5, -2 }):to(torch.int8):reshape(1, 1, 3)
    local y = node("MaxPool", { x }, { kernel_shape = { 2 }, pads = { 1, 0 } })
    assert.same({ { { -3, -3, -2 } } }, y:tolist())
  end)

  it("poolings refuse windows larger than what is there", function()
    node.refuses("node 0 (MaxPool): dimension 0 of places: a window of 5", "MaxPool",
      { torch.ones(1, 1, 3) }, { kernel_shape = { 5 } })
    node.refuses("attribute 'kernel_shape' is missing", "AveragePool", { torch.ones(1, 1, 3) })
  end)
end)
