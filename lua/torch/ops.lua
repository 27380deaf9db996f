--- torch.ops: libraries with operators of one's own.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

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
  check.string(path, "torch.ops.load_library(path)")
  errors.check(not path:find("\0", 1, true), "ValueError",
    "torch.ops.load_library(path): has a zero byte")
  core.load_library(path)
  M.loaded_libraries[path] = true
end

return require("lupine.base.namespace").close(M, "torch.ops")
