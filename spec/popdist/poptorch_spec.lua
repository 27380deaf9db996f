-- popdist.poptorch.Options: what PopRun's environment says, and nothing else.
-- An environment is that of a process of its own. The variables and figures are
-- those of PopRun's log of 16 replicas of 4 IPUs in the PopDist guide, cut into
-- instances.
local helper = require("spec.helper")
local popdist = require("popdist.poptorch")
local poptorch = require("poptorch")
local program = require("spec.support.program")

-- Runs lines of Lua where the variables are set; what they print, or their error.
local function within(variables, lines)
  local path = program.temporary('local popdist = require("popdist")\n' .. lines)
  local out, err = program.shell(("env %s %s %s"):format(variables, program.host, path))
  os.remove(path)
  return err == "" and out or err
end

local POPRUN = "POPDIST_NUM_TOTAL_REPLICAS=16 POPDIST_NUM_LOCAL_REPLICAS=4 "
  .. "POPDIST_NUM_IPUS_PER_REPLICA=4 POPDIST_REPLICA_INDEX_OFFSET=8 "
  .. "POPDIST_LOCAL_INSTANCE_INDEX=1 OMPI_COMM_WORLD_SIZE=9 OMPI_COMM_WORLD_RANK=5 "

local SHOW = [[
  local o = popdist.poptorch.Options({ ipus_per_replica = 4 })
  print(o.Distributed.numProcesses, o.Distributed.processId, o.replication_factor,
    o.Distributed:replicas(o.replication_factor))
]]

describe("popdist.poptorch.Options", function()
  it("have the processes and replicas of the environment", function()
    assert.equal("4\t2\t4\t16\t8\n", within(POPRUN, SHOW))
    local o = popdist.Options()
    assert.same({ 1, 0, 1 }, { o.Distributed.numProcesses, o.Distributed.processId,
      o.replication_factor })
  end)

  it("give a loader the part of this process", function()
    assert.equal("40\t25\n", within(POPRUN, [[
      local torch, poptorch = require("torch"), require("poptorch")
      local loader = poptorch.DataLoader(popdist.poptorch.Options(),
        torch.utils.data.TensorDataset(torch.arange(100)), { batch_size = 5 })
      local step = loader:iter()
      print(step()[0]:item(), loader.combinedBatchSize + #loader * 5)
    ]]))
  end)

  it("are options in every other way", function()
    local o = popdist.Options(2):deviceIterations(3)
    o.Training:gradientAccumulation(4)
    assert.is_true(poptorch.Options:is(o))
    local copy = o:clone():deviceIterations(5)
    assert.same({ 3, 5 }, { o.device_iterations, copy.device_iterations })
    helper.raises("RuntimeError", "Cannot call `useIpuId`", function() copy:useIpuId(0) end)
    assert.matches("device_iterations=3", tostring(o), 1, true)
    assert.equal(4, poptorch.DataLoader(poptorch.Options(), { 1, 2, 3, 4 }, 4).combinedBatchSize)
  end)

  it("refuse what the environment contradicts, or says badly", function()
    for _, c in ipairs({
      { POPRUN, "popdist.poptorch.Options(2)", "ipus_per_replica: PopRun was told 4, got 2" },
      { "POPDIST_NUM_LOCAL_REPLICAS=two", "popdist.poptorch.Options()",
        "POPDIST_NUM_LOCAL_REPLICAS: expected an integer >= 1, got 'two'" },
      { "POPDIST_NUM_TOTAL_REPLICAS=5 POPDIST_NUM_LOCAL_REPLICAS=2", "popdist.getNumInstances()",
        "the same number of replicas; this one has 2, all together 5" },
      { "POPDIST_NUM_TOTAL_REPLICAS=4 POPDIST_NUM_LOCAL_REPLICAS=2 "
        .. "POPDIST_REPLICA_INDEX_OFFSET=4", "popdist.init()",
        "this instance is number 2, the last of all is 1" },
      { "POPDIST_LOCAL_INSTANCE_INDEX=-1", "popdist.init()",
        "POPDIST_LOCAL_INSTANCE_INDEX: expected an integer >= 0" },
    }) do
      local said = within(c[1], c[2])
      assert.matches(c[3]:find("expected an", 1, true) and "ValueError" or "RuntimeError", said)
      assert.is_truthy(said:find(c[3], 1, true), said)
    end
    helper.raises("ValueError", "ipus_per_replica: expected int", function() popdist.Options(0) end)
    helper.raises("RuntimeError", "Cannot call `replicationFactor`", function()
      popdist.Options().replication_factor = 2
    end)
  end)

  it("are checked by init, which scripts call first", function()
    assert.equal("true\t2\n", within(POPRUN, [[
      popdist.init()
      print(popdist.isPopdistEnvSet(), popdist.getInstanceIndex())
    ]]))
    helper.raises("AttributeError", "popdist.*did you mean 'getInstanceIndex'", function()
      return require("popdist").getInstanceIndx
    end)
  end)

  it("come with the figures themselves", function()
    assert.equal("true\t16\t4\t8\t4\t1\t4\t2\ttrue\tfalse\n", within(POPRUN, [[
      print(popdist.isPopdistEnvSet(), popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(),
        popdist.getReplicaIndexOffset(), popdist.getNumIpusPerReplica(),
        popdist.getLocalInstanceIndex(), popdist.getNumInstances(), popdist.getInstanceIndex(),
        popdist.checkNumIpusPerReplica(4), popdist.checkNumIpusPerReplica(2))
    ]]))
    assert.equal("false\t1\t1\t0\t1\t0\t1\t0\ttrue\n", within("-u POPDIST_NUM_TOTAL_REPLICAS", [[
      print(popdist.isPopdistEnvSet(), popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(),
        popdist.getReplicaIndexOffset(), popdist.getNumIpusPerReplica(),
        popdist.getLocalInstanceIndex(), popdist.getNumInstances(), popdist.getInstanceIndex(),
        popdist.checkNumIpusPerReplica(7))
    ]]))
  end)
end)
