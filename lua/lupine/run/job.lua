--- A run from its first step to its last, or to where it is stopped: the Trainer that a
--- configuration describes works in a folder that always says how things stand.
---
--- SIGTERM and Ctrl-C are noted; the running step is finished and a checkpoint written.
--- The second one interrupts at once.
local class = require("lupine.base.class")
local codes = require("lupine.commands")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folder = require("lupine.run.folder")
local objects = require("lupine.run.objects")
local provenance = require("lupine.run.provenance")
local Recorder = require("lupine.run.recorder")

local M = {}

-- ---- what is told --------------------------------------------------------------------

-- Until it is called, what print() prints goes to a file, too.
local function copy_prints(file)
  local plain = print
  rawset(_G, "print", function(...)
    plain(...)
    local texts = table.pack(...)
    for i = 1, texts.n do
      texts[i] = tostring(texts[i])
    end
    file:write(table.concat(texts, "\t"), "\n")
    file:flush()
  end)
  return function()
    rawset(_G, "print", plain)
  end
end

-- Prints lines and keeps them in log.txt, where lupine's own log goes, too, and what the
-- model's and other people's code prints.
local function open_log(path)
  local file = errors.check(io.open(path, "ab"), "OSError", "cannot write '%s'", path)
  core.host.log_copy(path)
  local take_back = copy_prints(file)
  local function say(line)
    io.write(line, "\n")
    io.flush()
    file:write(line, "\n")
    file:flush()
  end
  return say, function(text)
    core.host.log_copy(nil)
    take_back()
    file:write(text or "")
    file:close()
  end
end

--- The command that goes on with a run.
---@param run lupine.run.Folder
---@return string
function M.resume_command(run)
  local path = run.path
  return "lupine run --resume "
    .. (path:find("^[%w_./-]+$") and path or "'" .. path:gsub("'", "'\\''") .. "'")
end

-- Numbers as JSON can say them.
local function finite(values)
  local out = {}
  for name, value in pairs(values) do
    local is_number = value == value and value ~= math.huge and value ~= -math.huge
    out[name] = is_number and value or core.none
  end
  return out
end

-- ---- the end -------------------------------------------------------------------------

local STATUS = { finished = "finished", early_stopping = "finished", stopped = "interrupted",
  nan = "failed" }

local function save_weights(run, trainer)
  local save = require("lupine.safetensors").save_file
  save(trainer.model:state_dict(), run:file("model.safetensors"), { format = "pt" })
  for _, name in ipairs({ "ema", "swa" }) do
    if trainer[name] then
      save(trainer[name].module:state_dict(), run:file(("model-%s.safetensors"):format(name)),
        { format = "pt" })
    end
  end
end

-- What the simulated system says of the training program, if there was a step.
local function save_report(run, executor)
  if not executor:isCompiled() then
    return
  end
  local report = executor:report()
  run:write("report.txt", report:summary())
  run:write("report.json", report:json())
end

---@class lupine.run.Job
local Job = class.new("Job")

-- The files of the end; returns the exit code.
local function conclude(self, run, result, say)
  local status, config = STATUS[result.reason], self.config
  if status == "finished" then
    save_weights(run, self.trainer)
  end
  if config:get("mode") == "poptorch" and config:get("logging.report") then
    save_report(run, self.trainer.executor)
  end
  run:note({ status = status, reason = result.reason, why = result.why, step = result.step,
    epoch = result.epoch, metrics = finite(result.metrics), ended = core.host.time() })
  return self["tell_" .. status](self, run, result, say)
end

function Job:tell_finished(run, result, say)
  say(("%s at step %d, epoch %d: %s"):format(result.reason, result.step, result.epoch,
    run:file("model.safetensors")))
  return codes.DONE
end

function Job:tell_interrupted(run, result, say)
  say(("stopped by %s at step %d; this goes on:\n%s"):format(result.why, result.step,
    M.resume_command(run)))
  return codes.INTERRUPTED
end

