--- The sets of operators that a Builder has: builder.aiOnnx, builder.aiOnnxOpset11,
--- builder.aiGraphcore. Their methods are the operators of lupine.onnx's table, in
--- lower case, with `logical_` before and, or, not, xor and if.
---
---     local y = builder.aiOnnx:conv({ x, w, b }, { pads = { 1, 1, 1, 1 } })
---
--- Parameters in order: args (ids; none for an operator without inputs), num_outputs
--- where an operator may have several numbers of them, attributes (those that must be
--- given first, each part by name), debugContext (a name), what PopART's method lacks.
--- Returns one id, or a list where an operator may have more outputs than one.
---
--- Source: PopART, gen_operators.py (how the methods follow from ONNX's signatures)
--- and builder.hpp (ai.graphcore).
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("popart.errors")
local multi_conv = require("popart.multi_conv")
local NAMES = require("lupine.onnx.annotation_names")
local operators = require("lupine.onnx.operators")
local proto = require("lupine.onnx.proto")
local signatures = require("lupine.base.signatures")
local tensor_info = require("popart.tensor_info")
local tensors = require("lupine.onnx.tensors")
local CommGroup = require("popart.variable_settings").CommGroup

local M = {}

--- The least and the greatest version of ONNX's operators that models are built with.
M.OLDEST, M.DEFAULT, M.NEWEST = 6, 10, 17

-- Parameters of ai.graphcore's methods that have another name than the attribute.
local COLLECTIVE = { collectiveOperator = "__collectiveOperator",
  commGroup = NAMES.commGroup }
local RENAMED = {
  CtcBeamSearchDecoder = { beamWidth = "beam_width", topPaths = "top_paths" },
  ReplicatedAllReduce = COLLECTIVE, ReplicatedReduceScatter = COLLECTIVE,
  ReplicatedAllGather = COLLECTIVE,
}

-- What a method's first attribute is, where it is not the first by name.
local FIRST = { Constant = "value" }

-- Methods that have another name than the operator in lower case.
local METHODS = { L1 = "l1loss", Nll = "nllloss", Ctc = "ctcloss",
  NormalizeImage = "normalize_image", PackedDataBlock = "packedDataBlock" }

-- Attributes that are a character, a number in a model.
local CHARACTERS = { separator = true, openBracket = true, closeBracket = true }

-- Methods of ai.graphcore that take one id, not a list.
local ONE_ID = { Reshape = true }

-- Second methods of operators: one sets an attribute that the other has not.
local SECOND = { ScatterReduce = { method = "groupedscatterreduce", own = "group_size" } }

-- How many outputs operators of ai.graphcore have that ONNX would let have fewer: their
-- methods take no num_outputs.
local OUTPUTS = { Ctc = 1, CtcBeamSearchDecoder = 3, GroupNormalization = 3, LSTM = 2,
  ReduceMedian = 2, Sort = 2, SplineBasis = 2 }

-- Attributes that PopART's methods lack, or have behind debugContext.
local LAST = { auto_pad = true, unbiased_variance = true, modifiedInputs = true, title = true,
  summariseThreshold = true, edgeItems = true, maxLineWidth = true, digits = true,
  floatFormat = true, separator = true, openBracket = true, closeBracket = true }
local LAST_OF = { DynamicAdd = "noOverlap", DynamicZero = "noOverlap" }

-- Attributes that no parameter has: they follow from another one.
local GROUPING = "__collectiveReplicaGrouping"
local IMPLIED = { Call = "num_outputs", ReplicatedAllReduce = GROUPING,
  ReplicatedReduceScatter = GROUPING, ReplicatedAllGather = GROUPING }

local KEYWORDS = { ["and"] = true, ["or"] = true, ["not"] = true, xor = true, ["if"] = true }

local function method_name(op)
  local name = METHODS[op] or op:lower()
  return KEYWORDS[name] and "logical_" .. name or name
end

-- domain -> method -> operator's name
local methods = {}

local function operator_named(domain, method)
  if not methods[domain] then
    methods[domain] = {}
    for _, op in ipairs(operators.names(domain)) do
      methods[domain][method_name(op)] = op
      if SECOND[op] then
        methods[domain][SECOND[op].method] = op
      end
    end
  end
  return methods[domain][method]
end

-- Attributes as parameters in PopART's order.
local function attributes_in_order(domain, s, name)
  local second, list = SECOND[s.name], {}
  for _, a in ipairs(s.attributes) do
    if not (second and name ~= second.method and a.name == second.own)
      and IMPLIED[s.name] ~= a.name then
      list[#list + 1] = a
    end
  end
  if domain == "" then
    local function rank(a)
      return FIRST[s.name] == a.name and 0 or a.needed and 1 or 2
    end
    table.sort(list, function(a, b)
      local x, y = rank(a), rank(b)
      return x ~= y and x < y or x == y and a.name < b.name
    end)
  end
  return list
end

-- A value as its attribute has it.
local function converted(where, row, value)
  if row.field == "g" then
    errors.check(type(value) == "table" and value._graph, "TypeError",
      "%s: %s: expected a Builder of createSubgraphBuilder, got %s", where, row.name,
      check.describe(value))
    return value:_graph()
  elseif row.kind == "dtype" or row.name == "to" or row.name == "outDataType" then
    return type(value) == "string" and row.field == "i"
      and tensors.number(tensor_info.TensorInfo(value, {}):dataType()) or value
  elseif row.field == "t" then
    errors.check(core.is_tensor(value), "TypeError", "%s: %s: expected a tensor, got %s", where,
      row.name, check.describe(value))
    return value
  elseif row.field == "i" then
    if CHARACTERS[row.name] and type(value) == "string" and #value == 1 then
      return value:byte()
    elseif type(value) == "table" and math.type(value.value) == "integer" then -- an enumeration's
      return value.value
    end
    return type(value) == "boolean" and (value and 1 or 0) or check.int(value, where .. ": "
      .. row.name)
  elseif row.field == "f" then
    return check.number(value, where .. ": " .. row.name) + 0.0
  elseif row.field == "s" then
    return check.string(type(value) == "table" and value.name or value, where .. ": " .. row.name)
  end
  if CommGroup:is(value) and row.name == NAMES.commGroup then
    value = { value.type.value, value.replicaGroupSize }
  end
  errors.check(type(value) == "table" and not getmetatable(value), "TypeError",
    "%s: %s: expected a list, got %s", where, row.name, check.describe(value))
  local out = {}
  for i, x in ipairs(value) do
    out[i] = row.field == "floats" and check.number(x, where .. ": " .. row.name) + 0.0
      or row.field == "ints" and check.int(x, where .. ": " .. row.name) or x
  end
  return out
end

local CONTEXTS = { debugPrefix = true, name = true, debugName = true }

--- The arguments of a call with older names of debugContext as that.
---@param args table table.pack's
---@return table args
function M.with_context(args)
  local last = args[args.n]
  if check.is_keywords(last) then
    local out = {}
    for key, value in pairs(last) do
      out[CONTEXTS[key] and "debugContext" or key] = value
    end
    args[args.n] = out
  end
  return args
end

---@class popart.Opset
---@field version integer
local Opset = class.new("Opset")

-- names of parameters in order; tables, those of them that take a list; positions of
-- num_outputs and debugContext, and those of attributes in rows.
local function parameters(domain, row, method)
  local s = row.schema
  local names, tables, rows, late = {}, {}, {}, {}
  local fixed = domain ~= "" and OUTPUTS[s.name]
    or (row.internal or s.least_outputs == s.most_outputs) and s.least_outputs
  if #s.inputs > 0 then
    names[1], tables.args = "args", "list"
  end
  names[#names + 1] = not fixed and "num_outputs" or nil
  local counted = not fixed and #names
  local theirs = {}
  for ours, name in pairs(RENAMED[s.name] or {}) do
    theirs[name] = ours
  end
  local function add(a)
    local name = theirs[a.name] or a.name
    names[#names + 1] = name
    rows[#names] = a
    tables[name] = a.field:find("s$") and a.field ~= "s" and "list" or nil
  end
  for _, a in ipairs(attributes_in_order(domain, s, method)) do
    if LAST[a.name] or LAST_OF[s.name] == a.name then
      late[#late + 1] = a
    else
      add(a)
    end
  end
  names[#names + 1] = "debugContext"
  local context = #names
  for _, a in ipairs(late) do
    add(a)
  end
  return { names = names, tables = tables, rows = rows, fixed = fixed, counted = counted,
    context = context }
end

-- Of init's two overloads one has a name in place of batch_axis.
local function overloaded(op, args)
  if op == "Init" and type(args[4]) == "string" then
    return { args[1], args[2], args[3], { debugContext = args[4] }, n = 4 }
  end
  return M.with_context(args)
end

-- A list without nil: # of one that has it may count less.
local function check_whole(where, inputs)
  local last = 0
  for key in pairs(inputs) do
    last = math.type(key) == "integer" and math.max(last, key) or last
  end
  for i = 1, last do
    errors.check(inputs[i] ~= nil, "TypeError", "%s: args: element %d: expected a tensor id, got "
      .. "nil; an input that is left out is \"\"", where, i - 1)
  end
end

local function method(domain, version, op, where)
  local row = operators.find(domain, op, version)
  if not row then
    return nil
  end
  local s = row.schema
  local p = parameters(domain, row, where)
  local function add(opset, ...)
    check.method(opset, Opset, where)
    local values = check.arguments(where, p.names, p.tables,
      table.unpack(overloaded(op, table.pack(...)), 1, select("#", ...)))
    local inputs = #s.inputs > 0 and values[1] or {}
    inputs = ONE_ID[op] and type(inputs) == "string" and { inputs } or inputs
    errors.check(type(inputs) == "table" and not getmetatable(inputs), "TypeError",
      "%s: args: expected a list of tensor ids, got %s", where, check.describe(inputs))
    check_whole(where, inputs)
    local outputs = p.counted and check.int(values[p.counted], where .. ": num_outputs",
      { nullable = true }) or p.fixed or s.least_outputs
    local list = {}
    for i = 1, #p.names do
      local attribute, value = p.rows[i], values[i]
      if attribute and value ~= nil then
        list[#list + 1] = proto.attribute(attribute.name, converted(where, attribute, value),
          attribute.field)
      end
    end
    local ids = opset._builder:_add(domain, version, op, inputs, list, outputs,
      values[p.context] or "")
    return (p.fixed or s.most_outputs) == 1 and ids[1] or ids
  end
  signatures.note(add, ("%s(%s)"):format(where, table.concat(p.names, ", ")), 1,
    ("Adds the operator %s."):format(s.text))
  return add
end

-- domain, version -> method's name -> function
local made = {}

local function found(domain, version, name)
  local key = domain .. version
  made[key] = made[key] or {}
  if made[key][name] == nil then
    local op = operator_named(domain, name)
    made[key][name] = op == "MultiConv" and multi_conv or op and method(domain, version, op, name)
      or false
  end
  return made[key][name]
end

--- For completion.
function Opset.__members(self)
  local domain, all = rawget(self, "_domain"), {}
  operator_named(domain, "")
  for name in pairs(methods[domain]) do
    all[name] = found(domain, rawget(self, "version"), name) or nil
  end
  return { all }
end

function Opset.__index(self, name)
  if type(name) ~= "string" or name:find("^_") then
    return Opset[name]
  end
  local fn = found(rawget(self, "_domain"), rawget(self, "version"), name) or Opset[name]
  if fn then -- an operator's name may be one that classes have: init
    return fn
  end
  local near = {}
  operator_named(rawget(self, "_domain"), "")
  for known in pairs(methods[rawget(self, "_domain")]) do
    near[#near + 1] = known
  end
  errors.raise("AttributeError", "%s has no operator '%s'%s", tostring(self), name,
    check.nearest(name, near))
end

function Opset.__tostring(self)
  local domain = rawget(self, "_domain")
  return ("%s opset %d"):format(domain == "" and "ai.onnx" or domain, rawget(self, "version"))
end

--- The operators of a domain and version, which add nodes to a builder.
---@param builder popart.Builder
---@param domain string "" is ONNX's
---@param version integer
---@return popart.Opset
function M.new(builder, domain, version)
  return setmetatable({ _builder = builder, _domain = domain, version = version }, Opset)
end

return M
