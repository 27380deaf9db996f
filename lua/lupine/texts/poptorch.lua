--- Texts of poptorch's and lupine's classes that others make or explain at the head of
--- their file.
return { { "poptorch", [[
CPU: A module that runs on the host in the middle of a model for the device.
ICustomArgParser: What reads arguments of a type of one's own: subclass it and register it.
Options: How a model is compiled and run: setters that return the options, so that calls follow
  each other, and the groups Training, Precision, TensorLocations, Distributed, Jit.
PoplarExecutor: A module for the device, made by trainingModel and inferenceModel: calling it
  compiles (once) and runs.
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
VariableAttributes: Which attributes of an optimizer may change after compilation.
]] }, { "poptorch.profiling", [[
Channel: A channel of tracepoints: instrument(object, methods) notes when they run.
]] }, { "lupine", [[
progress: Counts batches on standard error while a loop runs over an iterator.
]] }, { "lupine.checkpoint", [[
Manager: Checkpoints of a run in a folder: the last ones and the best one, others deleted.
]] }, { "lupine.report", [[
Report: What the simulated system says of a program: cycles, memory of tiles, schedule.
]] }, { "lupine.tokenizers", [[
Tokenizer: Text to numbers of tokens and back, read from a tokenizer.json.
Encoding: What Tokenizer:encode gives: ids, tokens, offsets, attention mask.
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
