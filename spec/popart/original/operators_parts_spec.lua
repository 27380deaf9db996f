-- PopART's own tests of operators that arrange, read and write parts, of scatters, calls
-- and effects (tests/integration/operators_test, and abort_test, printtensor).
local graphs = require("spec.lupine.onnx.graphs")
local compile = require("lupine.compile")
local node = require("spec.lupine.onnx.node")
local popart = require("popart")
local program = require("spec.support.program")
local torch = require("torch")
local wave = require("spec.lupine.onnx.recorded").wave

local function agrees(reference, op, inputs, values, options)
  options = options or {}
  options.domain = "ai.graphcore"
  node.agrees(reference, op, inputs, values, options)
end

local function refuses(text, op, inputs, values)
  node.refuses(text, op, inputs, values, { domain = "ai.graphcore" })
end

local function int(list)
  return torch.tensor(list, { dtype = torch.int32 })
end

describe("slice_test", function()
  local x = torch.tensor({ { 1.0, 2, 3, 4 }, { 5, 6, 7, 8 } })
  local function check(text, t, values)
    agrees(function(v)
      return v[text]
    end, "Slice", { t }, values)
  end

  it("test_slice_opset1, test_slice_grad, test_slice_default_axes", function()
    check("1:2, 0:3", x, { axes = { 0, 1 }, starts = { 1, 0 }, ends = { 2, 3 } })
    check("0:1, 0:-1", x, { starts = { 0, 0 }, ends = { 1, -1 } })
  end)

  it("test_slice_neg, test_slice_neg_starts_and_ends, test_slice_negative_axis", function()
    check("0:1", torch.arange(8.0), { starts = { 0 }, ends = { 1 } })
    check("-5:-1", torch.arange(8.0), { axes = { 0 }, starts = { -5 }, ends = { -1 } })
    check(":, 1:3", x, { axes = { -1 }, starts = { 1 }, ends = { 3 } })
  end)

  it("test_slice_start_out_of_bounds, test_slice_end_out_of_bounds", function()
    local big = wave({ 4, 5, 2 }, 1)
    check(":, 5:5", big, { axes = { 1 }, starts = { 1000 }, ends = { 1000 } })
    check(":, 1:", big, { axes = { 1 }, starts = { 1 }, ends = { 1000 } })
  end)
end)

describe("subsample_test", function()
  it("test_subsample1 … test_subsample6", function()
    local x = torch.tensor({ { 1.0, 2, 3, 4 }, { 2, 3, 4, 5 }, { 3, 4, 5, 6 }, { 4, 5, 6, 7 } })
    for text, strides in pairs({ ["::2, ::2"] = { 2, 2 }, ["::1, ::1"] = { 1, 1 },
      ["::2, ::4"] = { 2, 4 }, ["::4, ::4"] = { 4, 4 }, ["::3, ::3"] = { 3, 3 } }) do
      agrees(function(v)
        return v[text]
      end, "Subsample", { x }, { strides = strides })
    end
    refuses("invalid stride 0 at index 1", "Subsample", { x }, { strides = { 1, 0 } })
  end)
end)

describe("operators_test", function()
  it("test_reverse, test_reverse_grad", function()
    local x = wave({ 4, 1, 3 }, 1)
    for _, dims in ipairs({ { 0 }, { 2, 1 }, { 0, 1, 2 }, {} }) do
      agrees(function(v)
        return v:flip(dims)
      end, "Reverse", { x }, { dimensions = dims })
    end
    refuses("invalid dimension '-2'", "Reverse", { x }, { dimensions = { 2, -2 } })
    refuses("dimension 1 appears multiple times", "Reverse", { x }, { dimensions = { 1, 1 } })
    refuses("invalid dimension '3'", "Reverse", { x }, { dimensions = { 3 } })
  end)

  it("reshape copies and infers sizes", function()
    agrees(function(v)
      return v:reshape(2, 12)
    end, "Reshape", { wave({ 2, 3, 4 }, 1) }, { shape = { 0, -1 } })
  end)

  it("init makes zeros of a type", function()
    local y = node("Init", {}, { shape = { 2, 3 }, data_type = 12, init_type = 1 },
      { domain = "ai.graphcore" })
    assert.equal(torch.float16, y.dtype)
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, y:tolist())
  end)
end)

