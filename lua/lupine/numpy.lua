--- NumPy's files by NumPy's names: arrays in .npy, archives of them in .npz.
--- NumPy reads what is written here and the other way round; element types are
--- those that both have (bfloat16 is not among them).
local check = require("lupine.check")
local core = require("lupine.core")
local errors = require("torch.errors")
local ordered = require("torch.nn.ordered")

local M = {}

local function tensor(x, where)
  errors.check(core.is_tensor(x), "TypeError", "%s: expected a Tensor, got %s", where,
    check.describe(x))
  return x:detach():contiguous()
end

--- The array of a .npy file, or a dictionary of those of a .npz file (told by
--- the first bytes, as NumPy does).
--- errors: OSError, ValueError (no such file, or one that is damaged)
---@param file string path
---@return torch.Tensor|table<string, torch.Tensor>
function M.load(file)
  check.string(file, "load: file")
  local f = io.open(file, "rb")
  local head = f and f:read(2)
  if f then
    f:close()
  end
  if head ~= "PK" then
    return core.read_npy(file)
  end
  local out = ordered.dict()
  local names, tensors = core.read_npz(file)
  for i, name in ipairs(names) do
    out[name] = tensors[i]
  end
  return out
end

--- Writes a .npy file, which is replaced as a whole; ".npy" is added to a name
--- without it.
--- errors: OSError, TypeError (bfloat16)
---@param file string path
---@param arr torch.Tensor any shape
function M.save(file, arr)
  check.string(file, "save: file")
  core.write_npy(file:find("%.npy$") and file or file .. ".npy", tensor(arr, "save: arr"))
end

local function savez(where, compressed, file, arrays)
  check.string(file, where .. ": file")
  errors.check(type(arrays) == "table", "TypeError",
    "%s: expected a table of Tensors by name, got %s", where, check.describe(arrays))
  local names, tensors = {}, {}
  for i, x in ipairs(arrays) do
    names[i], tensors[i] = ("arr_%d"):format(i - 1), tensor(x, where)
  end
  local texts = {}
  for name in pairs(arrays) do
    if type(name) == "string" then
      texts[#texts + 1] = name
    end
  end
  if not ordered.is_dict(arrays) then
    table.sort(texts)
  end
  for _, name in ipairs(texts) do
    names[#names + 1], tensors[#tensors + 1] = name, tensor(arrays[name], where)
  end
  core.write_npz(file:find("%.npz$") and file or file .. ".npz", names, tensors, nil, compressed)
end

--- Writes a .npz file, which is replaced as a whole: Tensors by name; those of a
--- list are named arr_0, arr_1, …
---@param file string path
---@param arrays table
function M.savez(file, arrays)
  savez("savez", false, file, arrays)
end

--- The same, compressed.
---@param file string path
---@param arrays table
function M.savez_compressed(file, arrays)
  savez("savez_compressed", true, file, arrays)
end

return M
