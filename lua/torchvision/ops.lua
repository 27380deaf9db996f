--- Blocks that torchvision's models are made of, by the names of torchvision.ops.
---
--- Where a class takes layers (`norm_layer`, `activation_layer`) it takes a class of
--- modules, a function that makes one, or the name of a class of torch.nn; torch.none
--- stands for no such layer.
local classes = require("torch.class_names")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")
local tuple = require("torch.nn.tuple")
local torch = require("torch")

local nn = torch.nn
local M = {}

--- What makes a layer, from what a script gave: a name of torch.nn, a class or a
--- function. nil stays nil.
---@param maker string|table|function|nil
---@return table|function|nil
function M._maker(maker)
  return type(maker) == "string" and nn[maker] or maker
end

--- A maker with keywords that it always gets: functools.partial.
---@param maker table|function
---@param keywords table<string, any>
---@return function
function M._partial(maker, keywords)
  return function(...)
    local all = table.pack(...)
    all[all.n + 1] = keywords
    return maker(table.unpack(all, 1, all.n + 1))
  end
end

-- Half of what a kernel reaches over, in every dimension.
local function same_padding(a, n)
  local kernel, dilation = tuple.of(a.kernel_size, n, "kernel_size"),
    tuple.of(a.dilation, n, "dilation")
  local out = {}
  for i = 1, n do
    out[i] = (kernel[i] - 1) // 2 * dilation[i]
  end
  return out
end

-- Whether a layer works in place is asked of those alone that can: others have no such
-- argument.
local function activation(maker, inplace)
  return inplace == nil and maker() or maker({ inplace = inplace })
end

for n = 2, 3 do
  local name = ("Conv%dd"):format(n)
  M[name .. "NormActivation"] = layer(name .. "NormActivation(in_channels, out_channels, "
    .. "kernel_size=3, stride=1, padding=None, groups=1, norm_layer='BatchNorm" .. n .. "d', "
    .. "activation_layer='ReLU', dilation=1, inplace=True, bias=None)", {
      base = nn.Sequential,
      drop = { "in_channels", "kernel_size", "stride", "padding", "groups", "norm_layer",
        "activation_layer", "dilation", "inplace", "bias" },
      build = function(self, a)
        local norm, act = M._maker(a.norm_layer), M._maker(a.activation_layer)
        local bias = a.bias
        if bias == nil then
          bias = norm == nil
        end
        local layers = { nn[name](a.in_channels, a.out_channels, a.kernel_size, a.stride,
          a.padding or same_padding(a, n), { dilation = a.dilation, groups = a.groups,
            bias = bias }) }
        layers[#layers + 1] = norm and norm(a.out_channels)
        layers[#layers + 1] = act and activation(act, a.inplace)
        nn.Sequential.init(self, layers)
      end,
    })
end

M.SqueezeExcitation = layer("SqueezeExcitation(input_channels, squeeze_channels, "
  .. "activation='ReLU', scale_activation='Sigmoid')", {
    drop = { "input_channels", "squeeze_channels", "activation", "scale_activation" },
    build = function(self, a)
      self.avgpool = nn.AdaptiveAvgPool2d(1)
      self.fc1 = nn.Conv2d(a.input_channels, a.squeeze_channels, 1)
      self.fc2 = nn.Conv2d(a.squeeze_channels, a.input_channels, 1)
      self.activation = M._maker(a.activation)()
      self.scale_activation = M._maker(a.scale_activation)()
    end,
    forward = function(self, input)
      local scale = self.activation(self.fc1(self.avgpool(input)))
      return self.scale_activation(self.fc2(scale)) * input
    end,
  })

--- Drops whole samples (mode "row") or the whole batch ("batch") with probability p, and
--- divides what stays by 1 - p.
---@param input torch.Tensor
---@param p number
---@param mode "row"|"batch"
---@param training? boolean (true)
---@return torch.Tensor
function M.stochastic_depth(input, p, mode, training)
  errors.check(type(p) == "number" and p >= 0 and p <= 1, "ValueError",
    "stochastic_depth: p: expected a number in 0..1, got %s", tostring(p))
  errors.check(mode == "row" or mode == "batch", "ValueError",
    "stochastic_depth: mode: expected 'batch' or 'row', got %s", tostring(mode))
  if training == false or p == 0 then
    return input
  end
  local size = {}
  for i = 1, input:dim() do
    size[i] = 1
  end
  size[1] = mode == "row" and input:size(0) or 1
  local kept = 1 - p
  local noise = torch.empty(size, { dtype = input.dtype }):bernoulli_(kept)
  return input * (kept > 0 and noise / kept or noise)
end

M.StochasticDepth = layer("StochasticDepth(p, mode)", {
  repr = "p={p}, mode={mode}",
  forward = function(self, input)
    return M.stochastic_depth(input, self.p, self.mode, self.training)
  end,
})

M.MLP = layer("MLP(in_channels, hidden_channels, norm_layer=None, activation_layer='ReLU', "
  .. "inplace=None, bias=True, dropout=0.0)", {
    base = nn.Sequential,
    drop = { "in_channels", "hidden_channels", "norm_layer", "activation_layer", "inplace", "bias",
      "dropout" },
    build = function(self, a)
      local norm, act = M._maker(a.norm_layer), M._maker(a.activation_layer)
      local layers, width = {}, a.in_channels
      for i, hidden in ipairs(a.hidden_channels) do
        local last = i == #a.hidden_channels
        layers[#layers + 1] = nn.Linear(width, hidden, { bias = a.bias })
        layers[#layers + 1] = norm and not last and norm(hidden) or nil
        layers[#layers + 1] = not last and activation(act, a.inplace) or nil
        layers[#layers + 1] = nn.Dropout(a.dropout, a.inplace)
        width = hidden
      end
      nn.Sequential.init(self, layers)
    end,
  })

M.Permute = layer("Permute(dims)", {
  forward = function(self, x)
    return x:permute(self.dims)
  end,
})

classes.space("torchvision.ops", M)

return M
