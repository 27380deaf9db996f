--- What the parts of a Builder share: its class, the names and values of its tensors.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("popart.errors")
local torch = require("torch")

local M = {}

---@class popart.Builder
---@field aiOnnx popart.Opset operators of ONNX, of the version that is used first (10)
---@field aiGraphcore popart.Opset
M.Builder = class.new("Builder")

local graphs = 0

--- An empty model, with a name of its own.
---@return table ModelProto
function M.empty_model()
  graphs = graphs + 1
  return { ir_version = 4, producer_name = "lupine", opset_import = {}, metadata_props = {},
    graph = { name = ("BuilderGraph_%d"):format(graphs - 1), node = {}, initializer = {},
      input = {}, output = {}, value_info = {} } }
end

--- A tensor of that shape alone.
---@param dtype torch.dtype
---@param shape integer[]
---@return torch.Tensor
local function shape_of(dtype, shape)
  return torch.empty({ table.unpack(shape) }, { dtype = dtype, device = "meta" })
end

M.shape_of = shape_of

--- Makes a tensor's type, and values that shapes may depend on, known.
---@param self popart.Builder
---@param name string
---@param all torch.Tensor of all groups of replicas
---@param t torch.Tensor? of one replica; nil: that depends on how many there will be
function M.add_initializer(self, name, all, t)
  self._initializers[name] = all
  if not t then
    self._scope:set(name, false, false)
    return
  end
  local known = not t:is_floating_point()
  self._scope:set(name, known and t or shape_of(t.dtype, t.shape), known)
  self._scope.given[name] = t
end

--- A new id: the scopes' names, the name, ":output", "/number" from the second of a name
--- on. It is one of no graph around, nor within (self._within).
---@param self popart.Builder
---@param name string
---@param output? integer
---@return string
function M.next_id(self, name, output)
  local parts = { table.unpack(self._scopes) }
  parts[#parts + 1] = output and ("%s:%d"):format(name, output) or name
  local base = table.concat(parts, "/")
  local n = self._next[base] or 0
  local id = n == 0 and base or ("%s/%d"):format(base, n)
  while self._names:has(id) or self._within[id] do
    n = n + 1
    id = ("%s/%d"):format(base, n)
  end
  self._next[base] = n + 1
  local around = self._parent
  while around do
    around._within[id], around = true, around._parent
  end
  return id
end

--- Raises unless it is a text.
--- error: TypeError
---@param name any
---@param what string in messages
function M.check_text(name, what)
  errors.check(type(name) == "string", "TypeError", "%s: expected a text, got %s", what,
    check.describe(name))
end

return M
