-- PopART's own tests of what goes into a run and comes out (stepio_tests_py_cpu,
-- stepio_nelms_error_test, np_memory_layout_test, test_broadcast_replication,
-- constant_weights_error_test, inputshapeinfotest).
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local refuses = helper.refuses

-- a + b of two values, whose inputs are anchors, too: session, names a, b, o, data.
local function adder(batches)
  local builder = popart.Builder()
  local shape = popart.TensorInfo("FLOAT", { 2 })
  local a, b = builder:addInputTensor(shape), builder:addInputTensor(shape)
  local o = builder.aiOnnx:add({ a, b })
  builder:addOutputTensor(o)
  local all = popart.AnchorReturnType("All")
  return helper.inference(builder, popart.DataFlow(batches, { [a] = all, [b] = all, [o] = all })),
    a, b, o, { [a] = torch.rand(batches, 2), [b] = torch.rand(batches, 2) }
end

-- A session that gives its INT32 input back.
local function identity(io)
  local builder = popart.Builder()
  local input = builder:addInputTensor("INT32", { 2, 2 })
  local output = builder.aiOnnx:identity({ input })
  builder:addOutputTensor(output)
  local session = helper.inference(builder, popart.DataFlow(1, { [output] =
    popart.AnchorReturnType("ALL") }))
  session:weightsFromHost()
  local ok, e = pcall(function()
    session:run(io(input, output, session:initAnchorArrays()))
  end)
  return ok, e
end

local function numbers()
  return torch.randint(0, 100, { 2, 2 }, { dtype = torch.int32 })
end

describe("stepio_tests_py_cpu", function()
  it("test_stepio_bufferinput", function()
    local session, a, b, o, data = adder(2)
    local anchors = session:initAnchorArrays()
    session:run(popart.PyStepIO(data, anchors))
    assert.is_true(torch.equal(anchors[a], data[a]))
    assert.is_true(torch.allclose(anchors[o], data[a] + data[b]))
  end)

  it("test_stepio_callbackinput", function()
    local session, a, b, o, data = adder(2)
    local anchors, read, written = session:initAnchorArrays(), {}, {}
    -- The next row of a table's tensor.
    local function next_row(tensors, counts, id)
      counts[id] = (counts[id] or -1) + 1
      return tensors[id][counts[id]]
    end
    local complete = 0
    local function completed()
      complete = complete + 1
    end
    session:run(popart.PyStepIOCallback(function(id, prefetch)
      return not prefetch and next_row(data, read, id) or nil
    end, completed, function(id)
      return next_row(anchors, written, id)
    end, completed))
    for _, id in ipairs({ a, b }) do
      assert.is_true(torch.equal(anchors[id], data[id]))
    end
    assert.is_true(torch.allclose(anchors[o], data[a] + data[b]))
    assert.equal(2 * 2 + 2 * 3, complete)
  end)

  it("test_steio_correct_inputs", function()
    local builder = popart.Builder()
    local input = builder:addInputTensor("FLOAT", { 4 })
    local sqrt = builder.aiOnnx:sqrt({ input })
    local session = helper.inference(builder, popart.DataFlow(1, { sqrt }),
      { device = popart.DeviceManager():createCpuDevice() })
    local data = torch.tensor({ 1.0, 4.0, 9.0, 16.0 })
    refuses("popart_exception", "^The tensor '.*' has been provided as one of the inputs to the "
      .. "stepIO", session.run, session,
      popart.PyStepIO({ [input] = data, [sqrt] = torch.zeros(4) }, session:initAnchorArrays()))
    refuses("popart_exception", "no Tensor named foo", session.run, session,
      popart.PyStepIO({ [input] = data, foo = torch.zeros(4) }, session:initAnchorArrays()))
  end)
end)

describe("stepio_nelms_error_test", function()
  it("CorrectBufferNElmsTest0", function()
    local builder = popart.Builder()
    local input = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1 }))
    local out = builder.aiOnnx:reducesum({ builder.aiGraphcore:scale({ input }, 2.0) }, { 0 }, 0)
    builder:addOutputTensor(out)
    local session = helper.inference(builder, popart.DataFlow(1, { out }))
    local anchors = session:initAnchorArrays()
    local wrong = popart.PyStepIO({ [input] = torch.tensor({ 1.0, 2.0 }) }, anchors)
    refuses("popart_runtime_error", "Unexpected number", session.run, session, wrong)
    session:run(popart.PyStepIO({ [input] = torch.tensor({ 3.0 }) }, anchors))
    assert.equal(6, anchors[out]:item())
    session:run(wrong) -- later runs are not looked at
  end)