describe("depthtospace_test", function()
  it("test_depthtospace_custom_op, test_pixelshuffle_custom", function()
    agrees(function(v)
      return v:reshape(2, 2, 2, 3, 2, 3):permute(0, 3, 4, 1, 5, 2):reshape(2, 3, 4, 6)
    end, "DepthToSpace", { wave({ 2, 12, 2, 3 }, 1) }, { blocksize = 2 })
    agrees(function(v)
      return torch.pixel_shuffle(v, 2)
    end, "DepthToSpace", { wave({ 2, 8, 2, 3 }, 1) }, { blocksize = 2, mode = "CRD" })
  end)
end)

describe("dynamicslice_test", function()
  local x = wave({ 5, 12, 7 }, 1)

  it("test_dynamicslice, and with the slice as a third input", function()
    for i = 0, 3 do
      local reference = function(v)
        return v:narrow(1, 3 * i, 3)
      end
      local values = { axes = { 1 }, sizes = { 3 }, noOverlap = 1 }
      agrees(reference, "DynamicSlice", { x, int({ 3 * i }) }, values)
      agrees(reference, "DynamicSlice", { x, int({ 3 * i }), torch.zeros(5, 3, 7) }, values)
    end
  end)

  it("test_dynamicslice_no_leading_slice_dim", function()
    agrees(function(v)
      return v:select(0, 3)
    end, "DynamicSlice", { x, int({ 3 }), torch.zeros(12, 7) }, { axes = { 0 }, sizes = { 1 } })
  end)

  it("test_multi_dim_dynamicslice_create_input_tensor", function()
    agrees(function(v)
      return v["1:3, :, :, 3:7"]
    end, "DynamicSlice", { wave({ 3, 5, 3, 7 }, 1), int({ 1, 3 }) },
      { axes = { 0, 3 }, sizes = { 2, 4 }, noOverlap = 1 })
  end)

  it("O6: test_dynamicslice_overlap_correct, test_dynamicslice_overlap_wrong corrected", function()
    for overlap = 0, 1 do
      local values = { axes = { 0 }, sizes = { 5 }, noOverlap = overlap }
      local model = graphs.model("x, i, j -> c", { { "a = gc.DynamicSlice(x, i)", values },
        { "b0 = gc.DynamicSlice(x, j)", values }, { "b = gc.Scale(b0)", { scale = 2.0 } },
        { "c = Add(a, b)" } })
      local t = wave({ 10 }, 1):requires_grad_(true)
      model(t, int({ 0 }), int({ 3 })):sum():backward()
      assert.same({ 1, 1, 1, 3, 3, 2, 2, 2, 0, 0 }, t.grad:tolist())
    end
  end)
end)

describe("dynamicupdate_test, dynamicadd_test, dynamiczero_test", function()
  local x, update = wave({ 5, 12, 7 }, 1), wave({ 3, 4, 5 }, 2)
  local values = { axes = { 0, 1, 2 }, sizes = { 3, 4, 5 }, noOverlap = 1 }
  local function within(change)
    return function(v, _, u)
      local y = v:clone()
      y["1:4, 3:7, 2:7"] = change(v["1:4, 3:7, 2:7"], u)
      return y
    end
  end

  it("test_dynamicupdate_multi_dim, test_dynamicupdate_training", function()
    agrees(within(function(_, u)
      return u
    end), "DynamicUpdate", { x, int({ 1, 3, 2 }), update }, values)
  end)

  it("test_dynamicupdate", function()
    local parts = { wave({ 2, 3 }, 1), wave({ 2, 3 }, 2) }
    local row = { axes = { 1 }, sizes = { 3 }, noOverlap = 1 }
    local model = graphs.model("a, b, i, j -> z", {
      { "x = gc.Init()", { shape = { 2, 6 }, data_type = 11, init_type = 0 } },
      { "y = gc.DynamicUpdate(x, i, a)", row }, { "z = gc.DynamicUpdate(y, j, b)", row } })
    local z = model(parts[1], parts[2], int({ 0 }), int({ 3 }))
    assert.same(torch.cat(parts, 1):tolist(), z:tolist())
  end)

  it("test_dynamicupdate_no_leading_slice_dim", function()
    agrees(function(v, _, u)
      local y = v:clone()
      y[1] = u
      return y
    end, "DynamicUpdate", { wave({ 3, 4 }, 1), int({ 1 }), wave({ 4 }, 2) },
      { axes = { 0 }, sizes = { 1 } })
  end)

  it("test_dynamicadd_training", function()
    agrees(within(function(v, u)
      return v + u
    end), "DynamicAdd", { x, int({ 1, 3, 2 }), update }, values)
  end)

  it("test_dynamiczero_training", function()
    agrees(within(function(v)
      return v * 0
    end), "DynamicZero", { x, int({ 1, 3, 2 }) }, values)
  end)

  it("sizes beyond the axis are refused", function()
    refuses("'sizes': got 6 for axis 0 of size 5", "DynamicSlice", { x, int({ 0 }) },
      { axes = { 0 }, sizes = { 6 } })
  end)
end)

