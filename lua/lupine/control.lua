--- Loops and branches that a compiled program keeps as such: their bodies are
--- compiled once, whatever the number of rounds, and only one side of a branch
--- runs. In eager calls they are Lua's own.
---
---     local y = lupine.control.loop(10, function(y) return y * w end, { x })[1]
---
--- A body is a function of tensors. It gets copies of its inputs, which it may
--- write in place; other tensors that it reads (captured ones: parameters,
--- buffers, tensors of the function around it) it may not write when it is
--- compiled. It returns tensors, as several values or as one list. Gradients
--- flow through all of it but a torch.autograd.Function; a loop's gradient
--- computes its rounds again from the stacked values with which they began.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

--- The types of a body's results as text, and where they are wrong.
local function type_of(t)
  return ("%s %s"):format(tostring(t.dtype), tostring(t.shape))
end

local function tensors(what, list, name)
  errors.check(type(list) == "table" and not getmetatable(list), "TypeError",
    "%s: %s: expected a list of tensors, got %s", what, name, check.describe(list))
  for i = 1, #list do
    errors.check(core.is_tensor(list[i]), "TypeError",
      "%s: %s: element %d: expected a Tensor, got %s", what, name, i - 1, check.describe(list[i]))
  end
  return list
end

local function callable(what, fn, name)
  local call = type(fn) == "function" or (getmetatable(fn) or {}).__call
  errors.check(call and not core.is_tensor(fn), "TypeError", "%s: %s: expected a function, got %s",
    what, name, check.describe(fn))
end

-- What the body returned, as a list.
local function results(what, name, ...)
  local first, n = ..., select("#", ...)
  local list = n == 1 and type(first) == "table" and not getmetatable(first) and first or { ... }
  errors.check(list == first or #list == n, "TypeError", "%s: %s returned nil among its %d results",
    what, name, n)
  return tensors(what, list, "results of " .. name)
end

