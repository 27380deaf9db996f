--- The elements that an AsynchronousDataAccessor reads: of a loader, a dataset
--- or anything that can be iterated over; each a tensor, a flat list of tensors,
--- a dictionary of them or an object that has a parser, and each like the first one.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local dataset = require("torch.utils.data.dataset")
local errors = require("lupine.base.errors")
local loop = require("torch.utils.data.loop")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")
local TorchLoader = require("torch.utils.data.loader")

local M = {}

local WHERE = "AsynchronousDataAccessor: "

--- One loop over a source.
---@param source any
---@return fun(): any step gives the next element, nil at the end
---@return table? guard is to be closed if the loop is left
function M.of(source)
  if TorchLoader:is(source) and source.__iter__ == TorchLoader.__iter__ then
    local step, _, _, guard = source:iter()
    return step, guard
  elseif class.of(source) and source.__getitem__ and not source.__iter__
    or require("torch").is_tensor(source) then
    local i, n = -1, dataset.len(source)
    return function()
      i = i + 1
      return i < n and dataset.item(source, i) or nil
    end
  end
  return (loop.iterate(source, WHERE .. "dataset"))
end

local function refuse(what, x)
  errors.raise("TypeError", WHERE .. "an element must be a tensor, a flat list of tensors or a "
    .. "dictionary of tensors, or an object of a class that registerCustomArgParser was given; "
    .. "%s %s", what, check.describe(x))
end

-- The keys of a dictionary, in its order or the alphabet's.
local function keys_of(element)
  if getmetatable(element) and not ordered.is_dict(element) or next(element) == nil then
    return refuse("got", element)
  end
  return tables.keys(element)
end

---@class poptorch.data.Form
---@field kind string "tensor", "list", "dictionary" or "object"
---@field keys string[]? of a dictionary
---@field object any the first object
---@field spec table? how another one is made (lupine/base/arguments.lua)

--- What the first element tells of all.
---@param element any
---@return poptorch.data.Form
function M.form(element)
  if require("torch").is_tensor(element) then
    return { kind = "tensor" }
  elseif arguments.number_of(element) and not ordered.is_dict(element) then
    return { kind = "object", object = element }
  elseif type(element) ~= "table" then
    return refuse("got", element)
  elseif loop.is_list(element) then
    return { kind = "list" }
  end
  return { kind = "dictionary", keys = keys_of(element) }
end

local function by_key(element, keys)
  local out, n = {}, 0
  for i, key in ipairs(keys) do
    errors.check(element[key] ~= nil, "KeyError", WHERE .. "an element has no key '%s', which the "
      .. "first one has", tostring(key))
    out[i] = element[key]
  end
  for _ in pairs(element) do
    n = n + 1
  end
  errors.check(n == #keys, "AssertionError", WHERE .. "an element has %d keys, the first one %d",
    n, #keys)
  return out
end

-- What a parser tells of an object, detached.
local function of_object(element)
  if not arguments.is_object(element) then
    refuse("got", element)
  end
  local tensors = {}
  local spec = arguments.flatten(element, "element", tensors)
  for i, entry in ipairs(tensors) do
    tensors[i] = entry.tensor:detach()
  end
  return tensors, spec
end

--- The tensors of an element of a form.
--- error: TypeError for what is no tensor
---@param element any
---@param form poptorch.data.Form
---@return torch.Tensor[]
function M.tensors(element, form)
  local is_tensor = require("torch").is_tensor
  local out = { element }
  if form.kind == "object" then
    return (of_object(element))
  elseif not is_tensor(element) and type(element) ~= "table" then
    refuse("got", element)
  elseif not is_tensor(element) then
    out = form.keys and by_key(element, form.keys) or table.move(element, 1, #element, 1, {})
  end
  for i, t in ipairs(out) do
    if not is_tensor(t) then
      refuse(form.keys and ("'%s' is"):format(form.keys[i]) or ("part %d is"):format(i - 1), t)
    end
    out[i] = t:detach()
  end
  return out
end

--- The loop variables of an element.
---@param tensors torch.Tensor[]
---@param form poptorch.data.Form
---@return any ...
function M.values(tensors, form)
  if form.kind == "object" then
    local i = 0
    form.spec = form.spec or select(2, of_object(form.object))
    return arguments.rebuild(form.spec, function()
      i = i + 1
      return tensors[i]
    end)
  elseif form.kind ~= "dictionary" then
    return table.unpack(tensors)
  end
  local out = {}
  for i, key in ipairs(form.keys) do
    out[key] = tensors[i]
  end
  return out
end

--- Copies a tensor into a buffer, which may have more rows.
--- error: TypeError, ValueError for one that does not fit
---@param buffer torch.Tensor
---@param t torch.Tensor
---@param part integer which of the element, from 0
---@return boolean full
function M.fill(buffer, t, part)
  errors.check(t.dtype == buffer.dtype, "TypeError", WHERE .. "part %d of an element is %s, of the "
    .. "first one %s", part, t.dtype, buffer.dtype)
  local full = t.shape == buffer.shape
  local n = not full and t:dim() > 0 and t:size(0)
  errors.check(full or n and t:dim() == buffer:dim() and n < buffer:size(0)
    and t:narrow(0, 0, 0).shape == buffer:narrow(0, 0, 0).shape, "ValueError", WHERE
    .. "part %d of an element is %s; all must have the shape of the first one, %s, or fewer rows",
    part, check.describe(t), buffer.shape)
  local rows = full and buffer or buffer:narrow(0, 0, n)
  rows:copy_(t)
  return full
end

return M
