-- A training that goes on from a checkpoint has the bits of the one that was not
-- interrupted: eager and compiled, in this process and in another one. Values: the run
-- without checkpoints.
local resumable = require("spec.support.resumable")

describe("going on from a checkpoint", function()
  for _, kind in ipairs({ "eager adam", "eager sgd", "eager rmsprop", "eager adamax",
    "eager accumulated", "compiled", "training step adam", "training step sgd",
    "training step adamax" }) do
    it("has the same bits: " .. kind, function()
      assert.same({}, resumable.faults(kind, 11, { 1, 4, 5, 7, 10 }, 5))
    end)
  end

  it("has the same bits for any number of workers", function()
    for _, workers in ipairs({ { 0, 3 }, { 3, 1 }, { 1, 0 } }) do
      assert.same({}, resumable.faults("eager adam", 11, { 2, 6 }, nil, workers))
    end
  end)
end)
