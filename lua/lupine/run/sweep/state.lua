--- The folder of a sweep, FOLDER/NAME-001:
---
---   sweep.json      what is compared, and each job with its values and how it stands
---   run.yaml        the run file as it was when the sweep began, with what it includes
---   job-003-001/    the run of job 3 (a second attempt that begins anew is -002)
---   job-003.log     all that its processes wrote
---
--- sweep.json is written as a whole at each change, so that a sweep that is killed goes on
--- with the same jobs under the same numbers.
local class = require("lupine.base.class")
local config = require("lupine.run.config")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folder = require("lupine.run.folder")
local provenance = require("lupine.run.provenance")
local sources = require("lupine.run.sources")
local scores = require("lupine.run.sweep.scores")
local space = require("lupine.run.sweep.space")
local tables = require("lupine.base.tables")
local texts = require("lupine.run.sweep.texts")
local types = require("lupine.run.types")

local M = {}

---@class lupine.run.Sweep
---@field path string
---@field facts table what sweep.json has
local Sweep = class.new("Sweep")

local FACTS, RUN_FILE, FORMAT = "sweep.json", "run.yaml", 1

-- ---- the run file ----------------------------------------------------------------------

-- The run file with what it includes, and the sweep's values over it. References stay: they
-- follow what a job changes.
local function frozen(sweep)
  local root, lines = sources.file(sweep.run), {}
  for _, word in ipairs(sweep.set) do
    root = sources.over(root, sources.word(word))
  end
  for _, key in ipairs(root.keys) do
    lines[#lines + 1] = key ~= "include" and ("%s: %s\n"):format(core.json_encode(key),
      texts.of(root.values[key])) or nil
  end
  return table.concat(lines)
end

-- ---- jobs ------------------------------------------------------------------------------

local function job_of(number, width, values)
  local job = { name = ("job-%0" .. width .. "d"):format(number), status = "pending",
    parameters = {}, words = {}, scores = {} }
  for i, pair in ipairs(values) do
    local key, text = pair[1], pair[2]
    job.words[i] = key .. "=" .. text
    local plain = not text:find('^[%["{]')
    local guessed = plain and types.guess({ kind = "scalar", text = text, plain = true })
    job.parameters[key] = type(guessed) == "number" and guessed or text
  end
  tables.array(job.words)
  tables.array(job.scores)
  return job
end

--- How a job's values are told: "optimizer.args.lr=0.1 epochs=2".
---@param job table
---@return string
function M.told(job)
  return table.concat(job.words, " ")
end

