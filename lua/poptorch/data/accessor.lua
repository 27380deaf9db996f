--- poptorch.AsynchronousDataAccessor: elements that another process reads ahead
--- (fetcher.lua) into a ring of buffers in shared memory.
---
--- The memory has no name and goes with the last process that has it; the
--- process dies with this one. So nothing is left over, whoever ends how.
--- Sources: PopTorch API reference, AsynchronousDataAccessor, SharingStrategy;
--- user guide 5.2.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local dataset = require("torch.utils.data.dataset")
local elements = require("poptorch.data.elements")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local fetcher = require("poptorch.data.fetcher")
local logging = require("poptorch.logging")
local loop = require("torch.utils.data.loop")
local messages = require("torch.utils.data.messages")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")
local TorchLoader = require("torch.utils.data.loader")

local READ = 0 -- the signal that a buffer was read

--- Elements of a dataset, a loader or anything that can be iterated over, which
--- a process of its own reads while this one computes: `for x, y in accessor do`.
--- Each is a tensor, a flat list of tensors or a dictionary of tensors, shaped as
--- the first one (or with fewer rows). What comes is the memory of a buffer, which
--- is filled anew after the next one has been asked for: clone it to keep it.
--- Each loop begins at the beginning. The process has a copy of the dataset, and
--- of the state of random numbers, as they were when it was made; it computes on
--- one thread. An error there is raised here.
--- source: PopTorch API reference, AsynchronousDataAccessor
---@class poptorch.AsynchronousDataAccessor
local Accessor = class.new("AsynchronousDataAccessor")

local NAMES = { "dataset", "buffer_size", "miss_sleep_time_in_ms", "load_indefinitely",
  "early_preload", "sharing_strategy", "rebatched_size" }
signatures.note(Accessor, "AsynchronousDataAccessor(dataset, buffer_size=3, "
  .. "miss_sleep_time_in_ms=0.1, load_indefinitely=True, early_preload=False, "
  .. "sharing_strategy=SharingStrategy.ForkServer, rebatched_size=None)", 1)

