--- The documented names: whether each is there, and which spec shows how it
--- behaves.
---
---   build/lupine spec/api/api.lua [open]    prints all of them, or those that are open
---
--- a line each: name, kind, whether it is there, the spec that shows how it behaves.
---
--- names.tsv has them (name, kind) as the documents of PopTorch, PopART and of
--- the PyTorch layer under them do; proofs.tsv says for a name, or for all that
--- start with it, the spec and the words in the title of its test. A name that
--- no Lua value has (a format, a program of the original) is there if its proof
--- is.
local HERE = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$")

local M = {}

local function rows(file)
  local list = {}
  for line in io.lines(HERE .. "/" .. file) do
    local row = {}
    for field in (line .. "\t"):gmatch("([^\t]*)\t") do
      row[#row + 1] = field
    end
    list[#list + 1] = row
  end
  return list
end

-- ---- whether a name is there -----------------------------------------------------

-- Names that the documents write without their module's.
local WRITTEN = { IExecutionStrategy = "poptorch.IExecutionStrategy",
  ["popart::logger::setLevel"] = "popart.logger.setLevel" }
for _, name in ipairs({ "popart_exception", "popart_internal_exception", "popart_runtime_error",
  "poplibs_exception", "poplar_exception", "poplar_runtime_error",
  "poplar_application_runtime_error", "poplar_system_runtime_error", "poplar_recoverable_error",
  "poplar_unrecoverable_error", "unknown_runtime_error" }) do
  WRITTEN[name] = "popart." .. name
end

local MODULES = { "popdist%.poptorch", "poptorch", "torch", "popart" }

-- No values either: C++ classes that libraries of operators have, a file's name, what the
-- documents name to explain limits (asking for it says what is there instead), arguments
-- that Options alone gives.
local EXPLAINED = { ["torch.jit.trace"] = true, ["poptorch.conf"] = true,
  ["popart::Op"] = true, ["popart::Opx"] = true,
  ["poptorch.options._PrecisionOptions.__init__(popart_options)"] = true,
  ["poptorch.options._TrainingOptions.__init__(popart_options)"] = true }

-- What a documented path starts with, and the rest.
local function split(path)
  for _, module in ipairs(MODULES) do
    local rest = path:match("^" .. module .. "([.:].*)$")
      or path:find("^" .. module .. "$") and ""
    if rest then
      return module:gsub("%%", ""), rest
    end
  end
  return nil
end

local function loaded(module)
  local ok, value = pcall(require, module)
  return ok and value or nil
end

-- A field of a class, a module or an enumeration.
local function raw(value, name)
  return require("lupine.complete").resolve("value." .. name, { value = value })
end

-- A property may be one that an object has later (poptorch.Error).
local function indexed(value, name)
  if name == "__call" then
    return (getmetatable(value) or {}).__call
  end
  local ok, field = pcall(function()
    return value[name]
  end)
  if ok then
    return field
  end
  return require("poptorch").Error:is(field) or nil
end

-- Fields of objects are those of one that is made here.
local objects

local function object_field(path, name)
  objects = objects or dofile(HERE .. "/objects.lua")
  local object = objects[path]
  if object == nil then
    return nil
  end
  return indexed(object, name)
end

local function find(path)
  local module, rest = split(WRITTEN[path] or path)
  local value, at = loaded(module), module
  for name in rest:gsub("__call__", "__call"):gmatch("[%a_][%w_]*") do
    if value == nil then
      return nil
    elseif name ~= "__init__" then
      local found = raw(value, name)
      if found == nil then
        found = object_field(at, name)
      end
      value, at = found, at .. "." .. name
    end
  end
  return value
end

-- The help of a function, class or option names all of its parameters.
local function has_parameter(path, name)
  local value = find(path)
  if value == nil then
    return false
  end
  local help = path:gsub("%.__init__$", ""):gsub("^torch%.nn%.Parameter%.(%a)", "Tensor.%1")
  local text = require("lupine.describe")(help, {})
  if path:find("__call__", 1, true) then
    return debug.getinfo(value, "u").isvararg -- forward's own parameters
  elseif name == "args" or name == "kwargs" then
    return text:find("...", 1, true) ~= nil or text:find("*" .. name, 1, true) ~= nil
  end
  return text:find("%f[%w_]" .. name .. "%f[^%w_]") ~= nil
end

--- Whether Lua has a documented name; nil for one that is no Lua value.
---@param name string
---@return boolean?
function M.present(name)
  if EXPLAINED[name] or not split(WRITTEN[name] or name) or name:find('["%[]')
    or name:find("%(%)") then
    return nil
  end
  local path, parameter = name:match("^(.-)%(([%w_]+)%)$")
  if parameter then
    return has_parameter(path, parameter)
  end
  return find(name) ~= nil
end

-- ---- how it behaves ----------------------------------------------------------------

local texts = {} -- specs by name

local function text_of(file)
  if texts[file] == nil then
    local f = io.open(file)
    texts[file] = f and f:read("a") or false
    if f then
      f:close()
    end
  end
  return texts[file]
end

-- The longest start of a name, of whole words, that has a proof.
local function proof_of(name, proofs)
  for n = #name, 1, -1 do
    local start = name:sub(1, n)
    if proofs[start] and not name:find("^[%w_]", n + 1) then
      return proofs[start]
    end
  end
end

--- Each documented name: {name, kind, present = boolean?, proof = {file, words},
--- shown = whether the spec has these words, open = boolean}.
---@return table[]
function M.rows()
  local proofs, list = {}, {}
  for _, row in ipairs(rows("proofs.tsv")) do
    proofs[row[1]] = { file = row[2], words = row[3] }
  end
  for i, row in ipairs(rows("names.tsv")) do
    local r = { name = row[1], kind = row[2], present = M.present(row[1]),
      proof = proof_of(row[1], proofs) }
    local text = r.proof and text_of(r.proof.file)
    r.shown = text and text:find(r.proof.words, 1, true) ~= nil or false
    r.open = r.present == false or not r.shown
    list[i] = r
  end
  return list
end

-- The help says of an option that it does nothing here.
local function without_effect(name)
  local path = name:match("^[^(]+")
  if not path:find("^poptorch%.Options%.") and not path:find("^poptorch%.options%.") then
    return false
  end
  return require("lupine.describe")(path:gsub("options%._(%a+)Options", "Options.%1"), {})
    :find("simulated system: none", 1, true) ~= nil
end

local function presence(r)
  if not r.present then
    return r.present == nil and "no value of Lua" or "ABSENT"
  end
  return without_effect(r.name) and "without effect here" or "present"
end

local function behaviour(r)
  if not r.proof then
    return "NO SPEC"
  end
  return ("%s: %s%s"):format(r.proof.file, r.proof.words, r.shown and "" or " (IS NOT THERE)")
end

local function print_rows(only_open)
  local open = 0
  local list = M.rows()
  for _, r in ipairs(list) do
    open = open + (r.open and 1 or 0)
    if r.open or not only_open then
      print(("%s\t%s\t%s\t%s"):format(r.name, r.kind, presence(r), behaviour(r)))
    end
  end
  print(("%d names, %d open"):format(#list, open))
end

if arg and arg[0] and arg[0]:find("api%.lua$") then
  print_rows(arg[1] == "open")
end

return M
