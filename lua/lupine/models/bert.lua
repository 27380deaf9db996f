--- BERT (Devlin et al. 2018) by the names, configuration and state_dict keys of its public
--- checkpoints.
---
--- shapes: input_ids, token_type_ids, position_ids, attention_mask [B, L]; hidden [B, L, H]
--- A model gives a table by name (`logits`, and `loss` where labels are given), or with
--- {return_dict = false} the same as several values, the loss first.
---
--- source: Devlin et al. 2018; documentation of the package transformers, BERT.
local Pretrained = require("lupine.models.pretrained")
local config = require("lupine.models.config")
local errors = require("lupine.base.errors")
local torch = require("torch")

local nn, F = torch.nn, torch.nn.functional
local M = {}

M.BertConfig = config.define("BertConfig", "bert", {
  { "vocab_size", 30522, min = 1 }, { "hidden_size", 768, min = 1 },
  { "num_hidden_layers", 12, min = 0 }, { "num_attention_heads", 12, min = 1 },
  { "intermediate_size", 3072, min = 1 }, { "hidden_act", "gelu" },
  { "hidden_dropout_prob", 0.1, min = 0 }, { "attention_probs_dropout_prob", 0.1, min = 0 },
  { "max_position_embeddings", 512, min = 1 }, { "type_vocab_size", 2, min = 1 },
  { "initializer_range", 0.02, min = 0 }, { "layer_norm_eps", 1e-12, min = 0 },
  { "pad_token_id", 0 }, { "position_embedding_type", "absolute" },
  { "classifier_dropout", torch.none }, { "num_labels", 2, min = 1 },
  { "problem_type", torch.none }, { "is_decoder", false }, { "tie_word_embeddings", true },
})

-- What the configuration asks for and is not here.
local function check_config(c)
  errors.check(c.position_embedding_type == "absolute", "NotImplementedError",
    "BertConfig: position_embedding_type: expected 'absolute', got '%s'",
    tostring(c.position_embedding_type))
  errors.check(not c.is_decoder, "NotImplementedError", "BertConfig: is_decoder: a decoder is "
    .. "not available")
  errors.check(c.hidden_size % c.num_attention_heads == 0, "ValueError", "BertConfig: hidden_size "
    .. "(%d) is no multiple of num_attention_heads (%d)", c.hidden_size, c.num_attention_heads)
end

-- ---- layers ------------------------------------------------------------------------

local Embeddings = nn.Module:extend("BertEmbeddings")

function Embeddings:init(c)
  local width = c.hidden_size
  self.word_embeddings = nn.Embedding(c.vocab_size, width, { padding_idx = c.pad_token_id })
  self.position_embeddings = nn.Embedding(c.max_position_embeddings, width)
  self.token_type_embeddings = nn.Embedding(c.type_vocab_size, width)
  self.LayerNorm = nn.LayerNorm(width, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Embeddings:forward(input_ids, token_type_ids, position_ids, inputs_embeds)
  local x = inputs_embeds or self.word_embeddings(input_ids)
  local length, longest = x:size(1), self.position_embeddings.num_embeddings
  errors.check(position_ids or length <= longest, "ValueError", "BERT: %d tokens, but "
    .. "max_position_embeddings is %d", length, longest)
  -- each module is called, so that its hooks and blocks hold
  local types = self.token_type_embeddings(token_type_ids or Pretrained.ids(0, 1))
  local positions = self.position_embeddings(position_ids or Pretrained.ids(0, length))
  return self.dropout(self.LayerNorm(x + types + positions))
end

local SelfAttention = nn.Module:extend("BertSelfAttention")

function SelfAttention:init(c)
  self.heads, self.rate = c.num_attention_heads, c.attention_probs_dropout_prob
  for _, name in ipairs({ "query", "key", "value" }) do
    self[name] = nn.Linear(c.hidden_size, c.hidden_size)
  end
end

function SelfAttention:forward(x, mask)
  local b, length, width = x:size(0), x:size(1), x:size(2)
  local function heads(y)
    return y:reshape({ b, length, self.heads, width // self.heads }):transpose(1, 2)
  end
  local y = F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)),
    heads(self.value(x)), { attn_mask = mask, dropout_p = self.training and self.rate or 0.0 })
  return y:transpose(1, 2):reshape({ b, length, width })
