--- What views, constants and parts of tensors are in ONNX.
local torch = require("torch")

local END = math.maxinteger -- a slice's end: as far as there is something

local function shape_of(n)
  return { table.unpack(n.results[1].shape) }
end

local function range(from, to)
  local list = {}
  for d = from, to do
    list[#list + 1] = d
  end
  return list
end

-- A part of a value along one dimension.
local function slice(e, x, dim, from, to, step)
  return e:emit("Slice", { x, e:constant({ from }), e:constant({ to }), e:constant({ dim }),
    step ~= 1 and e:constant({ step }) or "" })
end

local function views(rules)
  for _, name in ipairs({ "reshape", "view" }) do
    rules[name] = function(e, n)
      return e:reshape(e:input(n, 1), shape_of(n))
    end
  end
  function rules.expand(e, n)
    return e:emit("Expand", { e:input(n, 1), e:constant(shape_of(n)) })
  end
  function rules.permute(e, n)
    return e:transpose(e:input(n, 1), n.attributes.dims)
  end
  function rules.unsqueeze(e, n)
    return e:emit("Unsqueeze", { e:input(n, 1), e:constant({ n.attributes.dim }) })
  end
  function rules.squeeze(e, n)
    local dims, x = {}, e:type(n, 1)
    for _, d in ipairs(n.attributes.dim or range(0, #x.shape - 1)) do
      dims[#dims + 1] = x.shape[d + 1] == 1 and d or nil
    end
    return #dims == 0 and e:input(n, 1)
      or e:emit("Squeeze", { e:input(n, 1), e:constant(dims) })
  end
  function rules.slice(e, n)
    local a = n.attributes
    return slice(e, e:input(n, 1), a.dim, a.start or 0, a["end"] or END, a.step)
  end
  function rules.select(e, n)
    local a = n.attributes
    return e:emit("Gather", { e:input(n, 1), e:constant(a.index) }, { axis = a.dim })
  end
  -- windows of a dimension, the places in each as a last dimension
  function rules.unfold(e, n)
    local a, shape = n.attributes, shape_of(n)
    local d, rank = a.dimension, #shape
    local places = torch.arange(0, shape[d + 1]):reshape({ -1, 1 }) * a.step
      + torch.arange(0, a.size):reshape({ 1, -1 })
    local dims = range(0, d)
    table.move(range(d + 2, rank - 1), 1, rank, #dims + 1, dims)
    dims[#dims + 1] = d + 1
    return e:transpose(e:emit("Gather", { e:input(n, 1), e:constant(places) }, { axis = d }), dims)
  end
  function rules.diagonal(e, n)
    local a, x, rest = n.attributes, e:type(n, 1), {}
    for d = 0, #x.shape - 1 do
      rest[#rest + 1] = d ~= a.dim1 and d ~= a.dim2 and d or nil
    end
    local shape, out = {}, shape_of(n)
    for i, d in ipairs(rest) do
      shape[i] = x.shape[d + 1]
    end
    local columns = x.shape[a.dim2 + 1]
    shape[#shape + 1] = x.shape[a.dim1 + 1] * columns
    rest[#rest + 1], rest[#rest + 2] = a.dim1, a.dim2
    local first = a.offset >= 0 and a.offset or -a.offset * columns
    local places = torch.arange(0, out[#out]) * (columns + 1) + first
    return e:emit("Gather", { e:reshape(e:transpose(e:input(n, 1), rest), shape),
      e:constant(places) }, { axis = #shape - 1 })
  end
end

-- The value with `src` in the places of a slice.
local function put(e, n, dim, from, to, src)
  local x, size, parts = e:input(n, 1), e:type(n, 1).shape[dim + 1], {}
  parts[1] = from > 0 and slice(e, x, dim, 0, from, 1) or nil
  parts[#parts + 1] = src
  parts[#parts + 1] = to < size and slice(e, x, dim, to, END, 1) or nil
  return #parts == 1 and src or e:emit("Concat", parts, { axis = dim })
end

local function parts(rules)
  function rules.cat(e, n)
    local list = {}
    for i = 1, #n.operands do
      local shape = e:type(n, i).shape
      -- an empty vector goes with tensors of any rank
      if #shape ~= 1 or shape[1] ~= 0 or #n.results[1].shape == 1 then
        list[#list + 1] = e:input(n, i, n.results[1].dtype)
      end
    end
    return #list == 1 and list[1] or e:emit("Concat", list, { axis = n.attributes.dim })
  end
  function rules.flip(e, n)
    local dims = n.attributes.dims
    local last, ends, steps = {}, {}, {}
    for i = 1, #dims do
      last[i], ends[i], steps[i] = -1, math.mininteger, -1
    end
    return #dims == 0 and e:input(n, 1) or e:emit("Slice", { e:input(n, 1), e:constant(last),
      e:constant(ends), e:constant({ table.unpack(dims) }), e:constant(steps) })
  end
  for name, upper in pairs({ tril = 0, triu = 1 }) do
    rules[name] = function(e, n)
      local x, k, shape = e:input(n, 1), n.attributes.diagonal, shape_of(n)
      if e.version >= 14 then
        return e:emit("Trilu", { x, e:constant(k) }, { upper = upper })
      end
      local kept = torch[name](torch.ones({ shape[#shape - 1], shape[#shape] }), k):bool()
      return e:emit("Where", { e:constant(kept), x, e:constant(0, n.results[1].dtype) })
    end
  end
  function rules.constant_pad_nd(e, n)
    local pad, rank = n.attributes.pad, #n.results[1].shape
    local pads = {}
    for i = 1, rank do
      local at = 2 * (rank - i) -- the last dimension stands first
      pads[i], pads[rank + i] = pad[at + 1] or 0, pad[at + 2] or 0
    end
    return e:emit("Pad", { e:input(n, 1), e:constant(pads),
      e:constant(n.attributes.value, n.results[1].dtype) })
  end
  function rules.slice_scatter(e, n)
    local a, size = n.attributes, e:type(n, 1).shape[n.attributes.dim + 1]
    if a.step ~= 1 then
      local shape, wide = e:type(n, 2).shape, {}
      for d = 1, #shape do
        wide[d] = d == a.dim + 1 and shape[d] or 1
      end
      local places = torch.arange(0, wide[a.dim + 1]) * a.step + (a.start or 0)
      local index = e:emit("Expand", { e:constant(places:reshape(wide)),
        e:constant({ table.unpack(shape) }) })
      return e:emit("ScatterElements", { e:input(n, 1), index, e:input(n, 2) },
        { axis = a.dim })
    end
    return put(e, n, a.dim, a.start or 0, math.min(a["end"] or size, size), e:input(n, 2))
  end
  function rules.select_scatter(e, n)
    local a = n.attributes
    return put(e, n, a.dim, a.index, a.index + 1,
      e:emit("Unsqueeze", { e:input(n, 2), e:constant({ a.dim }) }))
  end
end

local function constants(rules)
  local function filled(e, n, value)
    local x = n.results[1]
    return e:emit("ConstantOfShape", { e:constant(shape_of(n)) }, { value = torch.tensor({ value },
      { dtype = torch[x.dtype] }) })
  end
  function rules.full(e, n)
    return filled(e, n, n.attributes.fill_value)
  end
  for _, name in ipairs({ "empty", "zero" }) do
    rules[name] = function(e, n)
      return filled(e, n, 0)
    end
  end
  function rules.fill(e, n)
    local value = e:number(n, 2)
    return value ~= nil and filled(e, n, value)
      or e:emit("Expand", { e:input(n, 2, n.results[1].dtype), e:constant(shape_of(n)) })
  end
  local computed = {
    arange = function(a, options) return torch.arange(a.start, a["end"], a.step, options) end,
    linspace = function(a, options) return torch.linspace(a.start, a["end"], a.steps, options) end,
    logspace = function(a, options)
      return torch.logspace(a.start, a["end"], a.steps, a.base, options)
    end,
    eye = function(a, options) return torch.eye(a.n, a.m or a.n, options) end,
    tril_indices = function(a, options)
      return torch.tril_indices(a.row, a.col, a.offset, options)
    end,
    triu_indices = function(a, options)
      return torch.triu_indices(a.row, a.col, a.offset, options)
    end,
  }
  for name, make in pairs(computed) do
    rules[name] = function(e, n)
      return e:constant(make(n.attributes, { dtype = torch[n.results[1].dtype] }))
    end
  end
end

return function(rules)
  views(rules)
  parts(rules)
  constants(rules)
end
