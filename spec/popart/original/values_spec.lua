-- PopART's own tests of values that a session is made of: data flows, types and shapes,
-- groups of replicas (dataflowtest, bindings/test_tensorinfo, test_variablesettings).
local dataflow = require("popart.dataflow")
local enums = require("popart.enums")
local helper = require("spec.helper")
local tensor_info = require("popart.tensor_info")
local torch = require("torch")
local variable_settings = require("popart.variable_settings")

local refuses = helper.refuses
local DataFlow, Art, Id = dataflow.DataFlow, dataflow.AnchorReturnType, enums.AnchorReturnTypeId

describe("dataflowtest", function()
  it("DataFlow_Case1", function()
    local df = DataFlow()
    assert.equal(0, df:nAnchors())
    assert.equal(0, df:batchesPerStep())
    assert.is_false(df:isAnchored("one"))
  end)

  it("DataFlow_Case2", function()
    local df = DataFlow(5, { one = Art("All"), two = Art("Final") })
    assert.equal(2, df:nAnchors())
    assert.equal(5, df:batchesPerStep())
    assert.equal(Id.All, df:art("one"):id())
    assert.equal(Id.Final, df:art("two"):id())
    assert.is_true(df:isAnchored("two"))
    assert.is_false(df:isAnchored("three"))
    assert.equal("one", df:anchors()[1])
  end)

  it("DataFlow_Case3", function()
    local df = DataFlow(6, { one = Art("EveryN", 2), two = Art("Final") })
    assert.equal(2, df:art("one"):rp())
    refuses("popart_exception", "A return period should not be supplied for this anchor return",
      function()
        df:art("two"):rp()
      end)
  end)

  it("DataFlow_Case4", function()
    refuses("popart_exception", "Return period must be <= to the number of batches per step",
      DataFlow, 5, { one = Art("EveryN", 6) })
  end)

  it("DataFlow_Case5", function()
    refuses("popart_exception", "Return period must be a factor of the number of batches per step",
      DataFlow, 5, { one = Art("EveryN", 3) })
  end)

  it("DataFlow_Case6", function()
    for art, id in pairs({ [false] = Id.All, [Art("Final")] = Id.Final }) do
      local df = DataFlow(3, { "one", "two" }, art or nil)
      assert.equal(2, df:nAnchors())
      assert.equal(3, df:batchesPerStep())
      for _, name in ipairs({ "one", "two" }) do
        assert.is_true(df:isAnchored(name))
        assert.equal(id, df:art(name):id())
      end
    end
  end)
end)

