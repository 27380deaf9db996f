--- What the ports of PopTorch's own operator tests share: an operator on the
--- device against the same on the host, in values, and in training in what one
--- step makes of weights before it.
local assert = require("luassert")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local M = {}

-- The device has 32 bits.
local function narrowed(t)
  if t.dtype == torch.int64 then
    return t:to(torch.int32)
  elseif t.dtype == torch.float64 then
    return t:to(torch.float32)
  end
  return t
end

--- A result of the device is the host's.
---@param got any a tensor, or a list of them
---@param want any
---@param tol? {rtol: number?, atol: number?, equal_nan: boolean?}
function M.same(got, want, tol)
  if type(want) == "table" then
    assert.equal(#want, #got)
    for i = 1, #want do
      M.same(got[i], want[i], tol)
    end
    return
  end
  want = narrowed(want)
  assert.equal(want.dtype, got.dtype)
  assert.same({ table.unpack(want.shape) }, { table.unpack(got.shape) })
  local keywords = { equal_nan = true }
  for name, value in pairs(tol or {}) do
    keywords[name] = value
  end
  if want.dtype == torch.float16 then
    keywords.rtol, keywords.atol = keywords.rtol or 5e-3, keywords.atol or 5e-4
  end
  torch.testing.assert_close(got, want, keywords)
end

--- A module of this forward.
---@param op fun(...): any
---@return torch.nn.Module
function M.module(op)
  local Model = nn.Module:extend("Model")
  function Model.forward(_, ...)
    return op(...)
  end
  return Model()
end

local function clones(inputs)
  local list = {}
  for i, x in ipairs(inputs) do
    list[i] = torch.is_tensor(x) and x:clone() or x
  end
  return table.unpack(list, 1, #inputs)
end

--- op(inputs) in an inference model is what the host gives.
---@param op any a function or a module
---@param inputs any[]
---@param tol? table of same
---@return any ... the device's results
function M.infer(op, inputs, tol)
  local model = type(op) == "table" and op or M.module(op)
  local want = table.pack(model(clones(inputs)))
  local executor = poptorch.inferenceModel(model)
  local got = table.pack(executor(clones(inputs)))
  executor:destroy()
  M.same({ table.unpack(got, 1, got.n) }, { table.unpack(want, 1, want.n) }, tol)
  return table.unpack(got, 1, got.n)
end

-- A linear layer before the operator's first operand, so that its gradient
-- shows in weights.
local WithWeights = nn.Module:extend("ModelWithWeights")

function WithWeights:init(op, shape, pick, loss)
  self.op, self.shape, self.pick, self.loss = op, shape, pick, loss
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  self.lin = nn.Linear(n, n)
end

function WithWeights:forward(x, ...)
  local y = self.lin(x:flatten()):reshape(self.shape)
  local results = table.pack(self.op(y, ...))
  local loss
  if self.loss then
    loss = self.loss(table.unpack(results, 1, results.n))
  else
    local of = self.pick and self.pick(table.unpack(results, 1, results.n)) or results[1]
    loss = poptorch.identity_loss(of * of, "sum")
  end
  return loss, table.unpack(results, 1, results.n)
end

--- The same in a training model: values, and the weights after one step of
--- gradient descent. options: pick (which result the loss is of), loss (instead
--- of the sum of squares), tol (of values), weights (of weights), lr (0.001)
---@param op any a function or a module
---@param inputs any[]
---@param options? table
function M.train(op, inputs, options)
  options = options or {}
  local model = WithWeights(op, { table.unpack(inputs[1].shape) }, options.pick, options.loss)
  local twin = model:deepcopy()
  local lr = options.lr or 0.001
  local host = torch.optim.SGD(twin:parameters(), lr)
  local want = table.pack(twin(clones(inputs)))
  want[1]:sum():backward()
  host:step()
  local executor = poptorch.trainingModel(model, { optimizer = torch.optim.SGD(model:parameters(),
    lr) })
  local got = table.pack(executor(clones(inputs)))
  M.same({ table.unpack(got, 2, got.n) }, { table.unpack(want, 2, want.n) },
    options.tol or { rtol = 1e-4, atol = 1e-5 })
  M.same(model.lin.weight:detach(), twin.lin.weight:detach(), options.weights
    or { rtol = 1e-4, atol = 1e-5 })
  executor:destroy()
end

--- Both.
---@param op any
---@param inputs any[]
---@param options? table
function M.both(op, inputs, options)
  M.infer(op, inputs, options and options.tol)
  M.train(op, inputs, options)
end

return M
