--- Vision transformers (Dosovitskiy et al. 2020), by torchvision's names.
local building = require("torchvision.models.building")
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local ops = require("torchvision.ops")
local torch = require("torch")

local nn = torch.nn
local init = nn.init
local M = {}

M.ConvStemConfig = building.record("ConvStemConfig(out_channels, kernel_size, stride, "
  .. "norm_layer='BatchNorm2d', activation_layer='ReLU')")

M.MLPBlock = ops.MLP:extend("MLPBlock")

--- Two layers with GELU between.
---@param in_dim integer
---@param mlp_dim integer
---@param dropout number
function M.MLPBlock:init(in_dim, mlp_dim, dropout)
  ops.MLP.init(self, in_dim, { mlp_dim, in_dim }, { activation_layer = nn.GELU,
    dropout = dropout })
  for _, m in ipairs(self:modules()) do
    if nn.Linear:is(m) then
      init.xavier_uniform_(m.weight)
      init.normal_(m.bias, { std = 1e-6 })
    end
  end
end

-- Older files have linear_1 and linear_2.
function M.MLPBlock._renew(_, from, prefix)
  for i, to in ipairs({ "0", "3" }) do
    for _, kind in ipairs({ "weight", "bias" }) do
      local old = ("%slinear_%d.%s"):format(prefix, i, kind)
      if from[old] ~= nil then
        from[("%s%s.%s"):format(prefix, to, kind)] = from[old]
        from[old] = nil
      end
    end
  end
end

local function norm_of(maker)
  return ops._maker(maker) or ops._partial(nn.LayerNorm, { eps = 1e-6 })
end

M.EncoderBlock = layer("EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, "
  .. "norm_layer=None)", {
    drop = { "hidden_dim", "mlp_dim", "dropout", "attention_dropout", "norm_layer" },
    build = function(self, a)
      local norm = norm_of(a.norm_layer)
      self.ln_1 = norm(a.hidden_dim)
      self.self_attention = nn.MultiheadAttention(a.hidden_dim, a.num_heads,
        { dropout = a.attention_dropout, batch_first = true })
      self.dropout = nn.Dropout(a.dropout)
      self.ln_2 = norm(a.hidden_dim)
      self.mlp = M.MLPBlock(a.hidden_dim, a.mlp_dim, a.dropout)
    end,
    forward = function(self, input)
      local x = self.ln_1(input)
      x = self.self_attention(x, x, x, { need_weights = false })
      x = self.dropout(x) + input
      return x + self.mlp(self.ln_2(x))
    end,
  })

M.Encoder = layer("Encoder(seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, "
  .. "attention_dropout, norm_layer=None)", {
    drop = { "seq_length", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "dropout",
      "attention_dropout", "norm_layer" },
    build = function(self, a)
      self.pos_embedding = nn.Parameter(
        init.normal_(torch.empty(1, a.seq_length, a.hidden_dim), { std = 0.02 }))
      self.dropout = nn.Dropout(a.dropout)
      local layers = {}
      for i = 1, a.num_layers do
        layers[i] = { "encoder_layer_" .. i - 1, M.EncoderBlock(a.num_heads, a.hidden_dim,
          a.mlp_dim, a.dropout, a.attention_dropout, a.norm_layer) }
      end
      self.layers = nn.Sequential(layers)
      self.ln = norm_of(a.norm_layer)(a.hidden_dim)
    end,
    forward = function(self, input)
      errors.check(input:dim() == 3, "AssertionError",
        "Encoder: input: expected [batch, length, width], got %s", tostring(input.shape))
      return self.ln(self.layers(self.dropout(input + self.pos_embedding)))
    end,
  })

