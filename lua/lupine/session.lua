--- A compiled step on its simulated device: what PopTorch's executors and
--- PopART's sessions share. It knows neither's options: a front end gives a
--- traced step and plain tables.
---
---     local s = session.open(step, {
---       compile = { device_iterations = 8, replicas = 2, loss = value },
---       tensors = { parameter = { ["fc.weight"] = weight } },
---       optimizer = …,  -- lupine/session/training.lua
---       seed = 1,
---     })
---     local results = s:run({ x, target })
---
--- The host's tensors and the device's copies are kept in step: one that a run
--- of a training session changed is fetched when it is read, and what another
--- session changed goes to the device before the next run.
local cache = require("lupine.session.cache")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local faults = require("lupine.faults")
local remedies = require("lupine.plan.remedies")
local report = require("lupine.report")
local resuming = require("lupine.session.resuming")
local shapes = require("lupine.session.shapes")
local stored = require("lupine.session.stored")
local streams = require("lupine.session.streams")
local training = require("lupine.session.training")

---@class lupine.Session
---@field vars table[] variables of the step: role, name, shape, dtype, index, …
---@field training boolean
---@field streams table inputs, outputs, written_inputs, anchors, modes: session/streams.lua
---@field report lupine.Report
---@field exec lupine.Exec
---@field hypers table[] the optimizer's hyper-parameters on the device
---@field states table[] and its states: session/training.lua
---@field optimizer table?
---@field device lupine.Device? nil: none now, or the program is for none
---@field attached boolean
---@field left boolean? whether it was on a device before that it has given back
---@field device_iterations integer of a run
---@field has_run boolean
---@field shapes boolean parameters are on device meta: there is a report and nothing to run
---@field synthetic boolean? whether the last run was on data made up here
local Session = class.new("Session")

--- Variables with their number as `index`, and by "role name".
---@param step lupine.Step
---@return table[] vars
---@return table<string, table> by_name
local function index(step)
  local vars, by_name = step:vars(), {}
  for i, v in ipairs(vars) do
    v.index = i
    by_name[v.role .. " " .. v.name] = v
  end
  return vars, by_name
end

-- The step that the simulated system sees.
local function seen_of(step, spec)
  return spec.planned or step
end

-- fn(step, …), which plans it; with an error that lists remedies.
local function explained(step, system, spec, fn, ...)
  return remedies.explained({ step = step, system = system, smaller = spec.smaller,
    spelling = spec.spelling }, fn, step, ...)
end

local function report_of(plan, system, spec)
  return report.Report(plan, nil, { system = system, spelling = spec.spelling })
end

-- The program of a step, and the plan of another one, which stands for it.
local function lower_planned(step, compile, spec)
  step:complete(compile)
  local plan = explained(spec.planned, compile.system, spec, core.plan, compile.system)
  return core.lower(step, { host = compile.host }), report_of(plan, compile.system, spec)
end

-- What makes the program of a traced step and what the simulated system says of it.
local function compiler(spec)
  return function(step, compile)
    faults.compiling()
    if spec.planned then
      return lower_planned(step, compile, spec)
    end
    local plan, program = explained(step, compile.system, spec, core.compile, compile)
    return program, report_of(plan, compile.system, spec)
  end
end

-- The report where there are shapes alone.
local function plan_shapes(step, compile, spec)
  step:complete(compile)
  return report_of(explained(seen_of(step, spec), compile.system, spec, core.plan,
    compile.system), compile.system, spec)
end

-- The program of a complete one, which was stored with its report.
local function lower_stored(step, compile, spec)
  stored.bind(step, (index(step)), spec)
  local program, seen = core.lower(step, { host = compile.host }), seen_of(step, spec)
  return program, spec.changed and report_of(core.plan(seen, compile.system), compile.system, spec)
    or stored.report(spec.executable, seen, compile.system, spec.spelling)
end

-- What a spec says of the program's surface, with defaults.
local function surface_of(spec)
  return { anchors = spec.anchors or {}, output = spec.output or { mode = "all", period = 1 },
    input_groups = spec.input_groups or { size = 1 }, system = spec.system or {} }
end

