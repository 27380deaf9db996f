--- What models of text share: weights from the files of public checkpoints, whose keys may
--- have or lack the name of the model within (`bert.`, `transformer.`), and starting values.
---
--- A class has `config_class`, `base_name` (the prefix), and may have `tied` ({key = other}:
--- both are one parameter, of which a file may have one), `heads` (patterns of keys that a
--- checkpoint of another task lacks) and `renamed(key)`.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local exists = require("lupine.base.exists")
local torch = require("torch")
local warn = require("lupine.base.warn")

local nn = torch.nn
local init = nn.init

---@class lupine.models.Pretrained: torch.nn.Module
local M = nn.Module:extend("PretrainedModel")

--- What stands for the configuration's name of an activation.
---@type table<string, fun(x: torch.Tensor): torch.Tensor>
M.ACTIVATIONS = {
  gelu = nn.functional.gelu, relu = nn.functional.relu, silu = nn.functional.silu,
  swish = nn.functional.silu, tanh = torch.tanh, sigmoid = torch.sigmoid, mish = nn.functional.mish,
  relu6 = nn.functional.relu6,
}
for _, name in ipairs({ "gelu_new", "gelu_fast", "gelu_pytorch_tanh" }) do
  M.ACTIVATIONS[name] = function(x)
    return nn.functional.gelu(x, { approximate = "tanh" })
  end
end

