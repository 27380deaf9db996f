--- Texts of poptorch's and lupine's classes that others make or explain at the head of
--- their file.
return { { "poptorch", [[
CPU: A module that runs on the host in the middle of a model for the device.
ICustomArgParser: What reads arguments of a type of one's own: subclass it and register it.
Options: How a model is compiled and run: setters that return the options, so that calls follow
  each other, and the groups Training, Precision, TensorLocations, Distributed, Jit.
PoplarExecutor: A module for the device, made by trainingModel and inferenceModel: calling it
  compiles (once) and runs.
PoplarExecutor.model: The module that was wrapped.
PoplarExecutor.options: Its options, which cannot be changed any more.
PoplarExecutor.rng_state: The state of the random numbers on the device, a list; assignable.
PoplarExecutor.W: The model's parameter of that name, or module: trainer.fc.weight.
DataLoader.options: The options it was made with.
DataLoader.combinedBatchSize: Samples of a batch: all of one call.
Phase.stages: Its stages, a list.
Stage.blocks: The names of its blocks, a list.
Error.message: The text alone.
Error.type: Which part raised it, and the category.
Error.location: The stack of contexts, innermost first, a line each.
RecoverableError.recovery_action: What to do: "IPU_RESET", "PARTITION_RESET" or "FULL_RESET".
PoplarExecutor:isCompiled: Whether the model is compiled.
]] }, { "poptorch.optim", [[
Optimizer: What poptorch's optimizers have in common.
SGD: torch.optim.SGD with accumulation in float16 or float32, loss scaling and attributes that are
  compiled as constants.
Adam: torch.optim.Adam with types of its states, loss scaling, bias_correction and a largest norm of
  gradients.
AdamW: torch.optim.AdamW with types of its states, loss scaling, bias_correction and a largest norm
  of gradients.
RMSprop: torch.optim.RMSprop with types of its states, loss scaling, and TensorFlow's variant.
LAMB: Adam whose steps are scaled by the norms of weights and of steps, layer by layer.
Optimizer.variable_attrs SGD.variable_attrs Adam.variable_attrs AdamW.variable_attrs
  RMSprop.variable_attrs LAMB.variable_attrs: Which attributes may change after compilation.
Optimizer.loss_scaling SGD.loss_scaling Adam.loss_scaling AdamW.loss_scaling RMSprop.loss_scaling
  LAMB.loss_scaling: What the loss is multiplied by, and gradients are divided by.
VariableAttributes: Which attributes of an optimizer may change after compilation.
]] }, { "poptorch.autocasting", [[
Policy.fp16: Names of operators that compute in float16.
Policy.fp32: Names of operators that compute in float32.
Policy.promote: Names of operators whose mixed operands become float32.
Policy.demote: Names of operators whose mixed operands become float16.
]] }, { "poptorch.profiling", [[
Channel: A channel of tracepoints: instrument(object, methods) notes when they run.
]] }, { "lupine", [[
progress: Counts batches on standard error while a loop runs over an iterator.
]] }, { "lupine.checkpoint", [[
Manager.root: The folder.
Manager.best: Which stay beside the last ones: the metric, "min" or "max", and how many.
Manager: Checkpoints of a run in a folder: the last ones and the best one, others deleted.
]] }, { "lupine.report", [[
Report: What the simulated system says of a program: cycles, memory of tiles, schedule.
]] }, { "lupine.tokenizers", [[
Encoding.ids: The numbers of the tokens.
Encoding.tokens: The tokens.
Tokenizer: Text to numbers of tokens and back, read from a tokenizer.json.
Encoding: What Tokenizer:encode gives: the ids and the tokens of a text.
]] }, { "lupine.models", [[
BertConfig: The sizes and rates of a BERT, by the names of config.json.
BertModel: BERT's encoder: ids (N, L) to states (N, L, hidden_size) and the pooled first one.
BertForMaskedLM: BERT with the head that guesses masked tokens.
BertForPreTraining: BERT with both heads of its pre-training: masked tokens, next sentence.
BertForQuestionAnswering: BERT with scores of where an answer starts and ends.
BertForSequenceClassification: BERT with a class of each text.
GPT2Config: The sizes and rates of a GPT-2, by the names of config.json.
GPT2Model: GPT-2's decoder: ids (N, L) to states (N, L, n_embd).
GPT2LMHeadModel: GPT-2 with scores of the next token; generate goes on with a text.
]] } }
