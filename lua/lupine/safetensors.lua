--- safetensors files by the names of its Python package, for exchange with
--- others; torch.save and torch.load use the format too.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")

local M = {}

--- The tensors of a file by name, in the file's order. One value, so that the call can
--- stand as the last argument of `load_state_dict`, where a second table would be keywords.
--- errors: OSError, ValueError (no such file, or one that is damaged)
---@param filename string path
---@return table<string, torch.Tensor> tensors
function M.load_file(filename)
  local names, tensors = core.read_safetensors(check.string(filename, "load_file: filename"))
  local out = ordered.dict()
  for i, name in ipairs(names) do
    out[name] = tensors[i]
  end
  return out
end

--- What a file says of itself, as `{format = "pt"}`: `safe_open(filename).metadata()` of the
--- Python package.
--- errors: OSError, ValueError (no such file, or one that is damaged)
---@param filename string path
---@return table<string, string> metadata
function M.metadata(filename)
  local _, _, meta = core.read_safetensors(check.string(filename, "metadata: filename"))
  return meta
end

--- Writes tensors by name to a file, which is replaced as a whole.
--- errors: OSError, TypeError, ValueError (a name that is not UTF-8)
---@param tensors table<string, torch.Tensor>
---@param filename string path
---@param metadata? table<string, string>
function M.save_file(tensors, filename, metadata)
  errors.check(type(tensors) == "table", "TypeError",
    "save_file: tensors: expected a table of Tensors by name, got %s", check.describe(tensors))
  local values = {}
  local names = tables.keys(tensors, function(name)
    return check.string(name, "save_file: tensors: a name") ~= nil
  end)
  for i, name in ipairs(names) do
    local x = tensors[name]
    errors.check(core.is_tensor(x), "TypeError", "save_file: tensors['%s']: expected a Tensor, "
      .. "got %s", name, check.describe(x))
    values[i] = x:detach():contiguous()
  end
  core.write_safetensors(check.string(filename, "save_file: filename"), names, values, metadata)
end

return require("lupine.base.namespace").close(M, "lupine.safetensors")
