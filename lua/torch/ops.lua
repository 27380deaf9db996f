--- torch.ops: libraries with operators of one's own.
local core = require("lupine.core")

local M = {}

--- Paths of the libraries that were loaded, as keys.
---@type table<string, boolean>
M.loaded_libraries = {}

--- Loads a shared library with operators for poptorch.custom_op, compiled for
--- lupine/custom_op.h (docs/custom_ops.md). Its code runs in this process, and it
--- stays loaded until the process ends; loading it again does nothing. This is
--- also what ports write for Python's ctypes.cdll.LoadLibrary.
--- error: FileNotFoundError, OSError for what is no library; RuntimeError for one
--- whose operators are not as the header says, or are there already
---@param path string
function M.load_library(path)
  core.load_library(path)
  M.loaded_libraries[path] = true
end

return require("lupine.base.namespace").close(M, "torch.ops")
