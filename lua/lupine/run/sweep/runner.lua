--- Trains the jobs of a sweep: some processes at a time, each a `lupine run` in a process
--- group of its own. A job that fails is told at once. A signal goes on to all of them,
--- which save; the second one is a Ctrl-C here, which ends them.
local class = require("lupine.base.class")
local codes = require("lupine.commands")
local columns = require("lupine.base.columns")
local core = require("lupine.core")
local scores = require("lupine.run.sweep.scores")
local state = require("lupine.run.sweep.state")

local M = {
  -- What a job is: specs put programs of their own in its place.
  program = { path = "/proc/self/exe", words = { "lupine", "run" } },
  grace = 10.0, -- seconds for jobs to end when the sweep does at once
}

local POLL = 1.0 -- seconds between two looks at what no signal tells
local LAST_LINES = 12 -- of the log of a failed job

---@class lupine.run.Runner
local Runner = class.new("Runner")

--- `o`: parallel, fail_fast, retry, say (prints a line).
---@param sweep lupine.run.Sweep claimed by this process
---@param o table
function Runner:init(sweep, o)
  self.sweep, self.facts, self.o = sweep, sweep.facts, o
  self.running = {} -- {job, child}
  local threads = core.host.cpu().threads
  self.environment = { ("OMP_NUM_THREADS=%d"):format(math.max(1, threads // o.parallel)) }
end

-- ---- a job begins ----------------------------------------------------------------------

local function every_word(target)
  return ("%ss=%d"):format(target.unit, target.count)
end

-- The words of `lupine run` for a job: a new run, or the one it has goes on.
function Runner:words(job, target)
  local run, words = self.sweep:run(job), table.move(M.program.words, 1, #M.program.words, 1, {})
  if run then
    words[#words + 1], words[#words + 2] = "--resume", run.path
  else
    words[#words + 1] = self.sweep:run_file()
    table.move(job.words, 1, #job.words, #words + 1, words)
    words[#words + 1] = "folder=" .. core.json_encode(self.sweep.path)
    words[#words + 1] = "name=" .. job.name
    if target then -- instead of what the run file says of the end
      words[#words + 1] = target.unit == "epoch" and "steps=" or "epochs="
    end
  end
  words[#words + 1] = target and every_word(target) or nil
  return words
end

-- One whose sweep was killed saves on its own: it comes to its end first.
local function wait_for_last(run)
  while run and run:is_running() do
    core.wait_for_children({}, POLL / 4)
  end
end

function Runner:start(job, target)
  local run = self.sweep:run(job)
  wait_for_last(run)
  local child = core.start_child({ program = M.program.path, arguments = self:words(job, target),
    environment = self.environment, output = self.sweep:file(job.name .. ".log") })
  job.status, job.why = "running", nil
  self.sweep:write()
  self.running[#self.running + 1] = { job = job, child = child }
  self.o.say(("%s %s: %s%s"):format(job.name, run and "goes on" or "begins", state.told(job),
    target and " " .. every_word(target) or ""))
end

-- ---- a job ends ------------------------------------------------------------------------

local function last_lines(path)
  local file = io.open(path, "rb")
  if not file then
    return "(it wrote nothing)"
  end
  local text <close> = file
  text:seek("set", math.max(0, text:seek("end") - 16384))
  local lines = {}
  for line in text:lines() do
    lines[#lines + 1] = "  " .. line
  end
  return table.concat(lines, "\n", math.max(1, #lines - LAST_LINES + 1))
end

local SIGNALS = { [2] = "SIGINT", [9] = "SIGKILL (out of memory?)", [15] = "SIGTERM" }

local function status_of(self, run, code, signal)
  if code == codes.DONE then
    return "finished"
  elseif code == codes.INTERRUPTED or run and run.facts.status == "interrupted"
    or self.stopping and code == -1 then
    return "interrupted", "stopped by a signal"
  elseif code == -1 then
    return "failed", "killed by " .. (SIGNALS[signal] or "signal " .. signal)
  end
  local why = run and run.facts.status == "failed" and run.facts.why
  return "failed", why or ("exit code %d"):format(code)
end

-- What a job has come to: its best value, and where.
function Runner:measure(job, run, rung)
  local rows, metric = run and scores.rows(run.path) or {}, self.facts.metric
  local best, step = scores.best(rows, metric, self.facts.mode)
  job.best, job.step = best, step
  job.run = run and run.path:match("[^/]+$")
  if job.status ~= "finished" then
    return
  end
  job.scores[rung] = best or false
  if not best then
    self.o.say(("%s has no value of '%s'; it has %s"):format(job.name, metric,
      #rows > 0 and table.concat(scores.names(rows), ", ") or "no metrics at all"))
  end
end

function Runner:tell(job)
  local say = self.o.say
  if job.status == "failed" then
    say(("%s FAILED: %s\n  %s\n  last lines of %s:\n%s"):format(job.name, job.why, state.told(job),
      self.sweep:file(job.name .. ".log"), last_lines(self.sweep:file(job.name .. ".log"))))
  else
    say(("%s %s%s"):format(job.name, job.status, job.best and (": %s %s at step %s"):format(
      self.facts.metric, columns.number(job.best), job.step or "?") or ""))
  end
end

function Runner:conclude(job, rung, code, signal)
  local run = self.sweep:run(job)
  job.status, job.why = status_of(self, run, code, signal)
  self:measure(job, run, rung)
  self.sweep:write()
  self:tell(job)
  if job.status == "failed" and self.o.fail_fast and not self.stopping then
    self:stop("--fail-fast", "SIGTERM")
  end
end

-- ---- all of them -----------------------------------------------------------------------

--- Tells all that run to save and end; nothing new begins.
---@param why string
---@param signal string
function Runner:stop(why, signal)
  self.stopping = why
  if #self.running > 0 then
    self.o.say(("%s: %d running jobs save and stop"):format(why, #self.running))
  end
  for _, entry in ipairs(self.running) do
    entry.child:signal(signal)
  end
end

function Runner:look(rung)
  local children, still = {}, {}
  for i, entry in ipairs(self.running) do
    children[i] = entry.child
  end
  core.wait_for_children(children, POLL)
  local signal = self.deferred:signal()
  if signal and self.stopping ~= signal then
    self:stop(signal, "SIGTERM")
  end
  local all = self.running
  for i = #all, 1, -1 do
    local code, by = all[i].child:ended()
    if code then
      table.insert(still, 1, { all[i].job, code, by })
      table.remove(all, i)
    end
  end
  for _, entry in ipairs(still) do
    self:conclude(entry[1], rung, entry[2], entry[3])
  end
end

-- Trains jobs until all have ended, or the sweep is stopped.
function Runner:work(queue, rung, target)
  local next_one = 1
  while #self.running > 0 or next_one <= #queue and not self.stopping do
    while #self.running < self.o.parallel and next_one <= #queue and not self.stopping do
      self:start(queue[next_one], target)
      next_one = next_one + 1
    end
    self:look(rung)
  end
end

-- Whether a job takes part: not one that has come to the end of the round, and one that
-- failed only if asked.
function Runner:is_due(job, rung)
  return job.scores[rung] == nil and (job.status ~= "failed" or self.o.retry)
end

function Runner:round(jobs, rung, target)
  local queue = {}
  for _, job in ipairs(jobs) do
    queue[#queue + 1] = self:is_due(job, rung) and job or nil
  end
  self:work(queue, rung, target)
end

-- The jobs that go on after a round: the best of those that came to its end.
function Runner:best_of(jobs, rung, count)
  local out = {}
  for _, job in ipairs(jobs) do
    out[#out + 1] = job.scores[rung] and job or nil
  end
  table.sort(out, function(a, b)
    local x, y = a.scores[rung], b.scores[rung]
    return x ~= y and scores.better(x, y, self.facts.mode) or x == y and a.name < b.name
  end)
  return table.move(out, 1, math.min(count, #out), 1, {})
end

-- Names those that a round leaves behind.
local function drop(jobs, kept)
  local stays = {}
  for _, job in ipairs(kept) do
    stays[job] = true
  end
  for _, job in ipairs(jobs) do
    if not stays[job] and job.status == "finished" then
      job.status = "dropped"
    end
  end
end

function Runner:halve()
  local jobs, f = self.facts.jobs, self.facts
  local count = #jobs
  for rung, target in ipairs(f.rungs) do
    self.o.say(("round %d of %d: %d jobs until %s"):format(rung, #f.rungs, #jobs,
      every_word(target)))
    self:round(jobs, rung, target)
    if self.stopping or rung == #f.rungs then
      return
    end
    count = math.max(1, count // f.factor)
    local best = self:best_of(jobs, rung, count)
    drop(jobs, best)
    jobs = best
    self.sweep:write()
  end
end

-- ---- the end ---------------------------------------------------------------------------

local function count(jobs, status)
  local n = 0
  for _, job in ipairs(jobs) do
    n = n + (job.status == status and 1 or 0)
  end
  return n
end

function Runner:conclude_all()
  local f = self.facts
  local failed = count(f.jobs, "failed")
  local open = count(f.jobs, "interrupted") + count(f.jobs, "pending")
  f.status = open > 0 and "interrupted" or "finished"
  f.ended = core.host.time()
  self.sweep:write()
  return failed > 0 and codes.ERROR or open > 0 and codes.INTERRUPTED or codes.DONE
end

-- Lets all that run save and end, for a while.
local function settle(running)
  local last = core.host.clock() + M.grace
  for _, entry in ipairs(running) do
    entry.child:signal("SIGTERM")
  end
  repeat
    local still = {}
    for _, entry in ipairs(running) do
      still[#still + 1] = not entry.child:ended() and entry.child or nil
    end
    core.wait_for_children(still, still[1] and math.min(POLL, M.grace) or 0)
  until not still[1] or core.host.clock() > last
  for _, entry in ipairs(running) do
    entry.child:signal("SIGKILL")
  end
end

-- Whatever raises: no process is left over, and the folder says so.
local function guard(self)
  return setmetatable({}, { __close = function(_, e)
    settle(self.running)
    for _, entry in ipairs(self.running) do
      entry.child:close()
      entry.job.status = "interrupted"
    end
    if e ~= nil then
      self.facts.status, self.facts.ended = "interrupted", core.host.time()
      pcall(self.sweep.write, self.sweep)
    end
  end })
end

--- Trains until the end, or until it is stopped.
---@return integer exit code
function Runner:train()
  self.deferred = core.host.defer_signals()
  local deferred <close> = self.deferred
  local _ <close> = guard(self)
  if self.facts.method == "halving" then
    self:halve()
  else
    self:round(self.facts.jobs, 1)
  end
  deferred:close()
  return self:conclude_all()
end

-- ---- the table -------------------------------------------------------------------------

--- The jobs as a table, the best first.
---@param facts table of sweep.json
---@return string
function M.table(facts)
  local jobs, keys, known = table.move(facts.jobs, 1, #facts.jobs, 1, {}), {}, {}
  table.sort(jobs, function(a, b)
    if a.best ~= b.best then
      return scores.better(a.best, b.best, facts.mode)
    end
    return a.name < b.name
  end)
  for _, word in ipairs(#jobs > 0 and jobs[1].words or {}) do
    local key = word:match("^[^=]*")
    keys[#keys + 1] = not known[key] and key or nil
    known[key] = true
  end
  local heads, rows = { "job", "status", facts.metric, "step" }, {}
  table.move(keys, 1, #keys, #heads + 1, heads)
  heads[#heads + 1] = "run"
  for i, job in ipairs(jobs) do
    local row = { job.name, job.status, columns.number(job.best), columns.number(job.step) }
    for _, word in ipairs(job.words) do
      row[#row + 1] = word:match("=(.*)$")
    end
    row[#row + 1] = job.run or ""
    rows[i] = row
  end
  return columns.text(heads, rows)
end

M.Runner = Runner
return M
