--- Options.Training: accumulation, reduction of gradients, loss scaling.
--- Source: PopTorch API reference, poptorch.options._TrainingOptions.
local enums = require("poptorch.enums")
local Group = require("poptorch.options.group")
local library_options = require("lupine.library_options")

local R, S = enums.ReductionType, enums.MeanReductionStrategy

local function set_dithering(self, values, _, row)
  local on = Group._argument(row, "enabled", values[1])
  self._owner._Popart:_merge("convolutionOptions", { enableConvolutionDithering = tostring(on) })
end

return Group.define("_TrainingOptions", {
  {
    name = "gradientAccumulation", key = "gradient_accumulation", kind = "int", default = 1,
    doc = "Micro-batches whose gradients are accumulated before a weight update.",
    effect = "Micro-batches per update; a pipeline is filled and flushed once per update, "
      .. "replicas reduce once per update.",
  },
  {
    name = "accumulationAndReplicationReductionType",
    key = "accumulation_and_replication_reduction_type", params = { "reduction_type" },
    kind = R, default = R.Mean, error = "ValueError", except = { R.NoReduction },
    doc = "Mean or Sum over accumulated micro-batches and over replicas.",
    effect = "The divisor of gradients; no cost of its own.",
    idle = Group.training_only("inference has no gradients"),
  },
  {
    name = "setMeanAccumulationAndReplicationReductionStrategy",
    key = "mean_accumulation_and_replication_reduction_strategy",
    params = { "mean_reduction_strategy" }, kind = S, default = S.Post,
    doc = "When the mean divides: at every micro-batch (Running) or at the end (Post); "
      .. "PostAndLoss (deprecated) by the replicas before the backward pass. An optimizer with "
      .. "accum_type float16 uses Running.",
    effect = "Running scales the accumulator at every micro-batch; Post once; PostAndLoss the "
      .. "gradients by the replicas.",
    idle = Group.training_only("inference has no gradients"),
  },
  {
    name = "setAutomaticLossScaling", key = "automatic_loss_scaling", params = { "enabled" },
    kind = "bool", default = false, popart = "automaticLossScalingSettings.enabled",
    doc = "Adjusts the loss scale from the gradients' histogram.",
    effect = "The loss scale is multiplied by a factor that each update halves or doubles; "
      .. "counting the gradients of float16 costs cycles in every micro-batch. An update whose "
      .. "gradients are not finite is left out.",
    idle = Group.training_only("inference has no loss to scale"),
  },
  {
    name = "setConvolutionDithering", key = "convolution_dithering", params = { "enabled" },
    kind = "bool", default = false, popart = "convolutionOptions", set = set_dithering,
    from = library_options.dithers,
    doc = "Lays out convolutions from different tiles. Keeps the partials type that "
      .. "setPartialsType chose.",
    effect = "Convolutions that do not take all tiles begin at tiles drawn from their shapes: "
      .. "the memory of the fullest tile.",
    idle = function(on, program)
      for _, node in ipairs(on and program.report:nodes() or {}) do
        on = on and not node.operator:find("conv", 1, true)
      end
      return on and "the model has no convolution" or nil
    end,
  },
})
