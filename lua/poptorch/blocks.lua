--- Blocks: marks in a model's forward that say which operators belong
--- together. While a model is traced they tell the tracer; at any other time
--- they do nothing.
---
--- The executor sets `blocks.tracer` for the time of a trace:
---   tracer.set_block(user_id, ipu_id, auto)  a block starts; ipu_id may be nil;
---                                      auto: what starts it, if the id is a number
---   tracer.end_block()                 a scope ended: no block is active
---
--- Source: PopTorch API reference, "Parallel execution"; user guide 4.4.1.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")

local M = {}

--- nil outside a trace.
---@type {set_block: fun(user_id: string, ipu_id: integer?, auto: any), end_block: fun()}?
M.tracer = nil

-- Scopes of the running trace that were opened and are not closed, in order.
local open = {}

-- Whom blocks tell: the executor's tracer, or that of another trace which follows the
-- modules that run and asks for blocks, too (lupine.onnx.export).
local function listener()
  if M.tracer then
    return M.tracer
  end
  local scope = require("torch.nn").Module.tracer
  return scope and scope.set_block and scope or nil
end

--- Runs f on the host while a model is traced: nothing of it is recorded.
---@param f fun(): ...
---@return any ... what f returns
function M.untraced(f)
  local Module = require("torch.nn").Module
  local tracer, scope = M.tracer, Module.tracer
  local _ <close> = setmetatable({}, { __close = function()
    M.tracer, Module.tracer = tracer, scope
  end })
  M.tracer, Module.tracer = nil, nil
  return core.untraced(f)
end

