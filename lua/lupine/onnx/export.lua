--- lupine.onnx.export: a module or a function of tensors as an ONNX model.
---
---     local onnx = require("lupine.onnx")
---     onnx.export(model, { torch.randn({ 1, 3, 32, 32 }) }, "model.onnx")
---
--- It is traced once, on inputs of these shapes and types, and what the trace has is
--- written with the operators of exported/: a file of theirs has functions that know
--- an operator of the graph each, and patterns of several that are one in ONNX.
--- Parameters and buffers that results depend on are initializers with the names
--- that state_dict() has; other tensors are constants. What ONNX has no operator for
--- is refused, all of it at once.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local core = require("lupine.core")
local emitter = require("lupine.onnx.emitter")
local errors = require("lupine.base.errors")
local modes = require("lupine.base.modes")
local proto = require("lupine.onnx.proto")
local tables = require("lupine.base.tables")
local tensors = require("lupine.onnx.tensors")

local OLDEST, NEWEST, USUAL = 13, 17, 17
local FAMILIES = { "pointwise", "shape", "index", "reduce", "products", "layers", "recurrent" }

local rules, matches

local function load_rules()
  if not rules then
    rules, matches = {}, { add = {} }
    for _, family in ipairs(FAMILIES) do
      require("lupine.onnx.exported." .. family)(rules, matches)
    end
    local patterns = matches.add
    matches.add = function(e, n)
      for _, pattern in ipairs(patterns) do
        local match = pattern(e, n)
        if match then
          return match
        end
      end
    end
  end
end

-- ---- the trace ---------------------------------------------------------------------

