--- What reductions are in ONNX.

local function all_dims(e, n)
  local dims = {}
  for d = 1, #e:type(n, 1).shape do
    dims[d] = d - 1
  end
  return dims
end

local function dims_of(e, n)
  local dim = n.attributes.dim
  return dim and #dim > 0 and { table.unpack(dim) } or all_dims(e, n)
end

-- The axes of ReduceSum are an input, those of the others an attribute until opset 18.
local function reduce(e, n, op, x, keep)
  local axes = dims_of(e, n)
  if #axes == 0 then
    return x
  end
  keep = (keep or n.attributes.keepdim) and 1 or 0
  if op == "ReduceSum" then
    return e:emit(op, { x, e:constant(axes) }, { keepdims = keep })
  end
  return e:emit(op, { x }, { axes = axes, keepdims = keep })
end

local function plain(rules)
  for name, op in pairs({ sum = "ReduceSum", mean = "ReduceMean", prod = "ReduceProd",
    amax = "ReduceMax", amin = "ReduceMin", logsumexp = "ReduceLogSumExp" }) do
    rules[name] = function(e, n)
      return reduce(e, n, op, e:input(n, 1, n.results[1].dtype))
    end
  end
  for name, op in pairs({ any = "ReduceMax", all = "ReduceMin" }) do
    rules[name] = function(e, n)
      local x = reduce(e, n, op, e:cast(e:input(n, 1, "bool"), "int32"))
      return e:cast(x, n.results[1].dtype)
    end
  end
  function rules.count_nonzero(e, n)
    return reduce(e, n, "ReduceSum", e:cast(e:input(n, 1, "bool"), "int64"))
  end
  function rules.vector_norm(e, n)
    local ord, t = n.attributes.ord, n.results[1].dtype
    local x = e:input(n, 1, t)
    if ord == 1 or ord == 2 then
      return reduce(e, n, "ReduceL" .. math.tointeger(ord), x)
    end
    x = e:emit("Abs", { x })
    if ord == math.huge or ord == -math.huge then
      return reduce(e, n, ord > 0 and "ReduceMax" or "ReduceMin", x)
    elseif ord == 0 then
      return reduce(e, n, "ReduceSum", e:cast(e:cast(x, "bool"), t))
    end
    local sum = reduce(e, n, "ReduceSum", e:emit("Pow", { x, e:constant(ord, t) }))
    return e:emit("Pow", { sum, e:constant(1 / ord, t) })
  end
end

local function lines(rules)
  local function arg(e, n, op)
    local dims, x = dims_of(e, n), e:input(n, 1)
    local keep = n.attributes.keepdim and 1 or 0
    if #dims == 0 then
      return e:constant(0)
    elseif #dims == 1 then
      return e:emit(op, { x }, { axis = dims[1], keepdims = keep })
    end
    local y = e:emit(op, { e:reshape(x, { -1 }) }, { axis = 0, keepdims = 0 })
    return keep == 1 and e:reshape(y, n.results[1].shape) or y
  end
  function rules.argmax(e, n)
    return arg(e, n, "ArgMax")
  end
  function rules.argmin(e, n)
    return arg(e, n, "ArgMin")
  end
  for name, ops in pairs({ max_dim = { "ReduceMax", "ArgMax" },
    min_dim = { "ReduceMin", "ArgMin" } }) do
    rules[name] = function(e, n)
      return reduce(e, n, ops[1], e:input(n, 1)), arg(e, n, ops[2])
    end
  end
  function rules.cumsum(e, n)
    local x = e:input(n, 1, n.results[1].dtype)
    return #n.results[1].shape == 0 and x or e:emit("CumSum",
      { x, e:constant(n.attributes.dim[1]) }, { reverse = n.attributes.reverse and 1 or 0 })
  end
end

return function(rules)
  plain(rules)
  lines(rules)
end
