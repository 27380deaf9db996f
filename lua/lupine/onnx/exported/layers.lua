--- What normalisations, poolings, softmax, losses and random numbers are in ONNX.
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local function list(x)
  return { table.unpack(x) }
end

local function doubled(padding)
  local out = list(padding)
  return table.move(padding, 1, #padding, #out + 1, out)
end

local function dtype(n)
  return n.results[1].dtype
end

local function filled(e, n, count, value)
  return e:constant(torch.full({ count }, value, { dtype = torch[dtype(n)] }))
end

-- ---- poolings ----------------------------------------------------------------------

-- A pooling over the last k dimensions of one image, or of a batch of images.
local function batched(e, n, k, run)
  local x = e:input(n, 1)
  if #e:type(n, 1).shape == k + 2 then
    return run(x)
  end
  local first = e:constant({ 0 })
  return e:emit("Squeeze", { run(e:emit("Unsqueeze", { x, first })), first })
end

local function windows(a)
  return { kernel_shape = list(a.kernel_size), strides = list(a.stride or a.kernel_size),
    pads = doubled(a.padding), ceil_mode = a.ceil_mode and 1 or 0 }
end

-- The sizes of windows that are all alike, of an adaptive pooling; nil: they are not.
local function regular(from, to)
  local kernel = {}
  for i = 1, #to do
    local size = from[#from - #to + i]
    if size % to[i] ~= 0 then
      return nil
    end
    kernel[i] = size // to[i]
  end
  return kernel
end

-- Window o of an adaptive pooling along a dimension: first, behind the last.
local function window(o, from, to)
  return o * from // to, ((o + 1) * from + to - 1) // to
end

-- Means of windows of any sizes along a dimension, as a product with a matrix.
local function mean_along(e, n, x, dim, from, to)
  local rank, order = #e:type(n, 1).shape, {}
  local shares = torch.zeros({ from, to }, { dtype = torch[dtype(n)] })
  for o = 0, to - 1 do
    local first, last = window(o, from, to)
    torch.narrow(torch.narrow(shares, 1, o, 1), 0, first, last - first):fill_(1 / (last - first))
  end
  for d = 0, rank - 1 do
    order[d + 1] = d
  end
  order[dim + 1], order[rank] = order[rank], order[dim + 1]
  return e:transpose(e:emit("MatMul", { e:transpose(x, order), e:constant(shares) }), order)
end

-- The greatest of windows of any sizes: places stand again where a window is short.
local function most_along(e, _, x, dim, from, to)
  local places, longest = {}, 0
  for o = 0, to - 1 do
    local first, last = window(o, from, to)
    longest = math.max(longest, last - first)
  end
  for o = 0, to - 1 do
    local first, last = window(o, from, to)
    places[o + 1] = {}
    for i = 1, longest do
      places[o + 1][i] = math.min(first + i, last) - 1
    end
  end
  local y = e:emit("Gather", { x, e:constant(places) }, { axis = dim })
  return e:emit("ReduceMax", { y }, { axes = { dim + 1 }, keepdims = 0 })
end

local function adaptive(e, n, op, along)
  local from, to = e:type(n, 1).shape, n.attributes.output_size
  local kernel = regular(from, to)
  if kernel then
    return batched(e, n, #to, function(x)
      return e:emit(op, { x }, { kernel_shape = kernel, strides = list(kernel) })
    end)
  end
  local x = e:input(n, 1)
  for i = 1, #to do
    local dim = #from - #to + i
    x = along(e, n, x, dim - 1, from[dim], to[i])
  end
  return x
end

-- Places of the greatest, which ONNX counts in the whole tensor and torch in each plane.
local function in_planes(e, n, k, indices)
  local shape, size = e:type(n, 1).shape, 1
  for i = #shape - k + 1, #shape do
    size = size * shape[i]
  end
  if #shape == k + 1 then
    indices = e:emit("Squeeze", { indices, e:constant({ 0 }) })
  end
  return e:emit("Mod", { indices, e:constant({ size }) })
end

local function max_pool(e, n)
  local a, indices = n.attributes, nil
  local attributes, k = windows(a), #n.attributes.kernel_size
  attributes.dilations = list(a.dilation)
  if not e:reads(n, 2) then
    return batched(e, n, k, function(x)
      return e:emit("MaxPool", { x }, attributes)
    end)
  end
  local y = batched(e, n, k, function(x)
    local greatest
    greatest, indices = e:emit("MaxPool", { x }, attributes, 2)
    return greatest
  end)
  return y, in_planes(e, n, k, indices)
end

local function poolings(rules)
  rules.max_pool = max_pool
  function rules.avg_pool(e, n)
    local a = n.attributes
    if a.divisor_override and a.ceil_mode then
      e:fail("divisor_override with ceil_mode")
    end
    local places = 1
    for _, size in ipairs(a.kernel_size) do
      places = places * size
    end
    return batched(e, n, #a.kernel_size, function(x)
      local attributes = windows(a)
      attributes.count_include_pad = (a.count_include_pad or a.divisor_override) and 1 or 0
      local y = e:emit("AveragePool", { x }, attributes)
      return a.divisor_override and a.divisor_override ~= places and e:emit("Mul", { y,
        e:constant(places / a.divisor_override, dtype(n)) }) or y
    end)
  end
  function rules.adaptive_avg_pool(e, n)
    return adaptive(e, n, "AveragePool", mean_along)
  end
  function rules.adaptive_max_pool(e, n)
    return adaptive(e, n, "MaxPool", most_along)
  end
end

-- ---- normalisations ------------------------------------------------------------------

-- (x - mean) / sqrt(variance + eps) over dimensions, of opsets without LayerNormalization
local function normalised(e, n, x, axes, eps)
  local function mean(of)
    return e:emit("ReduceMean", { of }, { axes = axes, keepdims = 1 })
  end
  local apart = e:emit("Sub", { x, mean(x) })
  local variance = e:emit("Add", { mean(e:emit("Mul", { apart, apart })),
    e:constant(eps, dtype(n)) })
  return e:emit("Div", { apart, e:emit("Sqrt", { variance }) })
end

local function affine(e, y, weight, bias)
  y = weight ~= "" and e:emit("Mul", { y, weight }) or y
  return bias ~= "" and e:emit("Add", { y, bias }) or y
end

local function layer_norm(e, n)
  local a, shape = n.attributes, n.attributes.normalized_shape
  local rank, axes = #e:type(n, 1).shape, {}
  local weight, bias = e:input(n, 2), e:input(n, 3)
  if e.version < 17 then
    for i = 1, #shape do
      axes[i] = rank - #shape + i - 1
    end
    return affine(e, normalised(e, n, e:input(n, 1), axes, a.eps), weight, bias)
  end
  if weight == "" then
    weight = e:constant(torch.ones(list(shape), { dtype = torch[dtype(n)] }))
  end
  return e:emit("LayerNormalization", { e:input(n, 1), weight, bias },
    { axis = -#shape, epsilon = a.eps })
end

local function per_channel(e, name, shape)
  local wide = { shape[2] }
  for _ = 3, #shape do
    wide[#wide + 1] = 1
  end
  return name == "" and "" or #wide == 1 and name or e:reshape(name, wide)
end

local function group_norm(e, n)
  local a, shape = n.attributes, list(e:type(n, 1).shape)
  local groups, weight, bias = a.num_groups, e:input(n, 2), e:input(n, 3)
  if groups == shape[2] and #shape > 2 then
    return e:emit("InstanceNormalization", { e:input(n, 1),
      weight ~= "" and weight or filled(e, n, groups, 1),
      bias ~= "" and bias or filled(e, n, groups, 0) }, { epsilon = a.eps })
  end
  local y = e:emit("InstanceNormalization", { e:reshape(e:input(n, 1), { shape[1], groups, -1 }),
    filled(e, n, groups, 1), filled(e, n, groups, 0) }, { epsilon = a.eps })
  return affine(e, e:reshape(y, shape), per_channel(e, weight, shape),
    per_channel(e, bias, shape))
end

-- The running statistic that a result of batch_norm_train goes into, and its share:
-- lerp(running, result, share), maybe of the result times a number.
local function running(e, value)
  for _, n in ipairs(e.graph_nodes) do
    for i = 1, #n.operands do
      if n.operands[i] == value then
        if n.op == "lerp" and i == 2 then
          return n.operands[1], e:number(n, 3)
        elseif n.op == "mul" then
          return running(e, n.results[1].value)
        end
      end
    end
  end
  return nil
end

-- Mean and variance of a batch, where what follows from them is read: the running variance
-- that ONNX's operator gives is of the population, torch's of a sample.
local function batch_statistics(e, n)
  if not (e:reads(n, 2) or e:reads(n, 3)) then
    return nil
  end
  local x, axes = e:input(n, 1), { 0 }
  for d = 2, #e:type(n, 1).shape - 1 do
    axes[d] = d
  end
  local function mean(of, keepdims)
    return e:emit("ReduceMean", { of }, { axes = axes, keepdims = keepdims })
  end
  local apart = e:emit("Sub", { x, mean(x, 1) })
  return mean(x, 0), mean(e:emit("Mul", { apart, apart }), 0)
end

local function batch_norm_train(e, n)
  local channels = e:type(n, 1).shape[2]
  if e.version < 14 then
    e:fail("training needs opset 14")
  end
  local function given(i, value)
    return e:has(n, i) and e:input(n, i) or filled(e, n, channels, value)
  end
  local mean, share = running(e, n.results[2].value)
  local variance = running(e, n.results[3].value)
  local y = e:emit("BatchNormalization", { e:input(n, 1), given(2, 1), given(3, 0),
    mean and e:name_of(mean) or filled(e, n, channels, 0),
    variance and e:name_of(variance) or filled(e, n, channels, 1) },
    { epsilon = n.attributes.eps, momentum = 1 - (share or 0.1), training_mode = 1 }, 3)
  return y, batch_statistics(e, n)
end

-- ---- batch_norm_eval: what it is composed of, in the trace --------------------------

local function made(e, v, op)
  local n = math.type(v) == "integer" and e.maker[v]
  return n and n.op == op and n or nil
end

-- scale = rsqrt(variance + eps) [* weight]
local function scale_of(e, v)
  local n = made(e, v, "mul")
  local root = made(e, n and n.operands[1] or v, "rsqrt")
  local sum = root and made(e, root.operands[1], "add")
  local eps = sum and e:number(sum, 2)
  if not eps then
    return nil
  end
  return { variance = sum.operands[1], weight = n and n.operands[2], eps = eps }
end

-- shift = -(mean * scale) [+ bias]
local function shift_of(e, v, scale)
  local n = made(e, v, "add")
  local negative = made(e, n and n.operands[1] or v, "neg")
  local product = negative and made(e, negative.operands[1], "mul")
  if not product or product.operands[2] ~= scale then
    return nil
  end
  return { mean = product.operands[1], bias = n and n.operands[2] }
end

local function batch_norm_eval(e, n)
  local product, shift = made(e, n.operands[1], "mul"), made(e, n.operands[2], "reshape")
  local scale = product and made(e, product.operands[2], "reshape")
  if not scale or not shift then
    return nil
  end
  local a = scale_of(e, scale.operands[1])
  local b = a and shift_of(e, shift.operands[1], scale.operands[1])
  local x = product.operands[1]
  local shape = e.types[x] and e.types[x].shape
  if not b or #shape < 2 or shape[2] ~= e.types[b.mean].shape[1]
    or e.types[x].dtype ~= e.types[b.mean].dtype then
    return nil
  end
  return { node = n, operands = { x, a.variance, b.mean, a.weight or false, b.bias or false },
    rule = function(to)
      return to:emit("BatchNormalization", { to:name_of(x),
        a.weight and to:name_of(a.weight) or filled(to, n, shape[2], 1),
        b.bias and to:name_of(b.bias) or filled(to, n, shape[2], 0),
        to:name_of(b.mean), to:name_of(a.variance) }, { epsilon = a.eps })
    end }
end

-- ---- the rest ----------------------------------------------------------------------

local function losses(rules)
  for name, op in pairs({ softmax = "Softmax", log_softmax = "LogSoftmax" }) do
    rules[name] = function(e, n)
      return e:emit(op, { e:input(n, 1) }, { axis = n.attributes.dim })
    end
  end
  function rules.nll_loss_forward(e, n)
    local a, x, target = n.attributes, e:input(n, 1), e:input(n, 2)
    if #e:type(n, 1).shape == 1 then
      x, target = e:reshape(x, { 1, -1 }), e:reshape(target, { 1 })
      if a.reduction == "none" then
        e:fail("a loss of each of one element")
      end
    end
    return e:emit("NegativeLogLikelihoodLoss", { x, target, e:input(n, 3) },
      { reduction = a.reduction, ignore_index = a.ignore_index })
  end
  function rules.identity_loss(e, n)
    local x, how = e:input(n, 1), n.attributes.reduction
    return how == "none" and x
      or e:emit(how == "mean" and "ReduceMean" or "ReduceSum", { x }, { keepdims = 0 })
  end
end

local function random(rules)
  function rules.dropout(e, n)
    local a, x = n.attributes, e:input(n, 1)
    if not a.training or a.p == 0 then
      return x
    end
    return e:emit("Dropout", { x, e:constant(a.p, "float32"), e:constant(true, "bool") })
  end
  local function drawn(name, op, attributes)
    rules[name] = function(e, n)
      local given = attributes(n.attributes)
      given.shape = list(n.results[1].shape)
      given.dtype = tensors.number(torch[dtype(n)])
      return e:emit(op, {}, given)
    end
  end
  drawn("rand", "RandomUniform", function() return {} end)
  drawn("randn", "RandomNormal", function() return {} end)
  drawn("uniform", "RandomUniform", function(a)
    return { low = a.from + 0.0, high = a.to + 0.0 }
  end)
  drawn("normal", "RandomNormal", function(a)
    return { mean = a.mean + 0.0, scale = a.std + 0.0 }
  end)
  function rules.bernoulli(e, n)
    return e.version >= 15 and e:emit("Bernoulli", { e:input(n, 1) }) or e:fail("needs opset 15")
  end
end

return function(rules, matches)
  poolings(rules)
  rules.native_layer_norm, rules.native_group_norm = layer_norm, group_norm
  rules.batch_norm_train = batch_norm_train
  table.insert(matches.add, batch_norm_eval)
  losses(rules)
  random(rules)
end
