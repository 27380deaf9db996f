--- Executables in files: an executor's save, compileAndExport and loadExecutable,
--- and poptorch.load. What a session is in a file says lupine/session/stored.lua;
--- of the executor there are beside it
---   executor   options, structure of inputs and results, the compiled optimizer,
---              the state of random numbers
---   model      module and optimizer with their tensors, unless export_model is false
---
--- Loading runs no code of the file: the module's class is one that this program
--- made, and forward is not traced.
--- Source: PopTorch user guide 4.10.2; API reference, PoplarExecutor.
local advice = require("poptorch.advice")
local attaching = require("poptorch.attaching")
local blocks = require("poptorch.blocks")
local check = require("lupine.base.check")
local classes = require("torch.class_names")
local completing = require("poptorch.completing")
local compiled_optimizer = require("poptorch.compiled_optimizer")
local core = require("lupine.core")
local cpu = require("poptorch.cpu")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local groups = require("poptorch.groups")
local logging = require("poptorch.logging")
local memory = require("lupine.session.memory")
local objects = require("torch.objects")
local optim = require("poptorch.optim")
local own = require("poptorch.executor.own")
local rules = require("poptorch.options.rules")
local running = require("poptorch.running")
local session = require("lupine.session")
local state = require("poptorch.state")
local simulation = require("poptorch.simulation")
local stored = require("lupine.session.stored")
local stored_options = require("poptorch.options.stored")

local methods = {}

classes.space("poptorch.optim", optim)
classes.note_function("poptorch.BeginBlock", blocks.hook)
objects.note("poptorch.optim.VariableAttributes", optim.VariableAttributes)

-- ---- saving -------------------------------------------------------------------------

-- The file that is meant: a folder gets one of this name.
local DEFAULT_NAME = "model.poptorch"

local function target_of(filename, where)
  check.string(filename, where .. "(filename)")
  local folder = filename:match("^(.*)/[^/]*$")
  if folder and folder ~= "" then
    local made, e = pcall(core.make_folder, folder)
    errors.check(made, "AssertionError", "%s: the destination folder %s: %s", where, folder,
      not made and e.message or "")
  end
  if not core.is_folder(filename) then
    return filename
  end
  local file = filename:gsub("/$", "") .. "/" .. DEFAULT_NAME
  logging.warn("%s: %s is a directory, saving the model to %s", where, filename, file)
  return file
end

-- Adds a value to a file: its description as a text, its tensors.
local function add(texts, tensors, name, value, where)
  local description, writer = objects.describe(value, where)
  texts[name] = core.json_encode(description)
  for i, tensor in ipairs(writer.tensors) do
    tensors[writer.names[i]] = tensor
  end
end

-- What loadExecutable needs.
local function executor_data(s, save_rng_state)
  return { training = s.training, class = getmetatable(s.model).__name,
    options = stored_options.data(s.options), inputs = s.spec, outputs = s.out_spec,
    anchors = s.anchors, traced = s.traced,
    optimizer = s.training and compiled_optimizer.compiled_data(s) or nil,
    random_state = save_rng_state and { s.session:random_state() } or nil }
end

local HINT = "; save({export_model = false}) leaves the model out: then wrap one that the script "
  .. "makes and load the file onto it, executor:loadExecutable(file)"

local function add_model(s, texts, tensors, where)
  local ok, e = pcall(add, texts, tensors, "model",
    { model = s.model, optimizer = s.optimizer, class = getmetatable(s.model).__name }, where)
  if not ok and errors.classes.TypeError:is(e) then
    e.message = e.message .. HINT
  end
  if not ok then
    error(e, 0)
  end
end

-- Where a buffer is a part of a larger tensor the program has the whole; no file does.
local function check_buffers(s, where)
  local buffers = own.tensors_of(s).buffer
  for _, v in ipairs(s.session.vars) do
    local buffer = v.role == "buffer" and buffers[v.name]
    errors.check(not buffer or buffer.shape == v.shape, "TypeError", "%s: buffer '%s' is a part "
      .. "of a larger tensor, which a file cannot say: make it one of its own, buffer:clone()",
      where, v.name)
  end
end

