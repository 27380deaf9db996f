--- The folder of a run, FOLDER/NAME-001:
---
---   config.yaml        every key with its value and, as a comment, where it comes from
---   run.json           command line, versions, machine, git's commit, seed, how it stands
---   git.diff           what the working tree has beside that commit, if it has
---   metrics.jsonl, metrics.csv, log.txt, checkpoints/
---   model.safetensors  the weights at the end
---   report.txt, report.json   of the simulated system (mode poptorch)
---   events.out.tfevents.*     with logging.tensorboard
---
--- It gets its name when it has its first three files, by one rename that fails where
--- the name is taken: any number of runs that begin at once get as many folders, and
--- none is ever written over.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local provenance = require("lupine.run.provenance")
local tables = require("lupine.base.tables")

local M = {}

---@class lupine.run.Folder
---@field path string
---@field facts table what run.json has
local Folder = class.new("Folder")

local FACTS, CONFIG = "run.json", "config.yaml"

-- The number of a run's folder; nil for another name.
local function number_of(entry, name)
  local digits = entry:sub(1, #name + 1) == name .. "-" and entry:sub(#name + 2):match("^%d+$")
  return digits and #digits >= 3 and math.tointeger(tonumber(digits)) or nil
end

--- Gives a folder its name, with the first number that is above all others'.
--- error: OSError
---@param new userdata of core.new_folder
---@param parent string
---@param name string
---@return string path
function M.settle(new, parent, name)
  local number = 0
  for _, entry in ipairs((core.list_folder(parent))) do
    number = math.max(number, number_of(entry, name) or 0)
  end
  local path
  repeat
    number = number + 1
    path = ("%s/%s-%03d"):format(parent, name, number)
  until new:rename(path)
  return path
end

function Folder:init(path, facts)
  self.path, self.facts = path, facts
end

local function write_facts(path, facts)
  core.write_text(path .. "/" .. FACTS, core.json_encode(facts, 1) .. "\n")
end

--- Makes the folder of a new run.
--- error: OSError
---@param config lupine.run.Config
---@param facts? table further facts for run.json: seed
---@return lupine.run.Folder
function M.create(config, facts)
  local parent, name = config:get("folder"), config:get("name")
  local all = provenance.facts()
  local git, diff = provenance.git()
  all.git = git
  all.status, all.name = "running", name
  for key, value in pairs(facts or {}) do
    all[key] = value
  end
  core.make_folder(parent)
  local new <close> = core.new_folder(parent)
  core.write_text(new:path() .. "/" .. CONFIG, provenance.clean(config:yaml(true)))
  if diff and diff ~= "" then
    core.write_text(new:path() .. "/git.diff", diff)
  end
  write_facts(new:path(), all)
  return Folder(M.settle(new, parent, name), all)
end

--- The folder of a run that is there. Where run.json cannot be read the status is
--- "damaged": what it was trained with and its checkpoints are in files of their own.
--- error: FileNotFoundError, ValueError for a folder that is none of a run
---@param path string
---@return lupine.run.Folder
function M.open(path)
  path = path:gsub("(.)/+$", "%1")
  errors.check(core.is_folder(path), "FileNotFoundError", "there is no run '%s'", path)
  local file = io.open(path .. "/" .. FACTS, "rb")
  errors.check(file, "ValueError", "'%s' is no folder of a run: it has no %s", path, FACTS)
  local text <close> = file
  local ok, facts = pcall(core.json_decode, text:read("a"), path .. "/" .. FACTS)
  if ok and type(facts) == "table" and type(facts.status) == "string" then
    return Folder(path, facts)
  end
  local config = io.open(path .. "/" .. CONFIG)
  errors.check(config, "ValueError", "'%s/%s' tells of no run", path, FACTS)
  config:close()
  return Folder(path, { status = "damaged" })
end

--- The runs of a folder, the latest first.
---@param parent string
---@param name? string only those of this name
---@return lupine.run.Folder[]
function M.list(parent, name)
  local out = {}
  for _, entry in ipairs(core.is_folder(parent) and core.list_folder(parent) or {}) do
    local of = name or entry:match("^(.*)%-%d+$")
    if of and number_of(entry, of) then
      local ok, folder = pcall(M.open, parent .. "/" .. entry)
      out[#out + 1] = ok and folder or nil
    end
  end
  local function key(folder)
    return type(folder.facts.started) == "number" and folder.facts.started or 0
  end
  table.sort(out, function(a, b)
    if key(a) ~= key(b) then
      return key(a) > key(b)
    end
    return a.path > b.path
  end)
  return out
end

--- The path of a file in it.
---@param name string
---@return string
function Folder:file(name)
  return self.path .. "/" .. name
end

--- Sets facts; run.json has them when this returns, all of them or none.
--- error: OSError
---@param facts table
function Folder:note(facts)
  for key, value in pairs(facts) do
    self.facts[key] = type(value) == "string" and provenance.clean(value) or value
  end
  write_facts(self.path, self.facts)
end

--- Writes a file, as a whole or not at all.
--- error: OSError
---@param name string
---@param text string
function Folder:write(name, text)
  core.write_text(self:file(name), text)
end

--- Whether the process that trains it lives; nil where that cannot be known, of another
--- machine's.
---@return boolean?
function Folder:is_running()
  local f, here = self.facts, core.host.process()
  if f.status ~= "running" then
    return false
  elseif f.host ~= here.host then
    return nil
  end
  return math.type(f.pid) == "integer" and f.pid ~= here.pid
    and provenance.began(f.pid) == f.began
end

local function text_of(path)
  local file = io.open(path, "rb")
  if not file then
    return nil
  end
  local text <close> = file
  return text:read("a")
end

-- git's facts of now. Code that is another one than that of the sessions before is told:
-- the run's numbers come from both.
local function compare_git(self, sessions)
  local git, diff = provenance.git()
  local old, latest = self.facts.git, ""
  for i = 1, sessions do
    local name = i == 1 and "git.diff" or ("git-%d.diff"):format(i)
    latest = text_of(self:file(name)) or latest
  end
  if git and old and (git.commit ~= old.commit or diff ~= latest) then
    self:write(("git-%d.diff"):format(sessions + 1), diff)
    core.host.log("warn", ("the run '%s' was made with other code (commit %s, now %s): %s has "
      .. "what the tree has beside it"):format(self.path, old.commit:sub(1, 10),
      git.commit:sub(1, 10), self:file(("git-%d.diff"):format(sessions + 1))))
  end
  return git
end

-- What the process said at its end that is to go on.
local ENDS = { "ended", "why", "reason", "step", "epoch", "metrics" }

--- Claims it for this process, which goes on with it.
--- error: ValueError if another process trains it
---@param facts table for run.json
function Folder:claim(facts)
  local held <close> = core.lock_file(self:file(".lock"))
  self.facts = M.open(self.path).facts
  errors.check(not self:is_running(), "ValueError", "the run '%s' is trained by process %d",
    self.path, self.facts.pid)
  local now = provenance.facts()
  local f, sessions = self.facts, {}
  for i, earlier in ipairs(f.sessions or {}) do
    sessions[i] = earlier
  end
  sessions[#sessions + 1] = { command = f.command, pid = f.pid, host = f.host, git = f.git,
    began = f.resumed or f.started, ended = f.ended, status = f.status, reason = f.reason,
    step = f.step }
  now.started, now.date = f.started, f.date -- of the run
  now.git = compare_git(self, #sessions)
  now.status, now.sessions, now.resumed = "running", tables.array(sessions), core.host.time()
  for _, key in ipairs(ENDS) do
    f[key] = nil
  end
  self:note(tables.with(now, facts))
  held:close()
end

M.Folder = Folder
return M
