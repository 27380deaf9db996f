--- Which module made the first value that is no finite number: the model runs once more,
--- operator by operator, on the same batch and weights and from the same random numbers
--- on. (A program draws others than eager code, so that with dropout it need not meet
--- the same values.)
local batch = require("lupine.trainer.batch")
local core = require("lupine.core")
local random = require("torch.utils.data.random")

local M = {}

local function is_bad(t)
  return core.is_tensor(t) and t:is_floating_point() and not t:isfinite():all():item()
end

-- Whether a value has a tensor that is not finite.
local function any_bad(value)
  if type(value) == "table" and not getmetatable(value) then
    for _, v in pairs(value) do
      if any_bad(v) then
        return true
      end
    end
    return false
  end
  return is_bad(value)
end

-- Hooks behind every module; found(module) is told of the first one.
local function watch(model, found)
  local handles, name_of = {}, {}
  for name, module in model:named_modules() do
    name_of[module] = name
    handles[#handles + 1] = module:register_forward_hook(function(m, args, out)
      if any_bad(out) then
        found(m, args)
      end
    end)
  end
  return name_of, setmetatable({}, { __close = function()
    for _, handle in ipairs(handles) do
      handle:remove()
    end
  end })
end

--- The name of a parameter that has an element that is no finite number.
---@param model torch.nn.Module
---@return string?
function M.bad_parameter(model)
  for name, p in model:named_parameters() do
    if is_bad(p) then
      return name
    end
  end
  return nil
end

-- The forward pass, whose effects on buffers are taken back.
local function run(engine, values, before)
  local model, torch = engine.model, require("torch")
  local first
  local name_of, guard = watch(model, function(module)
    first = first or module
  end)
  local _ <close> = guard
  local buffers = model:buffers()
  local were = {}
  for i, b in ipairs(buffers) do
    were[i] = b:detach():clone()
  end
  local args = batch.split(engine, values)
  local _ <close> = random.keep()
  if before then
    random.set_state(before)
  end
  local _ <close> = engine:casting()
  local _ <close> = torch.no_grad()
  model(table.unpack(args, 1, args.n))
  for i, b in ipairs(buffers) do
    b:copy_(were[i])
  end
  return first, first and name_of[first]
end

local function bad_input(engine, values)
  local args, targets = batch.split(engine, values)
  for i = 1, args.n do
    if any_bad(args[i]) then
      return ("argument %s of the model"):format(engine._parameters[i] or i)
    end
  end
  for i = 1, targets.n do
    if any_bad(targets[i]) then
      return ("the loss's argument %s"):format(engine._targets[i])
    end
  end
  return nil
end

local function shown(module, name)
  local kind = getmetatable(module).__name
  return name == "" and ("the model itself (%s)"):format(kind) or ("'%s' (%s)"):format(name, kind)
end

--- What is known of a loss that is not finite.
---@param engine table
---@param values {n: integer} the batch
---@param before table? the random numbers before the step
---@return {module: string?, input: string?, parameter: string?, message: string}
function M.find(engine, values, before)
  values = engine:prepared(values)
  if engine.recover then
    engine:recover()
  end
  local found = { input = bad_input(engine, values), parameter = M.bad_parameter(engine.model) }
  local ok, module, name = pcall(run, engine, values, before)
  local parts = {}
  if ok and module then
    found.module = name
    parts[1] = "the first module whose output is not finite is " .. shown(module, name)
  elseif ok then
    parts[1] = "no module's output is not finite when the model runs again"
      .. (engine.recover and " with the latest weights that the host had" or ": it is the loss")
  else
    parts[1] = "the model cannot be run again: " .. tostring(module)
  end
  parts[#parts + 1] = found.input and ("the batch is not finite: " .. found.input) or nil
  parts[#parts + 1] = found.parameter
    and ("the parameter '%s' is not finite"):format(found.parameter) or nil
  found.message = table.concat(parts, "; ")
  return found
end

return M