describe("sequenceslice_test", function()
  it("test_sequenceslice", function()
    local source = torch.arange(36.0):reshape(6, 6) + 10
    for _, case in ipairs({
      { 3, { 1, 1, 1 }, { 0, 2, 4 }, { 0, 1, 2 } }, { 3, { 1, 2 }, { 0, 4 }, { 2, 0 } },
      { 4, { 1, 1 }, { 0, 3 }, { 0, 2 } },
    }) do
      local rows, counts, from, at = table.unpack(case)
      for _, zero in ipairs({ 0, 1 }) do
        local to = wave({ rows, 6 }, 3)
        agrees(function(s, d)
          local y = zero == 1 and torch.zeros_like(d) or d:clone()
          for i, n in ipairs(counts) do
            y[torch.slice(at[i], at[i] + n)] = s:narrow(0, from[i], n)
          end
          return y
        end, "SequenceSlice", { source, to, int(counts), int(from), int(at) },
          { zeroUnused = zero })
      end
    end
  end)
end)

describe("gather_test", function()
  it("test_gather_rank2_1 … test_gather_example2, grouped", function()
    local x = wave({ 2, 3, 4, 2 }, 1)
    for axis = 1, 3 do
      for _, index in ipairs({ int({ { 0 }, { 1 } }), int({ { { 0, 1 }, { 1, 1 } },
        { { 1, 0 }, { 0, 1 } } }) }) do
        agrees(function(v, i)
          local groups = {}
          for g = 0, 1 do
            local one = v[g]:index_select(axis - 1, i[g]:reshape(-1):long())
            groups[g + 1] = one:unflatten(axis - 1, { table.unpack(i[g].shape) })
          end
          return torch.stack(groups, 0)
        end, "GroupedGather", { x, index }, { axis = axis, group_size = 2 })
      end
    end
    refuses("axis = 0 indicates the dimension of the group", "GroupedGather", { x, int({ 0, 1 }) },
      { axis = 0, group_size = 2 })
  end)

  it("a group of one is a gather", function()
    agrees(function(v, i)
      return v:index_select(1, i:reshape(-1):long()):reshape(3, 2, 2)
    end, "GroupedGather", { wave({ 3, 4 }, 1), int({ { 0, 3 }, { 3, 1 } }) }, { axis = 1 })
  end)
end)

-- By the definition of scatters, an element after the other.
local HOW = {
  sum = function(a, b)
    return a + b
  end,
  mul = function(a, b)
    return a * b
  end,
  max = torch.maximum,
  min = torch.minimum,
  none = function(_, b)
    return b
  end,
}