function Job:tell_failed(_, result, say)
  local last = self.checkpoints:latest()
  say(("failed: %s\n%s"):format(result.why, last and "the last good checkpoint is " .. last
    or "there is no checkpoint from before it"))
  return codes.ERROR
end

-- What happens when something raises: the folder says so, the error goes on.
local function guard(run, close_log, recorder)
  return setmetatable({}, { __close = function(_, e)
    recorder:close()
    if e ~= nil then
      local interrupted = errors.classes.KeyboardInterrupt:is(e)
      local text = type(e) == "table" and e.message or tostring(e)
      pcall(run.note, run, { status = interrupted and "interrupted" or "failed",
        reason = interrupted and "interrupted" or "error", why = text,
        ended = core.host.time() })
      local has_checkpoint = core.is_folder(run:file("checkpoints"))
      io.stderr:write(has_checkpoint and ("the last checkpoint is taken up by: %s\n"):format(
        M.resume_command(run)) or "")
    end
    close_log(e ~= nil and tostring(e) .. "\n" or nil)
  end })
end

-- ---- training ------------------------------------------------------------------------

local function count(model)
  local n = 0
  for _, p in ipairs(model:parameters()) do
    n = n + p:numel()
  end
  return n
end

--- A configuration's objects, made; nothing is written yet.
--- errors: ConfigFileError; what the objects' classes raise
---@param config lupine.run.Config with a seed
function Job:init(config)
  local parts = objects.parts(config)
  self.config = config
  self.checkpoints = objects.checkpoints(config, "checkpoints")
  self.recorder = Recorder(config:get("logging.tensorboard"))
  table.insert(parts.callbacks, 1, self.recorder)
  parts.checkpoints = self.checkpoints
  function parts.should_stop()
    return self.deferred and self.deferred:signal()
  end
  self.trainer = objects.trainer(config, parts)
end

function Job:introduce(run, say)
  local config = self.config
  say(("run %s  mode %s  precision %s  seed %d  %d parameters"):format(run.path,
    config:get("mode"), config:get("precision"), config:get("seed"), count(self.trainer.model)))
end

--- Trains in a folder; `restore(say)` is done before the first step.
---@param run lupine.run.Folder
---@param restore? fun(say: fun(line: string))
---@return integer exit code
function Job:train(run, restore)
  local say, close_log = open_log(run:file("log.txt"))
  local _ <close> = guard(run, close_log, self.recorder)
  self.recorder:place(run.path, say)
  self.checkpoints.root = run:file("checkpoints")
  self:introduce(run, say)
  if restore then
    restore(say)
  end
  self.deferred = core.host.defer_signals()
  local deferred <close> = self.deferred
  local result = self.trainer:fit()
  deferred:close()
  self.deferred = nil
  local code = conclude(self, run, result, say)
  self.trainer:close()
  return code
end

-- A seed that nobody chose.
local function draw()
  local source <close> = assert(io.open("/dev/urandom", "rb"))
  return (("<I4"):unpack(source:read(4)))
end

--- Gives a configuration without a seed one.
---@param config lupine.run.Config
function M.seed(config)
  if not config:get("seed") then
    config:set("seed", draw(), "drawn")
  end
end

--- A new run.
---@param config lupine.run.Config
---@return integer exit code
function M.start(config)
  M.seed(config)
  local job = Job(config)
  local run = folder.create(config, { seed = config:get("seed") })
  return job:train(run)
end

--- Goes on with a run.
---@param run lupine.run.Folder
---@param config lupine.run.Config that was read from it
---@return integer exit code
function M.resume(run, config)
  local job, from = Job(config), run.facts.folder
  run:claim({ seed = config:get("seed"), folder = from })
  run:write("config.yaml", provenance.clean(config:yaml(true)))
  return job:train(run, function(say)
    local here = core.host.process().folder
    if here ~= from then
      core.host.log("warn", ("the run was begun in %s; relative names of files are looked up in "
        .. "%s now"):format(from, here))
    end
    local path = job.trainer:resume("latest")
    say(path and ("goes on from %s"):format(path) or "there is no checkpoint: it begins anew")
  end)
end

M.Job = Job
return M
