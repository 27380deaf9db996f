-- PopTorch's own tests of popdist.poptorch.Options, by name.
local helper = require("spec.helper")
local popdist = require("popdist.poptorch")
local poptorch = require("poptorch")

describe("popdist.poptorch.Options as the original", function()
  it("test_blocked_options", function()
    local opts = popdist.Options({ ipus_per_replica = 2 })
    for name, call in pairs({
      useIpuId = function() opts:useIpuId(1) end,
      replicationFactor = function() opts:replicationFactor(1) end,
      ["Distributed.disable"] = function() opts.Distributed:disable() end,
      ["Distributed.setEnvVarNames"] = function() opts.Distributed:setEnvVarNames("A", "B") end,
      ["Distributed.configureProcessId"] = function() opts.Distributed:configureProcessId(1) end,
    }) do
      helper.raises("RuntimeError", "Cannot call `" .. name .. "` with popdist%.poptorch%.Options",
        call)
    end
  end)

  it("test_getters", function()
    local opts = popdist.Options({ ipus_per_replica = 2 })
    assert.same({ 0, 1 }, { opts.Distributed.processId, opts.Distributed.numProcesses })
  end)

  it("test_to_dict", function()
    local opts = popdist.Options({ ipus_per_replica = 2 })
    opts:outputMode(poptorch.OutputMode.All)
    local dict = opts:toDict()
    assert.same({ 1, 0 }, { dict.num_distributed_processes, dict.distributed_process_id })
    assert.is_false(opts:isFrozen())
    opts:_freeze("a test")
    assert.same(dict, opts:toDict())
    helper.raises("AttributeError", "no longer be changed", function() opts:deviceIterations(2) end)
  end)
end)
