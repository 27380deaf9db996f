--- Embedding and EmbeddingBag.
local F = require("torch.nn.functional")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local fill = require("torch.nn.fill")
local init = require("torch.nn.init")
local layer = require("torch.nn.layer")
local text = require("torch.nn.text")

local M = {}

-- "num, dim" and the options that differ from their defaults
local function describe(usual, order)
  return function(self)
    local parts = { ("%d, %d"):format(self.num_embeddings, self.embedding_dim) }
    for _, name in ipairs(order) do
      local value = self[name]
      if value ~= usual[name] then
        parts[#parts + 1] = name .. "=" .. text.repr(value)
      end
    end
    return table.concat(parts, ", ")
  end
end

local function build(self, a)
  local n = self.num_embeddings
  if self.padding_idx then
    errors.check(self.padding_idx >= -n and self.padding_idx < n, "AssertionError",
      "Padding_idx must be within num_embeddings (%d), got %d", n, self.padding_idx)
    self.padding_idx = self.padding_idx % n
  end
  if a._weight then
    local shape = a._weight.shape
    errors.check(shape[1] == n and shape[2] == self.embedding_dim, "AssertionError",
      "Shape of weight does not match num_embeddings and embedding_dim")
    self.weight = core.parameter(a._weight, not a._freeze)
  else
    fill.weight(self, { n, self.embedding_dim }, a)
    self:reset_parameters()
  end
end

local function reset(self)
  init.normal_(self.weight)
  if self.padding_idx and not self.weight.is_meta then
    require("torch").no_grad(function()
      self.weight[self.padding_idx] = 0
    end)
  end
end

M.Embedding = layer("Embedding(num_embeddings, embedding_dim, padding_idx=None, max_norm=None, "
  .. "norm_type=2.0, scale_grad_by_freq=False, sparse=False, _weight=None, _freeze=False, "
  .. "device=None, dtype=None)", {
    drop = { "_weight", "_freeze" },
    build = build,
    repr = describe({ norm_type = 2.0, scale_grad_by_freq = false, sparse = false },
      { "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse" }),
    forward = function(self, input)
      return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
        self.scale_grad_by_freq, self.sparse)
    end,
  })

M.EmbeddingBag = layer("EmbeddingBag(num_embeddings, embedding_dim, max_norm=None, "
  .. "norm_type=2.0, scale_grad_by_freq=False, mode='mean', sparse=False, _weight=None, "
  .. "include_last_offset=False, padding_idx=None, device=None, dtype=None)", {
    drop = { "_weight" },
    build = build,
    repr = describe({ norm_type = 2.0, scale_grad_by_freq = false },
      { "max_norm", "norm_type", "scale_grad_by_freq", "mode", "padding_idx" }),
    forward = function(self, input, offsets, per_sample_weights)
      return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type,
        self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
        self.include_last_offset, self.padding_idx)
    end,
  })

local FROM = { "embeddings", "freeze" }

for name, cls in pairs({ Embedding = M.Embedding, EmbeddingBag = M.EmbeddingBag }) do
  cls.reset_parameters = reset

  --- A layer over given rows; freeze (true): they are not trained. Further
  --- options as the constructor's, by name.
  cls.from_pretrained = function(embeddings, freeze, options)
    if type(freeze) == "table" then
      freeze, options = freeze.freeze, freeze
    end
    errors.check(core.is_tensor(embeddings) and embeddings:dim() == 2, "AssertionError",
      "%s.from_pretrained(%s): embeddings are expected to be 2-dimensional", name,
      table.concat(FROM, ", "))
    local keywords = { _weight = embeddings }
    for key, value in pairs(options or {}) do
      keywords[key] = key ~= "freeze" and value or nil
    end
    local m = cls(embeddings:size(0), embeddings:size(1), keywords)
    m.weight:requires_grad_(freeze == false)
    return m
  end
end

return M
