--- The public names: modules in order, each with its entries, found by walking
--- what the loaded modules hold. What is said of a name is what ?NAME says
--- (lupine.description).
---
---   module   {name, intro, entries}
---   entry    {name, short, kind, forms, text, place, above, shown, entries}
---            kind: as lupine.description's, or "value" and "property"
local class = require("lupine.base.class")
local description = require("lupine.description")
local enum = require("lupine.base.enum")
local show = require("lupine.show")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

local ROOTS = { "torch", "torchvision", "poptorch", "popart", "popdist", "lupine", "pva",
  "torch_scatter", "torch_spline_conv", "popdist.poptorch", "lupine.trainer.callbacks" }
-- What nothing announces before it is first named.
local LOADED = { "torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.parametrize",
  "torch.nn.utils.parametrizations", "torch.nn.utils.prune", "torch.distributions", "torch.cuda",
  "torch.autograd.functional" }
-- Tables of plain data, and second names of tables that have a page.
local SKIPPED = tables.set("torch.errors.classes torch.ops.loaded_libraries torch.nn.parameter "
  .. "lupine.show.keywords lupine.show.options popart.errors.classes popart.errors.throws "
  .. "poptorch.options.GROUPS poptorch.options.CLASSES torchvision.io.MODES pva.ProgramType "
  .. "torchvision.datasets.FASHION_MNIST_CLASSES torchvision.models.efficientnet "
  .. "torchvision.models.mobilenetv3 torchvision.models.resnet torchvision.models.convnext "
  .. "torchvision.models.vision_transformer torchvision.models.mobilenetv2 "
  .. "torchvision.models.vgg torch.Tensor")

-- ---- entries ---------------------------------------------------------------------

local globals = {}
-- Class -> the first name that it has.
local public = {}

local function entry_of(name, value)
  local record = description.of(value, name, globals)
    or { kind = "value", forms = {}, shown = show.show(value) }
  record.name, record.short = name, name:match("[^.:]+$")
  return record
end

local function method_entry(name, f)
  local record = description.method(f, name)
  record.name, record.short = name, name:match("[^.:]+$")
  return record
end

