-- GridSample, RoiAlign and NonMaxSuppression of ONNX, against loops over samples.
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local function ints(list)
  return torch.tensor(list, { dtype = torch.int64 })
end

-- The element at a place; 0 outside.
local function pixel(image, y, x)
  if y < 0 or x < 0 or y >= image:size(0) or x >= image:size(1) then
    return 0
  end
  return image[y][x]:item()
end

local function bilinear(image, y, x)
  local top, left = math.floor(y), math.floor(x)
  local t, s = y - top, x - left
  return (1 - t) * (1 - s) * pixel(image, top, left) + (1 - t) * s * pixel(image, top, left + 1)
    + t * (1 - s) * pixel(image, top + 1, left) + t * s * pixel(image, top + 1, left + 1)
end

describe("GridSample", function()
  it("reads images at places", function()
    local x, grid = torch.rand({ 1, 1, 4, 5 }), torch.rand({ 1, 3, 2, 2 }) * 2.6 - 1.3
    for aligned = 0, 1 do
      local y = both("GridSample", { x, grid }, { align_corners = aligned })
      for i = 0, 2 do
        for j = 0, 1 do
          local function place(k, size)
            local v = (grid[0][i][j][k]:item() + 1) / 2
            return aligned == 1 and v * (size - 1) or v * size - 0.5
          end
          helper.near(y[0][0][i][j], bilinear(x[0][0], place(1, 4), place(0, 5)))
        end
      end
    end
    both.gradients("GridSample", { torch.rand({ 1, 1, 3, 3 }), torch.rand({ 1, 2, 2, 2 }) }, {})
    both.refuses("mode", "GridSample", { x, grid }, { mode = "cubic" })
  end)
end)

describe("RoiAlign", function()
  local x = torch.rand({ 2, 2, 6, 7 })
  local rois = torch.tensor({ { 0.5, 1.0, 5.0, 4.0 }, { -1.0, 2.0, 3.3, 9.0 },
    { 4.0, 4.0, 3.0, 5.0 } })
  local batch = ints({ 1, 0, 1 })

  -- The value of a sample: 0 far outside, the border's beside it.
  local function sample(image, y, x_)
    if y < -1 or x_ < -1 or y > 6 or x_ > 7 then
      return 0
    end
    return bilinear(image, math.max(0, math.min(y, 5)), math.max(0, math.min(x_, 6)))
  end

  local function bin(image, roi, a, i, j)
    local shift = a.coordinate_transformation_mode == "half_pixel" and 0.5 or 0
    local x1, y1, x2, y2 = table.unpack(roi)
    x1, y1 = x1 * a.spatial_scale - shift, y1 * a.spatial_scale - shift
    local w, h = x2 * a.spatial_scale - shift - x1, y2 * a.spatial_scale - shift - y1
    if shift == 0 then
      w, h = math.max(w, 1), math.max(h, 1)
    end
    local height, width = h / a.output_height, w / a.output_width
    local rows = a.sampling_ratio > 0 and a.sampling_ratio or math.max(0, math.ceil(height))
    local columns = a.sampling_ratio > 0 and a.sampling_ratio or math.max(0, math.ceil(width))
    local sum, most = 0, -math.huge
    for r = 0, rows - 1 do
      for c = 0, columns - 1 do
        local value = sample(image, y1 + (i + (r + 0.5) / rows) * height,
          x1 + (j + (c + 0.5) / columns) * width)
        sum, most = sum + value, math.max(most, value)
      end
    end
    return a.mode == "avg" and sum / math.max(rows * columns, 1)
      or rows * columns > 0 and most or 0
  end

  local function check(a, y)
    for r = 0, 2 do
      for c = 0, 1 do
        for i = 0, a.output_height - 1 do
          for j = 0, a.output_width - 1 do
            local want = bin(x[batch[r]:item()][c], rois[r]:tolist(), a, i, j)
            helper.near(y[r][c][i][j], want, { 1e-5, 1e-5 })
          end
        end
      end
    end
  end

  it("averages samples of bins, or takes their maximum", function()
    for _, mode in ipairs({ "avg", "max" }) do
      for _, place in ipairs({ "half_pixel", "output_half_pixel" }) do
        for ratio = 0, 2 do
          local a = { mode = mode, coordinate_transformation_mode = place, output_height = 2,
            output_width = 3, sampling_ratio = ratio, spatial_scale = 0.75 }
          check(a, both("RoiAlign", { x, rois, batch }, a, { constants = { [2] = true } }))
        end
      end
    end
    local a = { mode = "avg", output_height = 2, output_width = 2, sampling_ratio = 2,
      spatial_scale = 1.0 }
    check(a, both("RoiAlign", { x, rois, batch }, a, { version = 10 }))
  end)

  it("has gradients", function()
    both.gradients("RoiAlign", { torch.rand({ 1, 1, 4, 4 }),
      torch.tensor({ { 0.3, 0.2, 3.1, 2.9 } }), ints({ 0 }) },
      { output_height = 2, output_width = 2, sampling_ratio = 2 })
  end)

  it("needs a number of samples where only a run knows the regions", function()
    helper.raises("ValueError", "sampling_ratio is 0: the regions must be constants", function()
      node("RoiAlign", { x, rois, batch }, {}, { compiled = true })
    end)
    both.refuses("mode 'sum'. Allowed: avg, max", "RoiAlign", { x, rois, batch }, { mode = "sum" })
  end)
end)

