-- A run goes on with the same bits from a checkpoint that a callback makes in the middle of
-- what is done behind a step or an epoch.
local torch = require("torch")
local trainings = require("spec.support.trainings")
require("poptorch").setLogLevel("ERR")

describe("a Trainer that is resumed", function()
  for _, mode in ipairs({ "eager", "compiled", "poptorch" }) do
    -- What is done behind a step and an epoch is not all done when callbacks hear of it.
    for event, stops in pairs({ on_log = { [6] = true }, on_validation = { [4] = true,
      [12] = true, [30] = true }, on_epoch_end = { [6] = true, [10] = true } }) do
      it(("has the same bits, saved in %s: %s"):format(event, mode), function()
        local options = { epochs = 3, validate_every = event == "on_validation" and "4 steps"
          or nil, scheduler_every = event == "on_epoch_end" and "epoch" or nil }
        assert.same({}, trainings.faults(mode, stops, options, nil, event))
      end)
    end

    it("counts on to early stopping, and to a plateau: " .. mode, function()
      local n = 0
      assert.same({}, trainings.faults(mode, { [18] = true, [20] = true, [30] = true }, {
        epochs = 9,
        scheduler = function(optimizer)
          return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, { patience = 1,
            factor = 0.5 })
        end, scheduler_every = "epoch", metrics = { flat = function()
          n = n + 1
          return 1
        end }, scheduler_metric = "validation.flat",
        early_stopping = { metric = "validation.flat", patience = 4 } }, nil, "on_epoch_end"))
      assert.is_true(n > 0)
    end)
  end
end)
