--- A session's compiled step as a file, and back: what stands on either side of
--- core.write_executable and core.read_executable.
---
--- Such a file has texts and tensors. Of a session these are
---   step      the complete step (src/ir/step_text.c), without the data of its variables
---   report    what the simulated system said of it: summary and figures
---   schedule  the figures' part of that name: much text, read when it is asked for
---   session   what it was opened with and the step does not tell: anchors, output,
---             input_groups, system
---   constant/N  data of the constant that is variable N
--- and a front end adds its own. A text of data is JSON as torch.save has it.
---
--- What a program needs of a CPU (layouts, kernels) is not in the file: a stored
--- step is lowered again.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local report = require("lupine.report")
local serialization = require("torch.serialization")
local tables = require("lupine.base.tables")

local M = {}

---@class lupine.session.File
---@field path string
---@field format string
---@field version string
---@field texts table<string, string>
---@field tensors table<string, torch.Tensor>

-- ---- data as text -----------------------------------------------------------------

--- Plain data as a text; no tensors.
--- error: TypeError for what is no plain data
---@param value any
---@param where string for messages
---@return string
function M.encode(value, where)
  local description, writer = serialization.describe(value, where)
  errors.check(#writer.names == 0, "TypeError", "%s: a tensor is no plain data", where)
  return core.json_encode(description)
end

--- The data of a text.
--- error: ValueError naming `where`
---@param text string
---@param where string
---@return any
function M.decode(text, where)
  return serialization.restore(core.json_decode(text, where), {}, {}, where)
end

--- One of a file's texts as data that is a table.
--- error: ValueError naming the file
---@param file lupine.session.File
---@param name string
---@return table
function M.data(file, name)
  local where = ("%s: '%s'"):format(file.path, name)
  local text = errors.check(file.texts[name], "ValueError", "%s is missing", where)
  local value = M.decode(text, where)
  errors.check(type(value) == "table" and not getmetatable(value), "ValueError",
    "%s is no table", where)
  return value
end

-- ---- files ------------------------------------------------------------------------

--- Writes texts and tensors, by name; the file is replaced as a whole.
--- error: OSError
---@param path string
---@param texts table<string, string>
---@param tensors table<string, torch.Tensor>
function M.write(path, texts, tensors)
  local names, list = tables.keys(tensors), {}
  for i, name in ipairs(names) do
    list[i] = tensors[name]:detach():contiguous()
  end
  core.write_executable(path, names, list, texts)
end

--- Reads a file. Of another version's only that is known.
--- error: OSError; ValueError for what is no executable, or a damaged one
---@param path string
---@return lupine.session.File
function M.read(path)
  local names, list, texts = core.read_executable(path)
  local tensors = {}
  for i, name in ipairs(names) do
    tensors[name] = list[i]
  end
  return { path = path, format = texts.format, version = texts.version, texts = texts,
    tensors = tensors }
end

--- Why a file that was read cannot be used here: nil if it can.
---@param file lupine.session.File
---@return string?
function M.mismatch(file)
  if file.texts.step then
    return nil
  end
  return ("it is of lupine %s (format %s), this is lupine %s: save it again with this version")
    :format(file.version, file.format, core.version)
end

-- ---- sessions ---------------------------------------------------------------------

--- A step and its report as texts.
---@param step lupine.Step complete
---@param of lupine.Report
---@return table<string, string>
function M.texts_of(step, of)
  local said = of:stored()
  local figures = class.copy(said.figures)
  figures.schedule = nil
  return { step = step:text("step"),
    schedule = M.encode({ schedule = said.figures.schedule }, "schedule"),
    report = M.encode({ figures = figures, summary = said.summary }, "report") }
end

--- Texts and tensors of a session, without its weights and states.
---@param session lupine.Session
---@return table<string, string> texts
---@return table<string, torch.Tensor> tensors
function M.take(session)
  local step, tensors = session.exec:step(), {}
  local texts = M.texts_of(step, session.report)
  texts.session = M.encode(session.spec, "session")
  for i, v in ipairs(step:vars()) do
    if v.role == "constant" then
      tensors[("constant/%d"):format(i)] = step:data(i)
    end
  end
  return texts, tensors
end

--- The step that a file has.
--- error: ValueError naming the file
---@param file lupine.session.File
---@return lupine.Step
function M.parse(file)
  local ok, step = pcall(core.step_parse, errors.check(file.texts.step, "ValueError",
    "%s: 'step' is missing", file.path))
  if ok then
    return step
  end
  return errors.raise("ValueError", "%s: the compiled step cannot be read: %s", file.path,
    errors.Exception:is(step) and step.message or tostring(step))
end

-- Another number of device iterations than was compiled for: no graph of the step
-- depends on it, its report does.
local function iterate(file, spec, n)
  spec.changed = true
  local text = errors.check(file.texts.step, "ValueError", "%s: 'step' is missing", file.path)
  file.texts.step = text:gsub("^step iterations %-?%d+", ("step iterations %d"):format(n), 1)
end

local MODES = tables.set(core.output_modes)

-- What comes of outputs, or of an anchor: a mode, and of every how many.
local function is_returned(r, mode)
  return type(r) == "table" and MODES[mode] and math.type(r.period) == "integer"
    and r.period >= 1
end

local function check_returned(file, spec)
  local every = spec.output.mode
  local fit = is_returned(spec.output, every)
  for _, anchor in ipairs(spec.anchors) do
    fit = fit and type(anchor) == "table" and is_returned(anchor, anchor.mode or every)
  end
  errors.check(fit, "ValueError", "%s: 'session' says nothing of modes of outputs", file.path)
end

--- The step of a file, and what session.open takes with it: its `spec` without
--- tensors, optimizer and seed. `changed` in it: the file's report is of another loop.
--- error: ValueError naming the file
---@param file lupine.session.File
---@param iterations integer? of the device in a run, other ones than the file's
---@return lupine.Step step
---@return table spec
function M.open(file, iterations)
  local spec = M.data(file, "session")
  for _, name in ipairs({ "anchors", "output", "input_groups", "system" }) do
    errors.check(type(spec[name]) == "table", "ValueError", "%s: 'session' says nothing of %s",
      file.path, name)
  end
  check_returned(file, spec)
  spec.executable = file
  if iterations then
    iterate(file, spec, iterations)
  end
  return M.parse(file), spec
end

-- The tensor that a variable starts with; nil for roles that have none.
local function tensor_of(v, spec)
  if v.role == "constant" then
    return spec.executable.tensors[("constant/%d"):format(v.index)]
  end
  return spec.tensors[v.role] and spec.tensors[v.role][v.name]
end

--- Gives a variable of a stored step its tensor.
--- error: poptorch.Error for one that the program is not of
---@param step lupine.Step
---@param v table the variable
---@param tensor torch.Tensor
function M.give(step, v, tensor)
  local ok, e = pcall(step.bind, step, v.index, tensor)
  if not ok and v.role ~= "constant" then
    errors.raise("Error", "the program is not of this model: %s", e.message)
  elseif not ok then
    error(e, 0)
  end
end

local NEEDED = { parameter = "the model", buffer = "the model", constant = "the file" }

--- Gives a stored step the host's tensors and its own constants; the optimizer's
--- it has.
--- error: poptorch.Error for a model that the step is not of
---@param step lupine.Step
---@param vars table[] its variables, each with its index
---@param spec table session.open's
function M.bind(step, vars, spec)
  for _, v in ipairs(vars) do
    local tensor = tensor_of(v, spec)
    if tensor then
      M.give(step, v, tensor)
    end
    local from = NEEDED[v.role]
    errors.check(tensor or not from, "Error", "%s: %s has no %s '%s' of the compiled program",
      spec.executable.path, from, v.role, v.role == "constant" and v.index or v.name)
    errors.check(not (v.role == "state" or v.role == "hyper") or step:data(v.index), "Error",
      "%s: the optimizer has no %s '%s' of the compiled program", spec.executable.path, v.role,
      v.name)
  end
end

--- What a file says of the simulated system's run of a step.
---@param file lupine.session.File
---@param step lupine.Step the one that was planned
---@param system table the options that it was planned with
---@param spelling? table of options, as Report's
---@return lupine.Report
function M.report(file, step, system, spelling)
  local said = M.data(file, "report")
  errors.check(type(said.figures) == "table" and type(said.summary) == "string", "ValueError",
    "%s: 'report' is damaged", file.path)
  local fault = report.fault(said.figures)
  errors.check(not fault, "ValueError", "%s: 'report' is damaged: %s", file.path, fault)
  errors.check(file.texts.schedule, "ValueError", "%s: 'schedule' is missing", file.path)
  return report.Report(nil, { figures = said.figures, summary = said.summary,
    plan = function()
      return core.plan(step, system)
    end,
    schedule = function()
      local schedule = M.data(file, "schedule")
      local wrong = report.fault(schedule, { "schedule" })
      errors.check(not wrong, "ValueError", "%s: 'schedule' is damaged: %s", file.path, wrong)
      return schedule.schedule
    end }, { system = system, spelling = spelling })
end

return M
