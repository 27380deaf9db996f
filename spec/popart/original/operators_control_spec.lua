-- PopART's own tests of loops, branches and scans (tests/integration/operators_test:
-- loop_test, if_test, scan_test, subgraph_op_test).
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local I64 = { dtype = torch.int64 }

-- A builder with inputs of these values, by id.
local function started(values)
  local builder, ids, inputs = popart.Builder(), {}, {}
  builder:setGraphName("main_graph")
  for i, t in ipairs(values) do
    ids[i] = builder:addInputTensor(popart.TensorInfo(t))
    inputs[ids[i]] = t
  end
  return builder, ids, inputs
end

-- What a session of the builder gives for its outputs.
local function run(builder, outputs, inputs)
  local anchors = {}
  for i, id in ipairs(outputs) do
    builder:addOutputTensor(id)
    anchors[i] = id
  end
  local got = helper.run(helper.inference(builder, popart.DataFlow(1, anchors)), inputs)
  local list = {}
  for i, id in ipairs(outputs) do
    list[i] = got[id]
  end
  return table.unpack(list)
end

-- A loop of ten rounds at most; body(inner, keepgoing, a_in) returns its outputs.
local function looped(builder, a, n_outputs, body)
  local trips = builder.aiOnnx:constant(torch.tensor(10, I64), "M")
  local condition = builder.aiOnnx:constant(torch.tensor(true), "cond")
  local inner = builder:createSubgraphBuilder()
  inner:setGraphName("body")
  inner:addInputTensor(popart.TensorInfo("INT64", {}))
  local keepgoing = inner:addInputTensor(popart.TensorInfo("BOOL", {}))
  local a_in = inner:addUntypedInputTensor(a)
  for _, id in ipairs({ body(inner, keepgoing, a_in) }) do
    inner:addOutputTensor(id)
  end
  return builder.aiOnnx:loop({ trips, condition, a }, n_outputs, inner)
end

describe("loop_test", function()
  local square = torch.tensor({ { 1.0, 2 }, { 3, 4 } })

  it("test_simple_for_loop", function()
    for _, swapped in ipairs({ false, true }) do
      local builder, ids, inputs = started({ torch.tensor({ 3.0 }), torch.tensor({ 6.0 }) })
      local out = looped(builder, ids[1], 1, function(inner, keepgoing, a)
        return keepgoing, inner.aiOnnx:add(swapped and { ids[2], a } or { a, ids[2] })
      end)
      helper.near(run(builder, { out[1] }, inputs), { 63 })
    end
  end)

  it("test_loop_matmul", function()
    local builder, ids, inputs = started({ square, square })
    local out = looped(builder, ids[1], 1, function(inner, keepgoing, a)
      local once = inner.aiOnnx:matmul({ a, ids[2] })
      return keepgoing, inner.aiOnnx:matmul({ once, ids[2] })
    end)
    local want = square
    for _ = 1, 20 do
      want = want:matmul(square)
    end
    helper.near(run(builder, { out[1] }, inputs), want)
  end)

  it("test_loop_stop", function()
    local builder, ids, inputs = started({ torch.tensor({ 1.0 }), torch.tensor({ 4.0 }) })
    local out = looped(builder, ids[1], 1, function(inner, _, a)
      local product = inner.aiOnnx:mul({ a, ids[2] })
      local most = inner.aiOnnx:constant(torch.tensor({ 128.0 }), "max")
      return inner.aiOnnx:less({ product, most }), product
    end)
    helper.near(run(builder, { out[1] }, inputs), { 256 })
  end)

  it("test_loop_scanout", function()
    local builder, ids, inputs = started({ square, square, -square })
    local out = looped(builder, ids[1], 3, function(inner, keepgoing, a)
      local product = inner.aiOnnx:matmul({ a, ids[2] })
      return keepgoing, product, product, inner.aiOnnx:add({ product, ids[3] })
    end)
    local x, products, sums = square, {}, {}
    for i = 1, 10 do
      x = x:matmul(square)
      products[i], sums[i] = x, x - square
    end
    local last, all, shifted = run(builder, out, inputs)
    helper.near(last, x)
    helper.near(all, torch.stack(products))
    helper.near(shifted, torch.stack(sums))
  end)

  it("test_loop_const_implicit_tensor", function()
    local builder, ids, inputs = started({ torch.tensor({ 4.0 }) })
    local k = builder.aiOnnx:constant(torch.tensor({ 1 }, I64), "k")
    local out = looped(builder, ids[1], 1, function(inner, keepgoing, a)
      return keepgoing, inner.aiOnnx:topk({ a, k }, { axis = 0 })[1]
    end)
    helper.near(run(builder, { out[1] }, inputs), { 4 })
  end)
end)

