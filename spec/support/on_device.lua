--- What ports of PopTorch's tests share: a function of tensors as a model, on
--- the host and on the device.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local M = {}

--- A module whose forward is f(...); `init(self)` makes its layers, which f then
--- gets as its first argument.
function M.module(f, init)
  local Net = nn.Module:extend("Net")
  Net.init = init
  function Net:forward(...)
    if init then
      return f(self, ...)
    end
    return f(...)
  end
  return Net()
end

--- The inference model of M.module(f).
function M.infer(f, options)
  return poptorch.inferenceModel(M.module(f), options)
end

local function list_of(...)
  local first = ...
  if select("#", ...) == 1 and type(first) == "table" and not getmetatable(first) then
    return first
  end
  return { ... }
end

--- Lists of tensors agree: as many, of these values (and types, unless
--- opts.check_dtype is false).
function M.close(got, want, opts)
  got, want = list_of(got), list_of(want)
  assert(#got == #want, ("%d results, expected %d"):format(#got, #want))
  for i = 1, #want do
    torch.testing.assert_close(got[i], want[i], opts)
  end
end

-- int64 and float64 leave the device as int32 and float32.
local NARROW = { [torch.int64] = torch.int32, [torch.float64] = torch.float32 }

local function narrowed(list)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = t:detach():to(NARROW[t.dtype] or t.dtype)
  end
  return out
end

--- f(inputs) on the device is what it is on the host; returns that list.
function M.same(f, inputs, opts)
  local want = narrowed(list_of(f(table.unpack(inputs))))
  M.close(list_of(M.infer(f)(table.unpack(inputs))), want, opts)
  return want
end

-- Linear layers of the first input's size before op, and a loss of what
-- out_fn picks of its results.
local function trained(op, first, out_fn)
  local n = first:numel()
  return M.module(function(self, x, ...)
    local y = list_of(op(self.lin(x:flatten()):reshape(first.shape), ...))
    local loss = poptorch.identity_loss((out_fn or function(r) return r end)(y[1]) ^ 2, "sum")
    y[#y + 1] = loss
    return table.unpack(y)
  end, function(self)
    self.lin = nn.Linear(n, n)
  end)
end

--- The same in a training model: a layer with weights comes before op, the sum of
--- its first result's squares is minimised. The results are the host's, and
--- the weights move as host gradients say (PopTorch's tests: they move).
function M.trains(op, inputs, opts, out_fn)
  local model = trained(op, inputs[1], out_fn)
  local out = list_of(model(table.unpack(inputs)))
  out[#out]:backward()
  local before, grad = model.lin.weight:detach():clone(), model.lin.weight.grad:clone()
  local want = narrowed(out)
  model:zero_grad()
  local trainer = poptorch.trainingModel(model)
  local got = list_of(trainer(table.unpack(inputs)))
  M.close(got, want, opts)
  trainer:copyWeightsToHost()
  local still = grad:abs():max():item() == 0
  assert(still or not torch.allclose(before, model.lin.weight), "the weights stayed")
  torch.testing.assert_close(model.lin.weight:detach(), before - grad * 0.01,
    { rtol = 1e-3, atol = 1e-5 })
end

return M