--- The options, as a DataLoader takes them in async_options.
Accessor._OPTIONS = table.move(NAMES, 2, #NAMES - 1, 1, {})

-- ---- arguments -------------------------------------------------------------

-- Options that change nothing here, unless their value is one that they have anyway.
local IDLE = {
  { name = "miss_sleep_time_in_ms", is = { [0.1] = true },
    why = "nobody sleeps: who finds the ring full or empty is woken by the other side" },
  { name = "sharing_strategy",
    is = { [enums.SharingStrategy.ForkServer] = true, [enums.SharingStrategy.Fork] = true },
    why = "the process is forked and has the dataset as it is" },
}

-- What of the options a report names: its text and why.
local function idle(o)
  local out = {}
  for _, row in ipairs(IDLE) do
    local value = o[row.name]
    if not check.is_none(value) and not row.is[value] then
      out[("AsynchronousDataAccessor(%s=%s)"):format(row.name, tostring(value))] = row.why
    end
  end
  return out
end

-- Accessors whose process lives, with what a report names of them.
local running = setmetatable({}, { __mode = "k" })

--- Notes options without effect of all accessors that have a process now.
---@param note fun(name: string, why: string)
function Accessor._note(note)
  local all = {}
  for _, named in pairs(running) do
    for name, why in pairs(named) do
      all[name] = why
    end
  end
  for _, name in ipairs(tables.keys(all)) do
    note(name, all[name])
  end
end

local function default(value, otherwise)
  if check.is_none(value) then
    return otherwise
  end
  return value
end

--- Checks options and fills in what is not given.
---@param o table<string, any>
---@param where string for messages
---@return table<string, any>
function Accessor._checked(o, where)
  local nullable = { nullable = true, min = 1 }
  local out = {
    buffer_size = check.int(default(o.buffer_size, 3), where .. "buffer_size",
      { min = 1, max = 10000 }),
    load_indefinitely = check.bool(default(o.load_indefinitely, true),
      where .. "load_indefinitely"),
    early_preload = check.bool(default(o.early_preload, false), where .. "early_preload"),
    rebatched_size = default(check.int(o.rebatched_size, where .. "rebatched_size", nullable)),
  }
  check.number(o.miss_sleep_time_in_ms, where .. "miss_sleep_time_in_ms",
    { nullable = true, min = 0 })
  check.enum(o.sharing_strategy, where .. "sharing_strategy", enums.SharingStrategy,
    { nullable = true })
  out.idle = idle(o)
  errors.check(out.rebatched_size ~= 1, "AssertionError",
    "%srebatched_size: expected nil or an int > 1, got 1", where)
  return out
end

-- The source if it is a poptorch.DataLoader.
local function loader_of(source)
  return TorchLoader:is(source) and source.options and source or nil
end

local function check_source(source, rebatched)
  errors.check(source ~= nil, "TypeError",
    "AsynchronousDataAccessor: argument 'dataset' is missing")
  local loader = loader_of(source)
  errors.check(not Accessor:is(source) and not (loader and loader._accessor), "Error",
    "AsynchronousDataAccessor: dataset: %s reads asynchronously already; iterate over it, or make "
    .. "the loader with mode = poptorch.DataLoaderMode.Sync", check.describe(source))
  errors.check(not loader or rebatched or loader.drop_last or loader._batches_given
    or (loader.combinedBatchSize or 1) == 1, "AssertionError", "AsynchronousDataAccessor: "
    .. "dataset: a DataLoader with drop_last = false needs a rebatched_size")
end

--- Starts the process and waits until it has read the first element.
---
--- buffer_size: buffers of the ring. miss_sleep_time_in_ms: no effect, nobody
--- sleeps: who finds the ring full or empty is woken by the other side (reports of
--- models that are compiled meanwhile say so).
--- load_indefinitely: at the end of the dataset the next loop is read ahead.
--- early_preload: fill the ring at once, not only its first buffer.
--- sharing_strategy: how the dataset reaches the process. Here it is always
--- forked, and has the dataset as it is without a copy, whatever its size: so
--- Fork is what happens; ForkServer is as safe, as the process enters none of
--- this one's threads; SharedMemory and FileSystem have nothing to share and no
--- other meaning, as such reports say. rebatched_size: rows of each element of the
--- ring, put together out of what the dataset gives (elements with a first
--- dimension: batches); what is left over at the end is dropped, unless the dataset
--- is a poptorch.DataLoader with drop_last = false.
--- error: poptorch.Error if the process fails before the first element or reads
--- asynchronously already; AssertionError for a dataset without an element, for
--- a DataLoader with drop_last = false and no rebatched_size
---@param ... any dataset, buffer_size, miss_sleep_time_in_ms, load_indefinitely,
---  early_preload, sharing_strategy, rebatched_size; by position or name
function Accessor:init(...)
  local values = check.arguments("AsynchronousDataAccessor", NAMES, { dataset = "list" }, ...)
  local o = {}
  for i, name in ipairs(NAMES) do
    o[name] = values[i]
  end
  local checked = Accessor._checked(o, "AsynchronousDataAccessor: ")
  check_source(o.dataset, checked.rebatched_size)
  self:_start(o.dataset, checked)
end

-- ---- the process -----------------------------------------------------------

-- An error of the process, to be raised as class and type with `why` before its
-- words, now and whenever it is asked again.
local function fail(self, message, class_name, kind, why)
  local process = ("the process of an AsynchronousDataAccessor (pid %d)"):format(self._pid)
  if message then
    local e = message.error
    self._failed = messages.error(e, process, { class = class_name, type = kind,
      message = ("AsynchronousDataAccessor: %s: %s: %s"):format(why, e.class, e.message) })
  else
    local cause = self._channel:cause()
    self._failed = errors.new(class_name, kind, ("AsynchronousDataAccessor: %s: its process "
      .. "(pid %d) %s%s"):format(why, self._pid, cause:find("^killed") and "was " or "ended: ",
      cause))
  end
  self._channel:close(0)
  error(self._failed, 0)
end

-- The next message that says something else than what a loop began with.
local function heard(self)
  while true do
    local message, tensors = messages.receive(self._channel)
    if not message or not message.start then
      return message, tensors
    end
    self._starts[message.loop] = message.start
  end
end

-- With `resume` the first loop is the rest of the one that this is of.
function Accessor:_start(source, o, resume)
  self.dataset, self.rebatched_size, self._options = source, o.rebatched_size, o
  self._drop_last = not loader_of(source) or source.drop_last
  o.drop_last = self._drop_last
  self._loop, self._starts, self._position, self._ended = 0, {}, 0, false
  self._channel = core.start_worker(function(channel)
    if loader_of(source) then
      source._accessor = nil -- here it reads itself
    end
    fetcher.run(channel, source, o, resume)
  end, true)
  self._pid = self._channel:pid()
  -- Ctrl-C while the first element is waited for ends the process at once.
  local _ <close> = setmetatable({}, { __close = function()
    if not self._ring then
      self._channel:close(0)
    end
  end })
  logging.debug("AsynchronousDataAccessor worker process: %d", self._pid)
  local function first()
    local message, tensors = heard(self)
    if message == nil or message.error then
      fail(self, message, "Error", "poptorch_py_error", "the worker failed to start")
    end
    return message, tensors
  end
  self._form = first()
  local ring, tensors = first()
  self._ring = fetcher.slots(tensors, ring.parts)
  running[self] = o.idle
end

--- Ends the process. What was read of the ring stays as it is; another loop is an
--- error.
function Accessor:terminate()
  if self._channel then
    self._channel:close(messages.GRACE)
  end
  self._channel, self._ring, self._held, running[self] = nil, nil, nil, nil
end

-- ---- loops -----------------------------------------------------------------

-- The buffer that was read last may be filled again.
function Accessor:_release()
  if self._held then
    self._channel:written(self._held)
    self._held = nil
    messages.signal(self._channel, READ)
  end
end

local function alive(self)
  errors.check(self._channel, "AssertionError",
    "AsynchronousDataAccessor: it has been terminated")
  if self._failed then
    error(self._failed, 0)
  end
end

-- The next buffer of a loop, and the rows of each tensor if it is not full; nil at
-- the end. Elements of earlier loops are skipped.
local function receive(self, n)
  while true do
    local signal = heard(self)
    if signal == nil or signal.error then
      fail(self, signal, "AssertionError", nil, "an error occurred in the data fetcher")
    elseif signal[1] == n then
      return signal[2], signal[3] and table.move(signal, 3, #signal, 1, {})
    elseif signal[2] then
      messages.signal(self._channel, READ)
    end
  end
end

-- The tensors of a buffer, with fewer rows if it is not full; each time others,
-- so that no gradient of the last time is on them.
local function taken(self, slot, rows)
  local out = {}
  self._held = self._ring[slot]
  for i, t in ipairs(self._held) do
    out[i] = rows and t:dim() > 0 and t:narrow(0, 0, rows[i]) or t:detach()
  end
  return out
end

--- Starts a loop from the beginning: a function that gives the elements.
--- error: AssertionError after terminate, for an error of the process
---@return fun(): any ...
function Accessor:iter()
  alive(self)
  self._loop = self._loop + 1
  local n, ended = self._loop, false
  messages.signal(self._channel, n)
  self._starts[n - 1] = nil
  self._position, self._ended, self._resumed = self._resumed or 0, false, nil
  return function()
    if ended then
      return nil
    end
    alive(self)
    errors.check(n == self._loop, "RuntimeError", "AsynchronousDataAccessor: a loop over it was "
      .. "started after this one, whose elements are gone")
    self:_release()
    local slot, rows = receive(self, n)
    if not slot then
      ended, self._ended = true, true
      return nil
    end
    self._position = self._position + 1
    return elements.values(taken(self, slot, rows), self._form)
  end
end

function Accessor:__iter__()
  return self:iter()
end

-- ---- where it stands ---------------------------------------------------------

--- Where the latest loop stands: how many elements it has given, whatever the process
--- has read ahead, and what it began with.
--- error: AssertionError after terminate, for an error of the process
---@return table
function Accessor:state_dict()
  alive(self)
  local n = math.max(self._loop, 1) -- before the first one: what it begins with
  local position = self._loop == 0 and (self._resumed or 0) or self._position
  return { position = position, ended = self._loop > 0 and self._ended, start = self._starts[n],
    rows = self.rebatched_size }
end

--- Starts another process, whose first loop is the rest of the one that the state is
--- of, or, if that one had ended, the one after it. A DataLoader goes on without
--- reading again what it has given, anything else is read from its beginning.
--- errors: TypeError for what state_dict did not give, ValueError for other rows
---@param state_dict table
function Accessor:load_state_dict(state_dict)
  local where = "AsynchronousDataAccessor: load_state_dict: "
  check.table(state_dict, where .. "state_dict")
  check.table(state_dict.start, where .. "start")
  check.bool(state_dict.ended, where .. "ended")
  check.int(state_dict.position, where .. "position", { min = 0 })
  errors.check(state_dict.rows == self.rebatched_size, "ValueError", "%sthe state is of elements "
    .. "of %s rows, these have %s", where, tostring(state_dict.rows), tostring(self.rebatched_size))
  local source = self.dataset
  self:terminate()
  self._failed = nil
  self:_start(source, self._options, state_dict)
  self._resumed, self._ended = state_dict.position, state_dict.ended
  if state_dict.ended then
    self._loop, self._position, self._resumed = 1, state_dict.position, nil
  end
end

--- A loop that was left early counts as one in the middle, which a state goes on
--- with; after this the next one begins at the beginning there, too.
function Accessor:end_epoch()
  if self._resumed then
    self._loop, self._position, self._resumed = 1, self._resumed, nil
  end
  self._ended = true
end

Accessor.__call = loop.call

-- Rows of all elements of a loop.
local function count_rows(source)
  local loader = TorchLoader:is(source) and source
  if loader and not loader.drop_last then
    return dataset.len(loader.sampler or loader.dataset)
  end
  return dataset.len(source) * (loader and loader.batch_size or 1)
end

--- The number of elements of a loop; with a rebatched_size, if the dataset is one
--- of batches of one row or a loader.
--- error: TypeError for a dataset without __len__
---@return integer
function Accessor:__len__()
  local size = self.rebatched_size
  if not size then
    return dataset.len(self.dataset)
  end
  local n = count_rows(self.dataset)
  return self._drop_last and n // size or -(-n // size)
end

function Accessor.__len(self)
  return self:__len__()
end

return Accessor