describe("NonMaxSuppression", function()
  local function overlap(a, b)
    local function side(p, q, i)
      return math.min(math.max(p[i], p[i + 2]), math.max(q[i], q[i + 2]))
        - math.max(math.min(p[i], p[i + 2]), math.min(q[i], q[i + 2]))
    end
    local function area(p) return math.abs((p[3] - p[1]) * (p[4] - p[2])) end
    local y, x = side(a, b, 1), side(a, b, 2)
    local common = y > 0 and x > 0 and y * x or 0
    local all = area(a) + area(b) - common
    return common > 0 and common / all or 0
  end

  local function by_hand(boxes, scores, most, threshold, least)
    local rows = {}
    for b = 1, #boxes do
      for c = 1, #scores[b] do
        local order, kept = {}, {}
        for i, score in ipairs(scores[b][c]) do
          if not least or score > least then
            order[#order + 1] = i
          end
        end
        table.sort(order, function(i, j) return scores[b][c][i] > scores[b][c][j] end)
        for _, i in ipairs(order) do
          local hidden = #kept >= most
          for _, k in ipairs(kept) do
            hidden = hidden or overlap(boxes[b][i], boxes[b][k]) > threshold
          end
          if not hidden then
            kept[#kept + 1] = i
            rows[#rows + 1] = { b - 1, c - 1, i - 1 }
          end
        end
      end
    end
    return rows
  end

  it("keeps the best of boxes that overlap", function()
    for _, threshold in ipairs({ 0.0, 0.2, 0.5 }) do
      local boxes, scores = torch.rand({ 2, 9, 4 }), torch.rand({ 2, 2, 9 })
      local got = node("NonMaxSuppression", { boxes, scores, ints({ 3 }),
        torch.tensor({ threshold }), torch.tensor({ 0.3 }) })
      helper.near(got, by_hand(boxes:tolist(), scores:tolist(), 3, torch.tensor(threshold):item(),
        torch.tensor(0.3):item()))
      local a, b, c, d = table.unpack(boxes:unbind(2)) -- the same boxes by their centres
      local centred = torch.stack({ (b + d) / 2, (a + c) / 2, (d - b):abs(), (c - a):abs() }, -1)
      helper.near(node("NonMaxSuppression", { centred, scores, ints(3),
        torch.tensor({ threshold + 1e-4 }), torch.tensor({ 0.3 }) }, { center_point_box = 1 }),
        node("NonMaxSuppression", { boxes, scores, ints(3), torch.tensor({ threshold + 1e-4 }),
          torch.tensor({ 0.3 }) }))
    end
    assert.equal(0, node("NonMaxSuppression", { torch.rand({ 1, 4, 4 }),
      torch.rand({ 1, 1, 4 }) }):size(0))
  end)
end)
