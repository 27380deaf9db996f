--- MultiheadAttention and the Transformer.
---
--- source: Vaswani et al. 2017; PyTorch documentation of each class
local F = require("torch.nn.functional")
local check = require("lupine.base.check")
local containers = require("torch.nn.layers.containers")
local dropout = require("torch.nn.layers.dropout")
local errors = require("lupine.base.errors")
local fill = require("torch.nn.fill")
local init = require("torch.nn.init")
local layer = require("torch.nn.layer")
local linear = require("torch.nn.layers.linear")
local norm = require("torch.nn.layers.norm")

local M = {}

-- PyTorch prints the output projection under this name.
local OutProjection = linear.Linear:extend("NonDynamicallyQuantizableLinear")

M.MultiheadAttention = layer("MultiheadAttention(embed_dim, num_heads, dropout=0.0, bias=True, "
  .. "add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None, batch_first=False, "
  .. "device=None, dtype=None)", {
    drop = { "bias", "add_bias_kv" },
    build = function(self, a)
      local e = self.embed_dim
      self.kdim, self.vdim = self.kdim or e, self.vdim or e
      errors.check(e > 0 and self.num_heads > 0, "ValueError", "embed_dim and num_heads must be "
        .. "greater than 0, got embed_dim=%d and num_heads=%d instead", e, self.num_heads)
      errors.check(e % self.num_heads == 0, "AssertionError",
        "embed_dim must be divisible by num_heads, got %d and %d", e, self.num_heads)
      self._qkv_same_embed_dim = self.kdim == e and self.vdim == e
      if self._qkv_same_embed_dim then
        self.in_proj_weight = fill.parameter({ 3 * e, e }, a)
      else
        self.q_proj_weight = fill.parameter({ e, e }, a)
        self.k_proj_weight = fill.parameter({ e, self.kdim }, a)
        self.v_proj_weight = fill.parameter({ e, self.vdim }, a)
      end
      self:register_parameter("in_proj_bias", a.bias and fill.parameter({ 3 * e }, a) or nil)
      self.out_proj = OutProjection(e, e, { bias = a.bias, dtype = a.dtype, device = a.device })
      for _, name in ipairs({ "bias_k", "bias_v" }) do
        self:register_parameter(name, a.add_bias_kv and fill.parameter({ 1, 1, e }, a) or nil)
      end
      self:_reset_parameters()
    end,
    forward = function(self, query, key, value, key_padding_mask, need_weights, attn_mask,
                       average_attn_weights, is_causal)
      local turn = self.batch_first and query:dim() == 3
      if turn then
        query, key, value = query:transpose(0, 1), key:transpose(0, 1), value:transpose(0, 1)
      end
      local out, weights = F.multi_head_attention_forward(query, key, value, self.embed_dim,
        self.num_heads, {
          in_proj_weight = self.in_proj_weight, in_proj_bias = self.in_proj_bias,
          bias_k = self.bias_k, bias_v = self.bias_v, add_zero_attn = self.add_zero_attn,
          dropout_p = self.dropout, out_proj_weight = self.out_proj.weight,
          out_proj_bias = self.out_proj.bias, training = self.training,
          key_padding_mask = key_padding_mask, need_weights = need_weights ~= false,
          attn_mask = attn_mask, use_separate_proj_weight = not self._qkv_same_embed_dim,
          q_proj_weight = self.q_proj_weight, k_proj_weight = self.k_proj_weight,
          v_proj_weight = self.v_proj_weight,
          average_attn_weights = average_attn_weights ~= false, is_causal = is_causal,
        })
      return turn and out:transpose(0, 1) or out, weights
    end,
  })

function M.MultiheadAttention:_reset_parameters()
  for _, name in ipairs({ "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight" }) do
    if self[name] then
      init.xavier_uniform_(self[name])
    end
  end
  if self.in_proj_bias then
    init.zeros_(self.in_proj_bias)
    init.zeros_(self.out_proj.bias)
  end
  if self.bias_k then
    init.xavier_normal_(self.bias_k)
    init.xavier_normal_(self.bias_v)
  end