end)

describe("np_memory_layout_test", function()
  it("test_np_memory_layout_add_initialized_input_tensor1", function()
    local builder = popart.Builder()
    local value = torch.rand(2, 3):t()
    local weight = builder:addInitializedInputTensor(value)
    local out = builder.aiOnnx:identity({ weight })
    builder:addOutputTensor(out)
    local session = helper.inference(builder, popart.DataFlow(1, { out }))
    session:weightsFromHost()
    local anchors = session:initAnchorArrays()
    session:run(popart.PyStepIO({}, anchors))
    assert.is_true(torch.equal(anchors[out], value))
  end)

  it("test_np_memory_layout_add_input_tensor_pystepio", function()
    local ok, e = identity(function(input, _, anchors)
      return popart.PyStepIO({ [input] = numbers():t() }, anchors)
    end)
    assert.is_false(ok)
    assert.matches("contiguous", e.message)
  end)

  it("test_np_memory_layout_add_input_tensor_pystepiocallback", function()
    for _, turned in ipairs({ { false, false }, { true, false }, { false, true } }) do
      local ok, e = identity(function(_, output, anchors)
        return popart.PyStepIOCallback(function()
          return turned[1] and numbers():t() or numbers()
        end, function() end, function()
          return turned[2] and anchors[output]:t() or anchors[output]
        end, function() end)
      end)
      assert.equal(not (turned[1] or turned[2]), ok)
      assert.is_true(ok or e.message:find("contiguous", 1, true) ~= nil)
    end
  end)
end)

describe("streammode_tests", function()
  it("test_broadcast_replication", function()
    local batches = 16
    for _, replicas in ipairs({ 2, 4 }) do
      for _, dim in ipairs({ 4, 8 }) do
        local builder = popart.Builder()
        local input = builder:addInputTensor(popart.TensorInfo("FLOAT", { dim, dim, dim }),
          popart.InputSettings(popart.ReplicatedStreamMode.Broadcast), "input")
        local weights = torch.rand(dim, dim)
        local o = builder.aiOnnx:matmul({ input, builder:addInitializedInputTensor(weights) })
        builder:addOutputTensor(o)
        local session = helper.inference(builder, popart.DataFlow(batches, { o }),
          { device = helper.device(replicas), options = helper.loops(1, replicas) })
        session:weightsFromHost()
        local data = torch.randn(batches, dim, dim, dim)
        local anchors = session:initAnchorArrays()
        session:run(popart.PyStepIO({ [input] = data }, anchors))
        for replica = 0, replicas - 1 do
          assert.is_true(torch.allclose(anchors[o]:select(1, replica), data:matmul(weights),
            { atol = 1e-4 }))
        end
      end
    end
  end)
end)

describe("constant_weights_error_test", function()
  it("test_constant_weights_write_error", function()
    local builder = popart.Builder()
    local input = builder:addInputTensor(popart.TensorInfo("FLOAT", { 1 }))
    local weight = builder:addInitializedInputTensor(torch.tensor({ 10.0 }))
    local output = builder.aiOnnx:add({ input, weight })
    builder:addOutputTensor(output)
    local session = helper.inference(builder, popart.DataFlow(1, { output }))
    refuses("popart_exception", "Cannot call writeWeights when constantWeights is set. Set "
      .. "`constantWeights` to False", session.writeWeights, session,
      popart.PyWeightsIO({ [weight] = torch.tensor({ 100.0 }) }))
  end)
end)

describe("inputshapeinfotest", function()
  it("InputShapeInfo_Case1", function()
    local infos = popart.InputShapeInfo()
    assert.is_false(infos:has("cat"))
    assert.equal(0, #infos:getAllTensorIds())
    refuses("popart_exception", nil, infos.get, infos, "cat")
    local input = popart.TensorInfo("FLOAT", { 2, 2 })
    infos:add("cat", input)
    assert.is_true(infos:has("cat"))
    assert.equal(1, #infos:getAllTensorIds())
    assert.equal(input, infos:get("cat"))
  end)
end)
