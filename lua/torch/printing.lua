--- How tensors print: PyTorch's text.
---
--- A tensor of more than `threshold` elements is summarised to `edgeitems` at
--- both ends of each dimension. All numbers of a tensor share one format:
--- whole ("2."), fixed or scientific; scientific when the largest magnitude is
--- more than 1,000 times the smallest, above 1e8, or (unless all are whole)
--- the smallest is below 1e-4. Zeros and non-finite values have no say in it.
--- source: the text that PyTorch 2 prints (spec/torch/tensor_print_spec.lua)
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local defaults = { precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80 }
local profiles = {
  default = defaults,
  short = { precision = 2, threshold = 1000, edgeitems = 2, linewidth = 80 },
  full = { precision = 4, threshold = math.huge, edgeitems = 3, linewidth = 80 },
}
local order = { "precision", "threshold", "edgeitems", "linewidth", "profile", "sci_mode" }
local options = {}

local function reset(profile)
  for name, value in pairs(profile) do
    options[name] = value
  end
end
reset(defaults)

local function check_option(name, value)
  if name == "profile" then
    errors.check(profiles[value], "ValueError",
      "set_printoptions(): profile is '%s'; allowed are default, short, full", tostring(value))
  elseif name == "sci_mode" then
    errors.check(type(value) == "boolean", "TypeError",
      "set_printoptions(): sci_mode must be a bool")
  else
    errors.check(type(value) == "number" and value >= 0, "ValueError",
      "set_printoptions(): %s must be a number from 0, not %s", name, tostring(value))
  end
end

--- Sets how tensors print. Positional or by name: precision, threshold,
--- edgeitems, linewidth, profile ("default", "short", "full"), sci_mode
--- (nil: choose by the values).
--- Source: PyTorch documentation, torch.set_printoptions
---@param ... any
function M.set_printoptions(...)
  local n, given = select("#", ...), {}
  local values = { ... }
  if type(values[n]) == "table" then
    for name, value in pairs(values[n]) do
      given[name] = value
    end
    values[n] = nil
  end
  for i, name in ipairs(order) do
    if values[i] ~= nil then
      given[name] = values[i]
    end
  end
  for name, value in pairs(given) do
    local known = false
    for _, k in ipairs(order) do
      known = known or k == name
    end
    errors.check(known, "TypeError",
      "set_printoptions(): got an unexpected keyword argument '%s'; allowed are %s",
      tostring(name), table.concat(order, ", "))
    check_option(name, value)
  end
  if given.profile then
    reset(profiles[given.profile])
    options.sci_mode = nil
  end
  for name, value in pairs(given) do
    if name ~= "profile" then
      options[name] = value
    end
  end
end

-- Calls visit(number) for each element of the nested list.
local function each(data, visit)
  if type(data) ~= "table" then
    visit(data)
    return
  end
  for i = 1, #data do
    each(data[i], visit)
  end
end

local function plain_text(v)
  if type(v) == "boolean" then
    return v and "True" or "False"
  end
  return tostring(v)
end

local function finite_text(fmt, v)
  if v ~= v then
    return "nan"
  elseif v == math.huge then
    return "inf"
  elseif v == -math.huge then
    return "-inf"
  end
  return (fmt:format(v))
end