-- As many results as there are in `like`, the tensors `of`, and of these types.
local function check_results(what, name, got, like, of)
  errors.check(#got == #like, "ValueError", "%s: %s returns %s, expected %d, as many as %s", what,
    name, check.count(#got, "tensor"), #like, of)
  for i = 1, #got do
    errors.check(type_of(got[i]) == type_of(like[i]), "ValueError",
      "%s: result %d of %s is a %s tensor, expected %s, as %s", what, i - 1, name,
      type_of(got[i]), type_of(like[i]), of)
  end
  return got
end

local function clones(list)
  local out = {}
  for i = 1, #list do
    out[i] = list[i]:clone()
  end
  return out
end

local function check_count(what, count, least)
  errors.check(math.type(count) == "integer", "TypeError", "%s: count: expected an int, got %s",
    what, check.describe(count))
  errors.check(count >= least and count < 1 << 31, "ValueError",
    "%s: count: expected %d to 2^31 - 1, got %d", what, least, count)
end

-- A list of the elements of both.
local function joined(a, b)
  return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

--- Runs `body` count times: on the inputs, then on what it returned in the
--- round before. It must return as many tensors as it takes, of the same types.
--- error: TypeError for what is no integer, function or list of tensors,
--- ValueError for a negative count or results of other types, RuntimeError in a
--- compiled body that writes a captured tensor in place
---@param count integer
---@param body fun(...: torch.Tensor): ...
---@param inputs torch.Tensor[]
---@param what? string name in messages ("loop")
---@return torch.Tensor[]
function M.loop(count, body, inputs, what)
  what = what or "loop"
  check_count(what, count, 0)
  callable(what, body, "body")
  tensors(what, inputs, "inputs")
  local function round(values)
    local out = results(what, "body", body(table.unpack(values, 1, #inputs)))
    return check_results(what, "the body", out, inputs, "its inputs")
  end
  if core.is_tracing() then
    return core.loop(count, core.body(round, inputs), inputs)
  end
  local values = clones(inputs)
  for _ = 1, count do -- a result may be a captured tensor, or one twice
    values = clones(round(values))
  end
  return values
end

-- The slices of round i of all the stacks.
local function slices(stacks, i)
  local out = {}
  for k, stack in ipairs(stacks) do
    out[k] = stack:select(0, i)
  end
  return out
end

--- The loop that also reads slices and stacks results: in round i the body gets
--- what it returned in the round before, then slice i of each stack's first
--- dimension; it returns as much as it carries, then what is stacked. Returns
--- what is carried, then the stacks.
--- error: as of loop; ValueError for no rounds, or stacks of other lengths
---@param count integer from 1 on
---@param body fun(...: torch.Tensor): ...
---@param carried torch.Tensor[]
---@param stacks torch.Tensor[] of `count` slices each
---@param what? string name in messages ("scan")
---@return torch.Tensor[]
function M.scan(count, body, carried, stacks, what)
  what = what or "scan"
  check_count(what, count, 1)
  callable(what, body, "body")
  tensors(what, carried, "carried")
  for i, stack in ipairs(tensors(what, stacks, "stacks")) do
    errors.check(stack:dim() > 0 and stack:size(0) == count, "ValueError",
      "%s: stacks: element %d has the shape %s, expected %d slices", what, i - 1,
      tostring(stack.shape), count)
  end
  local n, inputs = #carried, joined(carried, slices(stacks, 0))
  local function round(values)
    local out = results(what, "body", body(table.unpack(values, 1, #inputs)))
    errors.check(#out >= n, "ValueError", "%s: the body returns %s, expected %d or more", what,
      check.count(#out, "tensor"), n)
    check_results(what, "the body", table.move(out, 1, n, 1, {}), carried, "what it carries")
    return out
  end
  if core.is_tracing() then
    return core.loop(count, core.body(round, inputs), joined(carried, stacks), n)
  end
  local values, emitted = clones(carried), {}
  for i = 0, count - 1 do
    local out = round(joined(values, clones(slices(stacks, i))))
    values = clones(table.move(out, 1, n, 1, {}))
    for k = n + 1, #out do
      emitted[k - n] = emitted[k - n] or {}
      table.insert(emitted[k - n], out[k])
    end
  end
  for k, list in ipairs(emitted) do
    values[n + k] = core.forms.functions.stack(list)
  end
  return values
end

--- Runs `then_body` on its inputs if the condition, a tensor of one element, is
--- not zero, else `else_body` on its own. Both must return as many tensors, of
--- the same types.
--- error: as of loop
---@param condition torch.Tensor
---@param then_body fun(...: torch.Tensor): ...
---@param then_inputs torch.Tensor[]
---@param else_body fun(...: torch.Tensor): ...
---@param else_inputs torch.Tensor[]
---@param what? string name in messages ("branch")
---@return torch.Tensor[]
function M.branch(condition, then_body, then_inputs, else_body, else_inputs, what)
  what = what or "branch"
  errors.check(core.is_tensor(condition), "TypeError", "%s: condition: expected a Tensor, got %s",
    what, check.describe(condition))
  errors.check(condition:numel() == 1, "ValueError",
    "%s: condition: expected a tensor with one element, got shape %s", what,
    tostring(condition.shape))
  callable(what, then_body, "then_body")
  callable(what, else_body, "else_body")
  tensors(what, then_inputs, "then_inputs")
  tensors(what, else_inputs, "else_inputs")
  local other, of
  local function side(fn, name, inputs)
    return function(values)
      local out = results(what, name, fn(table.unpack(values, 1, #inputs)))
      check_results(what, name, out, other or out, of)
      other, of = out, "results of " .. name
      return out
    end
  end
  local yes, no = side(then_body, "then_body", then_inputs), side(else_body, "else_body",
    else_inputs)
  if core.is_tracing() then
    local first = core.body(yes, then_inputs)
    return core.branch(condition, first, then_inputs, core.body(no, else_inputs), else_inputs)
  end
  local value = condition:item()
  if value ~= 0 and value ~= false then
    return clones(yes(clones(then_inputs)))
  end
  return clones(no(clones(else_inputs)))
end

--- Runs `body` on the inputs, as a function of the program.
--- error: as of loop
---@param body fun(...: torch.Tensor): ...
---@param inputs torch.Tensor[]
---@return torch.Tensor[]
function M.call(body, inputs)
  callable("call", body, "body")
  tensors("call", inputs, "inputs")
  local function run(values)
    return results("call", "body", body(table.unpack(values, 1, #inputs)))
  end
  if core.is_tracing() then
    return core.call(core.body(run, inputs), inputs)
  end
  return clones(run(clones(inputs)))
end

return M