--- A scope was opened for the tracer, here.
---@param scope table
function M.opened(scope)
  scope._tracer, scope._where = M.tracer, errors.caller()
  if M.tracer then
    open[#open + 1] = scope
  end
end

--- Whether the trace that the scope was opened in still runs. A trace that was
--- abandoned inside the scope does not.
---@param scope table
---@return boolean
function M.closed(scope)
  local running = scope._tracer ~= nil and scope._tracer == M.tracer
  scope._tracer = nil
  for i = #open, 1, -1 do
    if rawequal(open[i], scope) then
      table.remove(open, i)
    end
  end
  return running
end

--- At the end of a trace: a scope is only closed by `<close>`.
--- error: poptorch.Error naming the first scope that is still open
---@param abandoned? boolean forget them
function M.check_closed(abandoned)
  local first = open[1]
  open = {}
  if first and not abandoned then
    local name = class.of(first).__name
    errors.raise("Error", "%s, opened at %s, is never closed: write `local _ <close> = "
      .. "poptorch.%s(...)`, or give it the code as a function%s", tostring(first), first._where,
      name, name == "Block" and "; Block.start opens a block that lasts until the next" or "")
  end
end

-- The block that started last: {tracer, user_id, ipu_id, active}; keeps no trace alive.
local latest = {}
local Weak = { __mode = "v" }

--- The block that has ended last goes on until another one starts: for what is added
--- behind the forward of a model whose blocks are scopes.
function M.go_on()
  local tracer = listener()
  if tracer and latest.tracer == tracer and not latest.active then
    tracer.set_block(latest.user_id, latest.ipu_id)
    latest.active = true
  end
end

local AE = { error = "AssertionError", nullable = true }
local NAMES = { "user_id", "ipu_id" }
-- How many blocks without an id each trace has.
local numbered = setmetatable({}, { __mode = "k" })

local function ids(where, user_id, ipu_id)
  if math.type(user_id) == "integer" then
    user_id = tostring(user_id)
  end
  return check.string(user_id, where .. "(user_id)", AE),
    check.int(ipu_id, where .. "(ipu_id)", { error = "AssertionError", nullable = true, min = 0 })
end

local function arguments(where, ...)
  return ids(where, table.unpack(check.arguments(where, NAMES, {}, ...), 1, 2))
end

-- Starts a block for the tracer. A block without an id gets the next number;
-- `from` is then what starts it, for messages: a module or a text.
local function begin(user_id, ipu_id, from)
  local tracer = listener()
  if tracer then
    local auto
    if user_id == nil then
      local n = numbered[tracer] or 0
      user_id, auto, numbered[tracer] = tostring(n), from, n + 1
    end
    tracer.set_block(user_id, ipu_id, auto)
    latest = setmetatable({ tracer = tracer, user_id = user_id, ipu_id = ipu_id, active = true },
      Weak)
  end
end

--- A scope whose operators form a block.
---
---     do
---       local _ <close> = poptorch.Block("A", {ipu_id = 0})
---       ...
---     end
---     y = poptorch.Block({ipu_id = 1}, function() return self.layer(x) end)
---
--- Leaving the scope leaves no block active: an operator that follows outside
--- any block is an error when the model is compiled, and so are scopes within
--- scopes after the inner one ended.
---@class poptorch.Block
local Block = class.new("Block")
M.Block = Block

signatures.note(Block, "Block(user_id=None, ipu_id=None)", 1)

--- Block(user_id, ipu_id [, f]).
--- error: AssertionError for an id of a wrong kind
---@param ... any user_id (string|integer|nil), ipu_id (integer|nil), function to run inside
---@return any what `f` returns, else the scope, to be closed
function Block.new(cls, ...)
  local n = select("#", ...)
  local f = n > 0 and (select(n, ...)) or nil
  if type(f) ~= "function" then
    local self = setmetatable({}, cls)
    self.user_id, self.ipu_id = arguments("Block", ...)
    begin(self.user_id, self.ipu_id, "Block")
    M.opened(self)
    self._listener = listener()
    return self
  end
  local args = { ... }
  local _ <close> = cls:new(table.unpack(args, 1, n - 1))
  return f()
end

function Block.__close(self)
  M.closed(self)
  if self._listener and self._listener == listener() then
    self._listener.end_block()
    latest.active = false
  end
  self._listener = nil
end

--- Opens a block that stays open until the next one.
---@param ... any as Block
function Block.start(...)
  local user_id, ipu_id = arguments("Block.start", ...)
  begin(user_id, ipu_id, "Block.start")
end

--- Called at the top of forward: blocks without an id are numbered "0", "1",
--- … from here, as they are from the start of a trace.
function Block.useAutoId()
  if M.tracer then
    numbered[M.tracer] = 0
  end
end

function Block:__tostring()
  return ("Block(user_id=%s, ipu_id=%s)"):format(tostring(self.user_id), tostring(self.ipu_id))
end

local function method(object, name)
  local t = type(object)
  if t ~= "table" and t ~= "userdata" then
    return nil
  end
  local ok, f = pcall(function()
    return object[name]
  end)
  return ok and type(f) == "function" and f or nil
end

local function is_module(object)
  return method(object, "register_forward_pre_hook") ~= nil and not class.is_class(object)
end

-- The annotation is a plain field, so that copies of a module keep it; it is
-- no parameter and no buffer and stays out of state_dict. The hook does
-- nothing once the field is gone.
local FIELD = "_begin_block"
local handles = setmetatable({}, { __mode = "k" }) -- module -> its hook's handle

local function enter(module)
  local annotation = module[FIELD]
  if annotation then
    begin(annotation.user_id, annotation.ipu_id, module)
  end
end

--- The hook of an annotated module, which files call by a name.
M.hook = enter

-- What BeginBlock makes of a function: a callable that starts the block.
local Wrapped = class.new("BeginBlock")

function Wrapped:__call(...)
  begin(self._user_id, self._ipu_id, "BeginBlock of a function")
  return self._layer(...)
end

local function annotation(user_id, ipu_id)
  return ("BeginBlock(user_id=%s, ipu_id=%s)"):format(user_id or "None",
    ipu_id and tostring(ipu_id) or "None")
end

function Wrapped:__tostring()
  return annotation(self._user_id, self._ipu_id)
end

--- A module as it prints, with the blocks that start at its parts:
--- "BeginBlock(user_id=A, ipu_id=1) Linear(…)".
---@param module torch.nn.Module
---@return string
function M.text(module)
  local Module = require("torch.nn").Module
  Module.shown_before = function(m)
    local block = m[FIELD]
    return block and annotation(block.user_id, block.ipu_id) .. " " or ""
  end
  local ok, text = pcall(tostring, module)
  Module.shown_before = nil
  return ok and text or error(text, 0)
end

local function annotate(module, block)
  module[FIELD] = block
  handles[module] = module:register_forward_pre_hook(enter)
end

--- As BeginBlock, for a place that lupine found.
---@param module torch.nn.Module
---@param user_id string
---@param ipu_id integer
function M.begin_automatic(module, user_id, ipu_id)
  annotate(module, { user_id = user_id, ipu_id = ipu_id, automatic = true })
end

--- The module starts a block, which lasts until another one starts. Returns
--- the module itself; for a function a callable object. The block starts in a
--- forward-pre-hook: hooks registered before run outside it.
--- error: poptorch.Error for a module that is a block already, or for what
--- can not be called
---@param ... any layer_to_call (torch.nn.Module|function), user_id (string|integer|nil),
---        ipu_id (integer|nil)
---@return any layer_to_call, or what stands for the function
function M.BeginBlock(...)
  local a = check.arguments("BeginBlock", { "layer_to_call", NAMES[1], NAMES[2] }, {}, ...)
  local layer_to_call = a[1]
  local user_id, ipu_id = ids("BeginBlock", a[2], a[3])
  if is_module(layer_to_call) then
    errors.check(not layer_to_call[FIELD], "Error",
      "BeginBlock: this module is the start of a block already; poptorch.removeBlocks(module) "
      .. "takes the annotation away")
    annotate(layer_to_call, { user_id = user_id, ipu_id = ipu_id })
    return layer_to_call
  end
  local mt = getmetatable(layer_to_call)
  local callable = type(layer_to_call) == "function"
    or type(mt) == "table" and rawget(mt, "__call") ~= nil and not class.is_class(layer_to_call)
  errors.check(callable, "Error",
    "BeginBlock(layer_to_call): expected a module or a function, got %s",
    check.describe(layer_to_call))
  local wrapped = Wrapped()
  wrapped._layer, wrapped._user_id, wrapped._ipu_id = layer_to_call, user_id, ipu_id
  return wrapped
end

--- A decorator: everything inside the function runs in the block.
---
---     Net.encode = poptorch.BlockFunction("A", {ipu_id = 1})(Net.encode)
---
---@param ... any user_id (string|integer|nil), ipu_id (integer|nil)
---@return fun(f: function): function
function M.BlockFunction(...)
  local user_id, ipu_id = arguments("BlockFunction", ...)
  return function(f)
    errors.check(type(f) == "function", "TypeError",
      "BlockFunction: expected a function to decorate, got %s", check.describe(f))
    return function(...)
      local _ <close> = Block(user_id, ipu_id)
      return f(...)
    end
  end
end

--- Takes the BeginBlock annotations of a module and its sub-modules away; they
--- may be annotated again.
--- error: AssertionError for anything but a module
---@param ... any module (torch.nn.Module)
function M.removeBlocks(...)
  local module = check.one("removeBlocks", "module", ...)
  errors.check(is_module(module), "AssertionError",
    "removeBlocks(module): expected a module, got %s", check.describe(module))
  M.remove(module, function()
    return true
  end)
end

--- Takes those annotations away for which `which(annotation)` is true.
---@param module torch.nn.Module
---@param which fun(annotation: {user_id: string?, ipu_id: integer?, automatic: true?}): any
function M.remove(module, which)
  for _, m in ipairs(module:modules()) do
    if m[FIELD] and which(m[FIELD]) then
      m[FIELD] = nil
      if handles[m] then
        handles[m]:remove()
        handles[m] = nil
      end
    end
  end
end

--- The annotation of a module; nil: it starts no block.
---@param module torch.nn.Module
---@return {user_id: string?, ipu_id: integer?, automatic: true?}?
function M.annotation_of(module)
  return module[FIELD]
end

return M
