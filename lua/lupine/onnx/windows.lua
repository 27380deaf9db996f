--- Windows that go over the places of a tensor [N, C, places…]: what the attributes
--- of ONNX's convolutions and poolings say, filled in and checked.
---
--- source: ONNX, Operators.md: Conv, MaxPool
local M = {}

local AUTO = { NOTSET = true, VALID = true, SAME_UPPER = true, SAME_LOWER = true }

local function filled(n, name, count, usual)
  local list = n.attr[name]
  local out = {}
  for i = 1, count do
    out[i] = usual
  end
  if not list or #list == 0 then
    return out
  end
  n:check(#list == count, "attribute '%s': expected %d numbers, got %d", name, count, #list)
  for i, value in ipairs(list) do
    n:check(value >= (usual or 1), "attribute '%s': expected numbers from %d on, got %d", name,
      usual or 1, value)
    out[i] = value
  end
  return out
end

--- A total split into the parts before and behind, the odd one behind if `upper`.
---@param total integer
---@param upper boolean
---@return integer before
---@return integer behind
function M.halves(total, upper)
  local less = total // 2
  if upper then
    return less, total - less
  end
  return total - less, less
end

---@class lupine.onnx.Windows
---@field dims integer dimensions of places
---@field kernel integer[]
---@field strides integer[]
---@field dilations integer[]
---@field reach integer[] places from a window's first to its last
---@field pads integer[] before each dimension, then behind each
---@field upper boolean
---@field auto boolean sizes decide the padding (SAME_UPPER, SAME_LOWER)

--- The windows that a node's attributes describe.
--- error: ValueError for what fits no tensor of x's shape
---@param n lupine.onnx.Node
---@param x torch.Tensor
---@param kernel? integer[] of the weight; else the attribute kernel_shape
---@return lupine.onnx.Windows
function M.of(n, x, kernel)
  local dims = x:dim() - 2
  n:check(dims >= 1 and dims <= 3, "its input must have 3 to 5 dimensions (batch, channels and "
    .. "1 to 3 of places), got the shape %s", tostring(x.shape))
  local auto = n.attr.auto_pad or "NOTSET"
  n:check(AUTO[auto], "attribute 'auto_pad': got '%s'. Allowed: NOTSET, SAME_UPPER, SAME_LOWER, "
    .. "VALID", auto)
  local w = { dims = dims, kernel = filled(n, "kernel_shape", dims), reach = {},
    strides = filled(n, "strides", dims, 1), dilations = filled(n, "dilations", dims, 1),
    pads = filled(n, "pads", 2 * dims, 0), upper = auto == "SAME_UPPER",
    auto = auto:find("^SAME") ~= nil }
  for i = 1, dims do
    w.kernel[i] = w.kernel[i] or kernel and kernel[i]
    n:check(w.kernel[i], "attribute 'kernel_shape' is missing")
    n:check(not kernel or w.kernel[i] == kernel[i], "attribute 'kernel_shape': dimension %d is %d, "
      .. "the weight has %s", i - 1, w.kernel[i], tostring(kernel and kernel[i]))
    w.reach[i] = w.dilations[i] * (w.kernel[i] - 1) + 1
  end
  if auto ~= "NOTSET" then
    w.pads = filled({ attr = {} }, "pads", 2 * dims, 0)
  end
  return w
end

--- Of windows that SAME_UPPER or SAME_LOWER pads, the pads: there are as many as
--- strides fit into x, rounded up.
---@param w lupine.onnx.Windows
---@param x torch.Tensor
function M.pad_same(w, x)
  for i = 1, w.auto and w.dims or 0 do
    local size = x:size(i + 1)
    local count = (size + w.strides[i] - 1) // w.strides[i]
    local total = math.max((count - 1) * w.strides[i] + w.reach[i] - size, 0)
    w.pads[i], w.pads[w.dims + i] = M.halves(total, w.upper)
  end
end

--- The same pads as F.pad takes them: of the last dimension first, before and behind.
---@param dims integer
---@param pads integer[]
---@return integer[]
function M.reversed(dims, pads)
  local out = {}
  for i = dims, 1, -1 do
    out[#out + 1] = pads[i]
    out[#out + 1] = pads[dims + i]
  end
  return out
end

return M
