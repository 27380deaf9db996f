--- PopTorch's tutorials of transformers and recurrent networks, ported line by
--- line: fine-tuning BERT over a pipeline, its inference application, the vision
--- transformer, the character LSTM. Small models with seeded weights stand for
--- those that the originals download, seeded tokens for their texts.
local files = require("spec.support.files")
local Pictures = require("spec.support.pictures")
local poptorch = require("poptorch")
local torch = require("torch")
local transforms = require("lupine.transforms")
local nn = torch.nn

local close = torch.testing.assert_close

-- ---- BERT ------------------------------------------------------------------

local CONFIG = { vocab = 40, positions = 16, hidden_size = 16, intermediate_size = 32,
  num_hidden_layers = 4, num_attention_heads = 2, dropout = 0.1, layer_norm_eps = 1e-6 }

local Embeddings = nn.Module:extend("BertEmbeddings")

function Embeddings:init(config)
  self.word_embeddings = nn.Embedding(config.vocab, config.hidden_size)
  self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
  self.token_type_embeddings = nn.Embedding(2, config.hidden_size)
  self.LayerNorm = nn.LayerNorm(config.hidden_size, { eps = config.layer_norm_eps })
  self.dropout = nn.Dropout(config.dropout)
  self:register_buffer("position_ids", torch.arange(config.positions):unsqueeze(0))
end

function Embeddings:forward(input_ids, token_type_ids)
  local length = input_ids:size(1)
  local x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
  x = x + self.position_embeddings(self.position_ids[{ torch.slice(nil, nil),
    torch.slice(0, length) }])
  return self.dropout(self.LayerNorm(x))
end

local Layer = nn.Module:extend("BertLayer")

function Layer:init(config)
  local size = config.hidden_size
  self.heads = config.num_attention_heads
  self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size),
    nn.Linear(size, size)
  self.output = nn.Linear(size, size)
  self.norm1 = nn.LayerNorm(size, { eps = config.layer_norm_eps })
  self.intermediate = nn.Linear(size, config.intermediate_size)
  self.dense = nn.Linear(config.intermediate_size, size)
  self.norm2 = nn.LayerNorm(size, { eps = config.layer_norm_eps })
  self.dropout = nn.Dropout(config.dropout)
end

function Layer:_heads(x)
  return x:view(x:size(0), x:size(1), self.heads, -1):transpose(1, 2)
end

function Layer:forward(x, mask)
  local q, k, v = self:_heads(self.query(x)), self:_heads(self.key(x)), self:_heads(self.value(x))
  local scores = q:matmul(k:transpose(-1, -2)) / math.sqrt(q:size(-1)) + mask
  local context = torch.softmax(scores, { dim = -1 }):matmul(v)
  context = context:transpose(1, 2):reshape(x.shape)
  x = self.norm1(x + self.dropout(self.output(context)))
  return self.norm2(x + self.dropout(self.dense(nn.functional.gelu(self.intermediate(x)))))
end

local Bert = nn.Module:extend("BertForQuestionAnswering")

function Bert:init(config)
  self.config = config
  self.embeddings = Embeddings(config)
  local layers = {}
  for i = 1, config.num_hidden_layers do
    layers[i] = Layer(config)
  end
  self.layer = nn.ModuleList(layers)
  self.qa_outputs = nn.Linear(config.hidden_size, 2)
end

-- The loss, nil without positions, the scores of the answer's start and end.
-- With return_dict they come as a table, as they do there unless it is false.
function Bert:forward(input_ids, attention_mask, token_type_ids, start_positions, end_positions,
    return_dict)
  local x = self.embeddings(input_ids, token_type_ids or torch.zeros_like(input_ids))
  local mask = (1.0 - attention_mask[":, None, None, :"]:to(x.dtype)) * -10000.0
  for _, layer in ipairs(self.layer) do
    x = layer(x, mask)
  end
  local start_logits, end_logits = table.unpack(self.qa_outputs(x):split(1, { dim = -1 }))
  start_logits, end_logits = start_logits:squeeze(-1), end_logits:squeeze(-1)
  local loss
  if start_positions then
    -- positions outside of the text are padding
    local ignored_index = start_logits:size(1)
    start_positions = start_positions:clamp(0, ignored_index)
    end_positions = end_positions:clamp(0, ignored_index)
    local loss_fct = nn.CrossEntropyLoss({ ignore_index = ignored_index })
    loss = (loss_fct(start_logits, start_positions) + loss_fct(end_logits, end_positions)) / 2
  end
  if return_dict then
    return { loss = loss, start_logits = start_logits, end_logits = end_logits }
  end
  return loss, start_logits, end_logits