-- An optimizer whose parameter was replaced would not fit the program of the file.
local function check_trained(s, where)
  local parameters = own.tensors_of(s).parameter
  for _, rule in ipairs(s.training and s.updated or {}) do
    errors.check(rawequal(parameters[rule.param], rule.tensor), "Error", "%s: parameter '%s' was "
      .. "replaced, the optimizer trains the one before: wrap the module again with an optimizer "
      .. "of its parameters", where, rule.param)
  end
end

local function save(self, filename, export_model, save_rng_state, where)
  own.idle(self, where)
  local s = own.compiled(self, where)
  local _ <close> = s.channel:tracepoint("saveExecutableToFile")
  check_buffers(s, where)
  filename = target_of(filename, where)
  own.follow(s)
  local texts, tensors = stored.take(s.session)
  add(texts, tensors, "executor", { executor = executor_data(s, save_rng_state) }, where)
  if export_model then
    check_trained(s, where)
    add_model(s, texts, tensors, where)
  end
  stored.write(filename, texts, tensors)
  logging.info("%s: %s", where, filename)
end

-- nil: true
local function flag(value, where)
  return check.is_none(value) or check.bool(value, where)
end

--- Saves the compiled model to a file; missing folders are made, and of a folder it
--- becomes model.poptorch in it.
--- error: poptorch.Error if the model is not compiled; TypeError for a model that
--- no file can hold, which export_model = false leaves out
--- source: 001 PoplarExecutor.save
---@param filename string
---@param ... any export_model (true): module, weights and optimizer are saved, too;
---  save_rng_state (true)
function methods.save(self, filename, ...)
  local a = check.arguments("save", { "filename", "export_model", "save_rng_state" }, nil,
    filename, ...)
  save(self, a[1], flag(a[2], "save(export_model)"), flag(a[3], "save(save_rng_state)"), "save")
end

-- Takes export_model out of a last table by name.
local function take_flag(...)
  local given = table.pack(...)
  local last = given[given.n]
  if type(last) ~= "table" or getmetatable(last) or last.export_model == nil then
    return true, given
  end
  local rest = {}
  for key, value in pairs(last) do
    rest[key] = key ~= "export_model" and value or nil
  end
  given[given.n] = rest
  if next(rest) == nil then
    given.n = given.n - 1
  end
  return flag(last.export_model, "compileAndExport(export_model)"), given
end

--- Compiles for inputs of these shapes and types and saves the executable. A
--- model that is compiled is saved as it is.
--- error: as save and compile
--- source: 001 PoplarExecutor.compileAndExport
---@param filename string
---@param ... any the arguments of forward, and {export_model = true} by name
function methods.compileAndExport(self, filename, ...)
  local export_model, given = take_flag(...)
  own.idle(self, "compileAndExport")
  check.string(filename, "compileAndExport(filename)")
  if not self:isCompiled() then
    self:compile(table.unpack(given, 1, given.n))
  end
  save(self, filename, export_model, true, "compileAndExport")
end

-- ---- loading ------------------------------------------------------------------------

