--- Checks a layer's constructor arguments by its signature, so that a mistake
--- is told by the layer's own argument and not by what it is used for later:
--- sizes by their names, the others by the type of their default.
local check = require("lupine.check")
local errors = require("torch.errors")

-- Counts of something: integers, 0 included.
local SIZES = {}
for name in ([[in_features out_features in1_features in2_features num_features num_channels
    in_channels out_channels num_embeddings embedding_dim embed_dim n_classes input_size
    hidden_size num_layers d_model dim_feedforward num_parameters num_encoder_layers
    num_decoder_layers kdim vdim]]):gmatch("%S+") do
  SIZES[name] = true
end

-- Text stands for a number ("same") or a function for a name.
local ALSO = { padding = { string = true }, activation = { ["function"] = true, table = true } }

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

--- error: TypeError, ValueError for a negative size
---@param sig table what torch.nn.signature gave
---@param values table<string, any> arguments by name
return function(sig, values)
  for _, name in ipairs(sig.names) do
    local value, default = values[name], sig.defaults[name]
    local also = ALSO[name]
    if value ~= nil and not (also and also[type(value)]) then
      local where = sig.name .. ": " .. name
      if SIZES[name] and type(default) ~= "table" then
        values[name] = check.int(value, where, { min = 0 })
      elseif type(default) == "boolean" then
        check.bool(value, where)
      elseif type(default) == "string" then
        check.string(value, where)
      elseif type(default) == "number" then
        errors.check(is_numbers(value), "TypeError", "%s: expected a number, or a list of numbers "
          .. "where the layer has dimensions, got %s", where, check.describe(value))
      end
    end
  end
end
