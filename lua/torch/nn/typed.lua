--- Checks a layer's constructor arguments by its signature, so that a mistake
--- is told by the layer's own argument and not by what it is used for later:
--- sizes by their names, the others by the type of their default.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

-- Counts of something: integers, 0 included.
local SIZES = {}
for name in ([[in_features out_features in1_features in2_features num_features num_channels
    in_channels out_channels num_embeddings embedding_dim embed_dim n_classes input_size
    hidden_size num_layers d_model dim_feedforward num_parameters num_encoder_layers
    num_decoder_layers kdim vdim num_classes image_size patch_size hidden_dim
    mlp_dim]]):gmatch("%S+") do
  SIZES[name] = true
end

-- What a negative one raises where PyTorch asks; the others fail as sizes of a
-- parameter.
local OUTSIDE = { input_size = "ValueError", hidden_size = "ValueError", num_layers = "ValueError" }

-- Other integers, which may be negative.
local INTEGERS = {}
for name in ("groups num_groups num_heads nhead padding_idx blank ignore_index"):gmatch("%S+") do
  INTEGERS[name] = true
end

-- Numbers that may differ between dimensions.
local LISTS = {}
for name in ([[kernel_size stride padding dilation output_padding output_size output_ratio size
    scale_factor upscale_factor downscale_factor start_dim end_dim lower upper]]):gmatch("%S+") do
  LISTS[name] = true
end

-- Text stands for a number ("same"), or a function or class for a name.
local NAMED = { ["function"] = true, table = true }
local ALSO = { padding = { string = true }, activation = NAMED, scale_activation = NAMED,
  norm_layer = NAMED, activation_layer = NAMED }

local function is_numbers(value)
  if type(value) ~= "table" then
    return type(value) == "number" or type(value) == "userdata"
  end
  for _, v in ipairs(value) do
    if type(v) ~= "number" then
      return false
    end
  end
  return true
end

local function check_number(value, where, name)
  local one = not LISTS[name]
  errors.check(is_numbers(value) and not (one and type(value) == "table"), "TypeError",
    "%s: expected a number%s, got %s", where,
    one and "" or ", or a list of numbers where the layer has dimensions", check.describe(value))
end

-- None where a number is needed. A momentum may be none.
local function check_none(sig, name, where)
  local default = sig.defaults[name]
  errors.check(name == "momentum" or type(default) ~= "number"
    and not (sig.required[name] and (SIZES[name] or INTEGERS[name])), "TypeError",
    "%s: expected a number, got None", where)
end

--- error: TypeError, RuntimeError for a negative size
---@param sig table what torch.nn.signature gave
---@param values table<string, any> arguments by name
return function(sig, values)
  for _, name in ipairs(sig.names) do
    local value, default = values[name], sig.defaults[name]
    local also = ALSO[name]
    local where = sig.name .. ": " .. name
    if value == nil then
      check_none(sig, name, where)
    elseif not (also and also[type(value)]) then
      if SIZES[name] and type(default) ~= "table" then
        local outside = OUTSIDE[name] or "RuntimeError"
        values[name] = check.int(value, where, { min = 0, outside = outside })
      elseif INTEGERS[name] then
        values[name] = check.int(value, where)
      elseif type(default) == "boolean" then
        check.bool(value, where)
      elseif type(default) == "string" then
        check.string(value, where)
      elseif type(default) == "number" then
        check_number(value, where, name)
      end
    end
  end
end
