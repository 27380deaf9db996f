--- GPT-2 (Radford et al. 2019) by the names, configuration and state_dict keys of its public
--- checkpoints, with a cache of keys and values for generation.
---
--- shapes: input_ids, attention_mask, position_ids [B, L]; logits [B, L, V]
--- A cache (`past_key_values`) is a list of {key, value} by layer, each [B, heads, length,
--- width of a head]; the mask covers what is in the cache, too.
---
--- source: Radford et al. 2019; documentation of the package transformers, GPT-2.
local Pretrained = require("lupine.models.pretrained")
local config = require("lupine.models.config")
local errors = require("lupine.base.errors")
local generation = require("lupine.models.generation")
local torch = require("torch")

local nn, F = torch.nn, torch.nn.functional
local M = {}

M.GPT2Config = config.define("GPT2Config", "gpt2", {
  { "vocab_size", 50257, min = 1 }, { "n_positions", 1024, min = 1 }, { "n_embd", 768, min = 1 },
  { "n_layer", 12, min = 0 }, { "n_head", 12, min = 1 }, { "n_inner", torch.none },
  { "activation_function", "gelu_new" }, { "resid_pdrop", 0.1, min = 0 },
  { "embd_pdrop", 0.1, min = 0 }, { "attn_pdrop", 0.1, min = 0 },
  { "layer_norm_epsilon", 1e-5, min = 0 }, { "initializer_range", 0.02, min = 0 },
  { "scale_attn_weights", true }, { "scale_attn_by_inverse_layer_idx", false },
  { "reorder_and_upcast_attn", false }, { "add_cross_attention", false }, { "use_cache", true },
  { "bos_token_id", 50256 }, { "eos_token_id", 50256, list = true }, { "pad_token_id", torch.none },
  { "tie_word_embeddings", true },
})

-- A product whose weights lie the other way round: [from, to].
local Conv1D = nn.Module:extend("Conv1D")
Conv1D.is_conv1d = true

function Conv1D:init(to, from)
  self.weight = nn.Parameter(torch.empty(from, to))
  self.bias = nn.Parameter(torch.zeros(to))
end

function Conv1D:forward(x)
  return x:matmul(self.weight) + self.bias
end

local Attention = nn.Module:extend("GPT2Attention")

