--- A module's forward while it is traced: the names that its operators get, and what
--- forward put into fields, which is taken out again afterwards. What stands there
--- stands for values of the program, and means nothing outside.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = {}

--- The names that operators get: the path of the module that runs (with
--- `of_modules`), and of the name scopes open in it. A module's path stands after
--- the name scopes that it is called in.
---@param trace userdata
---@param of_modules boolean
---@return table<string, function> of module(path), leave(), scope(name), leave_scope()
function M.names_of(trace, of_modules)
  local stack, scopes = { "" }, {}
  local function push(text)
    stack[#stack + 1] = text
    trace:origin({ scope = text })
  end
  local function join(a, b)
    return a == "" and b or b == "" and a or a .. "/" .. b
  end
  local function pop()
    stack[#stack] = nil
    trace:origin({ scope = stack[#stack] })
  end
  return {
    module = function(path)
      push(join(table.concat(scopes, "/"), of_modules and path or ""))
    end,
    scope = function(name)
      scopes[#scopes + 1] = name
      push(join(stack[#stack], name))
    end,
    leave = pop,
    leave_scope = function()
      scopes[#scopes] = nil
      pop()
    end,
  }
end

--- Gathers in `frozen` what plain fields held before forward assigned to them:
--- {module, name, value}.
---@param frozen table[]
---@return fun(module: torch.nn.Module, name: string, old: any) assign of Module.tracer
function M.assigner(frozen)
  local seen = {}
  return function(module, name, old)
    seen[module] = seen[module] or {}
    if not seen[module][name] then
      seen[module][name] = true
      frozen[#frozen + 1] = { module = module, name = name, value = old }
    end
  end
end

--- A tensor that a plain field was given in forward stands for a value of the
--- program: the field gets back what it held, which the program has as a
--- constant.
---@param frozen table[] of M.assigner
function M.thaw(frozen)
  for _, f in ipairs(frozen) do
    local fields = f.module._fields
    if arguments.is_tensor(f.value) or arguments.is_tensor(fields[f.name]) then
      fields[f.name] = f.value
    end
  end
end

local REGISTRIES = { { "_parameters", "parameter" }, { "_buffers", "buffer" } }

--- What is registered in a module's tree: {module, registry, kind, name, at, path,
--- tensor}.
---@param model torch.nn.Module
---@return table[]
function M.registered(model)
  local list = {}
  for prefix, module in model:named_modules() do
    for _, kind in ipairs(REGISTRIES) do
      local registry = module[kind[1]]
      for at, name in ipairs(registry.keys) do
        list[#list + 1] = { module = module, registry = registry, kind = kind[2], name = name,
          at = at, path = (prefix ~= "" and prefix .. "." or "") .. name,
          tensor = registry.values[name] }
      end
    end
  end
  return list
end

--- Forward sees other tensors in place of some: of a parameter in replica groups what
--- one replica has.
---@param before table[] of M.registered
---@param shown table<torch.Tensor, torch.Tensor>
function M.show(before, shown)
  for _, r in ipairs(before) do
    r.shown = r.tensor and shown[r.tensor] or r.tensor
    r.registry.values[r.name] = r.shown
  end
end

--- The fields are as they were. Returns the first that forward put something else
--- in.
---@param before table[] of M.registered, after M.show
---@return table?
function M.take_back(before)
  local changed
  for _, r in ipairs(before) do
    if rawequal(r.registry.values[r.name], r.shown) then
      r.registry.values[r.name] = r.tensor
    else
      changed = changed or r
      rawset(r.module._fields, r.name, nil)
      r.registry:set(r.name, r.tensor, r.at)
    end
  end
  return changed
end

--- Parameters and buffers are variables of the program: forward may write a
--- buffer in place, but not put another tensor in its field.
--- error: poptorch.Error if it did
---@param changed table? of M.take_back
function M.check_registered(changed)
  errors.check(not changed, "Error", "forward re-assigned or deleted the %s '%s': write a buffer "
    .. "in place (self.%s:copy_(value)), parameters only through the optimizer",
    changed and changed.kind, changed and changed.path, changed and changed.name)
end

--- What forward did that no program can do, all at once; `e` if it raised an error.
--- error: poptorch.Error with a line for each
---@param trace userdata that tolerates
---@param e any
function M.check_refused(trace, e)
  local list = trace:refused()
  if list ~= "" then
    local _, n = list:gsub("\n", "")
    errors.fail(nil, "the model uses %s that cannot be compiled:\n  %s%s",
      check.count(n, "operator"), (list:gsub("\n$", ""):gsub("\n", "\n  ")),
      e and "\nand then forward failed, on results of other shapes than it will have: "
      .. (type(e) == "table" and e.message or tostring(e)) or "")
  end
end

return M
