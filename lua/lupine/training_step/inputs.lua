--- What a training step is called with: arguments of the model, then those of the
--- loss; and the text that calls of one program share.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local tables = require("lupine.base.tables")

local M = {}

--- Names of what a loss takes beside the model's output.
---@param loss function|torch.nn.Module|nil
---@return string[]
function M.targets_of(loss)
  if loss == nil then
    return {}
  end
  local f, skip = loss, 1
  if type(loss) ~= "function" then
    f, skip = loss.forward, 2
  end
  local names, variadic = arguments.parameters(f, skip)
  return #names == 0 and variadic and { "target" } or names
end

-- Takes what a last table by name has of the targets; what is left of it goes to the
-- model.
local function take_named(step, values)
  local last = values.n > 0 and values[values.n]
  if not check.is_keywords(last) then
    return {}, nil
  end
  local known, of_loss = tables.set(step._parameters), tables.set(step._targets)
  local rest, named = {}, {}
  for key, value in pairs(last) do
    if not known[key] and not of_loss[key] then
      return {}, nil
    end
    (of_loss[key] and named or rest)[key] = value
  end
  values[values.n] = nil
  values.n = values.n - 1
  return named, next(rest) ~= nil and rest or nil
end

--- The arguments of a call for the model and for the loss: the last ones are the
--- loss's, but for those that a last table has by name.
--- error: TypeError for too few
---@param step lupine.TrainingStep
---@param values {n: integer} is changed
---@return {n: integer} of_model, {n: integer} of_loss
function M.split(step, values)
  local targets = { n = #step._targets }
  local named, rest = take_named(step, values)
  for i = #step._targets, 1, -1 do
    local name = step._targets[i]
    if named[name] ~= nil then
      targets[i] = named[name]
    else
      errors.check(values.n > 0, "TypeError", "a training step takes the arguments of the model "
        .. "and then those of the loss (%s): '%s' is missing", table.concat(step._targets, ", "),
        name)
      targets[i] = values[values.n]
      values[values.n] = nil
      values.n = values.n - 1
    end
  end
  if rest then
    values.n = values.n + 1
    values[values.n] = rest
  end
  return values, targets
end

--- Flattens a call: specs of its arguments, and their tensors. The tensors have no
--- history.
---@param step lupine.TrainingStep
---@param of_model {n: integer}
---@param of_loss {n: integer}
---@return table call specs in order, n_model, tensors (with path and spec)
function M.flatten(step, of_model, of_loss)
  local call = { n = of_model.n + of_loss.n, n_model = of_model.n, tensors = {} }
  for i = 1, call.n do
    local target = i - of_model.n
    local path = target > 0 and step._targets[target] or step._parameters[i]
      or ("argument %d"):format(i)
    call[i] = arguments.flatten(target > 0 and of_loss[target] or of_model[i], path, call.tensors)
  end
  return call
end

local function describe(spec, out)
  if spec.kind == "tensor" then
    out[#out + 1] = tostring(spec.dtype)
    out[#out + 1] = table.concat(spec.shape, "x")
  elseif spec.kind == "value" then
    out[#out + 1] = ("%s:%s"):format(math.type(spec.value) or type(spec.value),
      tostring(spec.value))
  else
    out[#out + 1] = spec.kind == "object" and tostring(spec.parser) or spec.kind
    for i, part in ipairs(spec) do
      out[#out + 1] = spec.keys and ("%q"):format(spec.keys[i]) or ""
      describe(part, out)
    end
    out[#out + 1] = "end"
  end
end

--- What calls of one program have in common, as a text.
---@param call table of M.flatten
---@return string
function M.key(call)
  local out = { call.n_model }
  for i = 1, call.n do
    describe(call[i], out)
  end
  return table.concat(out, " ")
end

--- In what a call differs from another one; nil: in nothing.
---@param before table of M.flatten
---@param call table
---@return string?
function M.difference(before, call)
  if before.n ~= call.n then
    return ("compiled for %d arguments, got %d"):format(before.n, call.n)
  end
  for i = 1, call.n do
    local ok, e = pcall(arguments.match, before[i], call[i], call[i].path or "argument " .. i)
    if not ok then
      return errors.Exception:is(e) and e.message or tostring(e)
    end
  end
  return nil
end

return M
