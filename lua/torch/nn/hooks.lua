--- Lists of hooks and the handles that take them away again.
local class = require("lupine.base.class")
local core = require("lupine.core")

local M = {}

--- What register_…_hook returns.
---@class torch.RemovableHandle
local Handle = class.new("RemovableHandle")
M.Handle = Handle

--- Takes the hook away; a second call does nothing.
function Handle:remove()
  for i, entry in ipairs(self._list or {}) do
    if entry == self._entry then
      table.remove(self._list, i)
      break
    end
  end
  self._list = nil
end

Handle.__close = Handle.remove

--- Appends (or puts first) a hook.
---@param list table
---@param fn function
---@param first? boolean
---@param entry? table its further properties
---@return torch.RemovableHandle
function M.add(list, fn, first, entry)
  entry = entry or {}
  entry.fn = fn
  table.insert(list, first and 1 or #list + 1, entry)
  local handle = Handle()
  handle._list, handle._entry = list, entry
  return handle
end

--- Runs each hook that is in the list at the start.
---@param list table[]? entries {fn}
---@param ... any for each
function M.run(list, ...)
  for _, entry in ipairs(list and { table.unpack(list) } or {}) do
    entry.fn(...)
  end
end

-- A list of arguments or results from what a hook returned; the one that it was
-- given has n.
local function packed(value)
  if type(value) == "table" and not getmetatable(value) and math.type(value.n) == "integer" then
    return value
  end
  if type(value) == "table" and not getmetatable(value) and (#value > 0 or not next(value)) then
    local n = #value
    return { n = n, table.unpack(value, 1, n) }
  end
  return { n = 1, value }
end

M.packed = packed

local function entries(list)
  return list and { table.unpack(list) } or {}
end

--- Pre-hooks over packed arguments and the table by name; gives both.
---@param module torch.nn.Module
---@param list table[]? entries {fn, …}
---@param args table packed arguments
---@param by_name table<string, any>
---@return table args
---@return table<string, any> by_name
function M.before(module, list, args, by_name)
  for _, entry in ipairs(entries(list)) do
    core.list(args)
    if entry.with_kwargs then
      local new, names = entry.fn(module, args, by_name)
      args = new ~= nil and packed(new) or args
      by_name = names or by_name
    else
      local new = entry.fn(module, args)
      args = new ~= nil and packed(new) or args
    end
  end
  return args, by_name
end

local function call(entry, module, args, by_name, out)
  if entry.with_kwargs then
    return entry.fn(module, args, by_name, out)
  end
  return entry.fn(module, args, out)
end

--- Hooks over packed results; gives packed results. `done` takes the hooks
--- that were called.
---@param module torch.nn.Module
---@param list table[]? entries {fn, …}
---@param args table packed arguments
---@param by_name table<string, any>
---@param out table packed results
---@param done table<table, boolean>
---@return table out
function M.after(module, list, args, by_name, out, done)
  for _, entry in ipairs(entries(list)) do
    done[entry] = true
    local new = call(entry, module, core.list(args), by_name,
      out.n > 1 and core.list({ table.unpack(out, 1, out.n) }) or out[1])
    if new ~= nil then
      out = out.n > 1 and packed(new) or { n = 1, new }
    end
  end
  return out
end

--- After an error: the hooks that are always called and were not. What they
--- raise is dropped, the first error is the one that counts.
---@param module torch.nn.Module
---@param list table[]? entries {fn, …}
---@param args table packed arguments
---@param by_name table<string, any>
---@param done table<table, boolean>
function M.always(module, list, args, by_name, done)
  for _, entry in ipairs(entries(list)) do
    if entry.always_call and not done[entry] then
      pcall(call, entry, module, args, by_name, nil)
    end
  end
end

return M
