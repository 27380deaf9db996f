-- A run that goes on from a checkpoint has the bits of one that was not interrupted: losses,
-- rows of metrics, validations, weights, states, averages and random numbers.
local trainings = require("spec.support.trainings")
require("poptorch").setLogLevel("ERR")

describe("a Trainer that is resumed", function()
  for _, mode in ipairs({ "eager", "compiled", "poptorch" }) do
    it("has the same bits: " .. mode, function()
      assert.same({}, trainings.faults(mode, { [2] = true, [4] = true, [6] = true, [8] = true,
        [12] = true }))
    end)
  end
end)
