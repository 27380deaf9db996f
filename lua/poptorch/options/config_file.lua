--- Options files: each line is a call as one would write it in Python, without
--- `options.` ("deviceIterations(4)", "Training.gradientAccumulation(2)").
---
--- All lines are parsed before the first is applied, so a syntax error applies
--- nothing; the line number counts the lines that are neither empty nor
--- comments. A line may use what builds options: enumerations, strategies,
--- Stage, Phase, TensorLocationSettings, torch dtypes, chained calls. Only
--- setters can be called, so a file can do nothing but set options.
---
--- Source: PopTorch user guide 4.1.1.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local enum = require("lupine.base.enum")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local locations = require("poptorch.options.locations")
local python = require("poptorch.options.python")
local strategies = require("poptorch.strategies")

local M = {}

local LONGEST_NAME = 100
local LONGEST_LINE = 65536

local METHODS = {}
for name in ([[stage phase ipu ipus setTensorsLiveness useSeparateBackwardPhase
  sendTensorsOffChipAfterFwd]]):gmatch("%S+") do
  METHODS[name] = true
end

-- A namespace answers to names only; a bound method only to calls.
local Namespace = {}
local function namespace(name, values)
  return setmetatable({ name = name, values = values }, Namespace)
end

local poptorch = namespace("poptorch", {
  enums = namespace("poptorch.enums", enums),
  Stage = strategies.Stage,
  Phase = strategies.Phase,
  PipelinedExecution = strategies.PipelinedExecution,
  ShardedExecution = strategies.ShardedExecution,
  SerialPhasedExecution = strategies.SerialPhasedExecution,
  ParallelPhasedExecution = strategies.ParallelPhasedExecution,
  TensorLocationSettings = locations.TensorLocationSettings,
})
for name, enumeration in pairs(enums) do
  poptorch.values[name] = enumeration
end

local DTYPES = { float = true, half = true, float16 = true, float32 = true }
local torch = namespace("torch", setmetatable({}, {
  __index = function(_, name)
    return DTYPES[name] and require("torch")[name] or nil
  end,
}))

local function no_attribute(owner, name)
  errors.raise("AttributeError", "%s has no option or setter '%s'", owner,
    python.shortened(name))
end

-- What a name stands for; a setter is {method = f, of = its group}.
local function attribute(of, name)
  if #name > LONGEST_NAME then
    no_attribute(class.of(of) and class.of(of).__name or check.describe(of), name)
  end
  if getmetatable(of) == Namespace then
    local value = of.values[name]
    if value == nil then
      no_attribute(of.name, name)
    end
    return value
  elseif enum.is_enum(of) then
    return of[name]
  elseif Group:is(of) then
    local value = of[name] -- raises for an unknown name
    for _, row in ipairs(getmetatable(of)._rows) do
      if row.name == name then
        return { method = value, of = of }
      end
    end
    if Group:is(value) and name:sub(1, 2) ~= "__" and name ~= "_owner" then
      return value
    end
  elseif class.of(of) and METHODS[name] and of[name] then
    return { method = of[name], of = of }
  end
  return no_attribute(class.of(of) and class.of(of).__name or check.describe(of), name)
end

M.attribute = attribute

local eval

local function call(node, names)
  local f = eval(node[2], names)
  local n = node[3].n
  local args = {}
  for i = 1, n do
    args[i] = eval(node[3][i], names)
  end
  if next(node[4]) then
    local keywords = {}
    for name, value in pairs(node[4]) do
      keywords[name] = eval(value, names)
    end
    n = n + 1
    args[n] = keywords
  end
  if class.is_class(f) or enum.is_enum(f) then
    return f(table.unpack(args, 1, n))
  elseif type(f) == "table" and not getmetatable(f) and f.method then
    return f.method(f.of, table.unpack(args, 1, n))
  end
  return errors.raise("TypeError", "%s cannot be called", check.describe(f))
end

function eval(node, names)
  local kind = node[1]
  if kind == "value" then
    return node[2]
  elseif kind == "name" then
    return errors.check(names[node[2]], "NameError",
      "name '%s' is not defined; a line may use options, poptorch and torch",
      python.shortened(node[2]))
  elseif kind == "attr" then
    return attribute(eval(node[2], names), node[3])
  elseif kind == "call" then
    return call(node, names)
  end
  local out = {}
  for i, item in ipairs(node[2]) do
    local value = eval(item, names)
    if kind == "dict" then
      errors.check(value ~= nil, "TypeError", "None cannot be a key")
      out[value] = eval(node[3][i], names)
    else
      out[i] = value
    end
  end
  return out
end

-- Adds the line to an error that a setter raised for it.
local function placed(e, options, path, number, line)
  if type(e) ~= "table" or not e.message then
    return e
  end
  local head, name = line:match("^([%a_][%w_]*)%.([%a_][%w_]*)")
  local hint = ""
  if head and errors.AttributeError:is(e) and not pcall(function() return options[head] end)
    and pcall(function() return options[name] end) then
    hint = (": a line stands without `%s.`"):format(head)
  end
  e.message = ("line %d of %s: %s%s\n> %s"):format(number, path:match("[^/]*$"), e.message, hint,
    python.shortened(line))
  return e
end

--- Applies one line of such a file.
--- error: ConfigFileError for a line that cannot be read; what the setter raises
---@param options poptorch.Options
---@param line string
function M.line(options, line)
  local tree, wrong = python.parse("options." .. line)
  if not tree then
    errors.raise("ConfigFileError", "SyntaxError: %s\n> %s", wrong, python.shortened(line))
  end
  eval(tree, { options = options, poptorch = poptorch, torch = torch })
end

--- Parses and applies a file. See Options.loadFromFile for what it raises.
---@param options poptorch.Options
---@param path string
function M.load(options, path)
  local file, message = io.open(path, "r")
  local text = file and file:read("a")
  if file then
    file:close()
  end
  if not text then
    local missing = not message or message:find("No such file", 1, true)
    errors.raise(missing and file == nil and "FileNotFoundError" or "OSError",
      "loadFromFile(filepath): cannot read '%s': %s", path, message or "it is no file")
  end
  local trees, lines, number = {}, {}, 0
  for line in (text:gsub("^\u{FEFF}", "") .. "\n"):gmatch("(.-)\r?\n") do
    line = line:match("^%s*(.-)%s*$")
    number = number + 1
    if line ~= "" and line:sub(1, 1) ~= "#" then
      local tree, wrong
      if #line > LONGEST_LINE then
        wrong = ("the line has %d bytes, at most %d are read"):format(#line, LONGEST_LINE)
      else
        tree, wrong = python.parse("options." .. line)
      end
      if not tree then
        errors.raise("ConfigFileError", "SyntaxError at line %d of %s: %s\n> %s", #trees + 1,
          path:match("[^/]*$"), wrong, python.shortened(line))
      end
      trees[#trees + 1] = tree
      lines[#trees] = { number, line }
    end
  end
  local names = { options = options, poptorch = poptorch, torch = torch }
  for i, tree in ipairs(trees) do
    local ok, e = pcall(eval, tree, names)
    if not ok then
      error(placed(e, options, path, lines[i][1], lines[i][2]), 0)
    end
  end
end

return M
