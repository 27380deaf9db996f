--- What the specs of poptorch share.
local errors = require("lupine.base.errors")

local M = {}

--- Calls f(...), which must raise an error object of the class; returns it.
function M.raises(class_name, f, ...)
  local ok, e = pcall(f, ...)
  if ok then
    error(("expected %s, nothing was raised"):format(class_name), 2)
  end
  if not errors.classes[class_name]:is(e) then
    error(("expected %s, got %s"):format(class_name, tostring(e)), 2)
  end
  return e
end

--- Like raises, for object:method(...).
function M.method_raises(class_name, object, method, ...)
  return M.raises(class_name, object[method], object, ...)
end

--- Runs f(path) with a file of that text.
function M.with_file(text, f)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local ok, e = pcall(f, path)
  os.remove(path)
  if not ok then
    error(e, 0)
  end
end

--- Runs f with environment variables set, as os.getenv shows them.
function M.with_env(values, f)
  local getenv = os.getenv
  os.getenv = function(name) -- luacheck: ignore 122
    if values[name] ~= nil then
      return values[name] or nil
    end
    return getenv(name)
  end
  local ok, e = pcall(f)
  os.getenv = getenv -- luacheck: ignore 122
  if not ok then
    error(e, 0)
  end
end

--- A stand-in for nn.Module: pre-hooks, children, a forward.
function M.module(forward, children)
  local module = { hooks = {}, children = children or {} }
  return setmetatable(module, {
    __index = {
      register_forward_pre_hook = function(self, hook)
        local entry = { hook }
        table.insert(self.hooks, entry)
        return {
          remove = function()
            for i, e in ipairs(self.hooks) do
              if e == entry then
                table.remove(self.hooks, i)
              end
            end
          end,
        }
      end,
      modules = function(self)
        local list = { self }
        for _, child in ipairs(self.children) do
          table.move(child:modules(), 1, #child:modules(), #list + 1, list)
        end
        return list
      end,
    },
    __call = function(self, ...)
      for _, entry in ipairs(self.hooks) do
        entry[1](self, { ... })
      end
      return forward and forward(...)
    end,
  })
end

--- Runs f while a tracer writes "A@0" for a block and "end" for its end.
function M.trace(f)
  local blocks = require("poptorch.blocks")
  local log = {}
  blocks.tracer = {
    set_block = function(user_id, ipu_id)
      log[#log + 1] = user_id .. "@" .. tostring(ipu_id)
    end,
    end_block = function()
      log[#log + 1] = "end"
    end,
  }
  local ok, e = pcall(f)
  blocks.tracer = nil
  if not ok then
    error(e, 0)
  end
  return log
end

return M