-- The format that all elements share: a function number -> text, its width.
local function float_format(data)
  local largest, smallest, whole = 0, math.huge, true
  each(data, function(v)
    local a = math.abs(v)
    if a ~= 0 and a < math.huge then
      largest, smallest = math.max(largest, a), math.min(smallest, a)
      whole = whole and math.floor(v) == v
    end
  end)
  local sci = false
  if largest > 0 then
    sci = largest / smallest > 1000 or largest > 1e8 or (not whole and smallest < 1e-4)
  end
  local fmt = sci and ("%%.%de"):format(options.precision)
    or whole and "%.0f." or ("%%.%df"):format(options.precision)
  local width = 1
  each(data, function(v)
    local a = math.abs(v)
    if a ~= 0 and a < math.huge then
      width = math.max(width, #fmt:format(v))
    end
  end)
  if options.sci_mode ~= nil and options.sci_mode ~= sci then
    fmt = options.sci_mode and ("%%.%de"):format(options.precision)
      or whole and "%.0f." or ("%%.%df"):format(options.precision)
  end
  return function(v)
    return finite_text(fmt, v)
  end, width
end

local function other_format(data)
  local width = 1
  each(data, function(v)
    width = math.max(width, #plain_text(v))
  end)
  return plain_text, width
end

local function vector(row, cut, indent, text)
  local items = {}
  for i, v in ipairs(row) do
    items[#items + 1] = text(v)
    if cut and i == options.edgeitems then
      items[#items + 1] = " ..."
    end
  end
  if cut and options.edgeitems == 0 then
    items = { "..." }
  end
  local per_line = math.max(1, (options.linewidth - indent) // (text.width + 2))
  local lines = {}
  for i = 1, #items, per_line do
    lines[#lines + 1] = table.concat(items, ", ", i, math.min(i + per_line - 1, #items))
  end
  return "[" .. table.concat(lines, ",\n" .. (" "):rep(indent + 1)) .. "]"
end

-- `data` is summarised already; `shape` from `level` on is the real one.
local function nested(data, shape, level, indent, text)
  local dims = #shape - level + 1
  if dims <= 0 then
    return text(data)
  end
  local cut = text.summarised and shape[level] > 2 * options.edgeitems
  if dims == 1 then
    return vector(data, cut, indent, text)
  end
  local parts = {}
  for i, row in ipairs(data) do
    parts[#parts + 1] = nested(row, shape, level + 1, indent + 1, text)
    if cut and i == options.edgeitems then
      parts[#parts + 1] = "..."
    end
  end
  if cut and options.edgeitems == 0 then
    parts = { "..." }
  end
  local between = "," .. ("\n"):rep(dims - 1) .. (" "):rep(indent + 1)
  return "[" .. table.concat(parts, between) .. "]"
end

local function elements(x, indent)
  local summarised = x:numel() > options.threshold
  local data = core.sample(x, summarised and options.edgeitems or -1)
  local format, width = (x.dtype.is_floating_point and float_format or other_format)(data)
  local text = setmetatable({ width = width, summarised = summarised }, {
    __call = function(_, v)
      local s = format(v)
      return (" "):rep(width - #s) .. s
    end,
  })
  return nested(data, x.shape, 1, indent, text)
end

local function size_text(shape)
  return "size=(" .. table.concat(shape, ", ") .. (#shape == 1 and ",)" or ")")
end

local function suffixes(x)
  local list = {}
  local dtype, default = x.dtype, core.get_default_dtype()
  local usual = dtype == default or dtype == core.dtypes.int64 or dtype == core.dtypes.bool
  if core.is_traced(x) then
    list[#list + 1] = size_text(x.shape)
  elseif x.is_meta then
    list[#list + 1] = "device='meta'"
    list[#list + 1] = size_text(x.shape)
  elseif x:numel() == 0 then
    if x:dim() ~= 1 then
      list[#list + 1] = size_text(x.shape)
    end
    usual = dtype == default
  end
  if not usual then
    list[#list + 1] = "dtype=" .. tostring(dtype)
  end
  if x.grad_fn then
    list[#list + 1] = "grad_fn=" .. tostring(x.grad_fn)
  elseif x.requires_grad then
    list[#list + 1] = "requires_grad=True"
  end
  return list
end

--- The text of a tensor, as tostring(x) gives it.
---@param x torch.Tensor
---@return string
function M.format(x)
  if core.is_closed(x) then
    return "tensor(<closed>)"
  end
  local prefix = "tensor("
  local body = "..."
  if not x.is_meta and not core.is_traced(x) then
    body = x:numel() == 0 and "[]" or elements(x, #prefix)
  end
  local text = prefix .. body
  local parts = { text }
  local last = #(text:match("[^\n]*$")) + 2
  if not text:find("\n", 1, true) then
    last = #text + 2
  end
  for _, suffix in ipairs(suffixes(x)) do
    if last + #suffix + 2 > options.linewidth then
      parts[#parts + 1] = ",\n" .. (" "):rep(#prefix) .. suffix
      last = #prefix + #suffix
    else
      parts[#parts + 1] = ", " .. suffix
      last = last + #suffix + 2
    end
  end
  parts[#parts + 1] = ")"
  local out = table.concat(parts)
  return core.is_parameter(x) and "Parameter containing:\n" .. out or out
end

return M