end

-- ---- layers ----------------------------------------------------------------

local ACTIVATIONS = { relu = F.relu, gelu = F.gelu }

local function set_activation(self, given, name)
  local f = given
  if type(given) == "string" then
    f = errors.check(ACTIVATIONS[given], "RuntimeError",
      "%s: activation should be relu/gelu, not %s", name, given)
  end
  local mt = type(f) == "table" and getmetatable(f)
  errors.check(type(f) == "function" or mt and mt.__call, "TypeError",
    "%s: activation: expected 'relu', 'gelu' or a function, got %s", name, check.describe(f))
  self.activation = f
end

-- The parts of a layer with `n` residual branches, `attentions` of them named.
local function build_layer(self, a, attentions)
  local make = { bias = a.bias, dtype = a.dtype, device = a.device }
  for _, name in ipairs(attentions) do
    self[name] = M.MultiheadAttention(a.d_model, a.nhead, { dropout = a.dropout, bias = a.bias,
      batch_first = a.batch_first, dtype = a.dtype, device = a.device })
  end
  self.linear1 = linear.Linear(a.d_model, a.dim_feedforward, make)
  self.dropout = dropout.Dropout(a.dropout)
  self.linear2 = linear.Linear(a.dim_feedforward, a.d_model, make)
  self.norm_first = a.norm_first
  for i = 1, #attentions + 1 do
    self["norm" .. i] = norm.LayerNorm(a.d_model, a.layer_norm_eps, { bias = a.bias,
      dtype = a.dtype, device = a.device })
  end
  for i = 1, #attentions + 1 do
    self["dropout" .. i] = dropout.Dropout(a.dropout)
  end
  set_activation(self, a.activation, self:_get_name())
end

-- x + dropout(branch(x)), normalised before or after.
local function residual(self, i, x, branch)
  local normalise, drop = self["norm" .. i], self["dropout" .. i]
  if self.norm_first then
    return x + drop(branch(normalise(x)))
  end
  return normalise(x + drop(branch(x)))
end

local function feed_forward(self)
  return function(x)
    return self.linear2(self.dropout(self.activation(self.linear1(x))))
  end
end

-- Attention of x to `to` (itself if nil).
local function attention(module, to, mask, padding, causal)
  return function(x)
    local keys = to or x
    return (module(x, keys, keys, padding, false, mask, nil, causal))
  end
end

local LAYER = "(d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', "
  .. "layer_norm_eps=1e-5, batch_first=False, norm_first=False, bias=True, device=None, "
  .. "dtype=None)"
local PARTS = { "d_model", "nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps",
  "batch_first", "norm_first", "bias" }

M.TransformerEncoderLayer = layer("TransformerEncoderLayer" .. LAYER, {
  drop = PARTS,
  build = function(self, a)
    build_layer(self, a, { "self_attn" })
  end,
  forward = function(self, src, src_mask, src_key_padding_mask, is_causal)
    local x = residual(self, 1, src,
      attention(self.self_attn, nil, src_mask, src_key_padding_mask, is_causal))
    return residual(self, 2, x, feed_forward(self))
  end,
})

