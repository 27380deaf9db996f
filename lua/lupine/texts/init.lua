--- Texts of public names that have none beside a definition of their own, since a
--- helper or a table makes them: lupine.texts.of(value). The files beside this one
--- return {module, lines}: a line has the names that a text is of, within the module
--- ("Conv1d", "Module:cpu"), a colon, and the text, which may go on in indented lines.
--- (Texts of operators: lupine.base.operator_texts.)
local core = require("lupine.core")

local FILES = { "popart", "poptorch", "torch", "nn", "functional", "vision" }

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

local index, loaded

-- The index grows with the modules that are loaded.
local function count()
  local n = 0
  for _ in pairs(package.loaded) do
    n = n + 1
  end
  return n
end

--- The text of a value, nil if there is none.
---@param value any
---@return string?
function M.of(value)
  if not index or count() ~= loaded then
    index = {}
    M.each(function(module, name, text)
      index[M.value(module, name) or index] = text
    end)
    loaded = count()
  end
  return index[value]
end

return M
