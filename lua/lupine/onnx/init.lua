--- ONNX models: reading them as modules, writing modules as them.
---
---     local onnx = require("lupine.onnx")
---     local model = onnx.load("resnet.onnx")   -- a torch.nn.Module
---     local y = model(x)
---     onnx.export(model, { x }, "again.onnx")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local export = require("lupine.onnx.export")
local module = require("lupine.onnx.module")
local namespace = require("lupine.base.namespace")
local proto = require("lupine.onnx.proto")
local tensors = require("lupine.onnx.tensors")

-- Tensors of a model that is a table, as Python's onnx.numpy_helper has them for arrays.
local numpy_helper = {
  --- The tensor of a TensorProto.
  --- errors: ValueError, NotImplementedError for values that make none
  ---@param proto_tensor table of onnx.read
  ---@param base_dir? string the folder of files of external data
  ---@return torch.Tensor
  to_array = function(proto_tensor, base_dir)
    check.plain_table(proto_tensor, "to_array: tensor")
    return tensors.read(proto_tensor, base_dir)
  end,
  --- The TensorProto of a tensor.
  --- error: TypeError
  ---@param tensor torch.Tensor
  ---@param name? string
  ---@return table
  from_array = function(tensor, name)
    errors.check(core.is_tensor(tensor), "TypeError",
      "from_array: tensor: expected a tensor, got %s", check.describe(tensor))
    return tensors.write(name, tensor)
  end,
}

--- The model of its bytes, as the plain table that `read` gives.
--- error: ValueError for what is no ModelProto
---@param bytes string
---@return table ModelProto
local function load_from_string(bytes)
  return proto.decode(check.string(bytes, "load_from_string: bytes"))
end

local M = {
  Module = module.Module,
  export = export,
  load = module.load,
  load_from_string = load_from_string,
  numpy_helper = namespace.close(numpy_helper, "lupine.onnx.numpy_helper"),
  read = proto.read,
  write = proto.write,
}

return namespace.close(M, "lupine.onnx")
