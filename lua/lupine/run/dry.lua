--- `lupine run --dry-run`: what a run would meet, in a folder that goes again: its
--- objects are made, the step is compiled, two steps are trained (the second one is
--- timed), a batch is validated, a checkpoint is written and read, and the model goes on
--- from it. Tells what memory, disk and time the run takes.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local job = require("lupine.run.job")
local objects = require("lupine.run.objects")

local M = {}

local function bytes_text(n)
  local unit = 1
  local units = { "B", "KiB", "MiB", "GiB", "TiB" }
  while n >= 1024 and unit < #units do
    n, unit = n / 1024, unit + 1
  end
  return ("%.4g %s"):format(n, units[unit])
end

local function seconds_text(s)
  return s < 120 and ("%.3g s"):format(s) or s < 7200 and ("%.3g min"):format(s / 60)
    or ("%.3g h"):format(s / 3600)
end

-- What the system says of this process ("VmHWM": the most memory it has had), in bytes.
local function memory(key)
  local file <close> = assert(io.open("/proc/self/status"))
  return (tonumber(file:read("a"):match(key .. ":%s*(%d+) kB")) or 0) * 1024
end

-- When each step was done.
local Times = class.new("Times")

function Times:init()
  self.name, self.at = "times", {}
end

function Times:on_start()
  self.at[1] = core.host.clock()
end

function Times:on_step()
  self.at[#self.at + 1] = core.host.clock()
end

local STEPS = 2

-- Options of the Trainer, without what only means something over many steps.
local function shortened(parts, times, root)
  local o = class.copy(parts)
  o.epochs, o.steps, o.log_every = nil, STEPS, 1
  o.validation, o.validate_every, o.early_stopping, o.scheduler = nil, nil, nil, nil
  o.callbacks, o.progress, o.swa_start = { times }, false, nil
  o.checkpoints = require("lupine.checkpoint").Manager(root)
  return o
end

local function size_of(path)
  local _, manifest = require("lupine.checkpoint.folder").info(path)
  local n = 0
  for _, file in pairs(manifest.files) do
    n = n + file.bytes
  end
  return n
end

local function length(loader)
  local ok, n = pcall(function()
    return #loader
  end)
  return ok and n > 0 and n or nil
end

-- Updates of the whole run; nil if nobody knows.
local function total_steps(parts)
  local batches = length(parts.train)
  return parts.steps or batches and parts.mode ~= "poptorch"
    and (parts.epochs or 1) * math.ceil(batches / parts.accumulation) or nil
end

local function tell_time(parts, times, say)
  local at = times.at
  local step = #at > 2 and at[#at] - at[#at - 1] or nil
  say(("first step  %s, compiling included"):format(seconds_text(at[2] - at[1])))
  if step then
    local total = total_steps(parts)
    say(("a step      %s%s"):format(seconds_text(step), total
      and (": %d of them take %s, without validation"):format(total, seconds_text(step * total))
      or ""))
  end
end

local function tell_memory(config, trainer, path, say)
  local n, bytes = 0, 0
  for _, p in ipairs(trainer.model:parameters()) do
    n, bytes = n + p:numel(), bytes + p:numel() * p:element_size()
  end
  say(("model       %d parameters, %s"):format(n, bytes_text(bytes)))
  say(("memory      %s at most so far"):format(bytes_text(memory("VmHWM"))))
  local size = size_of(path)
  local kept = config:get("checkpoint.keep") + (config:get("checkpoint.best") and 1 or 0)
  say(("checkpoint  %s, read back and whole; %d are kept: %s of the disk"):format(bytes_text(size),
    kept, bytes_text(size * kept)))
  if config:get("mode") == "poptorch" then
    say(trainer.executor:report():summary())
  end
end

-- A folder that is removed when it is closed.
local function temporary()
  local path = os.tmpname()
  os.remove(path)
  core.make_folder(path)
  return path, setmetatable({}, { __close = function()
    core.remove_folder(path)
  end })
end

--- Does it; raises what the run would raise.
---@param config lupine.run.Config
---@return integer exit code
function M.run(config)
  local say = print
  job.seed(config)
  local parts = objects.parts(config)
  errors.check(parts.steps ~= 0 and parts.epochs ~= 0, "ConfigFileError",
    "--dry-run: the run has no step")
  local root, _ <close> = temporary()
  local times = Times()
  local trainer = objects.trainer(config, shortened(parts, times, root))
  say(("mode %s  precision %s  seed %d"):format(config:get("mode"), config:get("precision"),
    config:get("seed")))
  local result = trainer:fit()
  errors.check(result.reason == "finished", "RuntimeError", "--dry-run: %s", result.why)
  tell_time(parts, times, say)
  if parts.validation then
    local numbers = trainer:validate(parts.validation, 1)
    say(("validation  a batch: loss %.5g"):format(numbers["validation.loss"]))
  end
  local path = trainer:save()
  trainer:resume(path)
  tell_memory(config, trainer, path, say)
  trainer:close()
  say("dry run: all is well")
  return 0
end

return M