-- Names the nodes by the module that runs, and notes the blocks that they are in: a
-- block is a stage, in the order of first appearance, on its IPU or that of its number.
local function tracer_of(tr, target)
  local name_of, stack, stages, count = {}, { "" }, {}, 0
  if target.module then
    for name, m in target.module:named_modules() do
      name_of[m] = name:gsub("%.", "/")
    end
  end
  return {
    set_block = function(user_id, ipu_id)
      if not stages[user_id] then
        count = count + 1
        stages[user_id] = count
      end
      local stage = stages[user_id]
      tr:origin({ block = user_id, ipu = ipu_id or stage, stage = stage, phase = -1 })
    end,
    end_block = function()
      tr:origin({ block = "", ipu = -1, stage = -1, phase = -1 })
    end,
    enter = function(m)
      stack[#stack + 1] = name_of[m] or stack[#stack]
      tr:origin({ scope = stack[#stack] })
    end,
    leave = function()
      stack[#stack] = nil
      tr:origin({ scope = stack[#stack] })
    end,
  }
end

local function declare_state(tr, module, into)
  for name, p in module:named_parameters() do
    tr:declare("parameter", name, p)
    into[name] = p
  end
  for name, b in module:named_buffers() do
    tr:declare("buffer", name, b)
    into[name] = b
  end
end

local function run(tr, target, args)
  local Module = require("torch.nn").Module
  local before = Module.tracer
  Module.tracer = tracer_of(tr, target)
  local results = table.pack(pcall(tr.run, tr, true, target.module or target.fn,
    table.unpack(args, 1, args.n)))
  Module.tracer = before
  if not results[1] then
    error(results[2], 0)
  end
  return table.pack(table.unpack(results, 2, results.n))
end

-- {graph, state, vars, data, inputs, outputs}: outputs are numbers of values, or tensors
-- that the trace does not have.
local function trace(target, values)
  local tr, given, args, state = core.trace(), {}, { n = #values }, {}
  for i = 1, #values do
    local at = #given
    local spec = arguments.flatten(values[i], target.names[i] or ("input_%d"):format(i), given)
    args[i] = arguments.rebuild(spec, function()
      at = at + 1
      local x = given[at]
      x.declared = ("input %d"):format(at) -- no name that a parameter can have
      return tr:declare("input", x.declared, nil, { table.unpack(x.tensor.shape) },
        x.tensor.dtype)
    end)
  end
  if target.module then
    declare_state(tr, target.module, state)
  end
  local results = run(tr, target, args)
  local list, outputs, known = {}, {}, {}
  for i = 1, results.n do
    arguments.flatten(results[i], "output", list)
  end
  for i, x in ipairs(list) do
    local traced = tr:knows(x.tensor)
    outputs[i] = traced and tr:value(x.tensor) or x.tensor
    known[#known + 1] = traced and x.tensor or nil
  end
  return { step = tr:step(known), state = state, inputs = given, outputs = outputs }
end

-- Every module is in the mode meanwhile.
local function trace_in_mode(target, args, training)
  local _ <close> = target.module and modes.set({ target.module }, training)
  local _ <close> = require("torch").set_grad_enabled(true)
  return trace(target, args)
end

-- ---- the model ---------------------------------------------------------------------

local SMALL = 4096 -- bytes: an equal constant is looked for

-- Constants are nodes: an initializer is a parameter where the model is loaded.
local function constants_of(names, nodes)
  local made = {}
  return function(t)
    local bytes = t:numel() * t:element_size() <= SMALL and t:contiguous():tobytes()
    local key = bytes and ("%s %s %s"):format(t.dtype, t.shape, bytes)
    if key and made[key] then
      return made[key]
    end
    local name = names:fresh("/Constant")
    local output = names:fresh(name .. "_output_0")
    nodes[#nodes + 1] = { op_type = "Constant", name = name, input = {}, output = { output },
      attribute = { proto.attribute("value", t) } }
    made[key or name] = output
    return output
  end
end

-- Names that nodes read, those of graphs within counted.
local function reads(nodes, into)
  for _, node in ipairs(nodes) do
    for _, name in ipairs(node.input) do
      into[name] = true
    end
    for _, attribute in ipairs(node.attribute) do
      if attribute.g then
        reads(attribute.g.node, into)
        for _, x in ipairs(attribute.g.output) do
          into[x.name] = true
        end
      end
    end
  end
  return into
end

-- The nodes that outputs depend on.
local function needed(nodes, outputs)
  local wanted, keep, kept = {}, {}, {}
  for _, x in ipairs(outputs) do
    wanted[x.name] = true
  end
  for at = #nodes, 1, -1 do
    local node, read = nodes[at], false
    for _, name in ipairs(node.output) do
      read = read or wanted[name]
    end
    if read then
      local bodies = node.op_type == "Loop" or node.op_type == "If"
      for i = bodies and 0 or #node.output, 2, -1 do -- results at the end that nobody reads
        node.output[i] = (wanted[node.output[i]] or node.output[i + 1]) and node.output[i] or nil
      end
      reads({ node }, wanted)
      keep[node] = true
    end
  end
  for _, node in ipairs(nodes) do
    kept[#kept + 1] = keep[node] and node or nil
  end
  return kept, wanted
end

-- The names of the graph's inputs: of those given and of the module's tensors.
local function name_inputs(e, traced, names, input_names)
  local by_name, infos = {}, {}
  for _, x in ipairs(e.graph:inputs()) do
    by_name[x.names[1] or x.value] = x
  end
  for i, x in ipairs(traced.inputs) do
    local value = by_name[x.declared]
    local name = input_names[i] or names:fresh(x.path)
    e.value_name[value.value] = name
    infos[i] = emitter.info(name, value)
  end
  for name in pairs(traced.state) do
    e.value_name[by_name[name].value] = name
  end
  return infos
end

-- Tensors that the trace found beside the module's.
local function name_constants(e, step)
  local vars = step:vars()
  for i, x in ipairs(e.graph:inputs()) do
    if not e.value_name[x.value] then
      e.value_name[x.value] = e:constant(step:data(i), x.dtype)
    end
  end
  return vars
end

local function output_infos(e, traced, names, output_names)
  local infos = {}
  for i, v in ipairs(traced.outputs) do
    local name = output_names[i] or names:fresh(#traced.outputs == 1 and "output"
      or ("output_%d"):format(i))
    local from = core.is_tensor(v) and e:constant(v) or e:name_of(v)
    e.place = nil
    local own = e:emit("Identity", { from })
    e.nodes[#e.nodes].output[1] = name
    names.used[own] = nil
    infos[i] = core.is_tensor(v) and proto.info(name, v.dtype, { table.unpack(v.shape) })
      or emitter.info(name, e.types[v])
  end
  return infos
end

-- Outputs have the names of values that a node makes for nobody else.
local function rename_outputs(nodes)
  local read, maker = {}, {}
  for _, node in ipairs(nodes) do
    for _, name in ipairs(node.input) do
      read[name] = (read[name] or 0) + 1
    end
    for _, attribute in ipairs(node.attribute) do
      for name in pairs(attribute.g and reads(attribute.g.node, {}) or {}) do
        read[name] = (read[name] or 0) + 2
      end
    end
    for i, name in ipairs(node.output) do
      maker[name] = { node, i }
    end
  end
  local kept = {}
  for _, node in ipairs(nodes) do
    local from = node.op_type == "Identity" and maker[node.input[1]]
    if from and read[node.input[1]] == 1 then
      from[1].output[from[2]] = node.output[1]
    else
      kept[#kept + 1] = node
    end
  end
  return kept
end

-- Whether blocks placed anything: a trace without any has all on the first IPU.
local function is_placed(nodes)
  for _, n in ipairs(nodes) do
    local o = n.origin
    if o and (o.ipu > 0 or o.stage > 0 or o.phase > 0 or o.block ~= "") then
      return true
    end
  end
  return false
end

local function model_of(traced, options)
  local names, constants = emitter.Names(), {}
  for _, list in ipairs({ options.input_names, options.output_names }) do
    for _, name in ipairs(list) do
      names:take(name)
    end
  end
  for name in pairs(traced.state) do
    names:take(name)
  end
  local shared = { version = options.opset_version, names = names, refused = {}, rules = rules,
    matches = matches, constant = constants_of(names, constants) }
  local e = emitter.Emitter(shared)
  e.graph = traced.step:graph()
  e:read(e.graph)
  shared.placed = is_placed(e.graph_nodes)
  local inputs = name_inputs(e, traced, names, options.input_names)
  name_constants(e, traced.step)
  local values = {}
  for _, v in ipairs(traced.outputs) do
    values[#values + 1] = math.type(v) == "integer" and v or nil
  end
  e:write(values)
  if #shared.refused > 0 then
    errors.raise("NotImplementedError", "onnx.export: ONNX (opset %d) has no operator for:\n  %s",
      options.opset_version, table.concat(shared.refused, "\n  "))
  end
  local outputs = output_infos(e, traced, names, options.output_names)
  table.move(e.nodes, 1, #e.nodes, #constants + 1, constants)
  local nodes, read = needed(rename_outputs(constants), outputs)
  local initializers = {}
  for _, name in ipairs(tables.keys(traced.state)) do
    if read[name] then
      initializers[#initializers + 1] = tensors.write(name, traced.state[name])
    end
  end
  for _, name in ipairs(tables.keys(options.initializers)) do
    if not read[name] then
      initializers[#initializers + 1] = tensors.write(name, options.initializers[name])
    end
  end
  return { ir_version = proto.IR_VERSION, producer_name = "lupine",
    opset_import = { { domain = "", version = options.opset_version } },
    graph = { name = "main", node = nodes, initializer = initializers, input = inputs,
      output = outputs } }
end

-- ---- arguments ---------------------------------------------------------------------

local OPTIONS = { "input_names", "output_names", "opset_version", "training", "dynamic_axes",
  "initializers", "external", "threshold" }

local function check_names(options, key)
  local list, seen = options[key] or {}, {}
  errors.check(type(list) == "table", "TypeError", "onnx.export: %s: expected a list of names, "
    .. "got %s", key, check.describe(list))
  for i, name in ipairs(list) do
    errors.check(type(name) == "string" and name ~= "" and not name:find("%c") and not seen[name],
      "ValueError", "onnx.export: %s[%d]: expected a name that is there once, got %s", key, i,
      check.describe(name))
    seen[name] = true
  end
  return list
end

local function check_options(options)
  errors.check(type(options) == "table", "TypeError", "onnx.export: expected a table of options, "
    .. "got %s", check.describe(options))
  local known = tables.set(OPTIONS)
  for key in pairs(options) do
    errors.check(known[key], "TypeError", "onnx.export: unknown option '%s'%s. Allowed: %s",
      tostring(key), check.nearest(key, OPTIONS), table.concat(OPTIONS, ", "))
  end
  local version, training = options.opset_version, options.training
  version = version == nil and USUAL or version
  errors.check(math.type(version) == "integer" and version >= OLDEST and version <= NEWEST,
    "ValueError", "onnx.export: opset_version: got %s. Allowed: %d to %d",
    check.describe(version), OLDEST, NEWEST)
  errors.check(training == nil or type(training) == "boolean", "TypeError",
    "onnx.export: training: expected a bool, got %s", check.describe(training))
  errors.check(options.dynamic_axes == nil or next(options.dynamic_axes) == nil,
    "NotImplementedError", "onnx.export: dynamic_axes: the trace is of one shape; export again for "
    .. "another")
  local initializers = options.initializers or {}
  errors.check(type(initializers) == "table" and not getmetatable(initializers), "TypeError",
    "onnx.export: initializers: expected a table of tensors by name, got %s",
    check.describe(initializers))
  for name, t in pairs(initializers) do
    errors.check(type(name) == "string" and core.is_tensor(t), "TypeError", "onnx.export: "
      .. "initializers['%s']: expected a tensor, got %s", tostring(name), check.describe(t))
  end
  return { opset_version = version, training = training or false, initializers = initializers,
    input_names = check_names(options, "input_names"),
    output_names = check_names(options, "output_names") }
end

local function target_of(fn)
  local Module = require("torch.nn").Module
  if Module:is(fn) then
    return { names = (arguments.parameters(fn.forward, 1)), module = fn }
  end
  errors.check(type(fn) == "function", "TypeError",
    "onnx.export: expected a torch.nn.Module or a function, got %s", check.describe(fn))
  return { names = (arguments.parameters(fn, 0)), fn = fn }
end

--- The ONNX model of a module, or of a function of tensors, for inputs like these.
--- Dropout and batch normalisation are as in evaluation, unless `training` is true.
--- errors: NotImplementedError that lists what ONNX has no operator for, TypeError,
--- ValueError, OSError, and what a trace refuses
---@param fn torch.nn.Module|fun(...: torch.Tensor): ...
---@param args any[] arguments of the call; their tensors are inputs of the model
---@param path? string of a file that is written, too
---@param options? {input_names: string[], output_names: string[], opset_version: integer,
---  training: boolean, dynamic_axes: table, initializers: table<string, torch.Tensor>,
---  external: string, threshold: integer}
---  opset_version: 13 to 17 (17); dynamic_axes: refused; initializers: more of them that no
---  node reads, such as an optimizer's state for popart (optimizer:state_dict().ipu_state);
---  external, threshold: of onnx.write
---@return table ModelProto
local function export(fn, args, path, options)
  local target = target_of(fn)
  errors.check(type(args) == "table" and not getmetatable(args), "TypeError",
    "onnx.export: args: expected a list of arguments, got %s", check.describe(args))
  errors.check(path == nil or type(path) == "string", "TypeError",
    "onnx.export: path: expected a str, got %s", check.describe(path))
  options = options or {}
  local o = check_options(options)
  load_rules()
  local model = model_of(trace_in_mode(target, args, o.training), o)
  if path then
    proto.write(model, path, options.external and { external = options.external,
      threshold = options.threshold } or nil)
  end
  return model
end

return export
