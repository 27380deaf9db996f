--- What reading and writing by index is in ONNX.

-- Which dimensions are indexed, from 0, and the shape that their indices make.
local function indexed(e, n, first)
  local dims, shape = {}, {}
  for i = first, #n.operands do
    if e:has(n, i) then
      dims[#dims + 1] = i - first
      local s = e:type(n, i).shape
      for k = 0, math.max(#s, #shape) - 1 do
        local a, b = s[#s - k] or 1, shape[#shape - k] or 1
        if shape[#shape - k] then
          shape[#shape - k] = a == 1 and b or a
        else
          table.insert(shape, 1, a)
        end
      end
    end
  end
  return dims, shape
end

-- The order that has the indexed dimensions in front.
local function in_front(dims, rank)
  local order, set = { table.unpack(dims) }, {}
  for _, d in ipairs(dims) do
    set[d] = true
  end
  for d = 0, rank - 1 do
    order[#order + 1] = not set[d] and d or nil
  end
  return order
end

local function inverse(order)
  local out = {}
  for i, d in ipairs(order) do
    out[d + 1] = i - 1
  end
  return out
end

-- All indices as one tensor whose last dimension is a place.
local function places(e, n, first, dims, shape)
  local list, wide = {}, { table.unpack(shape) }
  wide[#wide + 1] = 1
  for i, d in ipairs(dims) do
    local x = e:emit("Expand", { e:input(n, first + d, "int64"),
      e:constant({ table.unpack(shape) }) })
    list[i] = e:reshape(x, wide)
  end
  return #list == 1 and list[1] or e:emit("Concat", list, { axis = #shape })
end

-- The order of a result whose index dimensions (`count` of them) stand in front,
-- if they belong at the first indexed dimension.
local function back(dims, count, rank)
  if dims[#dims] - dims[1] ~= #dims - 1 or dims[1] == 0 then
    return nil -- apart, or in front anyway
  end
  local order = {}
  for d = count, count + dims[1] - 1 do
    order[#order + 1] = d
  end
  for d = 0, count - 1 do
    order[#order + 1] = d
  end
  for d = count + dims[1], count + rank - #dims - 1 do
    order[#order + 1] = d
  end
  return order
end

local function advanced(rules)
  function rules.index_get(e, n)
    local rank = #e:type(n, 1).shape
    local dims, shape = indexed(e, n, 2)
    if #dims == 1 then
      return e:emit("Gather", { e:input(n, 1), e:input(n, dims[1] + 2) }, { axis = dims[1] })
    end
    local x = e:transpose(e:input(n, 1), in_front(dims, rank))
    local y = e:emit("GatherND", { x, places(e, n, 2, dims, shape) })
    local order = back(dims, #shape, rank)
    return order and e:transpose(y, order) or y
  end

  function rules.index_set(e, n)
    local rank, sizes = #e:type(n, 1).shape, e:type(n, 1).shape
    local dims, shape = indexed(e, n, 3)
    if n.attributes.accumulate and e.version < 16 then
      e:fail("adding at places needs opset 16")
    end
    local front = in_front(dims, rank)
    local order, wide = back(dims, #shape, rank), { table.unpack(shape) }
    for i = #dims + 1, rank do
      wide[#wide + 1] = sizes[front[i] + 1]
    end
    local seen = {} -- the shape that the values have in the order of the source
    for i, d in ipairs(order or {}) do
      seen[i] = wide[d + 1]
    end
    local values = e:emit("Expand", { e:input(n, 2), e:constant(order and seen or wide) })
    if order then
      values = e:transpose(values, inverse(order))
    end
    local y = e:emit("ScatterND", { e:transpose(e:input(n, 1), front),
      places(e, n, 3, dims, shape), values }, n.attributes.accumulate and { reduction = "add" })
    return e:transpose(y, inverse(front))
  end
end

local REDUCTIONS = { sum = "add", prod = "mul" }

local function along(rules)
  function rules.index_select(e, n)
    local index = e:input(n, 2)
    if #e:type(n, 2).shape == 0 then
      index = e:reshape(index, { 1 })
    end
    if #e:type(n, 1).shape == 0 then
      return e:input(n, 1)
    end
    return e:emit("Gather", { e:input(n, 1), index }, { axis = n.attributes.dim })
  end
  function rules.embedding(e, n)
    return e:emit("Gather", { e:input(n, 1), e:input(n, 2) }, { axis = 0 })
  end
  function rules.gather(e, n)
    return e:emit("GatherElements", { e:input(n, 1), e:input(n, 2) },
      { axis = n.attributes.dim })
  end
  local function scatter(e, n, source, reduction)
    if reduction and e.version < 16 then
      e:fail("adding at places needs opset 16")
    end
    return e:emit("ScatterElements", { e:input(n, 1), e:input(n, 2), source },
      { axis = n.attributes.dim, reduction = reduction })
  end
  function rules.scatter(e, n)
    local source = e:input(n, 3, n.results[1].dtype)
    if #e:type(n, 3).shape == 0 then
      source = e:emit("Expand", { source, e:constant({ table.unpack(e:type(n, 2).shape) }) })
    end
    return scatter(e, n, source)
  end
  function rules.scatter_add(e, n)
    return scatter(e, n, e:input(n, 3), "add")
  end
  function rules.scatter_reduce(e, n)
    local how = REDUCTIONS[n.attributes.reduce]
    if not how or not n.attributes.include_self then
      e:fail("ONNX has sums and products with what is there, up to opset 17")
    end
    return scatter(e, n, e:input(n, 3), how)
  end
  -- rows of the source are added to rows of self
  function rules.index_add_rows(e, n)
    local dim, source = n.attributes.dim, e:type(n, 3).shape
    local shape = {}
    for i = 1, #source do
      shape[i] = i == dim + 1 and source[i] or 1
    end
    local index = e:emit("Expand", { e:reshape(e:input(n, 2, "int64"), shape),
      e:constant({ table.unpack(source) }) })
    if e.version < 16 then
      e:fail("adding at places needs opset 16")
    end
    return e:emit("ScatterElements", { e:input(n, 1), index, e:input(n, 3) },
      { axis = dim, reduction = "add" })
  end
  function rules.one_hot(e, n)
    return e:emit("OneHot", { e:input(n, 1), e:constant(n.attributes.num_classes),
      e:constant({ 0, 1 }) }, { axis = -1 })
  end
end

local function sorted(rules)
  local function top(e, n, k, largest)
    return e:emit("TopK", { e:input(n, 1), e:constant({ k }) }, { axis = n.attributes.dim,
      largest = largest and 1 or 0, sorted = 1 }, 2)
  end
  function rules.topk(e, n)
    return top(e, n, n.attributes.k, n.attributes.largest)
  end
  function rules.sort(e, n)
    local a, shape = n.attributes, e:type(n, 1).shape
    return top(e, n, shape[(a.dim < 0 and a.dim + #shape or a.dim) + 1], a.descending)
  end
end

return function(rules)
  advanced(rules)
  along(rules)
  sorted(rules)
end
