--- ONNX models: reading them as modules, writing modules as them.
---
---     local onnx = require("lupine.onnx")
---     local model = onnx.load("resnet.onnx")   -- a torch.nn.Module
---     local y = model(x)
---     onnx.export(model, { x }, "again.onnx")
local export = require("lupine.onnx.export")
local module = require("lupine.onnx.module")
local proto = require("lupine.onnx.proto")

local M = {
  Module = module.Module,
  export = export,
  load = module.load,
  read = proto.read,
  write = proto.write,
}

return require("lupine.base.namespace").close(M, "lupine.onnx")