M.TransformerDecoderLayer = layer("TransformerDecoderLayer" .. LAYER, {
  drop = PARTS,
  build = function(self, a)
    build_layer(self, a, { "self_attn", "multihead_attn" })
  end,
  forward = function(self, tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                     memory_key_padding_mask, tgt_is_causal, memory_is_causal)
    local x = residual(self, 1, tgt,
      attention(self.self_attn, nil, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
    x = residual(self, 2, x, attention(self.multihead_attn, memory, memory_mask,
      memory_key_padding_mask, memory_is_causal))
    return residual(self, 3, x, feed_forward(self))
  end,
})

-- ---- stacks ----------------------------------------------------------------

local function build_stack(part)
  return function(self, a)
    local copies = {}
    for i = 1, a.num_layers do
      copies[i] = a[part]:deepcopy()
    end
    self.layers = containers.ModuleList(copies)
    self.norm = a.norm
  end
end

M.TransformerEncoder = layer("TransformerEncoder(encoder_layer, num_layers, norm=None, "
  .. "enable_nested_tensor=True, mask_check=True)", {
    drop = { "encoder_layer", "norm" },
    build = build_stack("encoder_layer"),
    forward = function(self, src, mask, src_key_padding_mask, is_causal)
      for _, part in ipairs(self.layers) do
        src = part(src, mask, src_key_padding_mask, is_causal and mask ~= nil)
      end
      return self.norm and self.norm(src) or src
    end,
  })

M.TransformerDecoder = layer("TransformerDecoder(decoder_layer, num_layers, norm=None)", {
  drop = { "decoder_layer", "norm" },
  build = build_stack("decoder_layer"),
  forward = function(self, tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                     memory_key_padding_mask, tgt_is_causal, memory_is_causal)
    for _, part in ipairs(self.layers) do
      tgt = part(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
        memory_key_padding_mask, tgt_is_causal and tgt_mask ~= nil,
        memory_is_causal and memory_mask ~= nil)
    end
    return self.norm and self.norm(tgt) or tgt
  end,
})

-- A stack of layers of the same arguments, or the one that the user gave.
local function stack_of(custom, Stack, Layer, n, a)
  if custom then
    return custom
  end
  local part = Layer(a.d_model, a.nhead, { dim_feedforward = a.dim_feedforward,
    dropout = a.dropout, activation = a.activation, layer_norm_eps = a.layer_norm_eps,
    batch_first = a.batch_first, norm_first = a.norm_first, bias = a.bias, device = a.device,
    dtype = a.dtype })
  return Stack(part, n, norm.LayerNorm(a.d_model, a.layer_norm_eps,
    { bias = a.bias, device = a.device, dtype = a.dtype }))
end

M.Transformer = layer("Transformer(d_model=512, nhead=8, num_encoder_layers=6, "
  .. "num_decoder_layers=6, dim_feedforward=2048, dropout=0.1, activation='relu', "
  .. "custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False, "
  .. "norm_first=False, bias=True, device=None, dtype=None)", {
    drop = { "num_encoder_layers", "num_decoder_layers", "dim_feedforward", "dropout",
      "activation", "custom_encoder", "custom_decoder", "layer_norm_eps", "norm_first", "bias" },
    build = function(self, a)
      self.encoder = stack_of(a.custom_encoder, M.TransformerEncoder, M.TransformerEncoderLayer,
        a.num_encoder_layers, a)
      self.decoder = stack_of(a.custom_decoder, M.TransformerDecoder, M.TransformerDecoderLayer,
        a.num_decoder_layers, a)
      for _, p in ipairs(self:parameters()) do
        if p:dim() > 1 then
          init.xavier_uniform_(p)
        end
      end
    end,
    forward = function(self, src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask,
                       tgt_key_padding_mask, memory_key_padding_mask, src_is_causal,
                       tgt_is_causal, memory_is_causal)
      errors.check(src:size(-1) == self.d_model and tgt:size(-1) == self.d_model, "RuntimeError",
        "the feature number of src and tgt must be equal to d_model")
      local memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
      return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
        memory_key_padding_mask, tgt_is_causal, memory_is_causal)
    end,
  })

--- A float mask that hides later positions: minus infinity above the diagonal.
---@param size integer
---@return torch.Tensor
function M.Transformer.generate_square_subsequent_mask(size, ...)
  if M.Transformer:is(size) then -- as a method
    size = ...
  end
  check.int(size, "generate_square_subsequent_mask(sz)", { min = 0 })
  return require("torch").full({ size, size }, -math.huge):triu(1)
end

return M
