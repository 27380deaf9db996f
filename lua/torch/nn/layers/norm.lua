--- Normalisation layers.
local F = require("torch.nn.functional")
local errors = require("lupine.base.errors")
local fill = require("torch.nn.fill")
local init = require("torch.nn.init")
local layer = require("torch.nn.layer")

local M = {}

-- ---- with running statistics -----------------------------------------------

local function build_running(self, a)
  local torch = require("torch")
  local shape = { self.num_features }
  local with_bias = self.affine and a.bias ~= false
  self:register_parameter("weight", self.affine and fill.parameter(shape, a) or nil)
  self:register_parameter("bias", with_bias and fill.parameter(shape, a) or nil)
  local stats = self.track_running_stats
  local kind = { dtype = a.dtype, device = a.device }
  self:register_buffer("running_mean", stats and torch.zeros(shape, kind) or nil)
  self:register_buffer("running_var", stats and torch.ones(shape, kind) or nil)
  self:register_buffer("num_batches_tracked",
    stats and torch.tensor(0, { dtype = torch.int64 }) or nil)
  self:reset_parameters()
end

local function reset_running(self)
  if self.running_mean then
    init.zeros_(self.running_mean)
    init.ones_(self.running_var)
    self.num_batches_tracked:zero_()
  end
end

-- Older files have statistics without a count of the batches.
local function count_batches(self, from, prefix)
  local key = prefix .. "num_batches_tracked"
  if from[key] == nil and from[prefix .. "running_mean"] ~= nil then
    from[key] = self.num_batches_tracked
  end
end

local function reset_affine(self)
  if self.weight then
    init.ones_(self.weight)
  end
  if self.bias then
    init.zeros_(self.bias)
  end
end

-- The share of this batch in the running statistics. Without a momentum they
-- are means over all batches.
local function momentum_of(self)
  if not self.training or not self.num_batches_tracked then
    return self.momentum or 0.0
  end
  self.num_batches_tracked:add_(1)
  return self.momentum or self.num_batches_tracked:to(self.running_mean.dtype):reciprocal()
end

local function batch_norm(self, input)
  errors.check(input:size(1) == self.num_features, "RuntimeError",
    "%s: input: expected %d channels (num_features) in dimension 1, got %d",
    getmetatable(self).__name, self.num_features, input:size(1))
  local momentum = momentum_of(self)
  local batch = self.training or not self.running_mean
  local keep = not self.training or self.track_running_stats
  return F.batch_norm(input, keep and self.running_mean or nil, keep and self.running_var or nil,
    self.weight, self.bias, batch, momentum, self.eps)
end

local function instance_norm(self, input, dims)
  local single = input:dim() == dims - 1 -- no batch
  if single then
    input = input:unsqueeze(0)
  end
  errors.check(not self.affine or input:size(1) == self.num_features, "ValueError",
    "expected input's size at dim=1 to match num_features (%d), but got: %d.",
    self.num_features, input:size(1))
  local out = F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
    self.training or not self.track_running_stats, self.momentum or 0.0, self.eps)
  return single and out:squeeze(0) or out
end

-- Numbers of dimensions that each class takes.
local KINDS = { ["1d"] = { 2, 3 }, ["2d"] = { 4, 4 }, ["3d"] = { 5, 5 } }

local function check_dims(input, low, high)
  errors.check(input:dim() >= low and input:dim() <= high, "ValueError",
    low == high and "expected %dD input (got %dD input)" or "expected %dD or %dD input (got %dD "
    .. "input)", low, table.unpack(low == high and { input:dim() } or { high, input:dim() }))
end

for kind, dims in pairs(KINDS) do
  local repr = "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, "
    .. "bias={bias?}, track_running_stats={track_running_stats}"
  local function define(name, defaults, forward)
    M[name] = layer(name .. "(num_features, eps=1e-5, momentum=0.1, " .. defaults
      .. ", device=None, dtype=None, bias=True)", {
        drop = { "bias" }, repr = repr, build = build_running, forward = forward,
      })
    M[name].reset_running_stats = reset_running
    M[name]._renew = count_batches
    M[name].reset_parameters = function(self)
      reset_running(self)
      reset_affine(self)
    end
  end
  define("BatchNorm" .. kind, "affine=True, track_running_stats=True", function(self, input)
    check_dims(input, dims[1], dims[2])
    return batch_norm(self, input)
  end)
  local full = dims[2]
  define("InstanceNorm" .. kind, "affine=False, track_running_stats=False", function(self, input)
    check_dims(input, full - 1, full)
    return instance_norm(self, input, full)
  end)
end

-- ---- without ---------------------------------------------------------------

local function build_shape(self, a)
  local shape = self.normalized_shape
  self.normalized_shape = type(shape) == "table" and { table.unpack(shape) } or { shape }
  local affine = self.elementwise_affine
  self:register_parameter("weight",
    affine and fill.parameter(self.normalized_shape, a) or nil)
  if a.bias ~= nil then
    self:register_parameter("bias",
      affine and a.bias and fill.parameter(self.normalized_shape, a) or nil)
  end
  self:reset_parameters()
end

M.LayerNorm = layer("LayerNorm(normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, "
  .. "device=None, dtype=None)", {
    drop = { "bias" },
    repr = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}, bias={bias?}",
    build = build_shape,
    forward = function(self, input)
      return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
    end,
  })

M.RMSNorm = layer("RMSNorm(normalized_shape, eps=None, elementwise_affine=True, device=None, "
  .. "dtype=None)", {
    repr = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}",
    build = build_shape,
    forward = function(self, input)
      return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)
    end,
  })

M.GroupNorm = layer("GroupNorm(num_groups, num_channels, eps=1e-5, affine=True, device=None, "
  .. "dtype=None, bias=True)", {
    drop = { "bias" },
    repr = "{num_groups}, {num_channels}, eps={eps}, affine={affine}, bias={bias?}",
    build = function(self, a)
      errors.check(self.num_channels % self.num_groups == 0, "ValueError",
        "GroupNorm: num_channels must be divisible by num_groups, got %d and %d",
        self.num_channels, self.num_groups)
      local shape = { self.num_channels }
      self:register_parameter("weight", self.affine and fill.parameter(shape, a) or nil)
      self:register_parameter("bias", self.affine and a.bias and fill.parameter(shape, a) or nil)
      self:reset_parameters()
    end,
    forward = function(self, input)
      return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
    end,
  })

for _, name in ipairs({ "LayerNorm", "RMSNorm", "GroupNorm" }) do
  M[name].reset_parameters = reset_affine
end

M.LocalResponseNorm = layer("LocalResponseNorm(size, alpha=1e-4, beta=0.75, k=1.0)", {
  repr = "{size}, alpha={alpha}, beta={beta}, k={k}",
  forward = function(self, input)
    return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)
  end,
})

return M