describe("bindings/test_tensorinfo", function()
  local TensorInfo = tensor_info.TensorInfo

  it("test_tensor_info_construction", function()
    TensorInfo(torch.float16, { 5, 5 })
    TensorInfo("FLOAT16", "(5,5)")
    TensorInfo("FLOAT16", { 5, 5 })
  end)

  it("test_tensor_info_set0", function()
    local info = TensorInfo(torch.float, { 4, 2 })
    info:set(torch.int8)
    assert.equal(torch.int8, info:dataType())
    assert.same({ 4, 2 }, info:shape())
  end)

  it("test_tensor_info_set1", function()
    for _, types in ipairs({ { torch.float, torch.int8 }, { torch.int8, torch.float } }) do
      for _, shapes in ipairs({ { { 1, 2 }, { 3, 4 } }, { { 3, 4 }, { 5, 6 } } }) do
        local info = TensorInfo(types[1], shapes[1])
        info:set(types[2], shapes[2])
        assert.same(shapes[2], info:shape())
        assert.equal(types[2], info:dataType())
      end
    end
  end)

  it("test_tensor_info_shape", function()
    assert.same({ 2, 3 }, TensorInfo(torch.float, { 2, 3 }):shape())
    assert.same({ 4, 5 }, TensorInfo("FLOAT", "(4,5)"):shape())
  end)

  it("test_tensor_info_rank test_tensor_info_nelms test_tensor_info_dim", function()
    for shape, n in pairs({ [{ 1 }] = 1, [{ 2, 2 }] = 4, [{ 3, 3, 3 }] = 27 }) do
      local info = TensorInfo("FLOAT", shape)
      assert.equal(#shape, info:rank())
      assert.equal(n, info:nelms())
      for i, size in ipairs(shape) do
        assert.equal(size, info:dim(i - 1))
      end
    end
  end)

  it("test_tensor_info_nbytes", function()
    assert.equal(4, TensorInfo("FLOAT", { 1 }):nbytes())
    assert.equal(8, TensorInfo("FLOAT16", { 2, 2 }):nbytes())
    assert.equal(27, TensorInfo("INT8", { 3, 3, 3 }):nbytes())
  end)

  it("test_tensor_info_data_type_equals_str test_tensor_info_data_type_lcase", function()
    local half, byte = TensorInfo(torch.float16, { 5, 5 }), TensorInfo("INT8", { 5, 5 })
    assert.same({ "FLOAT16", "float16" }, { half:data_type(), half:data_type_lcase() })
    assert.same({ "INT8", "int8" }, { byte:data_type(), byte:data_type_lcase() })
  end)

  it("test_tensor_strides", function()
    -- what numpy.ndarray.strides gives
    for name, bytes in pairs({ FLOAT = 4, FLOAT16 = 2, INT32 = 4, INT16 = 2, UINT32 = 4,
      BOOL = 1 }) do
      local info = TensorInfo(name, { 2, 4, 1, 3 })
      assert.same({ 12 * bytes, 3 * bytes, 3 * bytes, bytes }, info:strides({ 2, 4, 1, 3 }))
      assert.same({ bytes }, info:strides({ 5 }))
      assert.same({ bytes }, info:strides({ 1 }))
      assert.same({}, info:strides({}))
      assert.same({ 2 * bytes, bytes }, info:strides({ 1000, 2 }))
    end
  end)

  it("test_tensor_info_data_operator_eq_neq", function()
    local infos = { TensorInfo("FLOAT16", { 2, 3 }), TensorInfo("FLOAT16", { 4, 5 }),
      TensorInfo("FLOAT", { 2, 3 }), TensorInfo("FLOAT", { 4, 5 }) }
    for i, a in ipairs(infos) do
      for j, b in ipairs(infos) do
        assert.equal(i == j, a == b)
      end
    end
  end)
end)

describe("test_variablesettings", function()
  local Settings, CommGroup = variable_settings.VariableSettings, variable_settings.CommGroup
  local Grouping, Mode = variable_settings.ReplicaGrouping, enums.VariableRetrievalMode

  it("testConstructorWithReplicaGrouping", function()
    for mode in pairs({ [Mode.OnePerGroup] = true, [Mode.AllReplicas] = true }) do
      local settings = Settings(1, 8, mode)
      assert.equal(Grouping(8), settings:getReplicaGrouping(8))
      assert.equal(mode, settings:getRetrievalMode())
    end
    assert.equal(Mode.OnePerGroup, Settings(1, 8):getRetrievalMode())
  end)

  it("testGetReplicaGrouping", function()
    assert.equal(Grouping(8), Settings(1, 8):getReplicaGrouping(8))
    assert.equal(Grouping(8), Settings(CommGroup()):getReplicaGrouping(8))
  end)

  it("testGetSharedVariableDomain testGetSharedVariableDomainInvaid", function()
    assert.equal(CommGroup(), Settings(CommGroup()):getSharedVariableDomain())
    refuses("popart_exception", "not initialised using a `popart::CommGroup` instance",
      Settings(1, 8).getSharedVariableDomain, Settings(1, 8))
  end)

  it("testNumReplicasReturningVariable", function()
    for mode, n in pairs({ OnePerGroup = 4, AllReduceReplicas = 4, AllReplicas = 8 }) do
      assert.equal(n, Settings(4, 2, Mode[mode]):numReplicasReturningVariable(8))
    end
  end)

  it("testGetGroupCount testGetStride testGetRealGroupSize testGetGroupRepresentative", function()
    local settings = Settings(4, 2)
    assert.same({ 4, 4, 2 }, { settings:getGroupCount(8), settings:getStride(8),
      settings:getRealGroupSize(8) })
    assert.equal(4, Settings(2, 2):getGroupRepresentative(2))
  end)

  it("testShapeOnReplica", function()
    local whole, halves = Settings(1, 8), Settings(1, 4)
    for _, shape in ipairs({ {}, { 1 }, { 4, 2 } }) do
      assert.same(shape, whole:shapeOnReplica(shape, 8, ""))
    end
    assert.same({}, halves:shapeOnReplica({ 2 }, 8, ""))
    assert.same({ 3 }, halves:shapeOnReplica({ 2, 3 }, 8, ""))
  end)

  it("testShapeOnReplicaInvalid", function()
    local halves = Settings(1, 4)
    refuses("popart_exception", "Tensor 'foo' should have at least one dimension",
      halves.shapeOnReplica, halves, {}, 8, "foo")
    refuses("popart_exception", "Return mismatch with possibly appended outer dimension",
      halves.shapeOnReplica, halves, { 3 }, 8, "foo")
  end)

  it("testShapeOnHost", function()
    local whole, halves = Settings(1, 8), Settings(1, 4)
    for _, shape in ipairs({ {}, { 1 }, { 4, 2 } }) do
      assert.same(shape, whole:shapeOnHost(shape, 8))
    end
    assert.same({ 2 }, halves:shapeOnHost({}, 8))
    assert.same({ 2, 3 }, halves:shapeOnHost({ 3 }, 8))
  end)

  it("testGroups", function()
    assert.same({ { 0, 2 }, { 1, 3 }, { 4, 6 }, { 5, 7 } }, Settings(2, 2):groups(8))
  end)

  it("testEqualityOperator", function()
    assert.is_true(Settings(CommGroup()) == Settings(CommGroup()))
    assert.is_false(Settings(CommGroup()) == Settings(1, 8))
    assert.is_false(Settings(CommGroup(), Mode.OnePerGroup)
      == Settings(CommGroup(), Mode.AllReplicas))
    assert.is_true(Settings(1, 8) == Settings(1, 8))
    assert.is_false(Settings(1, 8) == Settings(1, 8, Mode.AllReplicas))
  end)
end)
