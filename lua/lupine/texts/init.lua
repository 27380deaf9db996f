--- Texts of public names that have none beside a definition of their own, since a
--- helper or a table makes them: lupine.texts.of(value). The files beside this one
--- return {module, lines}: a line has the names that a text is of, within the module
--- ("Conv1d", "Module:cpu"; "Module.training" is a field of its objects), a colon, and
--- the text, which may go on in indented lines. (Texts of operators:
--- lupine.base.operator_texts.)
local core = require("lupine.core")

local FILES = { "popart", "poptorch", "torch", "nn", "functional", "distributions",
  "vision" }

local M = {}

local function lines_of(lines, fn)
  for names, text in lines:gsub("\n%s+", " "):gmatch("(%S[^\n]-): ([^\n]+)") do
    for name in names:gmatch("%S+") do
      fn(name, text)
    end
  end
end

--- Calls fn(module, name, text) for every text.
---@param fn fun(module: string, name: string, text: string)
function M.each(fn)
  for _, file in ipairs(FILES) do
    for _, part in ipairs(require("lupine.texts." .. file)) do
      lines_of(part[2], function(name, text)
        fn(part[1], name, text)
      end)
    end
  end
end

--- What a name of a module stands for, if the module is loaded and has it.
---@param module string
---@param name string "Conv1d", "Module:cpu"
---@return any
function M.value(module, name)
  local v = module == "torch.Tensor" and core.methods or package.loaded[module]
  for part in name:gmatch("[^:]+") do
    v = type(v) == "table" and (rawget(v, part) or (rawget(v, "__methods") or {})[part]) or nil
  end
  return v
end

local index, fields, loaded

-- The index grows with the modules that are loaded.
local function count()
  local n = 0
  for _ in pairs(package.loaded) do
    n = n + 1
  end
  return n
end

local function fill()
  if index and count() == loaded then
    return
  end
  index, fields = {}, {}
  M.each(function(module, name, text)
    local class, field = name:match("^(.*)%.(.*)$")
    local value = M.value(module, class or name)
    if value and field then
      fields[value] = fields[value] or {}
      table.insert(fields[value], { name = field, type = "", text = text })
    elseif value then
      index[value] = text
    end
  end)
  loaded = count()
end

--- The text of a value, nil if there is none.
---@param value any
---@return string?
function M.of(value)
  fill()
  return index[value]
end

--- Fields of a class's objects, {name, type, text} each.
---@param cls table
---@return table[]
function M.fields(cls)
  fill()
  return fields[cls] or {}
end

return M
