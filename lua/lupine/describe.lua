--- What ?NAME of the REPL prints: the forms of an operator in schema notation,
--- a Lua function's signature and description, what a class offers.
local check = require("lupine.base.check")
local complete = require("lupine.complete")
local description = require("lupine.description")
local examples = require("lupine.repl.examples")
local show = require("lupine.show")

local function add(lines, text)
  if text and text ~= "" then
    lines[#lines + 1] = text
  end
end

local function wrapped(words, indent)
  local lines, line = {}, indent
  for i, word in ipairs(words) do
    word = word .. (i < #words and ", " or "")
    if #line + #word > 80 then
      lines[#lines + 1] = line:gsub("%s+$", "")
      line = indent
    end
    line = line .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

local RENDER = {}

function RENDER.operator(r, name)
  local n = #r.forms
  local doc = r.text and r.text:gsub("\n", "\n  ")
  local lines = { name .. ": " .. (doc or n == 1 and "one form" or n .. " forms") }
  for _, text in ipairs(r.forms) do
    lines[#lines + 1] = "  " .. text
  end
  return table.concat(lines, "\n")
end

RENDER["function"] = function(r, name)
  if not r.forms[1] then
    return name .. ": a C function"
  end
  local lines = { r.forms[1] }
  add(lines, r.text)
  add(lines, r.place)
  return table.concat(lines, "\n")
end

function RENDER.class(r, name)
  local lines = { ("%s: class %s%s"):format(name, r.class,
    r.base and ", extends " .. r.base or "") }
  add(lines, r.forms[1])
  add(lines, r.text)
  add(lines, r.place)
  if #r.methods > 0 then
    lines[#lines + 1] = "methods:\n" .. wrapped(r.methods, "  ")
  end
  return table.concat(lines, "\n")
end

function RENDER.option(r)
  return r.help
end

function RENDER.module(r, name)
  return ("%s: a module of %d names:\n%s"):format(name, #r.names, wrapped(r.names, "  "))
end

function RENDER.enumeration(r, name)
  local members = {}
  for i, member in ipairs(r.members) do
    members[i] = ("%s (%s)"):format(member.name, tostring(member.value))
  end
  local lines = { ("%s: an enumeration, with the values of its members:\n%s"):format(name,
    wrapped(members, "  ")) }
  add(lines, r.text)
  return table.concat(lines, "\n")
end

local PLACES = require("lupine.repl.places")
-- What scripts call some of them.
local SHORT = { F = "torch.nn.functional", data = "torch.utils.data", D = "torch.distributions" }

local function method(path, globals)
  local name = path:match("^Tensor%.([%w_]+)$") or path:match("^[%w_]+$")
  return complete.resolve("torch", globals, true) and require("lupine.core").methods[name]
end

-- The value of a dotted name and the name in full; nil if there is none.
local function find(path, globals)
  local v = complete.resolve(path, globals, true)
  if v ~= nil then
    return v, path
  end
  local first, rest = path:match("^(%w+)%.(.*)$")
  local whole = SHORT[first] and SHORT[first] .. "." .. rest
  v = whole and complete.resolve(whole, globals, true)
  for _, above in ipairs(v == nil and PLACES or {}) do
    whole = above .. "." .. path
    v = complete.resolve(whole, globals, true)
    if v ~= nil then
      return v, whole
    end
  end
  local of_options = v == nil and path:match("^[%w.]*%f[%w]Options%.(.+)$")
  if of_options then -- a group's, which a class has not: Options.Training.gradientAccumulation
    whole = "poptorch.options.CLASSES." .. of_options
    v = complete.resolve(whole, globals, true)
  end
  if v == nil then
    whole = "Tensor:" .. path:match("[%w_]+$")
    v = method(path, globals)
  end
  return v, whole
end

-- The names that are near one nobody has.
local function near(path, globals)
  local above, last = path:match("^(.*)%.([^.]*)$")
  local names = {}
  for _, parent in ipairs(above and { above, "torch." .. above } or PLACES) do
    local t = complete.resolve(parent, globals, true)
    for key in next, type(t) == "table" and t or {} do
      names[#names + 1] = key
    end
  end
  return check.nearest(last or path, names)
end

--- The text for a name: "torch.sum", "nn.LSTM", "x:sum", "poptorch.Options".
---@param name string
---@param globals table
---@return string
return function(name, globals)
  local path = name:gsub(":", ".")
  local v, whole = find(path, globals)
  if v ~= nil and whole ~= path then
    name = whole
  end
  local record = description.of(v, name, globals)
  if record then
    local text, example = RENDER[record.kind](record, name), examples.text(v)
    return example and text .. "\n" .. example or text
  elseif v == nil then
    return "no value is named " .. name .. near(path, globals)
  end
  return name .. ": " .. show.show(v)
end
