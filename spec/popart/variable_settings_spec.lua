-- Weights that differ between groups of replicas.
local enums = require("popart.enums")
local helper = require("spec.helper")
local popart = require("popart")
local torch = require("torch")
local variable_settings = require("popart.variable_settings")

local Settings, CommGroup = variable_settings.VariableSettings, variable_settings.CommGroup
local Grouping = variable_settings.ReplicaGrouping
local Type, Mode = enums.CommGroupType, enums.VariableRetrievalMode
local refuses = helper.refuses

describe("popart.VariableSettings", function()
  it("groups 16 replicas by 4", function()
    local consecutive = Settings(CommGroup(Type.Consecutive, 4))
    assert.same({ { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 }, { 12, 13, 14, 15 } },
      consecutive:groups(16))
    local orthogonal = Settings(CommGroup(Type.Orthogonal, 4))
    assert.same({ { 0, 4, 8, 12 }, { 1, 5, 9, 13 }, { 2, 6, 10, 14 }, { 3, 7, 11, 15 } },
      orthogonal:groups(16))
    assert.equal(4, orthogonal:getStride(16))
    assert.same({ 1, 4 }, { consecutive:getStride(16), consecutive:getRealGroupSize(16) })
    assert.same({ { 0 }, { 1 } }, Settings(CommGroup(Type.Ungrouped)):groups(2))
    assert.same({ { 0, 1, 2 } }, Settings():groups(3))
  end)

  it("groups replicas alike where all numbers are", function()
    assert.equal(Grouping(8, 2, 4), Grouping(8, 2, 4))
    for _, other in ipairs({ Grouping(16, 2, 4), Grouping(8, 1, 4), Grouping(8, 2, 2) }) do
      assert.is_false(Grouping(8, 2, 4) == other)
    end
  end)

  it("G7 has shapes with a dimension of groups, and representatives", function()
    local pairs_of = Settings(CommGroup(Type.Consecutive, 2))
    assert.same({ 2, 5 }, pairs_of:shapeOnHost({ 5 }, 4))
    assert.same({ 5 }, pairs_of:shapeOnReplica({ 2, 5 }, 4, "w"))
    assert.equal(2, pairs_of:numReplicasReturningVariable(4))
    assert.equal(4, Settings(CommGroup(Type.Consecutive, 2), Mode.AllReplicas)
      :numReplicasReturningVariable(4))
    assert.same({ 0, 2 },
      { pairs_of:getGroupRepresentative(0), pairs_of:getGroupRepresentative(1) })
    assert.same({ { 0, 2 }, { 1, 3 } }, Settings(CommGroup(Type.Orthogonal, 2)):groups(4))
    assert.same({ { 0, 2 }, { 1, 3 }, { 4, 6 }, { 5, 7 } }, Settings(2, 2):groups(8))
    assert.equal(1, Settings():numReplicasReturningVariable(4))
  end)

  it("G8 tells a wrong dimension of groups", function()
    refuses("popart_internal_exception", "Return mismatch with possibly appended outer dimension "
      .. "%(3%) of Tensor: \"w\"", Settings(2, 2).shapeOnReplica, Settings(2, 2), { 3, 5 }, 4, "w")
  end)

  it("shows a builder what a replica has, the first group's where shapes depend on it", function()
    local b = popart.Builder()
    b:embedReplicationFactor(4)
    local groups = Settings(CommGroup(Type.Consecutive, 2))
    local w = b:addInitializedInputTensor(torch.zeros(2, 6), groups)
    local shape = b:addInitializedInputTensor(torch.tensor({ { 2, 3 }, { 3, 2 } }), groups)
    assert.same({ 6 }, b:getTensorShape(w))
    assert.same({ 2, 3 }, b:getTensorShape(b.aiOnnx:reshape({ w, shape })))
    assert.same({ 6 }, b:getTensorShape(b:addInitializedInputTensor(torch.zeros(6), Settings())))
    refuses("popart_internal_exception", "mismatch", b.addInitializedInputTensor, b,
      torch.zeros(3, 6), groups)
  end)

  it("shows it to the builder of a model that is there, too", function()
    for _, replicas in ipairs({ 0, 2 }) do
      local b = popart.Builder()
      if replicas > 0 then
        b:embedReplicationFactor(replicas)
      end
      local x = b:addInputTensor("FLOAT", { 3, 4 })
      local w = b:addInitializedInputTensor(torch.zeros(2, 4, 6),
        Settings(CommGroup(Type.Ungrouped)))
      local y = b:reshape_const(b.aiOnnx, { b.aiOnnx:matmul({ x, w }) }, { 18 })
      local again = popart.Builder(b:getModelProto())
      assert.same(replicas > 0 and { 4, 6 } or { 2, 4, 6 }, again:getTensorShape(w))
      if replicas > 0 then
        assert.same({ 18 }, again:getTensorShape(y))
      else
        refuses("popart_exception", "is not known before the graph is called",
          again.getTensorShape, again, y)
      end
    end
  end)

  it("is made in every way that PopART has", function()
    assert.equal(Mode.OnePerGroup, Settings():getRetrievalMode())
    assert.equal(Mode.AllReplicas, Settings(Mode.AllReplicas):getRetrievalMode())
    local both = Settings(CommGroup(Type.Consecutive, 2), Mode.AllReplicas)
    assert.same({ Type.Consecutive, 2, Mode.AllReplicas },
      { both:getCommGroupType(), both:getGroupSize(), both:getRetrievalMode() })
    assert.equal(both, Settings({ sharedVariableDomain_ = CommGroup(Type.Consecutive, 2),
      retrievalMode_ = Mode.AllReplicas }))
    assert.same({ 2, 4 }, { Settings(2, 4):getStride(), Settings(2, 4):getGroupSize() })
    assert.equal(Settings(2, 4, Mode.AllReplicas),
      Settings({ stride = 2, groupSize = 4, mode = Mode.AllReplicas }))
    assert.is_true(both:isUsingCommGroup())
    assert.is_false(Settings(1, 2):isUsingCommGroup())
  end)

  it("refuses groups that cannot be", function()
    refuses("popart_internal_exception", "Bad ReplicaGroupSize %(0%)", Settings,
      CommGroup(Type.Consecutive))
    refuses("ValueError", "stride: expected int >= 1", Settings, 0, 2)
    refuses("popart_exception", "must divide the number of replicas, 4",
      Settings(CommGroup(Type.Consecutive, 3)).groups, Settings(CommGroup(Type.Consecutive, 3)), 4)
    refuses("popart_exception", "divisible by the product", Grouping, 6, 2, 2)
    refuses("popart_exception", "AllReduceReplicas is not supported", Settings().verify,
      Settings(Mode.AllReduceReplicas))
    Settings():verify()
    refuses("TypeError", "sharedVariableDomain: expected CommGroup", Settings, "All")
  end)

  it("tells a replica's group and back", function()
    for _, grouping in ipairs({ Grouping(12, 1, 3), Grouping(12, 2, 3), Grouping(12, 6, 2) }) do
      for group = 0, grouping:getNumGroups() - 1 do
        for index, replica in ipairs(grouping:getReplicasAt(group)) do
          assert.equal(group, grouping:getGroupAt(replica))
          assert.equal(replica, grouping:getReplicaAt(group, index - 1))
        end
      end
    end
    local pairs_of = Grouping(12, 2, 3)
    -- groups {0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}
    assert.same({ 0, 1, 6, 7 }, { pairs_of:getReplicaAt(0), pairs_of:getReplicaAt(1),
      pairs_of:getReplicaAt(2), pairs_of:getReplicaAt(3) })
    assert.same({ 7, 9, 11 }, pairs_of:getReplicasAt(3))
    assert.equal(Grouping(4, 1, 1), Grouping(4, 2, 1)) -- alone, whatever the stride
    for _, wrong in ipairs({ { "group", 4 }, { "group", -1 }, { "index", 0, 3 },
      { "index", 0, -1 } }) do
      refuses("ValueError", "getReplicaAt: " .. wrong[1], pairs_of.getReplicaAt, pairs_of, wrong[2],
        wrong[3])
    end
    refuses("ValueError", "getGroupAt: replica", pairs_of.getGroupAt, pairs_of, 12)
    assert.equal("ReplicaGrouping(numReplicas=8, stride=1, groupSize=8)", tostring(Grouping(8)))
  end)
end)