--- The activation of a name.
--- error: ValueError for another name
---@param name string
---@param where string
---@return fun(x: torch.Tensor): torch.Tensor
function M.activation(name, where)
  local names = {}
  for key in next, M.ACTIVATIONS do
    names[#names + 1] = key
  end
  table.sort(names)
  return errors.check(M.ACTIVATIONS[name], "ValueError", "%s: unknown activation '%s'. Allowed: %s",
    where, tostring(name), table.concat(names, ", "))
end

--- Indices `first`, … of n rows of an embedding, as of one sample.
---@param first integer
---@param n integer
---@return torch.Tensor [1, n]
function M.ids(first, n)
  return torch.arange(first, first + n):unsqueeze(0)
end

--- The configuration that a constructor got: an instance, or a table of fields.
---@param cls table the model's class
---@param config table?
---@return table
function M._config_of(cls, config)
  local Config = cls.config_class
  if Config:is(config) then
    return config
  end
  return Config(config)
end

--- Starting values: normal with the configuration's deviation, biases 0, and the row of a
--- padding index 0. A weight that two modules have is the first one's.
---@param self torch.nn.Module
---@param std number
function M._start(self, std)
  local started = {}
  for _, m in ipairs(self:modules()) do
    if (nn.Linear:is(m) or nn.Embedding:is(m) or m.is_conv1d) and not started[m.weight] then
      init.normal_(m.weight, 0, std)
      started[m.weight] = true
    end
    if m.bias and (nn.Linear:is(m) or m.is_conv1d) then
      init.zeros_(m.bias)
    end
    if nn.Embedding:is(m) and m.padding_idx then
      torch.no_grad(function()
        m.weight[m.padding_idx]:zero_()
      end)
    end
  end
end

-- ---- keys of files ---------------------------------------------------------------

-- Buffers that older versions of the originals kept, and that every model makes anew.
local STALE = { "%.attn%.bias$", "%.attn%.masked_bias$", "%.crossattention%.bias$",
  "embeddings%.position_ids$", "embeddings%.token_type_ids$" }

local function matches(key, patterns)
  for _, pattern in ipairs(patterns) do
    if key:find(pattern) then
      return true
    end
  end
  return false
end

-- A file's name of a normalisation's weights in its first years.
local function modern(key)
  return (key:gsub("LayerNorm%.gamma$", "LayerNorm.weight"):gsub("LayerNorm%.beta$",
    "LayerNorm.bias"))
end

-- The key that the model has for a file's; nil: of a head that this one has not.
local function own_key(key, name, is_base, prefixed)
  key = modern(key)
  local start = name .. "."
  local has = key:sub(1, #start) == start
  if is_base then
    return has and key:sub(#start + 1) or not prefixed and key or nil
  elseif has or prefixed then
    return key
  end
  return start .. key
end

-- Load_state_dict calls this with a dictionary of its own: keys become the model's.
function M:_renew(from, prefix)
  local cls = getmetatable(self)
  local name, own, prefixed = cls.base_name, {}, false
  for key, value in pairs(from) do
    local rest = type(key) == "string" and key:sub(1, #prefix) == prefix and key:sub(#prefix + 1)
    if rest then
      own[rest] = value
      prefixed = prefixed or rest:sub(1, #name + 1) == name .. "."
    end
  end
  for rest in next, own do
    from[prefix .. rest] = nil
  end
  for rest, value in next, own do
    local key = not matches("." .. rest, STALE) and own_key(rest, name, cls.is_base, prefixed)
    if key then
      from[prefix .. key] = value
    end
  end
  for key, other in next, cls.tied or {} do
    key, other = prefix .. key, prefix .. other
    from[key] = from[key] or from[other]
    from[other] = from[other] or from[key]
  end
end

-- ---- folders ---------------------------------------------------------------------

local INDEX = "/model.safetensors.index.json"

-- All tensors of a checkpoint: one file, or those that an index lists.
local function tensors_of(path)
  local load_file = require("lupine.safetensors").load_file
  if path:find("%.safetensors$") then
    return load_file(path)
  elseif exists(path .. "/model.safetensors") or not exists(path .. INDEX) then
    return load_file(path .. "/model.safetensors")
  end
  local file <close> = assert(io.open(path .. INDEX, "rb"))
  local index = require("lupine.core").json_decode(file:read("a"))
  errors.check(type(index) == "table" and type(index.weight_map) == "table", "ValueError",
    "%s: expected an object with 'weight_map'", path .. INDEX)
  local out, read = {}, {}
  for _, name in next, index.weight_map do
    errors.check(type(name) == "string" and not name:find("/", 1, true), "ValueError",
      "%s: weight_map: expected names of files beside it, got %s", path .. INDEX,
      check.describe(name))
    if not read[name] then
      read[name] = true
      for key, value in pairs(load_file(path .. "/" .. name)) do
        out[key] = value
      end
    end
  end
  return out
end

-- The missing entries that only this model's task has; others are a damaged file.
local function new_entries(model, cls, missing)
  local new = {}
  for _, key in ipairs(missing) do
    errors.check(matches(key, cls.heads or {}), "RuntimeError",
      "%s.from_pretrained: the file has no '%s'", cls.__name, key)
    new[#new + 1] = key
  end
  if #new > 0 then
    warn("%s: the file has no weights for %s: they start at random, train them",
      model:_get_name(), table.concat(new, ", "))
  end
end

--- A model with the configuration (config.json) and weights (model.safetensors, or the files
--- of its index) of a folder. What a checkpoint of another task lacks starts at random, which
--- is logged; else the random numbers are left where they were. Nothing is downloaded.
--- errors: OSError (no such file), RuntimeError (entries that do not fit), ValueError
---@param cls table
---@param path string folder
---@param fields? table<string, any> fields of the configuration that differ
---@return torch.nn.Module
function M.from_pretrained(cls, path, fields)
  errors.check(type(cls) == "table" and cls.config_class, "TypeError",
    "from_pretrained is a method of the class: BertModel:from_pretrained(folder)")
  check.string(path, cls.__name .. ":from_pretrained: path")
  local config_path = path .. "/config.json"
  errors.check(exists(config_path), "OSError", "%s:from_pretrained: there is no %s; nothing is "
    .. "downloaded: name a folder with config.json and model.safetensors", cls.__name, config_path)
  local config = cls.config_class.from_pretrained(config_path)
  if fields then
    local given = cls.config_class(fields)
    for name in next, fields do
      config[name] = given[name]
    end
  end
  local random = torch.get_rng_state()
  local model = cls(config)
  local missing = model:load_state_dict(tensors_of(path), { strict = false }).missing_keys
  new_entries(model, cls, missing)
  if #missing == 0 then
    torch.set_rng_state(random)
  end
  return model:eval()
end

return M
