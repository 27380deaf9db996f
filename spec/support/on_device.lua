--- What ports of PopTorch's tests share: a function of tensors, or a module, as a
--- model on the host and on the device.
local assert = require("luassert")
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

-- int64 and float64 leave the device as int32 and float32.
local NARROW = { [torch.int64] = torch.int32, [torch.float64] = torch.float32 }

local function close_one(got, want, opts)
  if type(want) == "table" then
    M.close(got, want, opts)
    return
  end
  local keywords = { equal_nan = true }
  for name, value in pairs(opts or {}) do
    keywords[name] = value
  end
  if want.dtype == torch.float16 then
    keywords.rtol, keywords.atol = keywords.rtol or 5e-3, keywords.atol or 5e-4
  end
  torch.testing.assert_close(got, want:detach():to(NARROW[want.dtype] or want.dtype), keywords)
end

--- Results of the device are the host's: a tensor, or lists of them, as many, of
--- these values, sizes and types (unless opts.check_dtype is false). opts:
--- keywords of assert_close; half has those of PopTorch's tests.
function M.close(got, want, opts)
  got, want = list_of(got), list_of(want)
  assert.equal(#want, #got)
  for i = 1, #want do
    close_one(got[i], want[i], opts)
  end
end

local function clones(inputs)
  local list = {}
  for i, x in ipairs(inputs) do
    list[i] = torch.is_tensor(x) and x:clone() or x
  end
  return table.unpack(list, 1, #inputs)
end

--- f(inputs) on the device is what it is on the host; returns the device's list.
function M.same(f, inputs, opts)
  local model = type(f) == "table" and f or M.module(f)
  local want = list_of(model(clones(inputs)))
  local executor = poptorch.inferenceModel(model)
  local got = list_of(executor(clones(inputs)))
  executor:destroy()
  M.close(got, want, opts)
  return got
end

-- A linear layer of the first input's size before op, so that its gradient shows
-- in weights; the loss comes first.
local function trained(op, first, options)
  local n = first:numel()
  return M.module(function(self, x, ...)
    local y = list_of(op(self.lin(x:flatten()):reshape(first.shape), ...))
    local loss = options.loss and options.loss(table.unpack(y))
      or poptorch.identity_loss(y[1] ^ 2, "sum")
    return loss, table.unpack(y)
  end, function(self)
    self.lin = nn.Linear(n, n)
  end)
end

--- The same in a training model: a layer with weights comes before op, the sum of
--- its first result's squares is minimised. The results are the host's, and the
--- weights are those of a step of gradient descent on the host (PopTorch's tests:
--- they change). options: loss (of the results), tol (of the results), weights (of
--- weights), lr (0.001)
function M.trains(op, inputs, options)
  options = options or {}
  local lr = options.lr or 0.001
  local model = trained(op, inputs[1], options)
  local twin = model:deepcopy()
  local want = list_of(twin(clones(inputs)))
  want[1]:sum():backward()
  torch.optim.SGD(twin:parameters(), lr):step()
  local executor = poptorch.trainingModel(model,
    { optimizer = torch.optim.SGD(model:parameters(), lr) })
  local got = list_of(executor(clones(inputs)))
  M.close({ table.unpack(got, 2) }, { table.unpack(want, 2) },
    options.tol or { rtol = 1e-4, atol = 1e-5 })
  close_one(model.lin.weight:detach(), twin.lin.weight, options.weights
    or { rtol = 1e-4, atol = 1e-5 })
  executor:destroy()
end

--- Both.
function M.both(op, inputs, options)
  M.same(op, inputs, options and options.tol)
  M.trains(op, inputs, options)
end

return M
