--- One convolution in the ways that are compared: by itself and between two others
--- of 1x1 (which may leave it images in blocks of channels), for results alone and
--- with the gradients of everything, eager and compiled.
---
--- A way: `name`; `eager`, `compiled`, functions of nothing that do it once;
--- `values(compiled)` and `exact()`, lists of tensors: what it computes, and the
--- same eager in float64, which runs other code: direct loops.
local compile = require("lupine.compile")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = require("torch.nn.functional")

local M = {}

local ENDS = 16 -- channels of the outermost images

local function convolve(shape, x, w)
  return F[shape.kind](x, w, nil, shape.options)
end

-- ---- by itself --------------------------------------------------------------------

local function forward(shape, x, w)
  local function fn(a, b)
    return convolve(shape, a, b)
  end
  local f = compile(fn, { x, w })
  local function eager(a, b)
    local _ <close> = torch.no_grad()
    return fn(a or x, b or w)
  end
  return { name = "forward", eager = eager, compiled = function() return f(x, w) end,
    values = function() return { f(x, w) } end,
    exact = function() return { eager(x:double(), w:double()) } end }
end

local function gradients(shape, x, w, dy)
  local function fn(a, b)
    return convolve(shape, a, b)
  end
  local f = compile(fn, { x, w }, { cotangents = { dy } })
  local function leaves(t)
    local a, b = t(x):detach():requires_grad_(true), t(w):detach():requires_grad_(true)
    return function()
      a.grad, b.grad = nil, nil
      local y = fn(a, b)
      y:backward(t(dy))
      return { y:detach(), a.grad, b.grad }
    end
  end
  local function compiled()
    local y, grads = f(x, w, { dy })
    return { y, grads[1], grads[2] }
  end
  return { name = "gradients", eager = leaves(function(t) return t end), compiled = compiled,
    values = compiled, exact = leaves(function(t) return t:double() end) }
end

-- ---- between others ---------------------------------------------------------------

local Net = nn.Module:extend("Net")

function Net:init(shape)
  local name = shape.kind:gsub("^conv", "Conv"):gsub("_transpose", "Transpose")
  local plain = nn[("Conv%dd"):format(shape.spatial)]
  self.before = plain(ENDS, shape.cin, 1)
  self.conv = nn[name](shape.cin, shape.cout, shape.kernel, shape.options)
  self.after = plain(shape.cout, ENDS, 1)
end

function Net:forward(x)
  return self.after(self.conv(self.before(x)))
end

local WithLoss = nn.Module:extend("WithLoss")

function WithLoss:init(net)
  self.net = net
end

function WithLoss:forward(x)
  local y = self.net(x)
  return poptorch.identity_loss(y * y, "sum")
end

local function twin(shape, net, dtype)
  local other = Net(shape)
  other:load_state_dict(net:state_dict())
  return other:to(dtype)
end

local function inference(shape, net, x)
  net:eval()
  local f = poptorch.inferenceModel(net)
  local function eager()
    local _ <close> = torch.no_grad()
    return net(x)
  end
  return { name = "inference", eager = eager, compiled = function() return f(x) end,
    values = function() return { f(x) } end,
    exact = function()
      local _ <close> = torch.no_grad()
      return { twin(shape, net, torch.float64)(x:double()) }
    end }
end

local function weights(net)
  local out = {}
  for _, p in net:named_parameters() do
    out[#out + 1] = p:detach():clone()
  end
  return out
end

-- What a step of rate 1 takes off every parameter; the rate is 0 from then on.
local function first_step(net, step, rest)
  local out = weights(net)
  step()
  for i, p in ipairs(weights(net)) do
    out[i] = out[i] - p
  end
  rest()
  return out
end

local function eager_step(net, x)
  local model = WithLoss(net)
  local optimizer = torch.optim.SGD(net:parameters(), { lr = 1.0 })
  return function()
    optimizer:zero_grad()
    model(x):backward()
    optimizer:step()
  end, function()
    optimizer.param_groups[1].lr = 0.0
  end
end

local function training(shape, net, x)
  local ours, theirs = twin(shape, net, torch.float32), twin(shape, net, torch.float32)
  local exact = twin(shape, net, torch.float64)
  local trainer = poptorch.trainingModel(WithLoss(ours),
    { optimizer = torch.optim.SGD(ours:parameters(), { lr = 1.0 }) })
  local eager, rest = eager_step(theirs, x)
  rest()
  local function compiled()
    trainer(x)
  end
  return { name = "training", eager = eager, compiled = compiled,
    values = function()
      return first_step(ours, function()
        trainer(x)
        trainer:copyWeightsToHost()
      end, function()
        trainer:setOptimizer(torch.optim.SGD(ours:parameters(), { lr = 0.0 }))
      end)
    end,
    exact = function()
      return first_step(exact, eager_step(exact, x:double()))
    end }
end

--- All ways of a shape (spec/sweep/shapes.lua), on numbers of a seed.
---@param shape table
---@param seed integer
---@return table[]
function M.of(shape, seed)
  torch.manual_seed(seed)
  local x, w = torch.randn(shape.size), torch.randn(shape.weight) * 0.1
  local dy = torch.randn(convolve(shape, x, w):size()) * 0.1
  local outer = { table.unpack(shape.size) }
  outer[2] = ENDS
  local net, z = Net(shape), torch.randn(outer) * 0.01
  return { forward(shape, x, w), gradients(shape, x, w, dy), inference(shape, net, z),
    training(shape, net, z) }
end

-- Rounding adds up along sums of some thousand products; Winograd's algorithm is off
-- by about 1e-5 of the largest result.
local TOLERANCE = 5e-5

--- The largest difference of a way's values from the exact ones, over the largest
--- exact one, in units of what is allowed: more than 1 is wrong.
---@param way table
---@return number
function M.difference(way)
  local got, most = way.values(), 0.0
  for i, want in ipairs(way.exact()) do
    local off = (got[i]:double() - want):abs():max():item()
    local d = off / (want:abs():max():item() + 1e-30) / TOLERANCE
    most = d <= most and most or d -- not a number counts as large
  end
  return most
end

return M