local function scattered(how, size, initial)
  return function(src, index, first)
    local out, rows, n = {}, src:size(0), src:size(1)
    for c = 0, n - 1 do
      for k = 0, size - 1 do
        local value = initial and first[{ k, c }] or nil
        for i = 0, rows - 1 do
          if index[{ i, c }]:item() == k then
            local v = src[{ i, c }]
            value = value and HOW[how](value, v) or v
          end
        end
        out[#out + 1] = value or torch.tensor(how == "mul" and 1.0 or 0.0)
      end
    end
    return torch.stack(out):reshape(n, size):transpose(0, 1)
  end
end

describe("scatterreduce_test", function()
  local src = wave({ 6, 3 }, 1)
  local index = torch.tensor({ { 0, 1, 1 }, { 1, 1, 0 }, { 1, 0, 3 }, { 3, 1, 1 }, { 2, 2, 0 },
    { 0, 0, 0 } })

  it("O5: test_scatterreduce_basic, test_scatterreduce_training, with initial values", function()
    for how in pairs(HOW) do
      -- of "none" PyTorch's gradient, too, is right for single ones alone
      local options = { infer = how == "none" }
      agrees(scattered(how, 5), "ScatterReduce", { src, index }, { axis = 0, axis_size = 5,
        reduction = how }, options)
      agrees(scattered(how, 4, true), "ScatterReduce", { src, index, wave({ 4, 3 }, 2) },
        { axis = 0, axis_size = 4, reduction = how }, options)
    end
  end)

  it("test_scatterreduce_none", function()
    local rows = torch.tensor({ 4, 0, 5, 1, 7, 2 })
    agrees(function(s, i, first)
      return first:index_copy(0, i, s)
    end, "ScatterReduce", { src, rows, wave({ 8, 3 }, 2) }, { axis = 0, axis_size = 8,
      reduction = "none" })
  end)

  it("test_scatterreduce_index_broadcasted, test_scatterreduce_indices_data_different_shape",
    function()
      local vector = torch.tensor({ 0, 1, 1, 3, 2, 0 })
      for _, i in ipairs({ vector, vector:reshape(6, 1) }) do
        agrees(function(s)
          return scattered("sum", 5)(s, vector:reshape(6, 1):expand(6, 3))
        end, "ScatterReduce", { src, i }, { axis = 0, axis_size = 5 })
      end
    end)

  it("test_scatterreduce_axis", function()
    local x = wave({ 2, 3, 4 }, 1)
    for axis = -3, 2 do
      local vector = (torch.arange(x:size(axis)) * 2) % 3
      agrees(function(v)
        local shape = { 2, 3, 4 }
        shape[axis % 3 + 1] = 5
        return torch.zeros(shape):index_add(axis % 3, vector, v)
      end, "ScatterReduce", { x, vector }, { axis = axis, axis_size = 5 })
    end
  end)

  it("grouped, each group has indices of its own", function()
    local data, at = torch.stack({ src, src * 2 }), torch.stack({ index, index:flip(0) })
    for how in pairs(HOW) do
      agrees(function(v, i)
        return torch.stack({ scattered(how, 4)(v[0], i[0]), scattered(how, 4)(v[1], i[1]) })
      end, "ScatterReduce", { data, at }, { axis = 1, axis_size = 4, reduction = how,
        group_size = 2 }, { infer = how == "none" })
    end
    local vectors = torch.tensor({ { 0, 1, 1, 3, 2, 0 }, { 3, 3, 3, 0, 0, 0 } })
    agrees(function(v, i)
      return torch.stack({ torch.zeros(4, 3):index_add(0, i[0], v[0]),
        torch.zeros(4, 3):index_add(0, i[1], v[1]) })
    end, "ScatterReduce", { data, vectors }, { axis = 1, axis_size = 4, group_size = 2 })
  end)

  it("test_scatterreduce_bcast_disabled: indices of fewer elements take as many", function()
    agrees(function(v)
      return torch.zeros(4, 2):scatter_add(0, index["0:5, 0:2"], v["0:5, 0:2"])
    end, "ScatterReduce", { src, index["0:5, 0:2"]:contiguous() }, { axis = 0, axis_size = 4,
      enable_index_broadcast = 0 })
  end)

  it("O5: test_scatterreduce_bad_axis, _bad_axis_size, _indices_data_different_bad_shape, "
    .. "_invalid_indices_rank, _partial_broadcasting", function()
    local x, i = torch.ones(2, 3, 4), torch.zeros(2, 3, 4):long()
    refuses("axis = 4 is outside the acceptable range [-3, 2]", "ScatterReduce", { x, i },
      { axis = 4, axis_size = 5 })
    refuses("axis_size = 0 is not valid", "ScatterReduce", { x, i }, { axis_size = 0 })
    refuses("Failed to expand 'indices' shape", "ScatterReduce",
      { torch.ones(6, 3), torch.zeros(6, 4):long() }, { axis = 0, axis_size = 5 })
    refuses("Invalid rank for indices input.", "ScatterReduce",
      { torch.ones(3, 4), torch.zeros(3, 4, 1):long() }, { axis = 0, axis_size = 5 })
    refuses("Partial broadcasting of indices is not currently supported", "ScatterReduce",
      { torch.ones(6, 3, 5), torch.zeros(1, 3, 5):long() }, { axis = 0, axis_size = 5 })
  end)
end)

describe("tensorremap_test", function()
  it("test_tensorremap", function()
    for remap = 0, 2 do
      agrees(function(v)
        return v:clone()
      end, "TensorRemap", { wave({ 2, 3 }, 1) }, { remap_type = remap })
    end
    refuses("'remap_type': got 3. Allowed: 0 (FwdBwdReverse)", "TensorRemap", { torch.ones(1) },
      { remap_type = 3 })
  end)
end)

describe("packed_data_test", function()
  it("test_packeddatablockop", function()
    local lengths, offsets = { 3, 5, 7, 4, 6, 2 }, { 0, 3, 8, 15, 19, 25 }
    local data = wave({ 27, 5 }, 1)
    for each = 1, 3 do
      local model = graphs.model("x, at, n -> y", { { "y = gc.PackedDataBlock(x, at, n, at, n)",
        { maxSequenceLengths = { 10 }, resultSize = 27, callbackBatchSize = each,
          callback = graphs.graph("d -> p", { { "t = Transpose(d)", { perm = { 0, 2, 1 } } },
            { "p = MatMul(d, t)" } }) } } })
      local args = { data, int(offsets), int(lengths) }
      local y = model(table.unpack(args))
      assert.same({ 27, 10 }, { table.unpack(y.shape) })
      assert.is_true(torch.allclose(y, compile(model, args)(table.unpack(args))))
      for i, n in ipairs(lengths) do
        local d = data:narrow(0, offsets[i], n)
        local got = y:narrow(0, offsets[i], n)
        assert.is_true(torch.allclose(d:matmul(d:t()), got:narrow(1, 0, n), 1e-4, 1e-5))
        assert.equal(0, got:narrow(1, n, 10 - n):abs():sum():item())
      end
    end
  end)
end)

local CALLEE = graphs.graph("a, b -> c", { { "d = Mul(a, b)" }, { "c = Add(d, a)" } })

describe("call_test", function()
  it("test_call, test_call_grad_1", function()
    agrees(function(a, b)
      return a * b + a
    end, "Call", { wave({ 2, 3 }, 1), wave({ 2, 3 }, 2) }, { callee = CALLEE },
      { opsets = { [""] = 11 } })
  end)

  it("test_nested_calls, test_stacked_subgraphs", function()
    local model = graphs.model("x, y -> z", { { "z = gc.Call(x, y)", {
      callee = graphs.graph("e, f -> h", { { "g = gc.Call(e, f)", { callee = CALLEE } },
        { "h = gc.Call(g, f)", { callee = CALLEE } } }) } } })
    local x, y = wave({ 3 }, 1), wave({ 3 }, 2)
    assert.is_true(torch.allclose((x * y + x) * y + (x * y + x), model(x, y)))
  end)

  it("test_subgraph_call_mismatch0, test_subgraph_call_mismatch1", function()
    node.refuses("the callee has 2 inputs and 1 outputs, the call 1 and 1", "Call",
      { torch.ones(2) }, { callee = CALLEE }, { domain = "ai.graphcore",
        opsets = { [""] = 11 } })
  end)
end)

describe("detach_test", function()
  it("test_detach_grad, test_detach_grad_branches", function()
    local model = graphs.model("x -> z", { { "y = Exp(x)" }, { "d = gc.Detach(y)" },
      { "z = Mul(d, x)" } })
    local x = wave({ 3 }, 1):requires_grad_(true)
    model(x):sum():backward()
    assert.is_true(torch.allclose(x:detach():exp(), x.grad))
  end)
end)

describe("copy_var_update_test", function()
  it("test_training_with_var_update", function()
    for _, kind in ipairs({ torch.float32, torch.int32 }) do
      local model = graphs.model("x -> x1, alias", { { "x1 = Add(counter, one)" },
        { "alias = gc.CopyVarUpdate(counter, x1)" } }, {
        counter = torch.zeros(1, { dtype = kind }), one = torch.ones(1, { dtype = kind }) })
        :eval()
      local x = torch.zeros(1)
      for step = 1, 3 do
        local _, alias = model(x)
        assert.equal(step, alias:item())
        assert.equal(step, model.counter:item())
      end
      local compiled = compile(model, { x })
      for step = 4, 6 do
        compiled(x)
        assert.equal(step, model.counter:item())
      end
      assert.equal(1, #model:buffers())
    end
  end)
end)

describe("abort_test", function()
  local function aborts(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok)
    assert.matches("Abort Program", e.message)
    assert.equal("poplar_runtime_error", e.type)
  end

  it("test_abort_unconditional, test_abort_conditional, test_abort_conditional_exception",
    function()
      local x = torch.ones(2)
      local always = graphs.model("x -> y", { { "y = Abs(x)" }, { "= gc.Abort()" } })
      local maybe = graphs.model("x -> y", { { "y = Abs(x)" }, { "= gc.Abort(y)" } })
      aborts(always, x)
      aborts(compile(always, { x }), x)
      aborts(maybe, x)
      local compiled = compile(maybe, { x })
      aborts(compiled, x)
      assert.same({ 0, 0 }, compiled(x * 0):tolist())
      assert.same({ 0, 0 }, maybe(x * 0):tolist())
    end)
end)

describe("printtensor", function()
  local function printed(compiled)
    local _, err = program.run({ "-e", ([[
      package.path = "./?.lua;" .. package.path
      local torch, graphs = require("torch"), require("spec.lupine.onnx.graphs")
      local model = graphs.model("i1, i2 -> a2", { { "a1 = Add(i1, i2)" },
        { "p1 = gc.PrintTensor(a1)" }, { "a2 = Add(i1, a1)" },
        { "p2 = gc.PrintTensor(a2)", { title = "sum", openBracket = 40, separator = 44,
          closeBracket = 41 } } })
      local one = torch.tensor({ 1, 2, 3 }, { dtype = torch.int32 })
      local two = torch.tensor({ 4, 5, 6 }, { dtype = torch.int32 })
      local run = %s and require("lupine.compile")(model, { one, two }) or model
      run(one, two)
    ]]):format(compiled) })
    return err
  end

  it("test_basic, test_basic_dangling: a result that nothing reads is printed, too", function()
    for _, compiled in ipairs({ false, true }) do
      local text = printed(compiled)
      assert.matches("a1: %[5 7 9%]", text)
      assert.matches("sum: %( ?6, ?9,12%)", text)
    end
  end)
end)

describe("in a session", function()
  -- a session of a builder's model, and the arrays of its anchors by name
  local function session(build)
    local builder = popart.Builder()
    local anchors, loss = build(builder)
    local all = {}
    for _, id in ipairs(anchors) do
      all[id] = popart.AnchorReturnType("All")
    end
    local arguments = { fnModel = builder:getModelProto(), dataFlow = popart.DataFlow(1, all),
      deviceInfo = popart.DeviceManager():createIpuModelDevice({}), loss = loss,
      optimizer = loss and popart.ConstSGD(0.1) }
    local s = loss and popart.TrainingSession(arguments) or popart.InferenceSession(arguments)
    s:prepareDevice()
    s:weightsFromHost()
    return s, s:initAnchorArrays()
  end

  it("test_training_with_var_update: the counter counts while weights are trained", function()
    local x, added, alias, loss
    local s, arrays = session(function(b)
      x = b:addInputTensor(popart.TensorInfo("FLOAT", { 2, 2 }))
      local w = b:addInitializedInputTensor(torch.ones(2, 2))
      loss = b.aiGraphcore:l1loss({ b.aiOnnx:matmul({ x, w }) }, 0.1)
      local counter = b:addInitializedInputTensor(torch.zeros(1))
      added = b.aiOnnx:add({ counter, b.aiOnnx:constant(torch.ones(1)) })
      alias = b.aiGraphcore:copyvarupdate({ counter, added })
      return { added, alias, loss }, loss
    end)
    local losses = {}
    for step = 1, 3 do
      s:run(popart.PyStepIO({ [x] = torch.ones(2, 2) }, arrays))
      assert.equal(step, arrays[added]:item())
      assert.equal(step, arrays[alias]:item())
      losses[step] = arrays[loss]:item()
    end
    assert.is_true(losses[3] < losses[2] and losses[2] < losses[1])
  end)

  it("test_abort_unconditional: neither the builder nor the compiler aborts", function()
    local x
    local s, arrays = session(function(b)
      x = b:addInputTensor(popart.TensorInfo("FLOAT", { 2 }))
      b.aiGraphcore:abort({})
      return { b.aiOnnx:abs({ x }) }
    end)
    local ok, e = pcall(s.run, s, popart.PyStepIO({ [x] = torch.ones(2) }, arrays))
    assert.is_false(ok)
    assert.is_true(popart.poplar_runtime_error:is(e))
  end)
end)
