--- Every key of a run file, once: the file, the command line, their checks,
--- `lupine run --help`, `--print-config` and the manual all read these rows. A row is
---
---   name      the key, with points ("data.batch_size")
---   type      of lua/lupine/run/types.lua; "group" has keys of its own below it
---   default   value of an absent key (nil: there is none)
---   required  whether it has to be given
---   values, min, max, above, below, of, what   the type's own
---   within    where a short class name is looked up, in this order
---   resumable whether a run that goes on (--resume) may have another value
---   doc       what it is
---
--- `options` has the rows of poptorch.Options below it (lua/lupine/run/options.lua).
local GRADIENT = "Needs mode eager or compiled; poptorch has max_grad_norm among its optimizers."

return {
  { name = "include", type = "list", of = { type = "string", what = "a file's name" },
    doc = "Run files whose values come before this file's; names are relative to this file." },
  { name = "name", type = "string", match = "^[^/%z]+$", what = "a name without '/'",
    doc = "The run's name; absent: the run file's. Its folder is FOLDER/NAME-001, and so on." },
  { name = "folder", type = "string", default = "runs", doc = "Where folders of runs are made." },
  { name = "seed", type = "int", min = 0, max = (1 << 53) - 1,
    doc = "Of all random numbers; absent: drawn, and recorded in the run's folder." },

  { name = "model", type = "object", required = true,
    within = { "torchvision.models", "lupine.models", "torch.nn" },
    doc = "The module that is trained." },
  { name = "weights", type = "string", what = "a safetensors file",
    doc = "First weights, by the names of the model's state_dict." },
  { name = "weights_strict", type = "bool", default = true,
    doc = "Whether the weights have to have exactly the model's names." },
  { name = "loss", type = "object", within = { "torch.nn", "torch.nn.functional" },
    doc = "Of the model's result and the target; absent: the model's last result is the loss." },

  { name = "data", type = "group", doc = "What is trained on." },
  { name = "data.train", type = "object", required = true,
    within = { "lupine.datasets", "torch.utils.data" }, doc = "The training set." },
  { name = "data.validation", type = "object",
    within = { "lupine.datasets", "torch.utils.data" }, doc = "The validation set." },
  { name = "data.batch_size", type = "int", min = 1, default = 32, doc = "Samples of a batch." },
  { name = "data.validation_batch_size", type = "int", min = 1,
    doc = "Samples of a batch of validation; absent: data.batch_size." },
  { name = "data.shuffle", type = "bool", default = true,
    doc = "Whether each epoch of training has an order of its own." },
  { name = "data.drop_last", type = "bool", default = false,
    doc = "Whether a last batch that is not full is left out." },
  { name = "data.num_workers", type = "int", min = 0, max = 256, default = 0,
    doc = "Processes that read batches." },

  { name = "optimizer", type = "object", default = { class = "Adam", args = {} },
    within = { "torch.optim", "poptorch.optim" },
    doc = "Its class and arguments; the model's parameters are given to it." },
  { name = "scheduler", type = "object", within = { "torch.optim.lr_scheduler" },
    doc = "Of the learning rate." },
  { name = "scheduler_every", type = "enum", values = { "epoch", "step" }, default = "epoch",
    doc = "What a step of the scheduler is." },
  { name = "scheduler_metric", type = "string", default = "validation.loss",
    doc = "What a scheduler that watches a metric (ReduceLROnPlateau) is given." },

  { name = "mode", type = "enum", default = "compiled",
    values = { "compiled", "eager", "poptorch" },
    doc = "compiled: a step is one program on this machine; eager: operator by operator; "
      .. "poptorch: on the simulated IPUs, with `options`." },
  { name = "options", type = "options",
    doc = "Options of poptorch by their methods' names: {deviceIterations: 4, "
      .. "Training: {gradientAccumulation: 8}}." },
  { name = "options_file", type = "string", what = "a file that Options:loadFromFile reads",
    doc = "Options of poptorch that come before `options`." },
  { name = "precision", type = "enum", default = "float32",
    values = { "float32", "float64", "float16", "bfloat16", "autocast_float16",
      "autocast_bfloat16" },
    doc = "Type of weights and inputs; autocast_: weights in float32, products in the other." },

  { name = "epochs", resumable = true, type = "int", min = 0,
    doc = "How often the training set is gone through; absent: `steps` tells the end, or 1." },
  { name = "steps", resumable = true, type = "int", min = 0,
    doc = "Updates until the end; absent: `epochs` tells it." },
  { name = "accumulation", type = "int", min = 1, default = 1,
    doc = "Batches whose gradients make one update (mode poptorch: "
      .. "options.Training.gradientAccumulation)." },
  { name = "clip_grad_norm", type = "float", above = 0,
    doc = "Largest norm of all gradients together. " .. GRADIENT },
  { name = "clip_grad_value", type = "float", above = 0,
    doc = "Largest element of a gradient. Needs mode eager." },
  { name = "validate_every", type = "every", default = "1 epoch",
    doc = "How often the validation set is gone through." },
  { name = "metrics", type = "list", of = { type = "string", what = "a metric's name" },
    default = {},
    doc = "What is counted beside the loss: accuracy, top5, perplexity, f1, confusion." },
  { name = "early_stopping", type = "group", doc = "Stops a run that gets no better." },
  { name = "early_stopping.metric", type = "string",
    doc = "What has to get better, as `validation.loss`; absent: nothing is watched." },
  { name = "early_stopping.mode", type = "enum", values = { "min", "max" }, default = "min",
    doc = "Whether less or more is better." },
  { name = "early_stopping.patience", type = "int", min = 1, default = 3,
    doc = "Validations without a better value before the run stops." },
  { name = "early_stopping.min_delta", type = "float", min = 0, default = 0.0,
    doc = "By how much a value has to be better." },
  { name = "ema_decay", type = "float", above = 0, below = 1,
    doc = "Decay of a moving mean of the weights, which validation uses; absent: none." },
  { name = "swa_start", type = "every",
    doc = "From where on the mean of the weights is kept ('3 epochs'); absent: never." },
  { name = "on_nan", type = "enum", values = { "stop", "skip" }, default = "stop",
    doc = "What a loss that is no finite number does: stop the run, or skip the update (mode "
      .. "eager and compiled)." },
  { name = "callbacks", type = "list", default = {},
    of = { type = "object", within = { "lupine.trainer.callbacks" } },
    doc = "Further objects that the loop tells what happens, in this order." },

  { name = "checkpoint", type = "group", doc = "What is kept so that a run can go on." },
  { name = "checkpoint.every", resumable = true, type = "every", default = "1 epoch",
    doc = "How often a checkpoint is written." },
  { name = "checkpoint.keep", resumable = true, type = "int", min = 1, default = 2,
    doc = "How many of the last stay." },
  { name = "checkpoint.best", resumable = true, type = "string",
    doc = "The best by this metric stays as well, as `validation.accuracy`." },
  { name = "checkpoint.best_mode", resumable = true, type = "enum",
    values = { "min", "max" }, default = "min",
    doc = "Whether less or more is better." },

  { name = "logging", type = "group", doc = "What is told of a run." },
  { name = "logging.every", resumable = true, type = "int", min = 1, default = 50,
    doc = "Steps between two rows of metrics." },
  { name = "logging.tensorboard", resumable = true, type = "bool", default = false,
    doc = "Whether event files for TensorBoard are written, too." },
  { name = "logging.progress", resumable = true, type = "bool", default = true,
    doc = "A bar in a terminal, a line every few seconds elsewhere." },
  { name = "logging.report", resumable = true, type = "bool", default = true,
    doc = "Whether the report of the simulated system is kept (mode poptorch)." },
}
