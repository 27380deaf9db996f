--- What products of matrices and convolutions are in ONNX.

-- The node that makes operand i, if it is this operator and nothing else reads it.
local function only(e, n, i, op)
  local v = n.operands[i]
  local maker = math.type(v) == "integer" and e.maker[v]
  return maker and maker.op == op and e.uses[v] == 1 and maker or nil
end

-- A matrix and whether it is read turned.
local function turned(e, n, i)
  local v = n.operands[i]
  local maker = e.maker[v]
  if maker and maker.op == "permute" and #maker.attributes.dims == 2
    and maker.attributes.dims[1] == 1 then
    return maker.operands[1], 1
  end
  return v, 0
end

-- mm(a, b) of matrices that are turned, with an addend: one Gemm.
local function gemm(e, product, n, addend)
  local a, ta = turned(e, product, 1)
  local b, tb = turned(e, product, 2)
  if ta + tb == 0 and not addend then
    return nil
  end
  local function unless(x, usual)
    return x ~= usual and x or nil
  end
  return { node = n, operands = { a, b, addend }, rule = function(to)
    local scale = product.attributes
    return to:emit("Gemm", { to:name_of(a), to:name_of(b), addend and to:name_of(addend) or "" },
      { transA = unless(ta, 0), transB = unless(tb, 0),
        alpha = unless((scale.alpha or 1) + 0.0, 1.0),
        beta = unless((scale.beta or 1) + 0.0, 1.0) })
  end }
end

-- Whether a value can be the addend of a Gemm with this result.
local function fits(e, v, result)
  local x = math.type(v) == "integer" and e.types[v]
  if not x or x.dtype ~= result.dtype or #x.shape > 2 then
    return false
  end
  for i = 0, #x.shape - 1 do
    local size = x.shape[#x.shape - i]
    if size ~= 1 and size ~= result.shape[#result.shape - i] then
      return false
    end
  end
  return true
end

local function with_addend(e, n)
  for i = 1, 2 do
    local product = only(e, n, i, "mm")
    if product and product.results[1].dtype == n.results[1].dtype
      and #n.results[1].shape == 2 and fits(e, n.operands[3 - i], product.results[1]) then
      return gemm(e, product, n, n.operands[3 - i])
    end
  end
  return nil
end

local function convolution(e, n, x, bias)
  local a = n.attributes
  local attributes = { strides = { table.unpack(a.stride) }, pads = { table.unpack(a.padding) },
    dilations = { table.unpack(a.dilation) }, group = a.groups }
  local shape = e:type(n, 2).shape
  attributes.kernel_shape = { table.unpack(shape, 3) }
  if a.transposed then
    attributes.output_padding = { table.unpack(a.output_padding) }
  end
  return e:emit(a.transposed and "ConvTranspose" or "Conv", { x, e:input(n, 2), bias or "" },
    attributes)
end

-- A convolution and the addition of a number a channel: reshape(b, {C, 1, …}).
local function with_bias(e, n)
  for i = 1, 2 do
    local conv = only(e, n, i, "convolution")
    local v = n.operands[3 - i]
    local shown = conv and math.type(v) == "integer" and e.maker[v]
    if shown and shown.op == "reshape" then
      local bias, y = shown.operands[1], conv.results[1].shape
      local b, seen = e.types[bias], shown.results[1].shape
      if #b.shape == 1 and #seen == #y - 1 and seen[1] == y[2] and b.shape[1] == y[2] then
        return { node = n, operands = { conv.operands[1], conv.operands[2], bias },
          rule = function(to)
            return convolution(to, conv, to:input(conv, 1), to:name_of(bias))
          end }
      end
    end
  end
  return nil
end

local function product(e, n)
  return e:emit("MatMul", { e:input(n, 1), e:input(n, 2) })
end

return function(rules, matches)
  rules.mm, rules.bmm = product, product
  function rules.det(e, n)
    return e:emit("Det", { e:input(n, 1) })
  end
  function rules.convolution(e, n)
    return convolution(e, n, e:input(n, 1))
  end
  for _, name in ipairs({ "mm_plus", "bmm_plus" }) do
    rules[name] = function(e, n)
      local t, y = n.results[1].dtype, product(e, n)
      local function times(x, factor)
        return factor == 1 and x or e:emit("Mul", { x, e:constant(factor, t) })
      end
      return e:emit("Add", { times(y, n.attributes.alpha),
        times(e:input(n, 3), n.attributes.beta) })
    end
  end
  matches.mm_plus = function(e, n)
    return fits(e, n.operands[3], n.results[1]) and gemm(e, n, n, n.operands[3]) or nil
  end
  matches.mm = function(e, n)
    return gemm(e, n, n, nil)
  end
  table.insert(matches.add, function(e, n)
    return n.attributes.alpha == 1 and (with_addend(e, n) or with_bias(e, n)) or nil
  end)
end
