--- Annotations for editors (LuaCATS, as lua-language-server reads them) of all
--- that Lua sources do not show: the operators, which are made of their forms
--- at start-up, and the functions of the core. `make meta` writes them.
---
---     require("lupine.annotations").write("build/meta")
---
--- Each form is an overload; keywords may name any argument. Source of the
--- syntax: luals.github.io/wiki/annotations.
local arguments = require("lupine.base.arguments")
local core = require("lupine.core")
local operator_texts = require("lupine.base.operator_texts")
local show = require("lupine.show")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

local TYPES = { Tensor = "torch.Tensor", Value = "torch.Tensor|number|boolean", int = "integer",
  float = "number", bool = "boolean", str = "string", Scalar = "number|boolean",
  ScalarType = "torch.dtype", Size = "torch.Size", Device = "torch.device|string",
  Generator = "torch.Generator", Function = "function", Any = "any" }

local function type_of(a)
  local name = TYPES[a.kind] or "any"
  if not a.list then
    return name
  end
  local list = name:find("|", 1, true) and ("(%s)[]"):format(name) or name .. "[]"
  if a.kind == "int" then
    list = list .. "|torch.Size" .. (a.list ~= "[]" and "|integer" or "")
  end
  return list
end

-- A parameter's name that is a word of Lua gets a final _.
local function lua_name(name)
  return show.keywords[name] and name .. "_" or name
end

local function key_of(name)
  return show.keywords[name] and ('["%s"]'):format(name) or name
end

-- ---- one form ----------------------------------------------------------------