-- One of a file's texts with its tensors.
local function part(file, name)
  local names, tensors = {}, {}
  for key, tensor in pairs(file.tensors) do
    names[#names + 1], tensors[#tensors + 1] = key, tensor
  end
  local where = ("%s: '%s'"):format(file.path, name)
  local text = errors.check(file.texts[name], "ValueError", "%s is missing", where)
  local value = objects.restore(core.json_decode(text, where), names, tensors, file.path)
  errors.check(type(value) == "table" and not getmetatable(value), "ValueError", "%s is no table",
    where)
  return value
end

-- f(...); its errors name the file. What is no error object comes from a value
-- that the file should not have.
local function guarded(path, f, ...)
  local results = table.pack(pcall(f, ...))
  local e = results[2]
  if results[1] then
    return table.unpack(results, 2, results.n)
  elseif not errors.Exception:is(e) or e.type == "internal_error" then
    errors.raise("ValueError", "%s: damaged: %s", path, tostring(e))
  elseif not e.message:find(path, 1, true) then
    e.message = ("%s: %s"):format(path, e.message)
  end
  error(e, 0)
end

-- The options that the file has, but for an offline target, which was for
-- compiling alone.
local function options_of(file, data)
  local opts = stored_options.restore(data.options, file.path)
  if opts.connection_type == enums.ConnectionType.Never then
    opts._values.connection_type, opts._values.ipu_version = enums.ConnectionType.Always, nil
  end
  return opts
end

-- A tree as arguments.lua makes it.
local function is_spec(d)
  if type(d) ~= "table" or type(d.kind) ~= "string" then
    return false
  elseif d.kind == "tensor" then
    return type(d.shape) == "table" and type(d.dtype) == "userdata"
  elseif d.kind == "dict" and type(d.keys) ~= "table" then
    return false
  end
  for _, child in ipairs(d) do
    if not is_spec(child) then
      return false
    end
  end
  return true
end

local function count_tensors(d)
  local n = d.kind == "tensor" and 1 or 0
  for _, child in ipairs(d) do
    n = n + count_tensors(child)
  end
  return n
end

-- The structures of inputs and results have as many tensors as the program.
local function check_structure(file, data, streams)
  for what, list in pairs({ inputs = streams.inputs, outputs = streams.outputs }) do
    local spec, n = data[what], 0
    errors.check(type(spec) == "table" and math.type(spec.n) == "integer", "ValueError",
      "%s: the structure of the %s is damaged", file.path, what)
    for i = 1, spec.n do
      errors.check(is_spec(spec[i]), "ValueError", "%s: the structure of the %s is damaged",
        file.path, what)
      n = n + count_tensors(spec[i])
    end
    errors.check(n == #list, "ValueError", "%s: the structure of the %s has %d tensors, the "
      .. "program %d", file.path, what, n, #list)
  end
end

-- What tracing.lua found for the report's notes, by the kinds of values.
local TRACED = { attributes = {}, casting = false,
  overlap = { input = { false, false }, output = { false, false } } }

local function fits(value, form)
  local fit = type(value) == type(form)
  for key, inner in pairs(fit and type(form) == "table" and form or {}) do
    fit = fit and fits(value[key], inner)
  end
  return fit
end

local function check_traced(file, traced)
  local fit = fits(traced, TRACED)
  for name in pairs(fit and traced.attributes or {}) do
    fit = fit and type(name) == "string"
  end
  errors.check(fit, "ValueError", "%s: 'traced' is damaged", file.path)
  return traced
end

-- Options tell again what the step repeats, and what it is for.
local function check_loops(s, file, step)
  local o = s.options
  local iterations, accumulation, replicas = step:loops()
  errors.check(step:trains() == s.training and iterations == o.device_iterations
    and accumulation == o.Training.gradient_accumulation and replicas == o.replication_factor,
    "ValueError", "%s: damaged: 'step' and 'executor' differ", file.path)
end

local function open(s, file, data, where)
  rules.check_counts(s.options, s.training)
  local n = s.options.device_iterations
  local step, spec = stored.open(file, n ~= options_of(file, data).device_iterations and n or nil)
  if spec.changed then
    spec.system.output_slices = simulation.output_slices(s.options)
  end
  s.traced = check_traced(file, data.traced)
  local vars, by_name = session.index(step)
  memory.separate(s.model)
  spec.tensors = own.tensors_of(s)
  groups.adopt(s, vars, spec.tensors.parameter)
  spec.calls = cpu.functions_of(s.model)
  spec.seed = s.options.random_seed or require("torch").initial_seed()
  spec.spelling = advice.OPTIONS
  function spec.place(report)
    return attaching.place(s, rules.target(s.options), report)
  end
  check_loops(s, file, step)
  if s.training then
    spec.optimizer = completing.view(s, by_name)
    compiled_optimizer.check_loaded(s, data.optimizer, where)
  end
  return session.open(step, spec)
end

-- The inputs' structure for another number of rows in a call.
local function scaled(d, from, to)
  if d.kind == "tensor" and from ~= to then
    local shape = { table.unpack(d.shape) }
    errors.check(#shape > 0, "AssertionError", "%s: a tensor without dimensions cannot be divided "
      .. "over %d device iterations", tostring(d.path), to)
    shape[1] = shape[1] // from * to
    d.shape = core.Size(shape)
  end
  for _, child in ipairs(d) do
    scaled(child, from, to)
  end
end

-- Gives the executor the program of a file whose options it has.
local function take(s, file, data, where)
  local started = core.host.clock()
  local opened = advice.call(open, s, file, data, where)
  local ok, e = pcall(check_structure, file, data, opened.streams)
  if not ok then
    opened:close()
    error(e, 0)
  end
  scaled(data.inputs, data.options.groups[""].device_iterations or 1, s.options.device_iterations)
  s.spec, s.out_spec, s.anchors = data.inputs, data.outputs, data.anchors
  running.install(s, opened, started, ("%s: %s was loaded"):format(where, file.path))
end

local function read(filename, class_name, where)
  local file = stored.read(check.string(filename, where .. "(filename)"))
  local why = stored.mismatch(file)
  errors.check(not why, class_name, "%s: invalid file %s: %s", where, filename, why)
  local data = guarded(file.path, part, file, "executor").executor
  errors.check(type(data) == "table" and type(data.training) == "boolean"
    and type(data.anchors) == "table", "ValueError", "%s: 'executor' is damaged", file.path)
  return file, data
end

--- Takes the executable of a file instead of compiling: of the same model, wrapped
--- in the same way. Weights and optimizer are this executor's; of its options those
--- act that concern running, the others are the file's.
--- error: poptorch.Error for a file of another version, or of another model;
--- ValueError for one that is damaged, OSError
--- source: 001 PoplarExecutor.loadExecutable
---@param ... any filename (string)
function methods.loadExecutable(self, ...)
  local where = "loadExecutable"
  local s, filename = own.idle(self, where), check.one(where, "filename", ...)
  local file, data = read(filename, "Error", where)
  errors.check(data.training == s.training, "Error", "%s: %s was compiled for %s, this is %s",
    where, filename, data.training and "training" or "inference",
    s.training and "a training model" or "an inference model")
  local compiled = guarded(filename, options_of, file, data)
  if s.session then
    s.session:settle()
    s.session:close()
    s.session = nil
    state.release(s)
  end
  local before = s.options
  s.options = stored_options.run_time(compiled, before, ("%s: %s"):format(where, filename))
    :_freeze(where)
  local ok, e = pcall(guarded, filename, take, s, file, data, where)
  if not ok then
    s.options = before
    error(e, 0)
  end
end

-- The options after edit_opts_fn.
local function edited(file, data, edit, where)
  local compiled = guarded(file.path, options_of, file, data)
  if not edit then
    return compiled
  end
  local opts = compiled:clone()
  edit(opts)
  return stored_options.run_time(compiled, opts, ("%s: %s"):format(where, file.path))
end

local function restore_random(s, numbers)
  if numbers then
    errors.check(type(numbers) == "table" and math.type(numbers[1]) == "integer"
      and math.type(numbers[2]) == "integer", "ValueError", "the random numbers' state is damaged")
    s.session:random_state(numbers[1], numbers[2])
  end
end

-- The executor of a file's model and optimizer.
local function make(wrap, file, data, options)
  local has = part(file, "model")
  errors.check(require("torch.nn").Module:is(has.model), "ValueError", "'model' is no module")
  local executor = data.training and wrap.trainingModel(has.model, options, has.optimizer)
    or wrap.inferenceModel(has.model, options)
  local s = own.state(executor)
  take(s, file, data, "load")
  restore_random(s, data.random_state)
  return executor
end

--- Loads a model that save or compileAndExport wrote: module, weights, optimizer and
--- executable, ready to be called. The module's class must be made before, by the
--- script that runs. `wrap` is what makes executors: poptorch/executor.lua.
--- error: AssertionError for a file of another version or without a model;
--- AttributeError for a class that is not there; ValueError for a damaged file,
--- OSError
---@param wrap {trainingModel: function, inferenceModel: function}
---@param filename string
---@param ... any edit_opts_fn (nil): called with the options before they are used
---@return poptorch.PoplarExecutor
local function load(wrap, filename, ...)
  local a = check.arguments("load", { "filename", "edit_opts_fn" }, nil, filename, ...)
  local where, edit = "load", a[2]
  errors.check(check.is_none(edit) or type(edit) == "function", "TypeError",
    "load(edit_opts_fn): expected a function, got %s", check.describe(edit))
  local file, data = read(a[1], "AssertionError", where)
  errors.check(file.texts.model, "AssertionError", "load: %s was saved with export_model = false: "
    .. "make the model, wrap it by poptorch.%s, then executor:loadExecutable(%q)", a[1],
    data.training and "trainingModel" or "inferenceModel", a[1])
  local options = edited(file, data, not check.is_none(edit) and edit, where)
  return guarded(a[1], make, wrap, file, data, options)
end

return { methods = methods, load = load }
