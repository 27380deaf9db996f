-- A wrapped model that goes on from a checkpoint has the bits of the training that was
-- not interrupted, in every execution strategy, with replicas that have buffers of their
-- own, whatever optimizer and loader; in another process too. Values: the run without
-- checkpoints.
local resumable = require("spec.support.resumable")
local tables = require("lupine.base.tables")

describe("a wrapped model goes on from a checkpoint", function()
  for _, kind in ipairs(tables.keys(resumable.device)) do
    it("with the same bits: " .. kind, function()
      assert.same({}, resumable.faults(kind, 8, { 3, 5, 6 }, 5))
    end)
  end
end)