function Attention:init(c, index)
  self.heads, self.rate = c.n_head, c.attn_pdrop
  self.scale = (c.scale_attn_weights and 1 / math.sqrt(c.n_embd // c.n_head) or 1.0)
    / (c.scale_attn_by_inverse_layer_idx and index or 1)
  self.c_attn = Conv1D(3 * c.n_embd, c.n_embd)
  self.c_proj = Conv1D(c.n_embd, c.n_embd)
  self.resid_dropout = nn.Dropout(c.resid_pdrop)
end

function Attention:forward(x, mask, past)
  local b, length, width = x:size(0), x:size(1), x:size(2)
  local parts = {}
  for i, part in ipairs(self.c_attn(x):split(width, 2)) do
    parts[i] = part:reshape({ b, length, self.heads, width // self.heads }):transpose(1, 2)
  end
  local q, k, v = table.unpack(parts)
  if past then
    k, v = torch.cat({ past[1], k }, 2), torch.cat({ past[2], v }, 2)
  end
  local y = F.scaled_dot_product_attention(q, k, v, { attn_mask = mask,
    is_causal = mask == nil and length > 1, scale = self.scale,
    dropout_p = self.training and self.rate or 0.0 })
  y = self.c_proj(y:transpose(1, 2):reshape({ b, length, width }))
  return self.resid_dropout(y), { k, v }
end

local MLP = nn.Module:extend("GPT2MLP")

function MLP:init(c)
  local inside = c.n_inner or 4 * c.n_embd
  self.c_fc = Conv1D(inside, c.n_embd)
  self.c_proj = Conv1D(c.n_embd, inside)
  self.act = c.activation_function
  self.dropout = nn.Dropout(c.resid_pdrop)
end

function MLP:forward(x)
  return self.dropout(self.c_proj(Pretrained.ACTIVATIONS[self.act](self.c_fc(x))))
end

local Block = nn.Module:extend("GPT2Block")

function Block:init(c, index)
  self.ln_1 = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.attn = Attention(c, index)
  self.ln_2 = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.mlp = MLP(c)
end

function Block:forward(x, mask, past)
  local y, present = self.attn(self.ln_1(x), mask, past)
  x = x + y
  return x + self.mlp(self.ln_2(x)), present
end

local function check_config(c)
  Pretrained.activation(c.activation_function, "GPT2Config: activation_function")
  errors.check(c.n_embd % c.n_head == 0, "ValueError", "GPT2Config: n_embd (%d) is no multiple of "
    .. "n_head (%d)", c.n_embd, c.n_head)
  for _, name in ipairs({ "add_cross_attention", "reorder_and_upcast_attn" }) do
    errors.check(not c[name], "NotImplementedError", "GPT2Config: %s: expected false", name)
  end
end

-- Products into the residual stream start smaller, by their number.
local function start(self, c)
  Pretrained._start(self, c.initializer_range)
  for name, p in self:named_parameters() do
    if name:find("c_proj%.weight$") then
      nn.init.normal_(p, 0, c.initializer_range / math.sqrt(2 * c.n_layer))
    end
  end
end

---@class lupine.models.GPT2Model: torch.nn.Module
M.GPT2Model = Pretrained:extend("GPT2Model")
M.GPT2Model.config_class = M.GPT2Config
M.GPT2Model.base_name = "transformer"
M.GPT2Model.is_base = true

---@param c? table a GPT2Config, or some of its fields
function M.GPT2Model:init(c)
  c = Pretrained._config_of(M.GPT2Model, c)
  check_config(c)
  self.config = c
  self.wte = nn.Embedding(c.vocab_size, c.n_embd)
  self.wpe = nn.Embedding(c.n_positions, c.n_embd)
  self.drop = nn.Dropout(c.embd_pdrop)
  self.h = nn.ModuleList()
  for i = 1, c.n_layer do
    self.h:append(Block(c, i))
  end
  self.ln_f = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  start(self, c)
end

-- Which of the keys a query sees: those up to itself that are no padding. Padding at the
-- beginning sees itself, as an average of nothing is no number. nil: the plain causal order, or
-- all.
local function visible(attention_mask, length, seen)
  if not attention_mask and (seen == 0 or length == 1) then
    return nil
  end
  local ones = torch.ones(length, seen + length, { dtype = torch.bool })
  local before = ones:tril(seen)
  if not attention_mask then
    return before
  end
  errors.check(attention_mask:size(1) == seen + length, "ValueError", "GPT-2: attention_mask: "
    .. "expected %d columns (%d in the cache, %d new), got %d", seen + length, seen, length,
    attention_mask:size(1))
  local first = attention_mask:cumsum(1):narrow(1, seen, length):eq(0):unsqueeze(1):unsqueeze(3)
  local itself = before:logical_and(ones:triu(seen)):logical_and(first)
  return attention_mask:ne(0):unsqueeze(1):unsqueeze(1):logical_and(before):logical_or(itself)
end

---@param input_ids torch.Tensor?
---@param past_key_values? torch.Tensor[][] what an earlier call gave
---@param attention_mask? torch.Tensor
---@param position_ids? torch.Tensor
---@param inputs_embeds? torch.Tensor instead of input_ids
---@param use_cache? boolean the configuration's, but false in training
---@param output_hidden_states? boolean
---@return {last_hidden_state: torch.Tensor, past_key_values: torch.Tensor[][]?}
function M.GPT2Model:forward(input_ids, past_key_values, attention_mask, position_ids,
                             inputs_embeds, use_cache, output_hidden_states)
  errors.check((input_ids == nil) ~= (inputs_embeds == nil), "ValueError",
    "You must specify exactly one of input_ids or inputs_embeds")
  if use_cache == nil then
    use_cache = self.config.use_cache and not self.training
  end
  local x = inputs_embeds or self.wte(input_ids)
  local length, seen = x:size(1), past_key_values and past_key_values[1][1]:size(2) or 0
  errors.check(position_ids or seen + length <= self.config.n_positions, "ValueError",
    "GPT-2: %d tokens, but n_positions is %d", seen + length, self.config.n_positions)
  x = self.drop(x + self.wpe(position_ids or Pretrained.ids(seen, length)))
  local mask = visible(attention_mask, length, seen)
  local presents, states = {}, output_hidden_states and {} or nil
  for i, block in ipairs(self.h) do
    if states then
      states[i] = x
    end
    x, presents[i] = block(x, mask, past_key_values and past_key_values[i])
  end
  x = self.ln_f(x)
  if states then
    states[#states + 1] = x
  end
  return { last_hidden_state = x, past_key_values = use_cache and presents or nil,
    hidden_states = states }
end

---@class lupine.models.GPT2LMHeadModel: torch.nn.Module
M.GPT2LMHeadModel = Pretrained:extend("GPT2LMHeadModel")
M.GPT2LMHeadModel.config_class = M.GPT2Config
M.GPT2LMHeadModel.base_name = "transformer"
M.GPT2LMHeadModel.tied = { ["lm_head.weight"] = "transformer.wte.weight" }

---@param c? table a GPT2Config, or some of its fields
function M.GPT2LMHeadModel:init(c)
  c = Pretrained._config_of(M.GPT2LMHeadModel, c)
  self.config = c
  self.transformer = M.GPT2Model(c)
  self.lm_head = nn.Linear(c.n_embd, c.vocab_size, { bias = false })
  if c.tie_word_embeddings then
    self.lm_head.weight = self.transformer.wte.weight
  else
    nn.init.normal_(self.lm_head.weight, 0, c.initializer_range)
  end
end

---@param input_ids torch.Tensor
---@param past_key_values? torch.Tensor[][]
---@param attention_mask? torch.Tensor
---@param position_ids? torch.Tensor
---@param labels? torch.Tensor [B, L]: the tokens themselves, which are shifted here; -100: none
---@param use_cache? boolean
---@param return_dict? boolean (true); false gives the loss (with labels) and the logits
---@return any
function M.GPT2LMHeadModel:forward(input_ids, past_key_values, attention_mask, position_ids,
                                   labels, use_cache, return_dict)
  local base = self.transformer(input_ids, past_key_values, attention_mask, position_ids, nil,
    use_cache)
  local logits = self.lm_head(base.last_hidden_state)
  local loss
  if labels then
    local n = logits:size(1) - 1
    loss = F.cross_entropy(logits:narrow(1, 0, n):flatten(0, 1), labels:narrow(1, 1, n):flatten())
  end
  if return_dict == false then
    if loss then
      return loss, logits
    end
    return logits
  end
  return { loss = loss, logits = logits, past_key_values = base.past_key_values }
end

M.GPT2LMHeadModel.generate = generation.generate

return M
