--- The locals of a session. Each entry is a chunk of its own, and a local of
--- its top level is a local for Lua too, as quick as in a script and captured
--- by the functions that the entry makes. The entry is compiled with a call
--- behind each declaration that hands a function over which has the new locals
--- as upvalues; later entries that name them are compiled inside a function
--- with locals of these names, whose upvalues debug.upvaluejoin makes the same.
--- So a local that is declared again is a new one, and functions made before
--- keep theirs. A `<const>` one stays constant, a `<close>` one is closed where
--- its entry ends, and `_` is the loop's.
local lex = require("lupine.repl.lex")

local M = {}

local Scope = {}
Scope.__index = Scope

-- The name under which a chunk finds the function that takes its locals.
local KEEP = "_lupine_keep_"

---@class lupine.repl.Scope
---@field cells table<string, {f: function, i: integer, const: boolean?}>

--- A session without locals.
---@return lupine.repl.Scope
function M.new()
  return setmetatable({ cells = {} }, Scope)
end

local function upvalue(f, name)
  for i = 1, 255 do
    local found = debug.getupvalue(f, i)
    if found == name or not found then
      return found and i
    end
  end
end

-- A constant of compile time is no upvalue: it gets one.
local function constant(value)
  return function()
    return value
  end
end

local function keep(scope, d, f)
  local values
  for k, name in ipairs(d.names) do
    local i = upvalue(f, name)
    if not i then
      values = values or table.pack(f())
    end
    if name ~= "_" then
      scope.cells[name] = { f = i and f or constant(values[k]), i = i or 1,
        const = d.const[name] }
    end
  end
end

-- The text with a call behind each declaration that is kept. No line changes.
local function keeping(text, locals)
  local parts, from = {}, 1
  for i, d in ipairs(locals) do
    if not d.close then
      parts[#parts + 1] = text:sub(from, d.stop)
      parts[#parts + 1] = (";%s(%d,function()return %s end);"):format(KEEP, i,
        table.concat(d.names, ","))
      from = d.stop + 1
    end
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts)
end

-- The session's locals that the chunk may mean, in order.
local function used(scope, chunk)
  local names = {}
  for name in pairs(chunk.names) do
    names[#names + 1] = scope.cells[name] and name or nil
  end
  table.sort(names)
  return names
end

--- Compiles a chunk that Lua takes so that it sees the session's locals and
--- leaves its own to it.
---@param text string
---@param name string the chunk's name
---@return function?, string? message
function Scope:load(text, name)
  local chunk = lex.chunk(text)
  local names = used(self, chunk)
  if #names == 0 and #chunk.locals == 0 then
    return load(text, name, "t")
  end
  local head = { KEEP .. " <const>" }
  for i, n in ipairs(names) do
    head[i + 1] = n .. (self.cells[n].const and " <const>" or "")
  end
  local outer, message = load(("local %s = ...; return function(...) %s\nend"):format(
    table.concat(head, ", "), keeping(text, chunk.locals)), name, "t")
  if not outer then
    return nil, message
  end
  local f = outer(function(i, holder)
    keep(self, chunk.locals[i], holder)
  end)
  for _, n in ipairs(names) do
    local i, cell = upvalue(f, n), self.cells[n]
    if i then
      debug.upvaluejoin(f, i, cell.f, cell.i)
    end
  end
  return f
end

--- The names that an entry finds: the locals, then the globals.
---@param globals table
---@return table
function Scope:names(globals)
  local t = {}
  for name, cell in pairs(self.cells) do
    t[name] = select(2, debug.getupvalue(cell.f, cell.i))
  end
  return setmetatable(t, { __index = globals })
end

return M