describe("if_test", function()
  local function chosen(builder, condition, yes, no)
    local flag = builder.aiOnnx:constant(torch.tensor(condition), "cond")
    local sides = {}
    for i, make in ipairs({ yes, no }) do
      sides[i] = builder:createSubgraphBuilder()
      sides[i]:setGraphName(i == 1 and "body_then" or "body_else")
      sides[i]:addOutputTensor(make(sides[i]))
    end
    return builder.aiOnnx:logical_if({ flag }, 1, sides[2], sides[1])[1]
  end

  it("test_if_basic", function()
    for _, condition in ipairs({ true, false }) do
      local builder, ids, inputs = started({ torch.tensor({ 4.0 }) })
      local one = builder.aiOnnx:constant(torch.tensor({ 1.0 }), "o1")
      local out = chosen(builder, condition, function(b)
        return b.aiOnnx:add({ one, ids[1] })
      end, function(b)
        return b.aiOnnx:add({ ids[1], b.aiOnnx:constant(torch.tensor({ 2.0 }), "o2") })
      end)
      helper.near(run(builder, { out }, inputs), { condition and 5 or 6 })
    end
  end)

  it("test_if_const_implicit_tensor", function()
    for _, condition in ipairs({ true, false }) do
      local builder, ids, inputs = started({ torch.tensor({ 4 }, { dtype = torch.int32 }) })
      local k = builder.aiOnnx:constant(torch.tensor({ 1 }, I64), "k")
      local out = chosen(builder, condition, function(b)
        return b.aiOnnx:add({ b.aiOnnx:topk({ ids[1], k }, { axis = 0 })[1], ids[1] })
      end, function(b)
        return b.aiOnnx:topk({ ids[1], k }, { axis = 0 })[1]
      end)
      helper.near(run(builder, { out }, inputs), { condition and 8 or 4 })
    end
  end)
end)

