--- The cases of ONNX's own tests (Debian's libonnx-testdata): a model, its inputs
--- and what comes out.
local core = require("lupine.core")
local onnx = require("lupine.onnx")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")
local torch = require("torch")

local M = {}

M.FOLDER = "/usr/share/libonnx-testdata/data"
M.GROUPS = { "node", "pytorch-converted", "pytorch-operator", "simple" }

--- The folders of all cases, sorted.
---@param group string of M.GROUPS
---@return string[] names
function M.names(group)
  local names = core.list_folder(("%s/%s"):format(M.FOLDER, group))
  table.sort(names)
  return names
end

local function read(path)
  local file = io.open(path, "rb")
  if not file then
    return nil
  end
  local bytes = file:read("a")
  file:close()
  return bytes
end

-- TensorProto.DataType: the data have bits of BFLOAT16 as UINT16.
local UINT16, BFLOAT16 = 4, 16

-- The tensors NAME_0.pb, NAME_1.pb, … of a folder, for inputs or outputs of a graph.
local function values(folder, name, infos)
  local list = {}
  while true do
    local bytes = read(("%s/%s_%d.pb"):format(folder, name, #list))
    if not bytes then
      return list
    end
    local message = core.onnx_decode(bytes, "TensorProto")
    local kind = infos[#list + 1] and infos[#list + 1].type.tensor_type
    if message.data_type == UINT16 and kind and kind.elem_type == BFLOAT16 then
      message.data_type = BFLOAT16
    end
    list[#list + 1] = tensors.read(message)
  end
end

-- As ONNX's own runner compares.
local function compare(got, want, i)
  if not torch.is_tensor(got) then
    return ("output %d is missing"):format(i)
  elseif got.dtype ~= want.dtype then
    return ("output %d is %s, want %s"):format(i, tostring(got.dtype), tostring(want.dtype))
  elseif tostring(got.shape) ~= tostring(want.shape) then
    return ("output %d has the shape %s, want %s"):format(i, tostring(got.shape),
      tostring(want.shape))
  end
  local near = torch.isclose(got:double(), want:double(), { rtol = 1e-3, atol = 1e-7,
    equal_nan = true })
  return not near:all():item() and ("output %d differs by up to %g"):format(i,
    (got:double() - want:double()):abs():max():item()) or nil
end

local function decides(node, names)
  for _, name in ipairs(node.output) do
    if names[name] then
      return true
    end
  end
  return false
end

-- Which values decide the shape of something: true by name, from the last node back.
local function shapes_of(model)
  local opsets, names = proto.opsets(model.opset_import), {}
  for at = #model.graph.node, 1, -1 do
    local node = model.graph.node[at]
    local domain = node.domain or ""
    local operator = opsets[domain] and operators.find(domain, node.op_type, opsets[domain]) or {}
    local all = not operator.shape_only and decides(node, names)
    for i, name in ipairs(node.input) do
      names[name] = names[name] or all or (operator.constants or {})[i]
    end
  end
  return names
end

-- The model of a compiled run, with those inputs as initializers; the other inputs.
local function constants_in(model, inputs)
  local names, rest = shapes_of(model), {}
  for i, t in ipairs(inputs) do
    local name = model.graph.input[i].name
    if names[name] then
      table.insert(model.graph.initializer, tensors.write(name, t))
    else
      rest[#rest + 1] = t
    end
  end
  return model, rest
end

local function compile(path, inputs)
  local model, rest = constants_in(proto.read(path), inputs)
  local module = onnx.load(model)
  module:eval()
  local program = require("lupine.compile")(module, rest)
  return function()
    return program(table.unpack(rest))
  end
end

local function run(case, compiled)
  local path = case .. "/model.onnx"
  local model, graph = onnx.load(path), proto.read(path).graph
  model:eval()
  local set = 0
  while read(("%s/test_data_set_%d/output_0.pb"):format(case, set)) do
    local folder = ("%s/test_data_set_%d"):format(case, set)
    local inputs = values(folder, "input", graph.input)
    local wanted = values(folder, "output", graph.output)
    local run_model = compiled and compile(path, inputs) or model
    local got = torch.no_grad(function()
      return { run_model(table.unpack(inputs)) }
    end)
    for i, want in ipairs(wanted) do
      local why = compare(got[i], want, i - 1)
      if why then
        return why
      end
    end
    set = set + 1
  end
  return set == 0 and "it has no data" or nil
end

--- Runs a case. Returns nil if it passes, or what went wrong.
---@param group string
---@param name string
---@param compiled? boolean under lupine.compile
---@return string? why
function M.run(group, name, compiled)
  local ok, why = xpcall(run, function(e)
    return type(e) == "table" and e.message or "raw: " .. debug.traceback(tostring(e))
  end, ("%s/%s/%s"):format(M.FOLDER, group, name), compiled)
  if ok and why or not ok then
    return tostring(why)
  end
  return nil
end

return M