-- What core.compile takes, but the optimizer's rules.
local function compile_of(spec, surface)
  local compile = class.copy(spec.compile or {})
  compile.system, compile.host, compile.anchors = surface.system, spec.host or {}, {}
  compile.progress = spec.progress
  for i, anchor in ipairs(surface.anchors) do
    compile.anchors[i] = { name = anchor.name,
      final = (anchor.mode or surface.output.mode) == "final" }
  end
  return compile
end

-- Compiles the step: what it computes (loops, reduction, the optimizer,
-- anchors), where, and how the host runs it.
local function compile_step(self, step, spec)
  local compile = compile_of(spec, self.spec)
  local program
  self.training, self.hypers, self.states = compile.loss ~= nil or step:trains(), {}, {}
  if self.training then
    local _, by_name = index(step)
    self.optimizer = spec.optimizer
    self.hypers, self.states = training.complete(step, by_name, spec.optimizer, compile,
      spec.executable ~= nil)
  end
  if self.shapes then
    self.report = plan_shapes(step, compile, spec)
  elseif spec.executable then
    program, self.report = lower_stored(step, compile, spec)
  elseif spec.cache then
    program, self.report, step = cache.compile(step, compile, spec.cache,
      compiler(spec), spec)
  else
    program, self.report = compiler(spec)(step, compile)
  end
  self.vars, self.step = index(step), step
  self.device_iterations = step:loops()
  self.streams = streams.sort(step, self.vars, self.spec)
  if self.shapes then
    self.exec, self.attached = shapes.exec(step), false
    return
  end
  self.device, self.attached = spec.place and spec.place(self.report), false
  local ok, e = pcall(function()
    training.start(self)
    self.exec = program:executor()
  end)
  if not ok then
    self:leave_device()
    error(e, 0)
  end
end

