--- BERT as Graphcore published it for pre-training: blocks over the IPUs of a pipeline, the
--- head on IPU 0 beside the embedding whose weights it shares, one product for queries, keys
--- and values, a checkpoint behind every layer, and scores for the masked tokens alone.
---
--- shapes: B sequences (or packs of three) of L tokens, M of them masked, width H
--- source: graphcore/examples nlp/bert/pytorch (modeling.py, ipu_options.py,
--- optimization.py); packs and cuts within layers: mlcommons/training_results_v1.1,
--- Graphcore/benchmarks/bert/implementations/popart (bert_model.py)
local models = require("lupine.models")
local poptorch = require("poptorch")
local torch = require("torch")

local nn, F = torch.nn, torch.nn.functional
local PER_PACK = 3

-- ---- attention by one product ------------------------------------------------------

-- What is added to scores, of sequences: [B, 1, 1, L]; of packs, whose tokens have the number
-- of their sequence and see those of the same, it is made where it is wanted: [B, 1, L, L].
local function added(seen, dtype)
  return (1 - seen:to(dtype)) * -10000
end

local function same_sequence(numbers)
  return numbers:unsqueeze(2):eq(numbers:unsqueeze(1)):unsqueeze(1)
end

local Attention = nn.Module:extend("FusedSelfAttention")

function Attention:init(from)
  self.heads, self.dropout = from.heads, nn.Dropout(from.rate)
  self.query, self.key, self.value = from.query, from.key, from.value
end