-- Each job's configuration is read once before any begins: of the user's own file, whose
-- lines messages tell.
local function check_jobs(sweep, jobs)
  for _, job in ipairs(jobs) do
    local words = table.move(sweep.set, 1, #sweep.set, 1, {})
    table.move(job.words, 1, #job.words, #words + 1, words)
    errors.within(("%s (%s)"):format(job.name, M.told(job)), function()
      scores.check(sweep.metric, config.read(sweep.run, words))
    end)
  end
end

local function facts_of(sweep, jobs)
  local rungs = sweep.method == "halving" and space.rungs(sweep) or {}
  return {
    format = FORMAT, status = "running", name = sweep.name, method = sweep.method, run = sweep.run,
    metric = sweep.metric, mode = sweep.mode, seed = sweep.seed, parallel = sweep.jobs,
    factor = sweep["halving.factor"], rungs = tables.array(rungs),
    set = tables.array(sweep.set), jobs = tables.array(jobs),
  }
end

-- What only a process knows of itself.
local PROCESS = { "command", "pid", "began", "host" }

local function sign(facts)
  local now = provenance.facts()
  for _, key in ipairs(PROCESS) do
    facts[key] = now[key]
  end
  facts.started, facts.folder = facts.started or now.started, facts.folder or now.folder
  facts.status, facts.ended = "running", nil
end

-- ---- the folder ------------------------------------------------------------------------

function Sweep:init(path, facts)
  self.path, self.facts = path, facts
end

local function write(path, facts)
  core.write_text(path .. "/" .. FACTS, core.json_encode(facts, 1) .. "\n")
end

--- sweep.json has all facts when this returns.
--- error: OSError
function Sweep:write()
  write(self.path, self.facts)
end

--- The path of a file in it.
---@param name string
---@return string
function Sweep:file(name)
  return self.path .. "/" .. name
end

--- The run file of its jobs.
---@return string
function Sweep:run_file()
  return self:file(RUN_FILE)
end

--- The run that a job has; nil: it has none yet.
---@param job table
---@return lupine.run.Folder?
function Sweep:run(job)
  local last
  for _, run in ipairs(folder.list(self.path, job.name)) do
    last = (not last or run.path > last.path) and run or last
  end
  return last
end

--- The jobs of a sweep, nothing is written.
--- errors: ConfigFileError, FileNotFoundError
---@param sweep table<string, any> of lua/lupine/run/sweep/config.lua
---@return table[] jobs
function M.jobs(sweep)
  local list = space.jobs(sweep)
  local width = math.max(3, #tostring(#list))
  for i, values in ipairs(list) do
    list[i] = job_of(i, width, values)
  end
  return list
end

--- Makes the folder of a new sweep, when all its jobs can be read.
--- errors: ConfigFileError, FileNotFoundError, OSError
---@param sweep table<string, any> of lua/lupine/run/sweep/config.lua, with a seed
---@return lupine.run.Sweep
function M.create(sweep)
  local jobs = M.jobs(sweep)
  core.make_folder(sweep.folder)
  local new <close> = core.new_folder(sweep.folder)
  local run_file = new:path() .. "/" .. RUN_FILE
  core.write_text(run_file, frozen(sweep))
  check_jobs(sweep, jobs)
  config.read(run_file, jobs[1].words)
  local facts = facts_of(sweep, jobs)
  sign(facts)
  write(new:path(), facts)
  return Sweep(folder.settle(new, sweep.folder, sweep.name), facts)
end

local function all(list, holds)
  for _, item in ipairs(list) do
    if not holds(item) then
      return false
    end
  end
  return true
end

local function is_text(value)
  return type(value) == "string"
end

local function is_job(job)
  return type(job) == "table" and is_text(job.name) and job.name:find("^job%-%d+$")
    and is_text(job.status) and type(job.words) == "table" and all(job.words, is_text)
    and type(job.scores) == "table" and (job.best == nil or type(job.best) == "number")
    and (job.run == nil or is_text(job.run))
end

local function is_rung(rung)
  return type(rung) == "table" and math.type(rung.count) == "integer"
    and (rung.unit == "epoch" or rung.unit == "step")
end

-- Whether sweep.json has what the others count on.
local function is_sweep(facts)
  return type(facts) == "table" and facts.format == FORMAT and type(facts.jobs) == "table"
    and all(facts.jobs, is_job) and type(facts.rungs) == "table" and all(facts.rungs, is_rung)
    and type(facts.set) == "table" and is_text(facts.metric) and is_text(facts.method)
    and (facts.mode == "min" or facts.mode == "max") and math.type(facts.parallel) == "integer"
    and (facts.method ~= "halving" or math.type(facts.factor) == "integer")
end

--- Whether a folder is a sweep's.
---@param path string
---@return boolean
function M.is_sweep(path)
  local file = io.open(path .. "/" .. FACTS, "rb")
  return file ~= nil and file:close()
end

-- A list that JSON had, which may get longer.
local function list_of(t)
  return tables.array(table.move(t, 1, #t, 1, {}))
end

--- A sweep that is there.
--- errors: FileNotFoundError, ValueError
---@param path string
---@return lupine.run.Sweep
function M.open(path)
  path = path:gsub("(.)/+$", "%1")
  local usual = config.rows.folder.default .. "/" .. path -- a name alone, as of runs
  if not core.is_folder(path) and core.is_folder(usual) then
    path = usual
  end
  errors.check(core.is_folder(path), "FileNotFoundError", "there is no sweep '%s'", path)
  errors.check(M.is_sweep(path), "ValueError", "'%s' is no folder of a sweep: it has no %s", path,
    FACTS)
  local file <close> = assert(io.open(path .. "/" .. FACTS, "rb"))
  local ok, facts = pcall(core.json_decode, file:read("a"), path .. "/" .. FACTS)
  errors.check(ok and is_sweep(facts), "ValueError", "'%s/%s' tells of no sweep", path, FACTS)
  for _, key in ipairs({ "jobs", "rungs", "set" }) do
    facts[key] = list_of(facts[key])
  end
  for _, job in ipairs(facts.jobs) do
    job.words, job.scores = list_of(job.words), list_of(job.scores)
  end
  return Sweep(path, facts)
end

--- Whether the process that works on it lives.
---@return boolean?
function Sweep:is_running()
  return folder.Folder(self.path, self.facts):is_running()
end

--- Claims it for this process.
--- error: ValueError if another one works on it
function Sweep:claim()
  local held <close> = core.lock_file(self:file(".lock"))
  self.facts = M.open(self.path).facts
  errors.check(not self:is_running(), "ValueError", "process %d works on the sweep '%s'",
    self.facts.pid, self.path)
  sign(self.facts)
  self:write()
  held:close()
end

M.Sweep = Sweep
return M