-- The device's variables that have a tensor on the host: `mirrored` come back
-- (parameters, buffers that the step writes), all are `uploaded`. The
-- optimizer's states come back, too.
local function mirror(self, tensors)
  self.mirrored, self.uploaded = {}, {}
  for _, v in ipairs(self.vars) do
    local t = tensors[v.role] and tensors[v.role][v.name]
    if t then
      local entry = { index = v.index, tensor = t, role = v.role, name = v.name }
      self.uploaded[#self.uploaded + 1] = entry
      if v.role == "parameter" or v.written then
        self.mirrored[#self.mirrored + 1] = entry
        if self.training then
          self.exec:mirror(v.index, t)
        end
      end
    end
  end
  self:_up_to_date()
  if self.training then
    self:mirror_states()
  end
end

-- Gives the program the host's functions that it calls, mirrors the tensors.
local function connect(self, spec)
  self.exec:answer(spec.calls or {})
  mirror(self, spec.tensors)
end

--- spec: compile (what fixes values in core.compile, without rules and anchors), tensors
--- (the host's, by role and name), optimizer (with a loss), anchors ({name,
--- mode, period}), output ({mode, period}; all unless given), input_groups
--- ({size, orthogonal}), system (options of lupine.report.simulate), host (of
--- step:compile), calls (functions that host calls name, by ID: of a list of
--- tensors, to a list), progress (called with each part of compiling that is
--- done), planned (a complete step that the simulated system sees in place of this one), smaller
--- (the step of smaller micro-batches: plan/remedies.lua), spelling (of options, for
--- reports: plan/variants.lua), seed, place
--- (report -> the lupine.Device that it runs on, nil: none, before memory is made), cache
--- (of compiled steps: session/cache.lua). Modes are those of core.output_modes.
---
--- With `executable` the step is the complete one of a file (session/stored.lua),
--- which also tells anchors, output, input_groups and system, and there is no compile.
--- error: poptorch.Error for a function that the program calls and `calls` lacks
---@param step lupine.Step traced, not complete
---@param spec table
function Session:init(step, spec)
  self.spec, self.shapes = surface_of(spec), shapes.first(spec.tensors) ~= nil
  compile_step(self, step, spec)
  self.seed, self.has_run = spec.seed or 0, false
  if self.shapes then
    self.mirrored, self.uploaded, self.seen = {}, {}, {}
    return
  end
  local ok, e = pcall(connect, self, spec)
  if not ok then
    self:close()
    error(e, 0)
  end
  self.exec:rng(self.seed, 0)
end

for _, part in ipairs({ training, resuming }) do
  for name, method in pairs(part.methods) do
    Session[name] = method
  end
end

--- Gives the device back. Nothing else may be called then.
function Session:close()
  self:leave_device()
  self.exec:close()
end

-- What the host has -> a device that has been away.
local function bring_back(self)
  self:upload()
  if self.training then
    self:upload_hypers()
    self:upload_states()
  end
end

--- It is on a device, or on none for good. One that comes back gets what the host
--- has by then; where that does not fit it is let go again.
---@param device lupine.Device?
function Session:enter_device(device)
  self.device = device
  local ok, e = true, nil
  if self.left then
    ok, e = pcall(bring_back, self)
  end
  if not ok then
    self:leave_device()
    error(e, 0)
  end
  self.attached, self.left = true, false
end

--- Lets go of the IPUs, which others may take. What the device held stays here.
function Session:leave_device()
  if self.device then
    self.device:detach()
  end
  if self.attached then
    self:_keep()
    self.left = true
  end
  self.device, self.attached = nil, false
end

-- ---- weights and buffers ------------------------------------------------------------

-- Tensor of the host -> a token of the run (or copy) that changed it last. A
-- session has seen what it did itself and what it uploaded (self.seen).
local latest = setmetatable({}, { __mode = "k" })

-- The device has all that was trained up to now.
function Session:_up_to_date()
  self.seen = setmetatable({}, { __mode = "k" })
  for _, m in ipairs(self.uploaded) do
    self.seen[m.tensor] = latest[m.tensor]
  end
end

-- Buffers of which each replica has its own value: the host has the first one's,
-- and the others must not get that when a device comes back.
local function is_kept(self, m)
  return m.kept and m.kept == m.tensor._version and latest[m.tensor] == self.seen[m.tensor]
end

--- Host -> device.
function Session:upload()
  for _, m in ipairs(self.uploaded) do
    if not is_kept(self, m) then
      self.exec:write(m.index, m.tensor)
    end
    m.kept = nil
  end
  self:_up_to_date()
end

--- The host's tensors that are there now take the place of those that they
--- replaced, with the values that these have.
--- error: poptorch.Error for one of another shape or dtype than compiled, also where a
--- tensor that was not replaced has other data, or in place of a part of a larger tensor
---@param tensors table<string, table<string, torch.Tensor>> by role and name
function Session:retarget(tensors)
  local replaced = {}
  for _, m in ipairs(self.uploaded) do
    local t = tensors[m.role] and tensors[m.role][m.name] or m.tensor
    if t == m.tensor or not m.tensor._base then
      self.exec:fits(m.index, t)
    elseif not t:is_set_to(m.tensor) then
      -- of a part the device has the whole: only the same part can take its place
      errors.raise_hint("replaced", "Error", "%s '%s' was a part of a larger tensor when the "
        .. "model was compiled and was replaced by another one", m.role, m.name)
    end
    replaced[m] = t ~= m.tensor and t or nil
  end
  if not next(replaced) then
    return
  end
  local newer = self:download_newer()
  for m, t in next, replaced do
    m.tensor = t
  end
  if self.training then
    self.exec:unmirror()
    for _, m in ipairs(self.mirrored) do
      self.exec:mirror(m.index, m.tensor)
    end
    if newer then
      self.exec:mark()
    end
  end
end

-- What the host has now is what the device had.
function Session:_keep()
  for _, m in ipairs(self.training and self.uploaded or {}) do
    m.kept = m.role == "buffer" and m.tensor._version or nil
  end
end

--- The same; what was trained since the last copy to the host is lost.
function Session:overwrite()
  if not self.training then
    return self:upload()
  end
  self.exec:unmark()
  self:upload()
  self:note_change()
end

--- One kind of tensors, those with these names -> device.
---@param role string "parameter" or "buffer"
---@param names table<string, boolean>
function Session:upload_named(role, names)
  for _, m in ipairs(self.uploaded) do
    if m.role == role and names[m.name] then
      self.exec:write(m.index, m.tensor)
    end
  end
end

--- The tensors that come back from this session's device have new values.
function Session:note_change()
  local token = {}
  for _, m in ipairs(self.mirrored) do
    latest[m.tensor], self.seen[m.tensor] = token, token
  end
end

--- What other sessions changed since comes to this one's device, also where it
--- is part of another model. Reading the host's tensor fetches it from their
--- devices (LP_ST_HOOKED). Without training all tensors come then.
function Session:refresh()
  for _, m in ipairs(self.uploaded) do
    local token = latest[m.tensor]
    if token ~= self.seen[m.tensor] then
      if not self.training then
        return self:upload()
      end
      self.exec:write(m.index, m.tensor)
      self.seen[m.tensor] = token
    end
  end
end

--- Device -> host: parameters and buffers that the step writes.
function Session:download()
  if self.training then
    self:refresh()
    self.exec:pull()
    self:note_change()
    return
  end
  for _, m in ipairs(self.mirrored) do
    self.exec:read_into(m.index, m.tensor)
  end
end

--- The same after training, only if the device's are newer.
---@return boolean copied
function Session:download_newer()
  if not self.training or not self.exec:marked() then
    return false
  end
  self.exec:pull()
  return true
end

--- Everything that training changes -> host, if it is newer there.
function Session:settle()
  self:download_newer()
  if self.training then
    self:states_to_host()
  end
end

-- ---- running ------------------------------------------------------------------------

--- Runs the program once. `synthetic`: on data made up once, of the tensors'
--- sizes and types.
---@param tensors torch.Tensor[] one for each input
---@param synthetic? boolean
---@return torch.Tensor[] results
---@return table<integer, torch.Tensor> written by number of the input that the step wrote
---@return torch.Tensor[] anchors
function Session:run(tensors, synthetic)
  local s = self.streams
  self:refresh()
  if synthetic then
    self.made_up = self.made_up or streams.synthetic(s, tensors, self.seed)
  end
  local fed = synthetic and self.made_up or streams.feed(s, tensors)
  local trap = faults.arm(self)
  local ok, got = pcall(self.exec.run, self.exec, fed, s.modes)
  if self.training then -- what a run finished that was cut short has taken effect
    self.exec:mark()
    self.exec:mark("states")
    self:note_change()
  end
  if not ok then
    error(faults.failed(self, trap, got), 0)
  end
  faults.count(self, self.device_iterations)
  self.has_run, self.synthetic = true, synthetic
  local results, written, anchors = {}, {}, {}
  for i, v in ipairs(s.outputs) do
    results[i] = got[v.index]
  end
  for _, v in ipairs(s.written_inputs) do
    written[v.of] = streams.gather(s, got[v.index])
  end
  for i, v in ipairs(s.anchors) do
    anchors[i] = got[v.index]
  end
  return results, written, anchors
end

--- Where the device's random numbers are: the seed and how many micro-batches
--- have drawn. With arguments it is set.
---@param seed? integer
---@param drawn? integer 0 unless given
---@return integer seed, integer drawn
function Session:random_state(seed, drawn)
  return self.exec:rng(seed, drawn)
end

local M = { Session = Session, index = index }

local caught -- what gets programs in place of compiling them

--- From now on `fn` gets each step that would be compiled, complete, with what a session of
--- it would be made of.
---@param fn fun(step: lupine.Step, spec: table)
function M.catch(fn)
  caught = fn
end

--- Compiles a traced step (core.compile), or takes a stored one, and puts it on
--- its device.
--- error: poptorch.Error when a tile overflows; what core.compile raises
---@param step lupine.Step
---@param spec table Session:init
---@return lupine.Session
function M.open(step, spec)
  if caught then
    if not spec.executable then
      M.complete(step, spec)
    end
    caught(step, spec)
  end
  return Session(step, spec)
end

--- Completes a traced step as opening a session of it would, for plans of it alone.
---@param step lupine.Step
---@param spec table Session:init
function M.complete(step, spec)
  local compile = compile_of(spec, surface_of(spec))
  compile.progress = nil
  if compile.loss then
    local _, by_name = index(step)
    training.complete(step, by_name, spec.optimizer, compile, false)
  end
  step:complete(compile)
end

return require("lupine.base.namespace").close(M, "lupine.session")
