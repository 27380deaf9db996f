--- Methods of torch.nn.Module that register hooks. The hooks stand in raw fields
--- of the module: `_pre_hooks` and `_hooks` of the call, `_backward_hooks`
--- ({pre, full}), `_state_hooks`, `_state_pre_hooks`, `_load_hooks` and
--- `_load_pre_hooks`; the field `_hooked` is set when the call has any.
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local hooks = require("torch.nn.hooks")

local M = {}

-- register_…_hook(fn, options): the hook goes to the list that `where` gives.
local function add_hook(name, options, where)
  return function(self, fn, ...)
    errors.check(type(fn) == "function" or getmetatable(fn), "TypeError",
      "%s: the hook must be a function, got %s", name, check.describe(fn))
    local values, entry = check.arguments(name, options, nil, ...), {}
    for i, option in ipairs(options) do
      entry[option] = values[i]
    end
    return hooks.add(where(self), fn, entry.prepend, entry)
  end
end

local function raw_list(field, calls)
  return function(self)
    if not rawget(self, field) then
      rawset(self, field, {})
    end
    self._fields._hooked = calls or self._fields._hooked
    return rawget(self, field)
  end
end

local function backward_list(kind)
  return function(self)
    if not rawget(self, "_backward_hooks") then
      rawset(self, "_backward_hooks", { pre = {}, full = {} })
    end
    self._fields._hooked = true
    return rawget(self, "_backward_hooks")[kind]
  end
end

--- hook(module, args) runs before forward; args is a list. What it returns, if
--- not nil, replaces the arguments (one value, or a list of them). with_kwargs:
--- hook(module, args, by_name), which may return both.
--- Options prepend, with_kwargs. Returns a handle with remove().
M.register_forward_pre_hook = add_hook("register_forward_pre_hook",
  { "prepend", "with_kwargs" }, raw_list("_pre_hooks", true))

--- hook(module, args, output) runs after forward; several results are a list.
--- What it returns, if not nil, replaces the output. with_kwargs:
--- hook(module, args, by_name, output). always_call: also when forward fails,
--- with output nil.
M.register_forward_hook = add_hook("register_forward_hook",
  { "prepend", "with_kwargs", "always_call" }, raw_list("_hooks", true))

--- hook(module, grad_input, grad_output) runs when the gradients of the
--- arguments are known: lists, with torch.none where there is none. What it
--- returns, if not nil, replaces grad_input. In a traced model it runs once,
--- while the model is compiled.
M.register_full_backward_hook = add_hook("register_full_backward_hook", { "prepend" },
  backward_list("full"))

--- hook(module, grad_output) runs before; what it returns, if not nil,
--- replaces grad_output.
M.register_full_backward_pre_hook = add_hook("register_full_backward_pre_hook",
  { "prepend" }, backward_list("pre"))

--- hook(module, state_dict, prefix) runs at the end of state_dict of this
--- module; a table that it returns replaces the dictionary.
M.register_state_dict_hook = add_hook("register_state_dict_hook", {},
  raw_list("_state_hooks"))

--- The same, but it returns nothing: it changes the dictionary.
M.register_state_dict_post_hook = M.register_state_dict_hook

--- hook(module, prefix, keep_vars) runs before state_dict of this module.
M.register_state_dict_pre_hook = add_hook("register_state_dict_pre_hook", {},
  raw_list("_state_pre_hooks"))

--- hook(module, state_dict, prefix, {}, strict, missing_keys, unexpected_keys,
--- error_msgs) runs before this module is loaded; it may change the (copied)
--- dictionary.
M.register_load_state_dict_pre_hook = add_hook("register_load_state_dict_pre_hook", {},
  raw_list("_load_pre_hooks"))

--- hook(module, incompatible_keys) runs after this module and those below it
--- are loaded; it may change the two lists.
M.register_load_state_dict_post_hook = add_hook("register_load_state_dict_post_hook", {},
  raw_list("_load_hooks"))

return function()
  return M
end