function Attention:forward(x, mask)
  local b, l, h = table.unpack(x:size())
  local weight = torch.cat({ self.query.weight, self.key.weight, self.value.weight })
  local bias = torch.cat({ self.query.bias, self.key.bias, self.value.bias })
  local qkv = torch.matmul(x, weight:t()) + bias
  local function heads(y)
    return y:reshape({ b, l, self.heads, h // self.heads }):transpose(1, 2)
  end
  local parts = qkv:split(h, -1)
  local q, k, v = heads(parts[1]), heads(parts[2]), heads(parts[3])
  local scores = torch.matmul(q, k:transpose(-1, -2)) * (h // self.heads) ^ -0.5
  scores = scores + (mask:dim() == 2 and added(same_sequence(mask), x.dtype) or mask)
  local y = torch.matmul(self.dropout(scores:softmax(-1)), v)
  return y:transpose(1, 2):reshape({ b, l, h })
end

-- ---- the model ---------------------------------------------------------------------

local Bert = nn.Module:extend("PublishedBert")

local function checkpoint(_, _, out)
  return poptorch.recomputationCheckpoint(out)
end

-- Cuts between layers: how many each IPU has.
local function place_layers(layers, counts)
  local at = 0
  for ipu, count in ipairs(counts) do
    for i = at + 1, at + count do
      layers[i]:register_forward_hook(checkpoint)
      poptorch.BeginBlock(layers[i], "Encoder" .. i - 1, { ipu_id = ipu - 1 })
    end
    at = at + count
  end
end

-- Cuts within layers: {IPU, attentions, feed-forward parts} in the order of execution. What
-- goes to the next IPU is kept without a checkpoint; the last stage has one in each layer more.
local function place_halves(layers, cuts)
  local att, ffn = {}, {}
  for _, cut in ipairs(cuts) do
    for list, count in pairs({ [att] = cut[2], [ffn] = cut[3] }) do
      for _ = 1, count do
        list[#list + 1] = cut[1]
      end
    end
  end
  for i, layer in ipairs(layers) do
    if att[i] == cuts[#cuts][1] then
      layer.attention:register_forward_hook(checkpoint)
    end
    if i == #layers or ffn[i] == ffn[i + 1] or ffn[i] == att[i + 1] then
      layer.output:register_forward_hook(checkpoint)
    end
    poptorch.BeginBlock(layer.attention, "Attention" .. i - 1, { ipu_id = att[i] })
    poptorch.BeginBlock(layer.intermediate, "FeedForward" .. i - 1, { ipu_id = ffn[i] })
  end
end

function Bert:init(c)
  self.c = c
  local full = models.BertForPreTraining(models.BertConfig({ hidden_size = c.width,
    num_hidden_layers = c.layers, num_attention_heads = c.heads,
    intermediate_size = 4 * c.width, vocab_size = c.vocabulary,
    hidden_act = "gelu_new", attention_probs_dropout_prob = c.attention_dropout or 0 }))
  self.bert, self.cls = full.bert, full.cls
  local layers = self.bert.encoder.layer
  for _, layer in ipairs(layers) do
    layer.attention.self = Attention(layer.attention.self)
  end
  poptorch.BeginBlock(self.bert.embeddings, "Embedding", { ipu_id = 0 })
  if c.halves then
    place_halves(layers, c.halves)
  else
    place_layers(layers, c.cuts)
  end
  poptorch.BeginBlock(self.bert.pooler, "Pooler", { ipu_id = 0 })
  poptorch.BeginBlock(self.cls, "Classifier", { ipu_id = 0 })
end

-- Of the masked tokens, which a product picks; those of packs stand first and are picked
-- behind the transform. The decoder's product goes in parts, one after another.
local function scores_of(cls, x, positions, c)
  local head = cls.predictions
  if c.packed then
    x = head.transform(x):narrow(1, 0, c.masked)
  else
    local hot = F.one_hot(positions, c.length):to(x.dtype):detach()
    x = head.transform(torch.matmul(hot, x))
  end
  if c.serialised == 1 then
    return head.decoder(x)
  end
  return poptorch.serializedMatMul(x, head.decoder.weight:t(),
    poptorch.MatMulSerializationMode.OutputChannels, c.serialised, true) + head.bias
end

function Bert:forward(ids, mask, types, places, positions, labels, follows)
  local c = self.c
  local x = self.bert.embeddings(ids, types, c.packed and places or nil)
  x = self.bert.encoder(x, c.packed and mask or added(mask:unsqueeze(1):unsqueeze(1), x.dtype))
  local firsts = c.packed and x:narrow(1, c.length - PER_PACK, PER_PACK) or x:narrow(1, 0, 1)
  local pooled = torch.tanh(self.bert.pooler.dense(firsts))
  local scores = scores_of(self.cls, x, positions, c)
  local relation = self.cls.seq_relationship(pooled)
  local words = F.cross_entropy(scores:flatten(0, 1), labels:flatten(), { ignore_index = 0 })
  local order = F.cross_entropy(relation:flatten(0, 1), follows:flatten())
  return poptorch.identity_loss(words:float() + order:float(), "none")
end

-- ---- what is compiled --------------------------------------------------------------

local function optimizer(model, c)
  local groups = { { params = {}, weight_decay = 0 }, { params = {}, weight_decay = 0.01 } }
  for _, p in model:named_parameters() do
    local list = groups[p:dim() == 1 and 1 or 2].params
    list[#list + 1] = p
  end
  return poptorch.optim.LAMB(groups, { lr = 0.006, eps = 1e-6, loss_scaling = 4096,
    bias_correction = not c.without_bias_correction, max_weight_norm = math.huge,
    accum_type = torch.float16,
    first_order_momentum_accum_type = c.half_moments and torch.float16 or torch.float32,
    second_order_momentum_accum_type = c.half_moments == 2 and torch.float16 or torch.float32 })
end

--- The model, its optimizer and the inputs of one call.
---@param c table a configuration of published.lua
---@param rows integer sequences (or packs) of a call
---@return table model, table optimizer, table[] inputs
return function(c, rows)
  local model = Bert(c):half()
  local whole = { dtype = torch.int64 }
  local tokens, masked = torch.zeros({ rows, c.length }, whole), torch.zeros({ rows, c.masked },
    whole)
  local follows = torch.zeros({ rows, c.packed and PER_PACK or 1 }, whole)
  return model, optimizer(model, c), { tokens, tokens, tokens, tokens, masked, masked, follows }
end
