-- Random loops and branches in each other: what is compiled gives, value for
-- value and gradient for gradient, what Lua's own loops give eagerly. The seed
-- of a program that fails is in the message.
local control = require("lupine.control")
local lupine = require("lupine")
local numbers = require("spec.support.numbers")
local torch = require("torch")
local nn = torch.nn
local F = require("torch.nn.functional")

local D, DEEPEST = 3, 3

-- ---- statements --------------------------------------------------------------------
-- Each is made once, as a function of the values of its body and of those that
-- it can capture: {functions that give a tensor}.
local make_body

local function arithmetic(random, _, n)
  local kind, i, j, s = random(8), random(n), random(n), random(5) * 0.2
  return function(v, captured, r)
    local w = captured[1 + r % #captured]()
    if kind == 1 then
      v[i] = v[i] * w
    elseif kind == 2 then
      v[i] = v[i] + v[j] * s
    elseif kind == 3 then
      v[i] = torch.tanh(v[j] + w)
    elseif kind == 4 then
      v[i] = torch.sin(v[i]) * s
    elseif kind == 5 then
      v[i] = torch.where(v[i]:gt(s), v[i], w * v[j])
    elseif kind == 6 then
      v[i] = torch.cat({ v[i]["1:"], v[j]["0:1"] }, 0) * s
    elseif kind == 7 then
      v[i] = torch.softmax(v[i] + w, 0)
    else
      v[i], v[j] = v[j], v[i]
    end
  end
end

-- What a nested body works on, and what it may capture.
local function some(random, n)
  local at = {}
  for i = 1, n do
    if random(3) > 1 then
      at[#at + 1] = i
    end
  end
  return at[1] and at or { random(n) }
end

local function select(v, at)
  local out = {}
  for k, i in ipairs(at) do
    out[k] = v[i]
  end
  return out
end

local function with_own(v, captured)
  local all = table.move(captured, 1, #captured, 1, {})
  for _, t in ipairs(v) do
    all[#all + 1] = function() return t end
  end
  return all
end

local function nested_loop(random, depth, n)
  local at, count = some(random, n), random(5) - 1
  local body = make_body(random, depth - 1, #at)
  return function(v, captured, r)
    local all = with_own(v, captured)
    local out = control.loop(count, function(...)
      return body({ ... }, all, r)
    end, select(v, at))
    for k, i in ipairs(at) do
      v[i] = out[k]
    end
  end
end

local function nested_branch(random, depth, n)
  local at, other, level = some(random, n), random(n), random(5) * 0.2 - 0.5
  local yes = make_body(random, depth - 1, #at)
  local no = make_body(random, depth - 1, #at)
  local listed = random(2) == 1
  return function(v, captured, r)
    local all = with_own(v, captured)
    local own = select(v, at)
    local out = control.branch(v[other]:sum():gt(level), function(...)
      local values = yes({ ... }, all, r)
      if listed then
        return values
      end
      return table.unpack(values)
    end, own, function()
      local values = select(v, at)
      values.owned = false
      return no(values, all, r + 1)
    end, {})
    for k, i in ipairs(at) do
      v[i] = out[k]
    end
  end
end

-- In place, before anybody has read the values.
local function writes(random, n)
  local kind, i, j, s = random(5), random(n), random(n), random(3) * 0.3
  return function(v)
    if kind == 1 then
      v[i]:mul_(s)
    elseif kind == 2 then
      v[i]:add_(s)
    elseif kind == 3 and i ~= j then
      v[i]:add_(v[j])
    elseif kind == 4 then
      v[i]["0:2"] = s
    end
  end
end

function make_body(random, depth, n)
  local list = {}
  local write = writes(random, n)
  for k = 1, 1 + random(3) do
    local kind = depth > 0 and random(4) or 1
    local make = kind == 3 and nested_loop or kind == 4 and nested_branch or arithmetic
    list[k] = make(random, depth, n)
  end
  -- a body that captured values are passed to is another one's
  return function(v, captured, r)
    if v.owned ~= false then
      write(v)
    end
    for k, statement in ipairs(list) do
      statement(v, captured, r + k)
    end
    v.owned = nil
    return v
  end
end

-- ---- programs ----------------------------------------------------------------------
local Program = nn.Module:extend("Program")

function Program:init(seed)
  local random = numbers(seed)
  torch.manual_seed(seed)
  self.n = random(3)
  self.weight = nn.Parameter(torch.rand({ D }, { dtype = torch.float64 }) - 0.5)
  self:register_buffer("shift", torch.rand({ D }, { dtype = torch.float64 }) - 0.5)
  self.body = make_body(random, DEEPEST, self.n)
  self.count = random(4)
end

function Program:forward(...)
  local constant = torch.tensor({ 0.5, -1.0, 0.25 }, { dtype = torch.float64 })
  local outer = ...
  local captured = {
    function() return self.weight end,
    function() return self.shift end,
    function() return outer end,
    function() return constant end,
  }
  local out = control.loop(self.count, function(...)
    return self.body({ ... }, captured, 0)
  end, { ... })
  return table.unpack(out)
end

local function tensors(n, seed)
  torch.manual_seed(seed)
  local list = {}
  for i = 1, n do
    list[i] = torch.rand({ D }, { dtype = torch.float64 }) * 2 - 1
  end
  return list
end

local function close(got, want, what, seed)
  if not torch.allclose(got, want, 1e-9, 1e-11, true) then
    error(("program %d: %s is %s, expected %s"):format(seed, what, got, want), 0)
  end
end

local function compare(seed)
  local model = Program(seed)
  local x, cots = tensors(model.n, seed + 1), tensors(model.n, seed + 2)
  local leaves = {}
  for i, t in ipairs(x) do
    leaves[i] = t:clone():requires_grad_(true)
  end
  local want = { model(table.unpack(leaves)) }
  local grads = torch.autograd.grad(want, leaves, cots, { allow_unused = true })
  local run = lupine.compile(model, x, { cotangents = cots })
  local args = table.move(x, 1, #x, 1, {})
  args[#args + 1] = cots
  local got = table.pack(run(table.unpack(args)))
  for i, t in ipairs(want) do
    close(got[i], t:detach(), ("result %d"):format(i), seed)
    local grad = torch.is_tensor(grads[i]) and grads[i] or torch.zeros_like(x[i])
    close(got[got.n][i], grad, ("gradient %d"):format(i), seed)
  end
end

-- ---- dropout -----------------------------------------------------------------------
-- Programs that are linear in their input, element by element: the gradient of
-- the sum times the input is the result, whatever was drawn, if backward draws
-- what forward drew.
local make_linear

local LINEAR = {
  function(random)
    local p = random(4) * 0.1
    return function(v) return F.dropout(v, p, true) end
  end,
  function(random)
    local s = random(5) * 0.4 - 1.1
    return function(v) return v * s end
  end,
  function() return function(v, weight) return v * weight end end,
  function(random, depth)
    local count, body = random(4) - 1, make_linear(random, depth - 1)
    return function(v, weight)
      return control.loop(count, function(u)
        u:mul_(1.25)
        return body(u, weight)
      end, { v })[1]
    end
  end,
  function(random, depth)
    local at, level = random(D) - 1, random(5) * 0.2 - 0.6
    local yes, no = make_linear(random, depth - 1), make_linear(random, depth - 1)
    return function(v, weight)
      return control.branch(weight[at]:gt(level), function(u) return yes(u, weight) end, { v },
        function() return no(v, weight) end, {})[1]
    end
  end,
}

function make_linear(random, depth)
  local list = {}
  for k = 1, 1 + random(3) do
    list[k] = LINEAR[random(depth > 0 and #LINEAR or 3)](random, depth)
  end
  return function(v, weight)
    for _, f in ipairs(list) do
      v = f(v, weight)
    end
    return v
  end
end

local function draws_alike(seed)
  local fn = make_linear(numbers(seed), DEEPEST)
  local x, weight = table.unpack(tensors(2, seed))
  local ones = torch.ones_like(x)
  local run = lupine.compile(fn, { x, weight }, { cotangents = { ones }, wrt = { 1 } })
  for _ = 1, 3 do
    local y, grads = run(x, weight, { ones })
    close(grads[1] * x, y, "gradient times input", seed)
  end
end

describe("random loops and branches", function()
  it("draw in gradients what they drew", function()
    for seed = 1, 100 do
      draws_alike(seed)
    end
  end)

  it("do so a thousand times #slow", function()
    for seed = 101, 1100 do
      draws_alike(seed)
    end
  end)

  it("give compiled what they give eagerly", function()
    for seed = 1, 150 do
      compare(seed)
    end
  end)

  it("do a thousand times #slow", function()
    for seed = 151, 1150 do
      compare(seed)
    end
  end)
end)
