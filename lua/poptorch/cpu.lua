--- poptorch.CPU: functions of the host in the middle of an inference model. In
--- a traced model a call becomes a host call of the program, which names the
--- function by its ID; the session that is opened has the functions.
---
--- Source: PopTorch API reference, poptorch.CPU.
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local running = require("poptorch.running")
local signatures = require("lupine.base.signatures")

---@class poptorch.CPU
---@field inputs torch.Tensor[]? of registerPersistentData
---@field outputs torch.Tensor[]? what execute computed
local CPU = class.new("CPU")

-- All that there are.
local made = setmetatable({}, { __mode = "k" })

local function callable(value)
  local mt = getmetatable(value)
  return type(value) == "function"
    or type(mt) == "table" and mt.__call ~= nil and not class.is_class(value)
end

--- Runs a function or module on the host, within a compiled model too: there
--- it gets copies of the device's values, as tensors of the types that the
--- device has, and its results go back. It takes tensors and returns one or
--- several, or one list; the same number, of the same sizes, in every call.
--- While the model is traced it is called once, with zeros. A module's
--- parameters require no gradient from now on. Outside a trace a call is the
--- function's.
---
---     self.cpu = poptorch.CPU(function(x) return x:sort() end, "Sort")
---     local values, order = self.cpu(x)   -- in forward
---
--- error: TypeError for what cannot be called or an ID that is no string;
--- poptorch.Error for a call in a training model
--- source: 001 poptorch.CPU
---@param ... any layer_to_call (function|torch.nn.Module), ID (string): the op's name, each
---        function of a model has its own
function CPU:init(...)
  local a = check.arguments("poptorch.CPU", { "layer_to_call", "ID" }, nil, ...)
  local layer_to_call, ID = a[1], a[2]
  errors.check(callable(layer_to_call), "TypeError",
    "poptorch.CPU(layer_to_call): expected a function or a module, got %s",
    check.describe(layer_to_call))
  self._layer_to_call = layer_to_call
  self._ID = check.string(ID, "poptorch.CPU(ID)")
  errors.check(not ID:find("\0", 1, true), "ValueError", "poptorch.CPU(ID): %q has a zero byte", ID)
  if require("torch.nn").Module:is(layer_to_call) then
    layer_to_call:requires_grad_(false)
  end
  made[self] = true
end

signatures.note(CPU, "CPU(layer_to_call, ID)", 1)

local function tensors(self, what, list, n)
  for i = 1, n do
    errors.check(core.is_tensor(list[i]), "TypeError",
      "CPU op '%s': %s %d is %s; in a compiled model a CPU op takes and returns tensors", self._ID,
      what, i - 1, check.describe(list[i]))
  end
end

-- What the function makes of a list of tensors, in the device's types; whether
-- it returned a list.
local function results(self, list)
  local out = table.pack(self._layer_to_call(table.unpack(list)))
  local first = out[1]
  local listed = out.n == 1 and type(first) == "table" and getmetatable(first) == nil
  if listed then
    out = table.move(first, 1, #first, 1, { n = #first })
  end
  errors.check(out.n > 0, "Error", "CPU op '%s': the function returned nothing", self._ID)
  tensors(self, "result", out, out.n)
  local narrowed = {}
  for i = 1, out.n do
    narrowed[i] = running.narrow(out[i])
  end
  return narrowed, listed
end

local function types_of(list)
  local types = {}
  for i, t in ipairs(list) do
    types[i] = { shape = t.shape, dtype = t.dtype }
  end
  return types
end

local function zeros(types)
  local out = {}
  for i, t in ipairs(types) do
    out[i] = require("torch").zeros(t.shape, { dtype = t.dtype })
  end
  return out
end

-- As a host call has them: "float32[2, 3], int32[]".
local function text_of(types)
  local text = {}
  for i, t in ipairs(types) do
    text[i] = ("%s[%s]"):format(tostring(t.dtype):match("[^.]+$"), table.concat(t.shape, ", "))
  end
  return table.concat(text, ", ")
end

-- The call as a node of the program.
local function trace_call(self, tracer, args, n)
  errors.check(not tracer.training, "Error", "CPU op '%s': CPU ops are only supported in inference "
    .. "models", self._ID)
  tensors(self, "argument", args, n)
  tracer.host_call(self._ID, self, function(list)
    return (results(self, list))
  end)
  self._in = types_of(args)
  local out, listed = blocks.untraced(function()
    return results(self, zeros(self._in))
  end)
  self._out = types_of(out)
  local list = core.forms.internal.host_call(args, { id = self._ID, types = text_of(self._out) })
  if listed then
    return list
  end
  return table.unpack(list)
end

function CPU:__call(...)
  local tracer = blocks.tracer
  if not tracer then
    return self._layer_to_call(...)
  end
  return trace_call(self, tracer, { ... }, select("#", ...))
end

--- Makes the tensors `inputs` and `outputs`, zeros of the types of the last
--- call that was traced.
--- error: poptorch.Error if none was
function CPU:registerPersistentData()
  errors.check(self._in, "Error", "CPU op '%s': registerPersistentData: no call of it has been "
    .. "traced", self._ID)
  self.inputs, self.outputs = zeros(self._in), zeros(self._out)
end

--- Runs the function on `inputs` and writes its results into `outputs`.
--- error: poptorch.Error before registerPersistentData
function CPU:execute()
  errors.check(self.inputs, "Error", "CPU op '%s': execute: call registerPersistentData first",
    self._ID)
  for i, t in ipairs((results(self, self.inputs))) do
    self.outputs[i]:copy_(t)
  end
end

function CPU:__tostring()
  return ("CPU('%s')"):format(self._ID)
end

local M = { CPU = CPU }

-- ---- of a program that comes from a file ---------------------------------------------

-- Those with the ID in a value: itself, or what plain tables have.
local function gather(value, id, found, seen)
  if CPU:is(value) then
    found[value] = value._ID == id or nil
  elseif type(value) == "table" and getmetatable(value) == nil and not seen[value] then
    seen[value] = true
    for _, child in pairs(value) do
      gather(child, id, found, seen)
    end
  end
end

local function of_model(model, id)
  local found, seen = {}, {}
  for _, module in ipairs(model:modules()) do
    gather(rawget(module, "_fields"), id, found, seen)
  end
  return found
end

-- Of the whole process, without those that nothing refers to any more.
local function of_process(id)
  collectgarbage() -- what programs refer to is there until they are collected
  collectgarbage()
  local found = {}
  for cpu in pairs(made) do
    found[cpu] = cpu._ID == id or nil
  end
  return found
end

local function find(model, id)
  local found, where = of_model(model, id), "of the model"
  if not next(found) then
    found, where = of_process(id), "outside the model's fields"
  end
  local cpu = next(found)
  errors.check(not cpu or next(found, cpu) == nil, "Error", "several CPU ops %s have the ID '%s', "
    .. "and the program calls one of them: give each an ID of its own", where, id)
  return cpu
end

--- The functions of CPU ops by ID, for a session of a step that was not traced
--- here: those in fields of the model's modules, or else any of this process.
--- Asking for an ID that several have is an error (poptorch.Error).
---@param model torch.nn.Module
---@return table<string, function>
function M.functions_of(model)
  return setmetatable({}, { __index = function(functions, id)
    local cpu = find(model, id)
    functions[id] = cpu and function(list)
      return (results(cpu, list))
    end
    return rawget(functions, id)
  end })
end

return M
