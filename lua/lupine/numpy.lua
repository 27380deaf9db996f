--- NumPy's files by NumPy's names: arrays in .npy, archives of them in .npz.
--- NumPy reads what is written here and the other way round; element types are
--- those that both have (bfloat16 is not among them).
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")

local M = {}

local function tensor(x, where)
  errors.check(core.is_tensor(x), "TypeError", "%s: expected a Tensor, got %s", where,
    check.describe(x))
  return x:detach():contiguous()
end

-- The arrays of an archive by name; a bad one raises its error when it is asked
-- for, also by a loop that comes to it. `files` are all names, as in NumPy.
local function archive(file)
  local names, tensors, wrong = core.read_npz(file, true)
  local out = ordered.dict(names, function(key)
    errors.check(not wrong[key], "ValueError", "%s", wrong[key])
    return key == "files" and table.move(names, 1, #names, 1, {}) or nil
  end)
  for i, name in ipairs(names) do
    rawset(out, name, tensors[i] or nil)
  end
  return out
end

--- The array of a .npy file, or a dictionary of those of a .npz file (told by
--- the first bytes, as NumPy does); its field `files` is the list of names. An
--- archive with a bad array gives the others: the bad one raises its ValueError
--- when it is asked for.
--- errors: OSError, ValueError (no such file, or one that is damaged)
--- Source: NumPy reference, numpy.load, numpy.lib.npyio.NpzFile
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
  return archive(file)
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

-- What stands in a list or among the arguments is arr_0, arr_1, …; a last table
-- holds those by name.
local function savez(where, compressed, file, ...)
  check.string(file, where .. ": file")
  local given, names, tensors = table.pack(...), {}, {}
  local arrays = type(given[given.n]) == "table" and given[given.n] or {}
  for i = 1, given.n - (arrays == given[given.n] and 1 or 0) do
    names[i], tensors[i] = ("arr_%d"):format(i - 1), tensor(given[i],
      ("%s: argument %d"):format(where, i + 1))
  end
  errors.check(#names == 0 or arrays[1] == nil, "TypeError",
    "%s: Tensors stand either as arguments or in a list, not both", where)
  for i, x in ipairs(arrays) do
    names[i], tensors[i] = ("arr_%d"):format(i - 1), tensor(x, where)
  end
  local unnamed = #names
  local texts = tables.keys(arrays, function(name)
    return type(name) == "string"
  end)
  for _, name in ipairs(texts) do
    for i = 1, unnamed do
      errors.check(names[i] ~= name, "ValueError",
        "%s: Cannot use un-named variables and keyword %s", where, name)
    end
    names[#names + 1], tensors[#tensors + 1] = name, tensor(arrays[name], where)
  end
  core.write_npz(file:find("%.npz$") and file or file .. ".npz", names, tensors, nil, compressed)
end

--- Writes a .npz file, which is replaced as a whole: Tensors by name in a last
--- table; those that stand before it, or in a list, are arr_0, arr_1, …
--- errors: OSError, TypeError (bfloat16, or no Tensor), ValueError (none, or a
--- name twice)
--- Source: NumPy reference, numpy.savez
---@param file string path; ".npz" is added to a name without it
---@param ... torch.Tensor|table<string, torch.Tensor>|torch.Tensor[] any shapes
function M.savez(file, ...)
  savez("savez", false, file, ...)
end

--- The same, compressed.
---@param file string path
---@param ... torch.Tensor|table<string, torch.Tensor>|torch.Tensor[] any shapes
function M.savez_compressed(file, ...)
  savez("savez_compressed", true, file, ...)
end

return require("lupine.base.namespace").close(M, "lupine.numpy")
