--- Lists of hooks and the handles that take them away again.
local class = require("lupine.class")

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
---@return torch.RemovableHandle
function M.add(list, fn, first)
  local entry = { fn = fn }
  table.insert(list, first and 1 or #list + 1, entry)
  local handle = Handle()
  handle._list, handle._entry = list, entry
  return handle
end

--- Runs each hook that is in the list at the start.
function M.run(list, ...)
  for _, entry in ipairs(list and { table.unpack(list) } or {}) do
    entry.fn(...)
  end
end

-- A list of arguments or results from what a hook returned.
local function packed(value)
  if type(value) == "table" and getmetatable(value) == nil and (#value > 0 or not next(value)) then
    local n = #value
    return { n = n, table.unpack(value, 1, n) }
  end
  return { n = 1, value }
end

--- Pre-hooks over packed arguments; gives packed arguments.
function M.before(module, list, args)
  for _, entry in ipairs(list and { table.unpack(list) } or {}) do
    local new = entry.fn(module, args)
    if new ~= nil then
      args = packed(new)
    end
  end
  return args
end

--- Hooks over packed results; gives packed results.
function M.after(module, list, args, out)
  for _, entry in ipairs(list and { table.unpack(list) } or {}) do
    local new = entry.fn(module, args, out.n > 1 and { table.unpack(out, 1, out.n) } or out[1])
    if new ~= nil then
      out = out.n > 1 and packed(new) or { n = 1, new }
    end
  end
  return out
end

return M