end

-- A product, dropout, and normalisation of the sum with what went around.
local Output = nn.Module:extend("BertOutput")

function Output:init(c, from)
  self.dense = nn.Linear(from, c.hidden_size)
  self.LayerNorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Output:forward(x, around)
  return self.LayerNorm(self.dropout(self.dense(x)) + around)
end

local Attention = nn.Module:extend("BertAttention")

function Attention:init(c)
  self.self = SelfAttention(c)
  self.output = Output(c, c.hidden_size)
end

function Attention:forward(x, mask)
  return self.output(self.self(x, mask), x)
end

local Intermediate = nn.Module:extend("BertIntermediate")

function Intermediate:init(c)
  self.dense = nn.Linear(c.hidden_size, c.intermediate_size)
  self.act = c.hidden_act
end

function Intermediate:forward(x)
  return Pretrained.ACTIVATIONS[self.act](self.dense(x))
end

local Layer = nn.Module:extend("BertLayer")

function Layer:init(c)
  self.attention = Attention(c)
  self.intermediate = Intermediate(c)
  self.output = Output(c, c.intermediate_size)
end

function Layer:forward(x, mask)
  x = self.attention(x, mask)
  return self.output(self.intermediate(x), x)
end

local Encoder = nn.Module:extend("BertEncoder")

function Encoder:init(c)
  self.layer = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do
    self.layer:append(Layer(c))
  end
end

