--- Graphs as text, for the specs of the intermediate form and its passes.
local core = require("lupine.core")
local program = require("spec.support.program")
local torch = require("torch")

local M = {}

local HEAD = "graph\n"

--- Text of a whole graph from the lines of a specification: the indentation
--- goes, the head line is added, and an origin unless the lines have one.
function M.text(lines, head)
  local out, has_origin = {}, lines:find("origin", 1, true)
  for line in lines:gmatch("[^\n]+") do
    line = line:match("^%s*(.-)%s*$")
    if not has_origin and line:find("^[%%=]") then
      out[#out + 1] = "origin"
      has_origin = true
    end
    if line ~= "" then
      out[#out + 1] = line
    end
  end
  return (head or HEAD) .. table.concat(out, "\n") .. "\n"
end

--- Parses, and prints again: the canonical text.
function M.canonical(text)
  return core.graph_parse(text):print()
end

--- Text after one pass (a name) or after all common passes (nil).
function M.run_pass(text, name)
  local g = core.graph_parse(text)
  g:verify()
  if name then
    g:run_pass(name)
  else
    g:run_passes()
  end
  return g:print()
end

--- `before` becomes `after` under the pass; both in the form of M.text.
--- Values of `after` may have any labels.
function M.becomes(pass, before, after, head)
  local want = M.canonical(M.text(after, head))
  local got = M.run_pass(M.text(before, head), pass)
  if got ~= want then
    error(("pass %s gave\n%s\nexpected\n%s"):format(pass, got, want), 2)
  end
end

--- The pass leaves it as it is.
function M.stays(pass, before, head)
  M.becomes(pass, before, before, head)
end

--- Runs graph_probe (spec/tools) on a text; returns what it prints.
function M.probe(text, ...)
  local command = program.build .. "/tools/graph_probe " .. table.concat({ ... }, " ")
  local out, err, code = program.shell(command, text)
  if code ~= 0 then
    error(("%s ended with %s: %s"):format(command, code, err), 2)
  end
  return out
end

-- A small generator of its own: the same graphs on every machine.
local function generator(seed)
  local state = seed * 2654435761 % 2147483647 + 1
  return function(n)
    state = state * 48271 % 2147483647
    return state % n + 1
  end
end

local NUMBERS = { "0", "1", "0.0", "-0.0", "1.0", "2.5", "-1", "-3.25", "true", "inf" }
local TYPES = { "float16", "float32", "float64", "bfloat16", "int64", "int32", "int8",
  "uint8", "bool" }
local UNARY = { "neg", "abs", "floor", "relu", "exp", "alias", "clone", "detach",
  "logical_not", "sqrt", "squeeze" }
local BINARY = { "add", "sub", "mul", "div", "maximum", "gt" }
-- Which of the two operands may be a number (M.evaluate calls torch's own).
local NUMBER_AT = { maximum = "none", gt = "second" }

local function list(t)
  return "[" .. table.concat(t, ", ") .. "]"
end

-- One random call on values `v` ({value, shape} each), as text.
local function call(v, random)
  local x, y = v[random(#v)], v[random(#v)]
  local a, b = "%" .. x.value, "%" .. y.value
  local n, kind = #x.shape, random(12)
  if random(3) == 1 then
    b = NUMBERS[random(#NUMBERS)]
  end
  if kind <= 2 then
    return ("%s(%s)"):format(UNARY[random(#UNARY)], a)
  elseif kind <= 4 then
    local op, swap = BINARY[random(#BINARY)], random(4) == 1
    if NUMBER_AT[op] == "none" then
      b = "%" .. y.value
    end
    if swap and not (NUMBER_AT[op] and b:sub(1, 1) ~= "%") then
      a, b = b, a
    end
    return ("%s(%s, %s)"):format(op, a, b)
  elseif kind == 5 then
    return ("cast(%s, dtype=%s)"):format(a, TYPES[random(#TYPES)])
  elseif kind == 6 then
    local dims = {}
    for i = 1, n do
      table.insert(dims, random(i), i - 1)
    end
    return ("permute(%s, dims=%s)"):format(a, list(dims))
  elseif kind == 7 then
    local shape = { table.unpack(x.shape) }
    local i = random(n + 1)
    if random(2) == 1 or n == 0 then
      table.insert(shape, i, 1)
    else
      shape = { -1 }
    end
    return ("reshape(%s, shape=%s)"):format(a, list(shape))
  elseif kind == 8 then
    return ("unsqueeze(%s, dim=%d)"):format(a, random(n + 1) - 1)
  elseif kind == 9 then
    return ("expand(%s, size=%s)"):format(a, list({ 2, table.unpack(x.shape) }))
  elseif kind == 10 then
    return ("slice(%s, dim=%d, start=%d, end=%d, step=%d)"):format(a, random(3) - 1,
      random(3) - 1, random(6), random(2))
  elseif kind == 11 then
    return ("where(%%%d, %s, %s)"):format(v[random(#v)].value, a, b)
  end
  return ("full(size=%s, fill_value=%s, dtype=%s)"):format(list(x.shape),
    NUMBERS[random(#NUMBERS)], TYPES[random(#TYPES)])
end

local function small(shape)
  local n = 1
  for _, s in ipairs(shape) do
    n = n * s
  end
  return n > 0 and n <= 64 and #shape <= 5
end

--- Text of a random graph of `n` nodes; the last values are its outputs.
--- place: nodes of several placements.
function M.random(seed, n, place)
  local random = generator(seed)
  local lines = { "graph", "input %1: float32[2, 3]", "input %2: float16[3]",
    "input %3: bool[2, 3]", "input %4: int64[]", "origin" }
  local v = core.graph_parse(table.concat(lines, "\n")):inputs()
  while #v < n + 4 do
    local origin = place and random(4) == 1 and "origin stage " .. random(2) or nil
    local line = ("%%%d = %s"):format(#v + 1, call(v, random))
    local trial = table.concat(lines, "\n") .. "\n" .. line
    local ok, g = pcall(core.graph_parse, trial)
    local nodes = ok and g:nodes()
    if ok and small(nodes[#nodes].results[1].shape) then
      lines[#lines + 1] = origin
      lines[#lines + 1] = line
      v[#v + 1] = nodes[#nodes].results[1]
    end
  end
  lines[#lines + 1] = ("output %%%d, %%%d, %%%d"):format(#v, #v - 1, #v - 2)
  return table.concat(lines, "\n") .. "\n"
end

-- ---- values ---------------------------------------------------------------
local functions = core.forms.functions

local function eager(name, x, attributes)
  if name == "cast" then
    return x[1]:to(torch[attributes.dtype])
  elseif name == "alias" then
    return x[1]
  elseif name == "expand" then
    return x[1]:expand(attributes.size)
  elseif name == "slice" then
    local dim, length = attributes.dim, attributes["end"] - attributes.start
    return x[1]:narrow(dim, attributes.start, length):unfold(dim, 1, attributes.step)
      :select(-1, 0)
  end
  local keywords, any = {}, false
  for key, value in pairs(attributes) do
    if value ~= false or key == "fill_value" then
      keywords[key] = key == "dtype" and torch[value] or value
      any = true
    end
  end
  if any then
    x[#x + 1] = keywords
  end
  return functions[name](table.unpack(x))
end

local function bits(t)
  local out = { tostring(t.dtype), table.concat(t.shape, "x") }
  local flat = t:to(torch.float64):reshape({ -1 }):tolist()
  for _, x in ipairs(flat) do
    out[#out + 1] = x ~= x and "nan" or ("%a"):format(x)
  end
  return table.concat(out, " ")
end

--- Runs a graph node by node on tensors; returns its outputs' bits as text.
function M.evaluate(g, inputs)
  local value = {}
  for i, input in ipairs(g:inputs()) do
    value[input.value] = inputs[i]
  end
  for _, node in ipairs(g:nodes()) do
    local x = {}
    for i, operand in ipairs(node.operands) do
      if type(operand) == "table" then
        x[i] = operand[1]
      else
        x[i] = value[operand]
      end
    end
    value[node.results[1].value] = eager(node.op, x, node.attributes)
  end
  local out = {}
  for i, v in ipairs(g:outputs()) do
    out[i] = bits(value[v])
  end
  return out
end

return M