-- Keywords that are no arguments of the form.
local function extra_keywords(form)
  local out, flags = {}, form.flags or {}
  if flags.out then
    out[#out + 1] = "out?: torch.Tensor"
  end
  if flags.overwrites then
    out[#out + 1] = "inplace?: boolean"
  end
  if flags.makes then
    out[#out + 1] = "device?: torch.device|string"
    out[#out + 1] = "requires_grad?: boolean"
  end
  if flags.draws then
    out[#out + 1] = "generator?: torch.Generator"
  end
  return out
end

local function results_of(form, self)
  local list = {}
  for i, r in ipairs(form.results) do
    if r.kind ~= "None" then
      list[#list + 1] = { type = self or type_of(r), name = r.name or (i == 1 and "result" or nil) }
    end
  end
  return list
end

local function keyword_type(form, first)
  local fields = {}
  for i = first, #form.arguments do
    local a = form.arguments[i]
    fields[#fields + 1] = ("%s?: %s"):format(key_of(a.name), type_of(a))
  end
  for _, text in ipairs(extra_keywords(form)) do
    fields[#fields + 1] = text
  end
  return #fields > 0 and ("{ %s }"):format(table.concat(fields, ", ")) or nil
end

-- Parameters by position and, if any can be named, the keywords behind them.
local function parameters(form)
  local list = {}
  for i, a in ipairs(form.arguments) do
    if a.kw_only then
      break
    end
    list[i] = { name = lua_name(a.name), type = type_of(a), optional = a.optional }
  end
  local first = form.arguments[1]
  local keywords = first and not form.positional
    and keyword_type(form, first.name == "self" and 2 or 1)
  if keywords then
    list[#list + 1] = { name = "keywords", type = keywords, optional = true }
  end
  return list
end

local function overload(params, results)
  local args, outs = {}, {}
  for i, p in ipairs(params) do
    args[i] = ("%s%s: %s"):format(p.name, p.optional and p.name ~= "..." and "?" or "", p.type)
  end
  for i, r in ipairs(results) do
    outs[i] = r.type
  end
  return ("---@overload fun(%s)%s"):format(table.concat(args, ", "),
    #outs > 0 and ": " .. table.concat(outs, ", ") or "")
end

-- Other ways to write the same form: keywords right after the first tensor,
-- sizes one by one.
local function variants(form, results)
  local list, a = {}, form.arguments
  local positional = 0
  for _, x in ipairs(a) do
    positional = positional + (x.kw_only and 0 or 1)
  end
  if positional > 1 and not form.positional then
    local first = { name = lua_name(a[1].name), type = type_of(a[1]) }
    list[1] = overload({ first, { name = "keywords", type = keyword_type(form, 2) } }, results)
  end
  local last = a[positional]
  if last and last.kind == "int" and last.list == "[]" and positional <= 2 then
    local params = {}
    if positional == 2 then
      params[1] = { name = lua_name(a[1].name), type = type_of(a[1]) }
    end
    params[#params + 1] = { name = "...", type = "integer" }
    list[#list + 1] = overload(params, results)
  end
  return list
end

-- ---- one function ------------------------------------------------------------

-- The forms of a name as the text of one definition. `self`: results of an
-- in-place method are its receiver.
local function definition(place, name, forms, suffix)
  local lines, first = {}, forms[1]
  local self = suffix and "torch.Tensor" or nil
  for _, form in ipairs(forms) do
    local text = signatures.shown(form.text)
    lines[#lines + 1] = "--- `" .. (suffix and text:gsub("^[%w_]+", "%0" .. suffix) or text) .. "`"
  end
  if first.doc then
    lines[#lines + 1] = "---"
    lines[#lines + 1] = "--- " .. first.doc:gsub("\n", "\n--- ")
  end
  local params, results, names = parameters(first), results_of(first, self), {}
  for i, p in ipairs(params) do
    lines[#lines + 1] = ("---@param %s%s %s"):format(p.name, p.optional and "?" or "", p.type)
    names[i] = p.name
  end
  for _, r in ipairs(results) do
    lines[#lines + 1] = ("---@return %s%s"):format(r.type, r.name and " " .. r.name or "")
  end
  for i, form in ipairs(forms) do
    local outs = results_of(form, self)
    if i > 1 then
      lines[#lines + 1] = overload(parameters(form), outs)
    end
    for _, text in ipairs(variants(form, outs)) do
      lines[#lines + 1] = text
    end
  end
  local access = show.keywords[name] and ('%s["%s"]'):format(place, name) or place .. "." .. name
  lines[#lines + 1] = ("%s = function(%s) end"):format(access, table.concat(names, ", "))
  return table.concat(lines, "\n")
end

-- name -> forms, of a surface.
local function by_name(surface)
  local out, list = {}, core.form_list()
  local of_inplace = signatures.inplace_names(list)
  for _, f in ipairs(list) do
    local name = signatures.name_at(surface, f, of_inplace)
    if name then
      local form = signatures.parse(f.text)
      local nn = surface.flag == "nn"
      form.text, form.doc = f.text, operator_texts[f.name]
      form.flags = { out = f.out, overwrites = nn and f.overwrites, draws = f.draws,
        makes = f.makes }
      out[name] = out[name] or {}
      table.insert(out[name], form)
    end
  end
  return out
end

local function plain(forms, list)
  for _, form in ipairs(list) do
    forms[form.name] = forms[form.name] or { form }
  end
end

-- A function of Lua: the parameters that its helper noted, or its own.
local function lua_function(place, name, f)
  local noted, params = signatures.noted(f), {}
  if noted then
    for piece in noted.text:match("%((.*)%)"):gmatch("[^,]+") do
      params[#params + 1] = lua_name(piece:match("^%s*([%w_]*)"))
    end
    for i, param in ipairs(params) do -- (1, 2) as a default leaves pieces
      params[i] = param:find("^%a") and param or nil
    end
  else
    local variadic
    params, variadic = arguments.parameters(f, 0)
    params[#params + 1] = variadic and "..." or nil
  end
  local lines = {}
  for i, p in ipairs(params) do
    lines[#lines + 1] = ("---@param %s%s any"):format(p, (i > 1 and p ~= "...") and "?" or "")
  end
  if noted then
    params[#params + 1] = "keywords"
    lines[#lines + 1] = "---@param keywords? table"
  end
  lines[#lines + 1] = "---@return any ..."
  lines[#lines + 1] = ("%s.%s = function(%s) end"):format(place, name, table.concat(params, ", "))
  return table.concat(lines, "\n")
end

local function functions(out, place, forms, values)
  for _, name in ipairs(tables.keys(forms)) do
    out[#out + 1] = definition(place, name, forms[name], forms[name].suffix)
  end
  for _, name in ipairs(tables.keys(values)) do
    if not forms[name] and type(values[name]) == "function" and name:find("^[%a_][%w_]*$")
      and not show.keywords[name] then
      out[#out + 1] = lua_function(place, name, values[name])
    end
  end
end

-- ---- files -------------------------------------------------------------------

local HEAD = "---@meta %s\n-- Made by lupine %s from the forms of its operators; do not edit.\n"

local function fields_of_tensor()
  local lines = { "---@class torch.Tensor" }
  for _, p in ipairs(signatures.properties) do
    local kind = p[2]:gsub("%?$", "")
    lines[#lines + 1] = ("---@field %s %s%s %s"):format(p[1], TYPES[kind],
      kind ~= p[2] and "|nil" or "", p[3])
  end
  lines[#lines + 1] = "---@field [integer] torch.Tensor"
  lines[#lines + 1] = "---@field [string] torch.Tensor x[\"0:5, :, -1\"]: Python's text"
  for _, op in ipairs({ "add", "sub", "mul", "div", "mod", "pow", "idiv", "band", "bor", "bxor",
    "shl", "shr" }) do
    lines[#lines + 1] = ("---@operator %s(torch.Tensor|number): torch.Tensor"):format(op)
  end
  for _, op in ipairs({ "unm", "bnot" }) do
    lines[#lines + 1] = ("---@operator %s: torch.Tensor"):format(op)
  end
  lines[#lines + 1] = "---@operator len: integer"
  lines[#lines + 1] = "local Tensor = {}"
  return table.concat(lines, "\n")
end

local SMALL_CLASSES = [[
---@class torch.Size
---@field [integer] integer
---@operator len: integer

---@class torch.dtype
---@field itemsize integer
---@field is_floating_point boolean
---@field is_signed boolean
---@field is_complex boolean

---@class torch.device
---@field type string

---@class torch.Generator
local Generator = {}]]

local function tensor_methods(out)
  local forms = by_name(signatures.surfaces[5])
  for name, list in pairs(by_name(signatures.surfaces[6])) do
    list.suffix = "_"
    forms[name] = forms[name] or list
  end
  plain(forms, signatures.methods)
  functions(out, "Tensor", forms, core.methods)
end

local function torch_file()
  local torch = require("torch")
  local out = { HEAD:format("torch", core.version), fields_of_tensor(), SMALL_CLASSES }
  local forms = {}
  plain(forms, signatures.generator)
  functions(out, "Generator", forms, {})
  tensor_methods(out)
  out[#out + 1] = "---@class torch\nlocal torch = {}"
  for _, name in ipairs(tables.keys(core.dtypes)) do
    out[#out + 1] = ("---@type torch.dtype\ntorch.%s = nil"):format(name)
  end
  forms = by_name(signatures.surfaces[1])
  plain(forms, signatures.functions)
  functions(out, "torch", forms, torch)
  for i, name in ipairs({ "special", "linalg" }) do
    out[#out + 1] = ("torch.%s = {}"):format(name)
    functions(out, "torch." .. name, by_name(signatures.surfaces[2 + i]), torch[name])
  end
  for _, name in ipairs({ "nn", "optim", "utils", "autograd", "testing" }) do
    out[#out + 1] = ('torch.%s = require("torch.%s")'):format(name, name)
  end
  out[#out + 1] = "return torch\n"
  return table.concat(out, "\n\n")
end

local function functional_file()
  local out = { HEAD:format("torch.nn.functional", core.version),
    "---@class torch.nn.functional\nlocal functional = {}" }
  functions(out, "functional", by_name(signatures.surfaces[2]),
    require("torch.nn.functional"))
  out[#out + 1] = "return functional\n"
  return table.concat(out, "\n\n")
end

local REPORT_TYPES = { integers = "integer[]", named = "table<string, integer>" }

-- Classes lupine.report.GROUP of the fields of reports.
local function report_file()
  local out = { HEAD:format("lupine.report", core.version) }
  for _, f in ipairs(core.report_fields()) do
    if not f.name then
      out[#out + 1] = ("\n--- %s\n---@class lupine.report.%s"):format(f.doc, f.group)
    else
      local entry = f.of and "lupine.report." .. f.of
      local kind = f.kind == "list" and entry .. "[]"
        or f.kind == "map" and ("table<integer, %s>"):format(entry) or REPORT_TYPES[f.kind]
        or f.kind
      out[#out + 1] = ("---@field %s %s%s %s"):format(f.name, kind,
        f.unit ~= "" and (" [%s]"):format(f.unit) or "", f.doc)
    end
  end
  return table.concat(out, "\n") .. "\n"
end

-- Those that take nothing by name have no keywords.
local function core_file()
  local out = { HEAD:format("lupine.core", core.version), "---@class lupine.core\nlocal core = {}" }
  local forms = {}
  for _, form in ipairs(signatures.own) do
    local last = form.arguments[#form.arguments]
    form.positional = not (last and last.kw_only)
  end
  plain(forms, signatures.own)
  functions(out, "core", forms, {})
  out[#out + 1] = "return core\n"
  return table.concat(out, "\n\n")
end

-- A method of a Builder's opset, of the parameters that are noted.
local function opset_method(class, name, f)
  local params, lines = {}, {}
  for param in signatures.noted(f).text:match("%((.*)%)"):gmatch("[%w_]+") do
    params[#params + 1] = param
    lines[#lines + 1] = ("---@param %s any"):format(param .. (param ~= "args" and "?" or ""))
  end
  lines[#lines + 1] = "---@return any ids one output's, or a list"
  lines[#lines + 1] = ("function %s:%s(%s) end"):format(class, name, table.concat(params, ", "))
  return table.concat(lines, "\n")
end

-- The methods of a Builder's opsets, of the default version.
local function builder_file()
  local builder = require("popart").Builder()
  local out = { HEAD:format("popart.builder", core.version), "---@class popart.Builder\n"
    .. "---@field aiOnnx popart.AiOnnx\n---@field aiGraphcore popart.AiGraphcore\n"
    .. "local Builder = {}" }
  for _, class in ipairs({ "AiOnnx", "AiGraphcore" }) do
    local opset = builder[(class:gsub("^A", "a"))]
    local methods = getmetatable(opset).__members(opset)[1]
    out[#out + 1] = ("---@class popart.%s\nlocal %s = {}"):format(class, class)
    for _, name in ipairs(tables.keys(methods)) do
      out[#out + 1] = opset_method(class, name, methods[name])
    end
  end
  out[#out + 1] = "return Builder\n"
  return table.concat(out, "\n\n")
end

--- The files' text by name: "torch.lua", "torch/nn/functional.lua",
--- "lupine_core.lua", "lupine_report.lua", "popart_builder.lua".
---@return table<string, string>
function M.files()
  return { ["torch.lua"] = torch_file(), ["torch/nn/functional.lua"] = functional_file(),
    ["lupine_core.lua"] = core_file(), ["lupine_report.lua"] = report_file(),
    ["popart_builder.lua"] = builder_file() }
end

--- Writes the files into a folder, whose sub-folders must exist.
---@param folder string
function M.write(folder)
  for name, text in pairs(M.files()) do
    local path = folder .. "/" .. name
    local file = assert(io.open(path, "w"))
    assert(file:write(text))
    assert(file:close())
  end
end

return M
