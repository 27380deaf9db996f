--- Functions that arrange elements: channel_shuffle, unfold, fold,
--- interpolate.
local check = require("lupine.base.check")
local core = require("lupine.core")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")
local tuple = require("torch.nn.tuple")

return function(F)
  local M = {}

  define(M, "channel_shuffle(input, groups)", function(input, groups)
    local shape = { table.unpack(input.shape) }
    errors.check(#shape > 2, "RuntimeError",
      "channel_shuffle: expected an input of more than 2 dimensions, got %d", #shape)
    check.int(groups, "channel_shuffle: groups")
    errors.check(groups > 0, "RuntimeError", "channel_shuffle: groups must be positive, got %d",
      groups)
    errors.check(shape[2] % groups == 0, "RuntimeError",
      "channel_shuffle: %d channels are no multiple of %d groups", shape[2], groups)
    local parts = { shape[1], groups, shape[2] // groups, table.unpack(shape, 3) }
    return input:reshape(parts):transpose(1, 2):reshape(shape)
  end)

  -- Row and column (of the padded image) of every element of every window:
  -- a flat index, the number of elements of a window, and that of windows.
  local function make_index(size, kernel, dilation, stride)
    local torch = require("torch")
    local function positions(i)
      local n = (size[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
      errors.check(n > 0, "RuntimeError", "unfold: a window of size %d with dilation %d does not "
        .. "fit into the padded size %d", kernel[i], dilation[i], size[i])
      local at = torch.arange(kernel[i]):mul(dilation[i]):reshape({ -1, 1 })
      return at + torch.arange(n):mul(stride[i]):reshape({ 1, -1 }), n
    end
    local r, rows = positions(1)
    local c, cols = positions(2)
    local index = r:reshape({ kernel[1], 1, rows, 1 }):mul(size[2])
      + c:reshape({ 1, kernel[2], 1, cols })
    return { index:reshape({ -1 }), kernel[1] * kernel[2], rows * cols }
  end

  -- The index by what it depends on; a trace has its own.
  local MOST = 16
  local known, count = {}, 0

  local function window_index(size, kernel, dilation, stride)
    if core.is_tracing() then
      return table.unpack(make_index(size, kernel, dilation, stride))
    end
    local key = ("%d %d %d %d %d %d %d %d"):format(size[1], size[2], kernel[1], kernel[2],
      dilation[1], dilation[2], stride[1], stride[2])
    if not known[key] then
      if count == MOST then
        known, count = {}, 0
      end
      known[key], count = make_index(size, kernel, dilation, stride), count + 1
    end
    return table.unpack(known[key])
  end

  local function check_filled(input, single, where)
    for d = single and 0 or 1, input:dim() - 1 do
      errors.check(input:size(d) > 0, "RuntimeError",
        "%s: dimension %d of the input is empty; only the batch may be", where, d)
    end
  end

  local function pairs_of(kernel, dilation, padding, stride)
    return tuple.of(kernel, 2, "kernel_size"), tuple.of(dilation, 2, "dilation"),
      tuple.of(padding, 2, "padding"), tuple.of(stride, 2, "stride")
  end

  define(M, "unfold(input, kernel_size, dilation=1, padding=0, stride=1)",
    function(input, kernel, dilation, padding, stride)
      kernel, dilation, padding, stride = pairs_of(kernel, dilation, padding, stride)
      local single = input:dim() == 3
      errors.check(single or input:dim() == 4, "RuntimeError",
        "unfold: expected an input of 3 or 4 dimensions, got shape %s", tostring(input.shape))
      check_filled(input, single, "unfold")
      local x = single and input:unsqueeze(0) or input
      if padding[1] ~= 0 or padding[2] ~= 0 then
        x = F.pad(x, tuple.reversed_twice(padding))
      end
      local n, channels, height, width = table.unpack(x.shape)
      local index, window, windows = window_index({ height, width }, kernel, dilation, stride)
      local out = x:flatten(2):index_select(2, index)
        :reshape({ n, channels * window, windows })
      return single and out:squeeze(0) or out
    end)

  define(M, "fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)",
    function(input, output_size, kernel, dilation, padding, stride)
      kernel, dilation, padding, stride = pairs_of(kernel, dilation, padding, stride)
      output_size = tuple.of(output_size, 2, "output_size")
      local single = input:dim() == 2
      errors.check(single or input:dim() == 3, "RuntimeError",
        "fold: expected an input of 2 or 3 dimensions, got shape %s", tostring(input.shape))
      check_filled(input, single, "fold")
      local x = single and input:unsqueeze(0) or input
      local size = { output_size[1] + 2 * padding[1], output_size[2] + 2 * padding[2] }
      local index, window, windows = window_index(size, kernel, dilation, stride)
      local n = x:size(0)
      errors.check(x:size(1) % window == 0 and x:size(2) == windows, "RuntimeError",
        "fold: input of shape %s does not match %d elements a window and %d windows",
        tostring(input.shape), window, windows)
      local channels = x:size(1) // window
      local flat = require("torch").zeros({ n, channels, size[1] * size[2] }, { dtype = x.dtype })
        :index_add(2, index, x:reshape({ n, channels, window * windows }))
      local out = flat:reshape({ n, channels, size[1], size[2] })
        :narrow(2, padding[1], output_size[1]):narrow(3, padding[2], output_size[2])
      return single and out:squeeze(0) or out
    end)

  for name, fn in pairs(require("torch.nn.functional.interpolate")(F)) do
    M[name] = fn
  end
  return M
end