-- Convolutions in the place of the one that cuts into patches (Xiao et al. 2021).
local function stem(configs, width)
  local layers, from = {}, 3
  for i, c in ipairs(configs) do
    layers[i] = { "conv_bn_relu_" .. i - 1, ops.Conv2dNormActivation(from, c.out_channels,
      { kernel_size = c.kernel_size, stride = c.stride, norm_layer = c.norm_layer or torch.none,
        activation_layer = c.activation_layer or torch.none }) }
    from = c.out_channels
  end
  layers[#layers + 1] = { "conv_last", nn.Conv2d(from, width, 1) }
  return nn.Sequential(layers)
end

local function start_projection(proj)
  local conv = nn.Conv2d:is(proj) and proj or proj.conv_last
  if conv == proj then
    local fan_in = conv.in_channels * conv.kernel_size[1] * conv.kernel_size[2]
    init.trunc_normal_(conv.weight, { std = math.sqrt(1 / fan_in) })
  else
    init.normal_(conv.weight, 0, math.sqrt(2 / conv.out_channels))
  end
  init.zeros_(conv.bias)
end

local function make_heads(width, representation, num_classes)
  local head = nn.Linear(representation or width, num_classes)
  init.zeros_(head.weight)
  init.zeros_(head.bias)
  if not representation then
    return nn.Sequential({ { "head", head } })
  end
  local pre = nn.Linear(width, representation)
  init.trunc_normal_(pre.weight, { std = math.sqrt(1 / width) })
  init.zeros_(pre.bias)
  return nn.Sequential({ { "pre_logits", pre }, { "act", nn.Tanh() }, { "head", head } })
end

local ARGUMENTS = "dropout=0.0, attention_dropout=0.0, num_classes=1000, "
  .. "representation_size=None, norm_layer=None, conv_stem_configs=None"

M.VisionTransformer = layer("VisionTransformer(image_size, patch_size, num_layers, num_heads, "
  .. "hidden_dim, mlp_dim, " .. ARGUMENTS .. ")", {
    drop = { "num_layers", "num_heads", "norm_layer", "conv_stem_configs" },
    build = function(self, a)
      errors.check(a.image_size % a.patch_size == 0, "AssertionError", "VisionTransformer: "
        .. "image_size %d is no multiple of patch_size %d", a.image_size, a.patch_size)
      local side = a.image_size // a.patch_size
      self.seq_length = side * side + 1
      self.class_token = nn.Parameter(torch.zeros(1, 1, a.hidden_dim))
      if a.conv_stem_configs then
        building.settings(a.conv_stem_configs, "VisionTransformer: conv_stem_configs",
          M.ConvStemConfig)
        self.conv_proj = stem(a.conv_stem_configs, a.hidden_dim)
      else
        self.conv_proj = nn.Conv2d(3, a.hidden_dim, a.patch_size, a.patch_size)
      end
      self.encoder = M.Encoder(self.seq_length, a.num_layers, a.num_heads, a.hidden_dim,
        a.mlp_dim, a.dropout, a.attention_dropout, a.norm_layer)
      self.heads = make_heads(a.hidden_dim, a.representation_size, a.num_classes)
      start_projection(self.conv_proj)
    end,
    forward = function(self, x)
      local n, size = x:size(0), self.image_size
      errors.check(x:size(2) == size and x:size(3) == size, "AssertionError",
        "VisionTransformer: expected images of %d x %d, got %d x %d", size, size, x:size(2),
        x:size(3))
      x = self.conv_proj(x):flatten(2):permute(0, 2, 1)
      x = torch.cat({ self.class_token:expand(n, -1, -1), x }, 1)
      return self.heads(self.encoder(x):select(1, 0))
    end,
  })

-- name, patch, layers, heads, width, width within
for _, row in ipairs({ { "vit_b_16", 16, 12, 12, 768, 3072 }, { "vit_b_32", 32, 12, 12, 768, 3072 },
    { "vit_l_16", 16, 24, 16, 1024, 4096 }, { "vit_l_32", 32, 24, 16, 1024, 4096 },
    { "vit_h_14", 14, 32, 16, 1280, 5120 } }) do
  local name, patch, layers, heads, width, inside = table.unpack(row)
  building.builder(M, name, "image_size=224, " .. ARGUMENTS, function(a)
    local size = a.image_size
    a.image_size = nil
    return M.VisionTransformer(size, patch, layers, heads, width, inside, a)
  end)
end

classes.space("torchvision.models.vision_transformer", M)

return M