function Encoder:forward(x, mask, states)
  for _, layer in ipairs(self.layer) do
    if states then
      states[#states + 1] = x
    end
    x = layer(x, mask)
  end
  if states then
    states[#states + 1] = x
  end
  return x
end

local Pooler = nn.Module:extend("BertPooler")

function Pooler:init(c)
  self.dense = nn.Linear(c.hidden_size, c.hidden_size)
end

function Pooler:forward(x)
  return torch.tanh(self.dense(x:select(1, 0)))
end

-- ---- the model ---------------------------------------------------------------------

---@class lupine.models.BertModel: torch.nn.Module
M.BertModel = Pretrained:extend("BertModel")
M.BertModel.config_class = M.BertConfig
M.BertModel.base_name = "bert"
M.BertModel.is_base = true
M.BertModel.heads = { "^pooler%." }

---@param c? table a BertConfig, or some of its fields
---@param add_pooling_layer? boolean (true)
function M.BertModel:init(c, add_pooling_layer)
  c = Pretrained._config_of(M.BertModel, c)
  check_config(c)
  Pretrained.activation(c.hidden_act, "BertConfig: hidden_act")
  self.config = c
  self.embeddings = Embeddings(c)
  self.encoder = Encoder(c)
  if add_pooling_layer ~= false then
    self.pooler = Pooler(c)
  end
  Pretrained._start(self, c.initializer_range)
end

-- Where attention may look, for every head and query: [B, 1, 1, L], or as it is given.
local function spread(mask)
  if not mask then
    return nil
  end
  mask = mask:dim() == 2 and mask:unsqueeze(1):unsqueeze(1) or mask:dim() == 3 and mask:unsqueeze(1)
    or mask
  return mask:ne(0)
end

---@param input_ids torch.Tensor?
---@param attention_mask? torch.Tensor 1 where there is a token, 0 where there is padding
---@param token_type_ids? torch.Tensor
---@param position_ids? torch.Tensor
---@param inputs_embeds? torch.Tensor instead of input_ids
---@param output_hidden_states? boolean
---@param return_dict? boolean (true)
---@return any
function M.BertModel:forward(input_ids, attention_mask, token_type_ids, position_ids,
                             inputs_embeds, output_hidden_states, return_dict)
  errors.check((input_ids == nil) ~= (inputs_embeds == nil), "ValueError",
    "You must specify exactly one of input_ids or inputs_embeds")
  local states = output_hidden_states and {} or nil
  local x = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
  x = self.encoder(x, spread(attention_mask), states)
  local pooled = self.pooler and self.pooler(x)
  if return_dict == false then
    return x, pooled, states
  end
  return { last_hidden_state = x, pooler_output = pooled, hidden_states = states }
end

-- ---- heads -------------------------------------------------------------------------

local Transform = nn.Module:extend("BertPredictionHeadTransform")

function Transform:init(c)
  self.dense = nn.Linear(c.hidden_size, c.hidden_size)
  self.LayerNorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.act = c.hidden_act
end

function Transform:forward(x)
  return self.LayerNorm(Pretrained.ACTIVATIONS[self.act](self.dense(x)))
end

local Predictions = nn.Module:extend("BertLMPredictionHead")

function Predictions:init(c)
  self.bias = nn.Parameter(torch.zeros(c.vocab_size))
  self.transform = Transform(c)
  self.decoder = nn.Linear(c.hidden_size, c.vocab_size)
end

function Predictions:forward(x)
  return self.decoder(self.transform(x))
end

local Heads = nn.Module:extend("BertPreTrainingHeads")

function Heads:init(c, next_sentence)
  self.predictions = Predictions(c)
  if next_sentence then
    self.seq_relationship = nn.Linear(c.hidden_size, 2)
  end
end

function Heads:forward(x, pooled)
  return self.predictions(x), self.seq_relationship and self.seq_relationship(pooled)
end

-- A model with the base under its name; `build(self, c)` makes the head.
local function define(name, heads, pooled, build)
  local cls = Pretrained:extend(name)
  cls.config_class, cls.base_name, cls.heads = M.BertConfig, "bert", heads
  function cls:init(c)
    c = Pretrained._config_of(cls, c)
    self.config = c
    self.bert = M.BertModel(c, pooled)
    build(self, c)
    Pretrained._start(self, c.initializer_range)
  end
  M[name] = cls
  return cls
end

-- What a head gives: by name, or the values without those that are nil.
local function results(return_dict, names, ...)
  local out, list = {}, {}
  for i, name in ipairs(names) do
    out[name] = (select(i, ...))
    list[#list + 1] = out[name]
  end
  if return_dict == false then
    return table.unpack(list)
  end
  return out
end

local function token_loss(logits, labels)
  return F.cross_entropy(logits:flatten(0, 1), labels:flatten())
end

-- Word embeddings are the last product's weights, too.
local TIED = { ["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight",
  ["cls.predictions.decoder.bias"] = "cls.predictions.bias" }

local function tie(self, c)
  local head = self.cls.predictions
  head.decoder.bias = head.bias
  if c.tie_word_embeddings then
    head.decoder.weight = self.bert.embeddings.word_embeddings.weight
  end
end

-- Checkpoints of the pre-trained model have more heads than the others.
local function without(patterns)
  return function(self, from, prefix)
    Pretrained._renew(self, from, prefix)
    for key in pairs(from) do
      for _, pattern in ipairs(patterns) do
        if key:sub(#prefix + 1):find(pattern) then
          from[key] = nil
        end
      end
    end
  end
end

local MaskedLM = define("BertForMaskedLM", { "^cls%." }, false, function(self, c)
  self.cls = Heads(c, false)
  tie(self, c)
end)
MaskedLM.tied = TIED
MaskedLM._renew = without({ "^bert%.pooler%.", "^cls%.seq_relationship%." })

---@param input_ids torch.Tensor
---@param attention_mask? torch.Tensor
---@param token_type_ids? torch.Tensor
---@param position_ids? torch.Tensor
---@param labels? torch.Tensor [B, L], -100 where there is nothing to predict
---@param return_dict? boolean (true)
---@return any
function MaskedLM:forward(input_ids, attention_mask, token_type_ids, position_ids, labels,
                          return_dict)
  local x = self.bert(input_ids, attention_mask, token_type_ids, position_ids).last_hidden_state
  local logits = self.cls(x)
  return results(return_dict, { "loss", "logits" }, labels and token_loss(logits, labels), logits)
end

local PreTraining = define("BertForPreTraining", { "^cls%.", "^bert%.pooler%." }, true,
  function(self, c)
    self.cls = Heads(c, true)
    tie(self, c)
  end)
PreTraining.tied = TIED

---@param input_ids torch.Tensor
---@param attention_mask? torch.Tensor
---@param token_type_ids? torch.Tensor
---@param position_ids? torch.Tensor
---@param labels? torch.Tensor [B, L]
---@param next_sentence_label? torch.Tensor [B]: 0 where the second sentence follows the first
---@param return_dict? boolean (true)
---@return any
function PreTraining:forward(input_ids, attention_mask, token_type_ids, position_ids, labels,
                             next_sentence_label, return_dict)
  local base = self.bert(input_ids, attention_mask, token_type_ids, position_ids)
  local logits, relation = self.cls(base.last_hidden_state, base.pooler_output)
  local loss
  if labels and next_sentence_label then
    loss = token_loss(logits, labels) + F.cross_entropy(relation, next_sentence_label:flatten())
  end
  return results(return_dict, { "loss", "prediction_logits", "seq_relationship_logits" }, loss,
    logits, relation)
end

local Classification = define("BertForSequenceClassification",
  { "^classifier%.", "^bert%.pooler%." }, true, function(self, c)
    self.num_labels = c.num_labels
    self.dropout = nn.Dropout(c.classifier_dropout or c.hidden_dropout_prob)
    self.classifier = nn.Linear(c.hidden_size, c.num_labels)
  end)
Classification._renew = without({ "^cls%." })

-- What kind of labels these are: the configuration says it, or their type.
local function class_loss(self, logits, labels)
  local whole = not labels:is_floating_point()
  local kind = self.config.problem_type or self.num_labels == 1 and "regression"
    or whole and "single_label_classification" or "multi_label_classification"
  if kind == "regression" then
    local one = self.num_labels == 1
    return F.mse_loss(one and logits:squeeze() or logits, one and labels:squeeze() or labels)
  elseif kind == "single_label_classification" then
    return F.cross_entropy(logits, labels:flatten())
  end
  errors.check(kind == "multi_label_classification", "ValueError", "BertConfig: problem_type: "
    .. "unknown '%s'. Allowed: regression, single_label_classification, "
    .. "multi_label_classification", tostring(kind))
  return F.binary_cross_entropy_with_logits(logits, labels)
end

---@param input_ids torch.Tensor
---@param attention_mask? torch.Tensor
---@param token_type_ids? torch.Tensor
---@param position_ids? torch.Tensor
---@param labels? torch.Tensor [B] or, of several labels or numbers, [B, num_labels]
---@param return_dict? boolean (true)
---@return any
function Classification:forward(input_ids, attention_mask, token_type_ids, position_ids, labels,
                                return_dict)
  local base = self.bert(input_ids, attention_mask, token_type_ids, position_ids)
  local logits = self.classifier(self.dropout(base.pooler_output))
  return results(return_dict, { "loss", "logits" }, labels and class_loss(self, logits, labels),
    logits)
end

local QuestionAnswering = define("BertForQuestionAnswering", { "^qa_outputs%." }, false,
  function(self, c)
    self.qa_outputs = nn.Linear(c.hidden_size, c.num_labels)
  end)
QuestionAnswering._renew = without({ "^cls%.", "^bert%.pooler%." })

-- Places outside the text count as none.
local function place_loss(logits, positions)
  local length = logits:size(1)
  return F.cross_entropy(logits, positions:flatten():clamp(0, length), { ignore_index = length })
end

---@param input_ids torch.Tensor
---@param attention_mask? torch.Tensor
---@param token_type_ids? torch.Tensor
---@param position_ids? torch.Tensor
---@param start_positions? torch.Tensor [B]
---@param end_positions? torch.Tensor [B]
---@param return_dict? boolean (true)
---@return any
function QuestionAnswering:forward(input_ids, attention_mask, token_type_ids, position_ids,
                                   start_positions, end_positions, return_dict)
  local x = self.bert(input_ids, attention_mask, token_type_ids, position_ids).last_hidden_state
  local logits = self.qa_outputs(x)
  local first, last = logits:select(2, 0), logits:select(2, 1)
  local loss
  if start_positions and end_positions then
    loss = (place_loss(first, start_positions) + place_loss(last, end_positions)) / 2
  end
  return results(return_dict, { "loss", "start_logits", "end_logits" }, loss, first, last)
end

return M
