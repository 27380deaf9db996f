-- Gradients of values that are read in pieces, and of weights that are used
-- again and again, in a compiled step: what separate gradients add up to.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

-- A module whose loss is fn(parameter, input), the sum of its results.
local Of = nn.Module:extend("Of")

function Of:init(fn, w)
  self.fn, self.w = fn, nn.Parameter(w:clone())
end

function Of:forward(x)
  return poptorch.identity_loss(self.fn(self.w, x), "sum")
end

local function sgd(model)
  return torch.optim.SGD(model:parameters(), { lr = 1 })
end

-- What one step of rate 1 adds to the parameter: compiled and eager.
local function steps(fn, w, x)
  local device, host = Of(fn, w), Of(fn, w)
  local trainer = poptorch.trainingModel(device, poptorch.Options(), sgd(device))
  trainer(x)
  trainer:copyWeightsToHost()
  trainer:destroy()
  local optimizer = sgd(host)
  host(x):backward()
  optimizer:step()
  return device.w:detach() - w, host.w:detach() - w
end

local function same(fn, w, x)
  torch.manual_seed(3)
  w, x = w or torch.randn({ 6, 5 }), x or torch.randn({ 6, 5 })
  local got, want = steps(fn, w, x)
  assert(torch.allclose(got, want, { rtol = 1e-5, atol = 1e-6 }), tostring(got - want))
end

describe("a value read in pieces", function()
  it("has the gradient of selections of every row", function()
    same(function(w, x)
      local sum
      for i, row in ipairs(w:unbind(0)) do
        local term = row * x[i - 1] * i
        sum = sum and sum + term or term
      end
      return sum
    end)
  end)

  it("has zeros where no piece was read", function()
    same(function(w, x)
      return w:narrow(1, 3, 1) * x:narrow(1, 0, 1) + w:select(1, 1):unsqueeze(1)
    end)
    same(function(w, x)
      return w:narrow(0, 1, 2) * x:narrow(0, 0, 2) + w:narrow(0, 3, 2)
    end)
  end)

  it("has the sum where pieces overlap, or are of several dimensions", function()
    same(function(w, x)
      return w:narrow(0, 0, 4) * x:narrow(0, 0, 4) + w:narrow(0, 2, 4)
    end)
    same(function(w, x)
      return (w:narrow(0, 0, 3) * x:narrow(0, 0, 3)):sum() + w:narrow(1, 1, 2):sum()
    end)
  end)

  it("has nothing where pieces are empty", function()
    same(function(w, x)
      return torch.diff(w):sum() + x:sum()
    end, torch.ones(4000, 1), torch.ones(1, 1))
    same(function(w, x)
      return w["0:2"] * x["0:2"] + w["5:5"]:exp():sum() + w["1:1"]:sum()
    end)
  end)

  it("has the sum of a piece and of the whole", function()
    same(function(w, x)
      local first, second = table.unpack(w:chunk(2, 0))
      return (first * second):sum() + (w * x):sum() + (first * 2):sum() + (w * w):sum()
    end)
  end)

  it("has the gradient of pieces of what it is reshaped to", function()
    same(function(w, x)
      local y = w * x
      local a, b = y:reshape({ 5, 6 }), y:reshape({ 3, 10 })
      return (a:narrow(0, 0, 2) * 2):sum() + (a:narrow(0, 2, 3) * 3):sum()
        + b:narrow(1, 1, 4):exp():sum() + (b:narrow(1, 5, 2) * b:narrow(1, 7, 2)):sum()
        + y:narrow(1, 0, 2):sum()
    end)
  end)

  it("lays pieces of a half product side by side", function()
    local x, w = torch.randn({ 2, 3, 4 }):half(), torch.randn({ 6, 4 }):half()
    local declared = { { "parameter", "w", w }, { "parameter", "b", torch.zeros(6):half() } }
    local step, losses = compiled.step(function(a)
      local p, q = table.unpack(nn.functional.linear(a, w, declared[2][3]):split(3, -1))
      return core.forms.internal.identity_loss(p * q, "sum")
    end, { x }, declared)
    local rules = compiled.descent(compiled.vars(step), declared)
    step:complete({ loss = losses[1], rules = rules })
    local text = step:text("step")
    assert.is_nil(text:find("slice_backward", 1, true))
    assert.is_truthy(text:find(" cat(", 1, true))
  end)

  it("has the gradient of slices with a step", function()
    same(function(w, x)
      return w["::2"] * x["::2"] + w["1::2"]
    end)
  end)
end)

describe("a weight that is used again and again", function()
  -- h = tanh(h w' + x), a row of x each time
  local function recurrent(transposed)
    return function(w, x)
      local h = x:narrow(0, 0, 2)
      for i = 1, 4 do
        h = (h:matmul(transposed and w:t() or w) + x:narrow(0, i, 2)):tanh()
      end
      return h
    end
  end

  it("has the sum of all its gradients", function()
    for _, transposed in ipairs({ false, true }) do
      torch.manual_seed(4)
      same(recurrent(transposed), torch.randn({ 16, 16 }), torch.randn({ 6, 16 }))
    end
  end)

  it("has it where something else reads it too", function()
    torch.manual_seed(5)
    local fn = recurrent(true)
    same(function(w, x)
      return fn(w, x):sum() + (w * w):sum() + fn(w, x * 2):sum()
    end, torch.randn({ 16, 16 }), torch.randn({ 6, 16 }))
  end)
end)