end

describe("fine-tuning BERT", function()
  local function checkpoint_outputs(module)
    local function recompute_outputs(_, _, output)
      return poptorch.recomputationCheckpoint(output)
    end
    module:register_forward_hook(recompute_outputs)
  end

  local function get_layer_ipu(layers_per_ipu)
    local layer_ipu = {}
    for ipu, n_layers in ipairs(layers_per_ipu) do
      for _ = 1, n_layers do
        layer_ipu[#layer_ipu + 1] = ipu - 1
      end
    end
    return layer_ipu
  end

  local Pipelined = Bert:extend("PipelinedBertForQuestionAnswering")

  function Pipelined:parallelize(ipu_config)
    local layer_ipu = get_layer_ipu(ipu_config.layers_per_ipu)
    self.embeddings = poptorch.BeginBlock(self.embeddings, "Embedding", { ipu_id = 0 })
    local ipu
    for index, layer in ipairs(self.layer) do
      ipu = layer_ipu[index]
      if index ~= self.config.num_hidden_layers then
        checkpoint_outputs(layer)
      end
      self.layer[index] = poptorch.BeginBlock(layer, ("Encoder%d"):format(index - 1),
        { ipu_id = ipu })
    end
    self.qa_outputs = poptorch.BeginBlock(self.qa_outputs, "QA Outputs", { ipu_id = ipu })
    return self
  end

  function Pipelined:forward(...)
    local loss, start_logits, end_logits = Bert.forward(self, ...)
    if self.training then
      local final_loss = poptorch.identity_loss(loss, { reduction = "none" })
      return final_loss, start_logits, end_logits
    else
      return start_logits, end_logits
    end
  end

  local LENGTH = 12

  -- A question of tokens from 10 on with an answer of token 7, one to three
  -- long.
  local Questions = torch.utils.data.Dataset:extend("Questions")

  function Questions:init(count)
    local g = torch.Generator():manual_seed(9)
    self.samples = {}
    for i = 1, count do
      local ids = torch.randint(10, CONFIG.vocab, { LENGTH }, { generator = g })
      local first = torch.randint(0, LENGTH - 3, {}, { generator = g }):item()
      local last = first + torch.randint(0, 3, {}, { generator = g }):item()
      ids[{ torch.slice(first, last + 1) }] = 7
      self.samples[i] = { input_ids = ids, attention_mask = torch.ones_like(ids),
        token_type_ids = torch.zeros_like(ids), start_positions = torch.tensor(first),
        end_positions = torch.tensor(last) }
    end
  end

  function Questions:__len__()
    return #self.samples
  end

  function Questions:__getitem__(i)
    return self.samples[i + 1]
  end

  -- The tutorial's PadCollate: batches of a fixed size.
  local function PadCollate(batch_size, padding_val_dict)
    return function(batch)
      local out = torch.utils.data.default_collate(batch)
      local missing = batch_size - #batch
      if missing > 0 then
        for k, x in pairs(out) do
          local pad_size = { table.unpack(x.shape) }
          pad_size[1] = missing
          out[k] = torch.cat({ x, padding_val_dict[k] * torch.ones(pad_size, { dtype = x.dtype }) },
            { dim = 0 })
        end
      end
      return out
    end
  end

  local PADDING = { input_ids = 0, attention_mask = 0, token_type_ids = 0,
    start_positions = LENGTH, end_positions = LENGTH }

  local function ipu_training_options(gradient_accumulation, replication_factor, device_iterations,
      cache)
    local opts = poptorch.Options()
    opts:randomSeed(12345)
    opts:deviceIterations(device_iterations)
    opts:setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    opts.Precision:enableStochasticRounding(true)
    opts:replicationFactor(replication_factor)
    opts.Training:gradientAccumulation(gradient_accumulation)
    opts:outputMode(poptorch.OutputMode.Final)
    opts:enableExecutableCaching(cache)
    opts.TensorLocations:setOptimizerLocation(
      poptorch.TensorLocationSettings():useOnChipStorage(true):useReplicatedTensorSharding(true))
    local amps = { 0.15, 0.18, 0.2, 0.25 }
    local proportions = {}
    for i, mp in ipairs(amps) do
      proportions[("IPU%d"):format(i - 1)] = mp
    end
    opts:setAvailableMemoryProportion(proportions)
    opts._Popart:set("disableGradAccumulationTensorStreams", true)
    opts._Popart:set("accumulateOuterFragmentSettings.excludedVirtualGraphs", { "0" })
    opts._Popart:set("outlineThreshold", 10.0)
    opts:connectionType(poptorch.ConnectionType.OnDemand)
    return opts
  end

  local function get_optimizer(model)
    local regularized_params = {}
    local non_regularized_params = {}
    for _, param in ipairs(model:parameters()) do
      if param.requires_grad then
        if #param.shape == 1 then
          table.insert(non_regularized_params, param)
        else
          table.insert(regularized_params, param)
        end
      end
    end
    local params = {
      { params = regularized_params, weight_decay = 0.01 },
      { params = non_regularized_params, weight_decay = 0 },
    }
    return poptorch.optim.AdamW(params, { lr = 1e-2, weight_decay = 0, eps = 1e-6,
      bias_correction = true, loss_scaling = 64, first_order_momentum_accum_type = torch.float16,
      accum_type = torch.float16 })
  end

  local NAMES = { "input_ids", "attention_mask", "token_type_ids", "start_positions",
    "end_positions" }

  local function inputs(batch, count)
    local list = {}
    for i = 1, count do
      list[i] = batch[NAMES[i]]
    end
    return table.unpack(list)
  end

  it("trains in halves on four IPUs and two replicas, then validates", function()
    torch.manual_seed(1)
    local cache = files.unused()
    local model = Pipelined(CONFIG)
    model:parallelize({ layers_per_ipu = { 1, 1, 1, 1 } }):half():train()
    local micro_batch_size, replication_factor, device_iterations = 2, 2, 1
    local gradient_accumulation = 8
    local samples_per_iteration = micro_batch_size * replication_factor * gradient_accumulation
    local train_opts = ipu_training_options(gradient_accumulation, replication_factor,
      device_iterations, cache)
    local train_dl = poptorch.DataLoader(train_opts, Questions(90), {
      batch_size = micro_batch_size, shuffle = true, drop_last = false,
      collate_fn = PadCollate(samples_per_iteration, PADDING) })
    assert.equal(3, #train_dl)
    local optimizer = get_optimizer(model)
    assert.equal(2, #optimizer.param_groups)

    local num_epochs = 4
    local num_steps = num_epochs * #train_dl
    -- transformers.get_scheduler("cosine", …)
    local warmup = 0.1 * num_steps
    local lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, function(step)
      if step < warmup then
        return step / warmup
      end
      return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup)))
    end)
    local training_model = poptorch.trainingModel(model, train_opts, optimizer)
    local batch = train_dl:iter()()
    training_model:compile(inputs(batch, 5))
    assert.equal(4, training_model:report().ipus)
    local losses = {}
    for _ = 1, num_epochs do
      for b in train_dl do
        assert.equal(samples_per_iteration, #b.input_ids)
        local outputs = table.pack(training_model(inputs(b, 5)))
        lr_scheduler:step()
        training_model:setOptimizer(optimizer)
        assert.equal("torch.Size([2])", tostring(outputs[1].shape))
        assert.equal(torch.float16, outputs[2].dtype)
        losses[#losses + 1] = outputs[1]:float():mean():item()
      end
    end
    training_model:detachFromDevice()
    -- the last call of an epoch ends with padding alone, the mean of nothing
    assert.is_true(losses[10] + losses[11] < losses[1] + losses[2], table.concat(losses, " "))
    local path = os.tmpname()
    torch.save(model:state_dict(), path)

    micro_batch_size, device_iterations = 4, 2
    local val_opts = poptorch.Options()
    val_opts:randomSeed(42)
    val_opts:deviceIterations(device_iterations)
    val_opts:setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    val_opts.Precision:enableStochasticRounding(false)
    val_opts:replicationFactor(replication_factor)
    val_opts.Training:gradientAccumulation(1)
    val_opts:outputMode(poptorch.OutputMode.All)
    val_opts:enableExecutableCaching(cache)
    model = Pipelined(CONFIG)
    model:load_state_dict(torch.load(path))
    os.remove(path)
    model:parallelize({ layers_per_ipu = { 2, 2 } }):half():eval()
    samples_per_iteration = micro_batch_size * replication_factor * device_iterations
    local val_dl = poptorch.DataLoader(val_opts, Questions(40), { batch_size = micro_batch_size,
      shuffle = false, drop_last = false, collate_fn = PadCollate(samples_per_iteration, PADDING) })
    local inference_model = poptorch.inferenceModel(model, val_opts)
    local raw_predictions = { {}, {} }
    for b in val_dl do
      local outputs = { inference_model(inputs(b, 3)) }
      table.insert(raw_predictions[1], outputs[1])
      table.insert(raw_predictions[2], outputs[2])
    end
    inference_model:detachFromDevice()
    local starts = torch.vstack(raw_predictions[1]):float()
    assert.equal("torch.Size([48, 12])", tostring(starts.shape))
    local cpu = model:float()
    local all = torch.utils.data.default_collate({ table.unpack(Questions(40).samples) })
    local native = cpu(inputs(all, 3))
    close(starts["0:40"], native, { rtol = 0.05, atol = 0.05 })
    files.remove(cache)
  end)
end)

describe("the BERT application", function()
  it("answers in batches over two IPUs as the host does", function()
    torch.manual_seed(8)
    local model = Bert(CONFIG)
    local batch_size = 2
    model.embeddings.position_embeddings = poptorch.BeginBlock({
      layer_to_call = model.embeddings.position_embeddings, ipu_id = 1 })
    local opts = poptorch.Options():deviceIterations(batch_size)
    model:eval()
    local inference_model = poptorch.inferenceModel(model, { options = opts })
    for _ = 1, 2 do
      local input_batch = torch.randint(0, CONFIG.vocab, { batch_size, 14 })
      local attention_batch = torch.ones_like(input_batch)
      attention_batch[":, 11:"] = 0
      local _, start_score_pop, end_scores_pop = inference_model(input_batch, attention_batch,
        { return_dict = false })
      local named = model(input_batch, attention_batch, { return_dict = true })
      local start_score, end_score = named.start_logits, named.end_logits
      close(start_score_pop, start_score, { rtol = 1e-4, atol = 1e-5 })
      close(end_scores_pop, end_score, { rtol = 1e-4, atol = 1e-5 })
      for i = 0, batch_size - 1 do
        local answer_start, answer_stop = start_score_pop[i]:argmax(), end_scores_pop[i]:argmax()
        local answer_ids = input_batch[i][{ torch.slice(answer_start:item(),
          answer_stop:item() + 1) }]
        assert.equal(math.max(0, answer_stop:item() - answer_start:item() + 1), #answer_ids)
      end
    end
    assert.equal(2, inference_model:report().ipus)
  end)
end)

-- ---- vision transformer ----------------------------------------------------

describe("the vision transformer", function()
  local ViT = nn.Module:extend("ViTForImageClassification")

  function ViT:init(options)
    local patch, size = options.patch, options.hidden_size
    local count = (options.image // patch) ^ 2 // 1 | 0
    self.patches = nn.Conv2d(3, size, { kernel_size = patch, stride = patch })
    self.cls = nn.Parameter(torch.zeros({ 1, 1, size }))
    self.positions = nn.Parameter(torch.randn({ 1, count + 1, size }) * 0.02)
    local layers = {}
    for i = 1, 2 do
      layers[i] = nn.TransformerEncoderLayer(size, 2, { dim_feedforward = 2 * size, dropout = 0.0,
        activation = "gelu", batch_first = true, norm_first = true })
    end
    self.layers = nn.ModuleList(layers)
    self.norm = nn.LayerNorm(size)
    self.classifier = nn.Linear(size, options.num_labels)
  end

  -- Several labels at a time: what a problem of this type trains on.
  function ViT:forward(pixel_values, labels)
    local x = self.patches(pixel_values):flatten(2):transpose(1, 2)
    x = torch.cat({ self.cls:expand(x:size(0), -1, -1), x }, { dim = 1 }) + self.positions
    for _, layer in ipairs(self.layers) do
      x = layer(x)
    end
    local logits = self.classifier(self.norm(x)[":, 0"])
    if labels ~= nil then
      return nn.functional.binary_cross_entropy_with_logits(logits, labels), logits
    end
    return logits
  end

  -- The area under the curve of one label's scores.
  local function roc_auc(scores, references)
    local positive, negative = scores[references:eq(1)], scores[references:eq(0)]
    local above = positive:unsqueeze(1):gt(negative:unsqueeze(0)):float():mean()
    return above:item()
  end

  it("learns several labels at a time by a cosine schedule with a warmup", function()
    torch.manual_seed(1337)
    local num_labels = 4
    local transform = transforms.Compose({
      transforms.Normalize({ mean = { 0.5, 0.5, 0.5 }, std = { 0.5, 0.5, 0.5 } }),
      transforms.ConvertImageDtype({ dtype = torch.float16 }) })
    local function string_to_N_hot(class)
      local label = torch.zeros({ num_labels }, { dtype = torch.float16 })
      label[class] = 1
      label[(class + 1) % num_labels] = class % 2
      return label
    end
    local pictures = Pictures(64, { channels = 3, size = 32, classes = num_labels,
      transform = transform })
    local function batch_sampler(examples)
      local pixel_values, labels = {}, {}
      for i, example in ipairs(examples) do
        pixel_values[i], labels[i] = example[1], string_to_N_hot(example[2])
      end
      return { pixel_values = torch.stack(pixel_values), labels = torch.stack(labels) }
    end

    local model = ViT({ image = 32, patch = 8, hidden_size = 16, num_labels = num_labels }):half()
    local opts = poptorch.Options()
    opts.Training:gradientAccumulation(4)
    opts:outputMode(poptorch.OutputMode.All)
    local loader = poptorch.DataLoader(opts, pictures, { batch_size = 4, shuffle = true,
      drop_last = true, collate_fn = batch_sampler })
    local epochs = 20
    local steps = epochs * #loader
    local optimizer = poptorch.optim.AdamW(model:parameters(), { lr = 1e-2, loss_scaling = 16 })
    local schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, {
      torch.optim.lr_scheduler.LinearLR(optimizer,
        { start_factor = 0.1, total_iters = steps // 4 }),
      torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, { T_max = steps - steps // 4 }),
    }, { milestones = { steps // 4 } })
    model:train()
    local trainer = poptorch.trainingModel(model, opts, optimizer)
    local losses = {}
    for epoch = 1, epochs do
      losses[epoch] = 0
      for batch in loader do
        local loss = trainer(batch.pixel_values, batch.labels)
        assert.equal(4, loss:numel())
        schedule:step()
        trainer:setOptimizer(optimizer)
        losses[epoch] = losses[epoch] + loss:float():mean():item() / #loader
      end
    end
    assert.is_true(losses[epochs] < losses[1], table.concat(losses, " "))
    trainer:detachFromDevice()

    model:eval()
    local inference = poptorch.inferenceModel(model)
    local samples = {}
    for i = 0, 31 do
      samples[i + 1] = pictures[i]
    end
    local batch = batch_sampler(samples)
    local logits = inference(batch.pixel_values)
    assert.equal(torch.float16, logits.dtype)
    local auc = 0
    for label = 0, num_labels - 1 do
      auc = auc + roc_auc(logits:float()[{ torch.slice(nil, nil), label }],
        batch.labels[{ torch.slice(nil, nil), label }]) / num_labels
    end
    assert.is_true(auc > 0.6, auc)
  end)
end)

-- ---- characters ------------------------------------------------------------

describe("the character LSTM", function()
  local PRINTABLE = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    .. "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \t\n\r\v\f"

  local function convertToCharTensor(the_file)
    local tensor = torch.zeros(#the_file):long()
    for c = 1, #the_file do
      tensor[c - 1] = PRINTABLE:find(the_file:sub(c, c), 1, true) - 1
    end
    return tensor
  end

  local TextToChunkDataset = torch.utils.data.Dataset:extend("TextToChunkDataset")

  function TextToChunkDataset:init(data_chunksize, text)
    self.chunksize = data_chunksize
    self.buffer = convertToCharTensor(text)
    self._length = #self.buffer // self.chunksize
  end

  function TextToChunkDataset:__len__()
    return self._length
  end

  function TextToChunkDataset:__getitem__(index)
    local i = index * self.chunksize
    local chunk = self.buffer[{ torch.slice(i, i + self.chunksize) }]
    local input = chunk[":-1"]
    local target = chunk["1:"]
    return input, target
  end

  local LSTMModel = nn.Module:extend("LSTMModel")

  function LSTMModel:init(data_chunksize, temperature)
    local n_characters = #PRINTABLE
    local input_size, output_size = n_characters, n_characters
    self.data_chunk_size = data_chunksize
    self.hidden_size = 32
    self.n_layers = 1
    self.encoder = nn.Embedding(input_size, self.hidden_size)
    self.rnn = nn.LSTM(self.hidden_size, self.hidden_size, self.n_layers)
    self.decoder = nn.Linear(self.hidden_size, output_size)
    self.temperature = temperature
  end

  function LSTMModel:init_hidden(batch_size)
    return { torch.zeros(self.n_layers, batch_size, self.hidden_size),
      torch.zeros(self.n_layers, batch_size, self.hidden_size) }
  end

  function LSTMModel:step(input, hidden)
    local batch_size = input:size(0)
    local encoded = self.encoder(input)
    local output
    output, hidden = self.rnn(encoded:view(1, batch_size, -1), hidden)
    output = self.decoder(output:view(batch_size, -1))
    return output, hidden
  end

  function LSTMModel:forward(x, y)
    local batchsize = x:size()[1]
    local hidden = self:init_hidden(batchsize)
    local loss = 0
    for count = 0, self.data_chunk_size - 2 do
      local slic = x[{ torch.slice(nil, nil), count }]
      local output
      output, hidden = self:step(slic, hidden)
      output = output:flatten(1)
      loss = loss + nn.functional.cross_entropy(output, y[{ torch.slice(nil, nil), count }])
    end
    return poptorch.identity_loss(loss, { reduction = "mean" })
  end

  function LSTMModel:generate(seed_string, length_to_generate)
    local seed = convertToCharTensor(seed_string)
    local hidden = self:init_hidden(1)
    for char in seed:iter() do
      hidden = select(2, self:step(char:reshape(1), hidden))
    end
    local inp = torch.reshape(seed[0], { 1 })
    local out_str = seed_string
    for _ = 1, length_to_generate do
      local out
      out, hidden = self:step(inp, hidden)
      out = nn.functional.softmax(out, { dim = -1 }) / self.temperature
      local selected_char_index = torch.multinomial(out, 1)[0]
      local at = selected_char_index:item() + 1
      out_str = out_str .. PRINTABLE:sub(at, at)
      inp = selected_char_index
    end
    return out_str
  end

  it("learns a text on two replicas and writes on from a seed", function()
    torch.manual_seed(12)
    local text = ("To be, or not to be, that is the question:\n"):rep(40)
    local options = poptorch.Options()
    options:deviceIterations(5)
    options:replicationFactor(2)
    local chunk_size = 12
    local data = poptorch.DataLoader({ dataset = TextToChunkDataset(chunk_size, text),
      batch_size = 4, options = options, mode = poptorch.DataLoaderMode.Async })
    local model = LSTMModel(chunk_size, 0.5)
    local trainer = poptorch.trainingModel(model, options,
      torch.optim.Adam(model:parameters(), { lr = 0.01 }))
    local first, last
    for _ = 1, 8 do
      for x, y in data do
        last = trainer(x, y):mean():item()
        first = first or last
      end
    end
    data:terminate()
    assert.is_true(last < 0.8 * first, first .. " " .. last)
    trainer:destroy()
    local out = model:generate("\n", 60)
    assert.equal(61, #out)
    local known = 0
    for c in out:gmatch(".") do
      known = known + (text:find(c, 1, true) and 1 or 0)
    end
    assert.is_true(known > 40, out)
  end)
end)