describe("scan_test", function()
  local d0, d1 = torch.tensor({ 0.0, 2, 4, 6 }), torch.tensor({ 1.0, 3, 5, 7 })

  local function turned(t, reversed)
    return reversed and t:flip({ 0 }) or t
  end

  local function way(reversed)
    return reversed and 1 or 0
  end

  -- A scan of inputs, the last so many of which have slices.
  local function scanned(builder, ids, attributes, body)
    local inner, inside = builder:createSubgraphBuilder(), {}
    inner:setGraphName("body")
    for i, id in ipairs(ids) do
      inside[i] = inner:addUntypedInputTensor(id)
    end
    local outputs = { body(inner, table.unpack(inside)) }
    for _, id in ipairs(outputs) do
      inner:addOutputTensor(id)
    end
    attributes.body, attributes.num_outputs = inner, #outputs
    return builder.aiOnnx:scan(ids, attributes)
  end

  it("test_scan_zip: slices of vectors have one element, results are joined", function()
    local operators = { zip = function(b, x, y) return b.aiOnnx:concat({ x, y }, 0) end,
      add = function(b, x, y) return b.aiOnnx:add({ x, y }) end,
      mul = function(b, x, y) return b.aiOnnx:mul({ x, y }) end }
    local references = { zip = function(x, y) return torch.stack({ x, y }, 1) end,
      add = function(x, y) return x + y end, mul = function(x, y) return x * y end }
    for name, operator in pairs(operators) do
      for bits = 0, 7 do
        local back0, back1, back = bits & 1 > 0, bits & 2 > 0, bits & 4 > 0
        local builder, ids, inputs = started({ d0, d1 })
        local out = scanned(builder, ids, { num_scan_inputs = 2,
          scan_input_directions = { way(back0), way(back1) },
          scan_output_directions = { way(back) } }, operator)
        local want = references[name](turned(d0, back0), turned(d1, back1))
        helper.near(run(builder, out, inputs), turned(want, back):reshape({ -1 }))
      end
    end
  end)

  it("test_scan_basic_rnn", function()
    torch.manual_seed(1302)
    local function whole(...)
      return torch.randint(-4, 4, { ... }):float()
    end
    local data, state = whole(8, 16, 32), whole(8, 24, 1)
    local w, u, v = whole(1, 24, 32), whole(1, 24, 24), whole(1, 64, 24)
    for bits = 0, 3 do
      local back_in, back_out = bits & 1 > 0, bits & 2 > 0
      local builder, ids, inputs = started({ data, state })
      local tw, tu, tv = builder:addInitializedInputTensor(w),
        builder:addInitializedInputTensor(u), builder:addInitializedInputTensor(v)
      local out = scanned(builder, { ids[2], ids[1] }, { num_scan_inputs = 1,
        scan_input_axes = { 1 }, scan_input_directions = { way(back_in) },
        scan_output_axes = { 1 }, scan_output_directions = { way(back_out) } },
        function(b, s, x)
          x = b:reshape_const(b.aiOnnx, { x }, { 8, 32, 1 })
          local h = b.aiOnnx:tanh({ b.aiOnnx:add({ b.aiOnnx:matmul({ tu, s }),
            b.aiOnnx:matmul({ tw, x }) }) })
          return h, b.aiOnnx:matmul({ tv, h })
        end)
      local h, list = state, {}
      for i = 0, 15 do
        local x = data:select(1, back_in and 15 - i or i):reshape({ 8, 32, 1 })
        h = (u:matmul(h) + w:matmul(x)):tanh()
        table.insert(list, back_out and 1 or #list + 1, v:matmul(h))
      end
      local last, all = run(builder, out, inputs)
      helper.near(last, h, { 1e-4, 1e-3 })
      helper.near(all, torch.cat(list, 1), { 1e-4, 1e-3 })
    end
  end)

  it("test_scan_const_implicit_tensor", function()
    for bits = 0, 3 do
      local back_in, back_out = bits & 1 > 0, bits & 2 > 0
      local builder, ids, inputs = started({ d0, d1 })
      local k = builder.aiOnnx:constant(torch.tensor({ 1 }, I64), "k")
      local out = scanned(builder, ids, { num_scan_inputs = 2,
        scan_input_directions = { way(back_in), way(back_in) },
        scan_output_directions = { way(back_out) } }, function(b, x, y)
        local top = b.aiOnnx:topk({ b.aiOnnx:add({ x, y }), k }, { axis = 0 })[1]
        return b.aiOnnx:add({ x, top })
      end)
      local x, y = turned(d0, back_in), turned(d1, back_in)
      helper.near(run(builder, out, inputs), turned(x + x + y, back_out))
    end
  end)
end)

-- Graphs that are called without inputs, and see what is around them.
describe("subgraph_op_test", function()
  local i1, i2 = torch.tensor({ { 1.0, 2 }, { 3, 4 } }), torch.tensor({ { 4.0, 3 }, { 2, 1 } })
  local i3, i4 = torch.tensor({ { 5.0, 6 }, { 7, 8 } }), torch.tensor({ { 8.0, 7 }, { 6, 5 } })
  local i5 = torch.tensor({ { -1.0, -1 }, { -2, -2 } })
  local i6 = torch.tensor({ { -1.0, 1 }, { -3, 3 } })

  local function times(b, n, name)
    return b.aiOnnx:constant(torch.tensor(n, I64), name), b.aiOnnx:constant(torch.tensor(true))
  end

  it("test_nested_simple", function()
    local builder, ids, inputs = started({ i1 })
    local b, c = builder:addInitializedInputTensor(i2), builder:addInitializedInputTensor(i3)
    local m, condition = times(builder, 6, "m0")
    local call = builder:createSubgraphBuilder()
    local loop = call:createSubgraphBuilder()
    local d = call.aiOnnx:constant(i4, "d")
    loop:addInputTensor("INT64", {})
    loop:addOutputTensor(loop:addUntypedInputTensor(condition))
    local h = loop.aiOnnx:matmul({ loop:addUntypedInputTensor(ids[1]), b })
    loop:addOutputTensor(loop.aiOnnx:add({ loop.aiOnnx:add({ h, c }), d }))
    call:addOutputTensor(call.aiOnnx:loop({ m, condition, ids[1] }, 1, loop)[1])
    local out = builder.aiOnnx:add({ builder.aiGraphcore:call({}, 1, call)[1],
      builder.aiGraphcore:call({}, 1, call)[1] })
    local x = i1
    for _ = 1, 6 do
      x = x:matmul(i2) + i3 + i4
    end
    helper.near(run(builder, { out }, inputs), x * 2)
  end)

  it("test_nested_complex", function()
    local builder, ids, inputs = started({ i1, i6 })
    local a, f = ids[1], ids[2]
    local b, c = builder:addInitializedInputTensor(i2), builder:addInitializedInputTensor(i3)
    local d = builder:addInitializedInputTensor(i4)
    local m0, on0 = times(builder, 4, "m0")
    local m1, on1 = times(builder, 3, "m1")
    local m2 = times(builder, 2, "m2")
    local outer, inner, call = builder:createSubgraphBuilder(), builder:createSubgraphBuilder(),
      builder:createSubgraphBuilder()
    local yes, no = inner:createSubgraphBuilder(), inner:createSubgraphBuilder()
    local round, on = inner:addInputTensor("INT64", {}), inner:addUntypedInputTensor(on1)
    local x, y = inner:addUntypedInputTensor(a), inner:addUntypedInputTensor(b)
    yes:addOutputTensor(yes.aiOnnx:add({ yes.aiOnnx:matmul({ x, y }), c }))
    no:addOutputTensor(no.aiOnnx:add({ x, f }))
    local chosen = inner.aiOnnx:logical_if({ inner.aiOnnx:less({ round, m2 }) }, 1, no, yes)[1]
    for _, id in ipairs({ on, chosen, y }) do
      inner:addOutputTensor(id)
    end
    local e = call.aiOnnx:constant(i5, "e")
    call:addOutputTensor(call.aiOnnx:loop({ m1, on1, a, e }, 2, inner)[1])
    outer:addInputTensor("INT64", {})
    outer:addOutputTensor(outer:addUntypedInputTensor(on0))
    local carried = outer:addUntypedInputTensor(a)
    outer:addOutputTensor(outer.aiOnnx:loop({ m1, on1, carried, d }, 2, inner)[1])
    local out = builder.aiOnnx:add({ builder.aiOnnx:loop({ m0, on0, a }, 1, outer)[1],
      builder.aiGraphcore:call({}, 1, call)[1] })
    local function rounds(t, factor)
      return (t:matmul(factor) + i3):matmul(factor) + i3 + i6
    end
    local want = i1
    for _ = 1, 4 do
      want = rounds(want, i4)
    end
    helper.near(run(builder, { out }, inputs), want + rounds(i1, i5))
  end)
end)