-- Options are methods and fields that rows describe.
local function options(entry, cls)
  local names = {}
  for _, row in ipairs(rawget(cls, "_rows") or {}) do
    names[#names + 1] = row.name or row.key
  end
  for _, field in ipairs(#names > 0 and names or require("popart.options").fields(cls)) do
    local name = entry.name .. "." .. field
    local record = description.of_option(cls, field)
    record.name, record.short = name, field
    table.insert(entry.entries, record)
  end
end

local function properties(entry, fields, seen)
  for _, field in ipairs(fields) do
    if not seen[field.name] then
      seen[field.name] = true
      table.insert(entry.entries, { name = entry.name .. "." .. field.name, short = field.name,
        kind = "property", forms = {}, text = field.text,
        shown = field.type ~= "" and field.type })
    end
  end
end

local function methods(entry, cls, names, seen)
  for _, name in ipairs(names) do
    local method = not seen[name] and method_entry(entry.name .. ":" .. name,
      description.own_method(cls, name))
    if method and description.is_news(cls, name, method) then
      seen[name] = true
      table.insert(entry.entries, method)
    end
  end
end

-- A class has what it defines, and what classes above define that have no name of their
-- own; `above` is the first one that has.
local function with_methods(entry, cls)
  entry.entries = {}
  options(entry, cls)
  local seen = {}
  for _, e in ipairs(entry.entries) do
    seen[e.short] = true
  end
  properties(entry, entry.fields, seen)
  methods(entry, cls, entry.methods, seen)
  local base = rawget(cls, "__base")
  while base and not public[base] do
    local record = description.of(base, "", globals)
    properties(entry, record.fields, seen)
    methods(entry, base, record.methods, seen)
    base = rawget(base, "__base")
  end
  entry.above = base and public[base]
  return entry
end

local function members(entry)
  entry.entries = {}
  for i, member in ipairs(entry.members) do
    entry.entries[i] = { name = entry.name .. "." .. member.name, short = member.name,
      kind = "member", forms = {}, shown = tostring(member.value) }
  end
  return entry
end

local function whole_entry(name, value)
  local entry = entry_of(name, value)
  if entry.kind == "class" then
    return with_methods(entry, value)
  end
  return entry.kind == "enumeration" and members(entry) or entry
end

-- ---- modules ---------------------------------------------------------------------

-- Of modules that have no file of their own.
local INTROS = {
  ["lupine.onnx.numpy_helper"] = "Tensors of ONNX's files to tensors and back.",
  ["popart.logger"] = "Levels of popart's log, as its C++ side sets them.",
  ["torch.errors"] = "Classes of errors: `torch.errors.ValueError:is(e)` tests one that pcall gave, "
    .. "for a class or those below it. An error has message, type, location, origin and "
    .. "traceback.",
  ["torch.special"] = "Special functions of mathematics, element by element.",
  ["torchvision.transforms.functional"] = "Transforms of pictures as plain functions.",
}

-- The block at the head of a module's file.
local function intro_of(name)
  if INTROS[name] then
    return INTROS[name]
  end
  local path = package.searchpath(name, package.path)
  local lines = {}
  for line in path and io.lines(path) or function() end do
    if not line:find("^%-%-%-") or line:find("^%-%-%-@") then
      break
    end
    lines[#lines + 1] = line:gsub("^%-%-%-%s?", "")
  end
  return table.concat(lines, "\n")
end

local function names_of(t)
  local mt, names = debug.getmetatable(t), {}
  for name, module in pairs(mt and rawget(mt, "__lazy") or {}) do
    names[name] = t[name] or require(module)
  end
  for name, value in next, t do
    if type(name) == "string" and not name:find("^_") then
      names[name] = value
    end
  end
  return names
end

local function is_module(value, name)
  return type(value) == "table" and not class.is_class(value) and not enum.is_enum(value)
    and not class.of(value) and not rawget(value, "__name") and not enum.is_member(value) and not SKIPPED[name]
    and (next(value) ~= nil or debug.getmetatable(value) ~= nil)
end

-- Whether a table has nothing but what the one above has, as torch.distributions.beta.
-- (Of others, as poptorch.enums, documents speak.)
local function is_alias(t, above, full)
  if not full:find("^torch%.distributions%.") then
    return false
  end
  for name, value in next, t do
    if type(name) == "string" and not name:find("^_") and not rawequal(above[name], value) then
      return false
    end
  end
  return next(t) ~= nil
end

local function walk(list, seen, t, name)
  seen[t] = name
  local names, module = names_of(t), { name = name, intro = intro_of(name), values = {} }
  list[#list + 1] = module
  for _, key in ipairs(tables.keys(names)) do
    local value, full = names[key], name .. "." .. key
    if is_module(value, full) then
      if not seen[value] and not is_alias(value, names, full) then
        walk(list, seen, value, full)
      end
    elseif not SKIPPED[full] then
      table.insert(module.values, { full, value })
      if class.is_class(value) then
        public[value] = public[value] or full
      end
    end
  end
end

local function entries_of(module)
  module.entries = {}
  for i, named in ipairs(module.values) do
    module.entries[i] = whole_entry(named[1], named[2])
  end
end

-- ---- what no module holds ----------------------------------------------------------

local function tensor_module()
  local core = require("lupine.core")
  local module = { name = "torch.Tensor", entries = {},
    intro = "Methods and properties of tensors. A method is called with a colon, x:sum(1); "
      .. "those that end in _ change the tensor in place." }
  for _, p in ipairs(signatures.properties) do
    if not p[1]:find("^_") then
      table.insert(module.entries, { name = "torch.Tensor." .. p[1], short = p[1],
        kind = "property", forms = {}, text = p[3], shown = p[2] })
    end
  end
  for _, name in ipairs(tables.keys(core.methods)) do
    if type(core.methods[name]) == "function" and not name:find("^_") then
      table.insert(module.entries, method_entry("torch.Tensor:" .. name, core.methods[name]))
    end
  end
  return module
end

local function generator_module()
  local module = { name = "torch.Generator", entries = {},
    intro = "A random state of its own: torch.Generator() makes one, {generator = g} names it." }
  for _, form in ipairs(signatures.generator) do
    table.insert(module.entries, { name = "torch.Generator:" .. form.name, short = form.name,
      kind = "function", forms = { form.text }, text = form.doc })
  end
  return module
end

local function option_modules(list)
  local poptorch = require("poptorch.options")
  for _, group in ipairs(poptorch.GROUPS) do
    local entry = { name = "poptorch.Options." .. group, entries = {}, methods = {} }
    options(entry, poptorch.CLASSES[group])
    list[#list + 1] = { name = entry.name, entries = entry.entries,
      intro = ("Setters of opts.%s, each of which returns it (PopTorch's documents: "
        .. "`poptorch.options.%s`)."):format(group, poptorch.CLASSES[group].__name) }
  end
end

local function opset_modules(list)
  local builder = require("popart").Builder()
  for _, name in ipairs({ "aiOnnx", "aiGraphcore" }) do
    local opset = builder[name]
    local methods = getmetatable(opset).__members(opset)[1]
    local module = { name = "popart.Builder." .. name, entries = {},
      intro = "Methods of a builder's opset of the default version: each adds an operator to "
        .. "the graph and returns the name of its output, of several ones a list." }
    for _, key in ipairs(tables.keys(methods)) do
      table.insert(module.entries, method_entry(("%s:%s"):format(module.name, key), methods[key]))
    end
    list[#list + 1] = module
  end
end

--- All modules, in order of their names but for what belongs to a root.
---@return table[]
function M.gather()
  local list, seen = {}, {}
  for _, root in ipairs(ROOTS) do
    globals[root] = require(root)
  end
  for _, name in ipairs(LOADED) do
    local value = globals.torch
    for part in name:gmatch("%.([%w_]+)") do
      value = value[part]
    end
  end
  for _, root in ipairs(ROOTS) do
    walk(list, seen, globals[root], root)
  end
  for _, module in ipairs(list) do
    entries_of(module)
  end
  list[#list + 1] = tensor_module()
  list[#list + 1] = generator_module()
  option_modules(list)
  opset_modules(list)
  table.sort(list, function(a, b)
    return a.name < b.name
  end)
  return list
end

--- Calls fn(entry, module) for every entry, those of classes too.
---@param modules table[]
---@param fn fun(entry: table, module: table)
function M.each(modules, fn)
  local function visit(entries, module)
    for _, entry in ipairs(entries) do
      fn(entry, module)
      visit(entry.entries or {}, module)
    end
  end
  for _, module in ipairs(modules) do
    visit(module.entries, module)
  end
end

--- Whether an entry ought to say more than how it is called, and does not. Values,
--- members of enumerations and fields of a type show themselves.
---@param entry table
---@return boolean
function M.lacks_text(entry)
  return not entry.shown and entry.kind ~= "value" and entry.kind ~= "member" and entry.kind ~= "module"
    and not description.has_prose(entry.text)
end

return M
