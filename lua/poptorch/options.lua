--- poptorch.Options: everything that controls how a model is compiled and run.
--- The options themselves are rows of data (poptorch/options/*.lua); this file
--- puts the groups together and adds what concerns the whole: defaults from
--- the environment, freezing, copies, files, printing.
---
--- Sources: PopTorch API reference, poptorch.Options; user guide 4.1.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local errors = require("lupine.base.errors")
local Distributed = require("poptorch.options.distributed")
local enums = require("poptorch.enums")
local Group = require("poptorch.options.group")
local Jit = require("poptorch.options.jit")
local locations = require("poptorch.options.locations")
local logging = require("poptorch.logging")
local places = require("poptorch.options.places")
local Popart = require("poptorch.options.popart")
local Precision = require("poptorch.options.precision")
local strategies = require("poptorch.strategies")
local Training = require("poptorch.options.training")
local variables = require("lupine.base.variables")

local M = {
  ConfigFileError = errors.ConfigFileError,
  TensorLocationSettings = locations.TensorLocationSettings,
  _DistributedOptions = Distributed,
  _JitOptions = Jit,
  _PopartOptions = Popart,
  _PrecisionOptions = Precision,
  _TensorLocationOptions = locations.Options,
  _TrainingOptions = Training,
  --- The four tensor locations with every value filled in.
  effective_locations = places.effective,
}

--- In the order they print.
local GROUPS = { "Training", "Precision", "TensorLocations", "Distributed", "Jit", "_Popart" }
local CLASSES = { Training = Training, Precision = Precision,
  TensorLocations = locations.Options, Distributed = Distributed, Jit = Jit, _Popart = Popart }
M.GROUPS, M.CLASSES = GROUPS, CLASSES

---@class poptorch.Options
local Options = Group.define("Options", (require("poptorch.options.general")))
M.Options = Options

function Options:setup()
  Group.setup(self)
  for _, name in ipairs(GROUPS) do
    local group = CLASSES[name]()
    rawset(group, "_owner", self)
    rawset(self, name, group)
  end
  self._values.execution_strategy = strategies.PipelinedExecution()
  local cache = variables.text("POPTORCH_CACHE_DIR")
  if cache then
    logging.info("POPTORCH_CACHE_DIR is set: executables are cached in %s", cache)
    self:enableExecutableCaching(cache)
  end
  local json = variables.text("POPTORCH_DEFAULT_OPTIONS")
  if json then
    errors.within("POPTORCH_DEFAULT_OPTIONS", self.from_json, self, json)
  end
end

function Options:init(...)
  errors.check(select("#", ...) == 0, "TypeError",
    "Options() takes no arguments; options are set by its methods: "
    .. "poptorch.Options():deviceIterations(4)")
end

--- True while the output mode is still OutputMode.Default.
---@return boolean
function Options:defaultOutputMode()
  check.method(self, Options, "defaultOutputMode")
  return self.output_mode == enums.OutputMode.Default
end

--- A deep copy that may be changed, sub-options and strategy included.
---@return poptorch.Options
function Options:clone()
  check.method(self, Options, "clone")
  local copy = class.copy(self)
  rawset(copy, "_frozen", false)
  return copy
end

--- A copy for inference beside training with these: without gradient accumulation,
--- and with as many more device iterations, so that a call takes the same batches.
---@return poptorch.Options
function Options:forInference()
  local copy = self:clone()
  copy:deviceIterations(self.device_iterations * self.Training.gradient_accumulation)
  copy.Training:gradientAccumulation(1)
  return copy
end

--- From now on every setter raises AttributeError, which names `by`.
---@param by string  "poptorch.trainingModel"
---@return poptorch.Options self
function Options:_freeze(by)
  if not self._frozen then
    local where = errors.caller()
    rawset(self, "_frozen", where == "" and by or ("%s (%s)"):format(by, where))
  end
  return self
end

--- True once a wrapper or a data loader has taken these options.
---@return boolean
function Options:isFrozen()
  check.method(self, Options, "isFrozen")
  return self._frozen ~= false
end

--- Applies an options file: one call a line as in Python, without `options.`.
--- The file is parsed, never run.
--- error: ConfigFileError (syntax; nothing is applied), FileNotFoundError, and
--- what the setters raise (earlier lines stay applied)
---@param ... any filepath (string)
---@return poptorch.Options
function Options:loadFromFile(...)
  local filepath = check.string(check.one("loadFromFile", "filepath", ...),
    "loadFromFile(filepath)")
  self:_writable("loadFromFile")
  require("poptorch.options.config_file").load(self, filepath)
  return self
end

--- Applies a JSON object: each key is an accessor with points
--- ("Training.gradientAccumulation"), its value the argument, an array several
--- arguments, a string "OutputMode.All" the member of an enumeration.
--- POPTORCH_DEFAULT_OPTIONS is applied this way to every new Options.
---@param text string
---@return poptorch.Options
function Options:from_json(text)
  check.string(text, "from_json(string)")
  self:_writable("from_json")
  require("poptorch.options.json").apply(self, text)
  return self
end

--- All values as one plain table, as stored with an executable: enumerations
--- as numbers, the session options and the strategy's settings among them.
--- error: AssertionError while the output mode is Default
---@return table<string, any>
function Options:toDict()
  check.method(self, Options, "toDict")
  errors.check(not self:defaultOutputMode(), "AssertionError",
    "toDict: the output mode is still OutputMode.Default; a wrapped model's options have "
    .. "Final or All")
  local out = {}
  local function add(part)
    for key, value in pairs(part) do
      errors.check(out[key] == nil, "AssertionError", "toDict: two groups have a value '%s'", key)
      out[key] = value
    end
  end
  add(Group.toDict(self))
  out.execution_strategy = nil
  for _, name in ipairs(GROUPS) do
    add(self[name]:toDict())
  end
  add(self.execution_strategy:backendOptions())
  return out
end

function Options.__tostring(self)
  local lines = {}
  for _, part in ipairs(self:_shown_values()) do
    lines[#lines + 1] = "  " .. part
  end
  for _, name in ipairs(GROUPS) do
    lines[#lines + 1] = ("  %s=%s"):format(name, tostring(self[name]))
  end
  return ("%s(\n%s\n)"):format(getmetatable(self).__name, table.concat(lines, ",\n"))
end

return M
