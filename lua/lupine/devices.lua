--- The IPUs of the simulated machine. All processes of a user share them: what one
--- has attached to is busy for the others, until it lets go or ends.
---
--- The machine has 64 IPUs, or as many as LUPINE_IPUS says (a power of two, up to
--- 4096). A device is one IPU or a group of them, with an id as `gc-info -l` gives
--- it: with n IPUs 0 to n - 1 are the single ones, then come the pairs, the
--- fours, … and at last all of them, 2n - 2.
---
--- Who has what stands in a table in the folder LUPINE_DEVICES, or else "lupine" in
--- XDG_RUNTIME_DIR, or else /tmp/lupine-UID; only the user may be able to enter it
--- (runtime/exec/devices.h).
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local variables = require("lupine.base.variables")

local M = {}

local DEFAULT_IPUS = 64

-- What attach waits between two tries.
local PAUSE = 0.2

--- How many IPUs the machine has.
--- error: ValueError for a LUPINE_IPUS that is no power of two
---@return integer
function M.ipus()
  local text = variables.text("LUPINE_IPUS")
  if not text then
    return DEFAULT_IPUS
  end
  local n = math.tointeger(tonumber(text))
  errors.check(n and n >= 1 and n <= core.devices.most_ipus and n & (n - 1) == 0, "ValueError",
    "LUPINE_IPUS: expected a power of two from 1 to %d, got '%s'", core.devices.most_ipus, text)
  return n
end

--- What limits their number, for messages; "" without a limit.
---@return string
function M.limit()
  local text = variables.text("LUPINE_IPUS")
  return text and (" (LUPINE_IPUS=%s)"):format(text) or ""
end

--- The version of its IPUs, Mk2.
M.VERSION = 2

-- ---- ids -------------------------------------------------------------------------

---@class lupine.DeviceGroup
---@field id integer
---@field first integer its first IPU
---@field count integer how many, one after another

-- fn(group) for all ids in order, until it returns something.
local function each(fn)
  local n, id, count = M.ipus(), 0, 1
  while count <= n do
    for first = 0, n - 1, count do
      local found = fn({ id = id, first = first, count = count })
      if found then
        return found
      end
      id = id + 1
    end
    count = count * 2
  end
  return nil
end

--- All devices, by id from 0 on, those of a number of IPUs if one is given.
---@param count? integer
---@return lupine.DeviceGroup[]
function M.list(count)
  local out = {}
  each(function(group)
    out[#out + 1] = (not count or group.count == count) and group or nil
  end)
  return out
end

--- The device of an id; nil if there is none.
---@param id integer
---@return lupine.DeviceGroup?
function M.find(id)
  return each(function(group)
    return group.id == id and group
  end)
end

-- ---- the table ---------------------------------------------------------------------

-- What was opened last: a table stays open, with its locks, as long as somebody
-- knows it.
local open

local function in_order(folders)
  for i, folder in ipairs(folders) do
    local ok, got = pcall(core.devices.open, folder)
    if ok then
      return got
    elseif i == #folders then
      error(got, 0)
    end
  end
end

local function machine()
  local own, runtime = variables.text("LUPINE_DEVICES"), variables.text("XDG_RUNTIME_DIR")
  if own then
    open = errors.within("LUPINE_DEVICES", core.devices.open, own)
    return open
  end
  local folders = { ("/tmp/lupine-%d"):format(core.devices.user()) }
  if runtime then
    table.insert(folders, 1, runtime .. "/lupine")
  end
  open = in_order(folders)
  return open
end

--- Where the table is.
---@return string
function M.path()
  return machine():path()
end

--- Who has an IPU: the process, its script and the IPUs that it took with this
--- one, as far as they are known; nil if it is free.
---@param ipu integer
---@return {pid: integer?, script: string?, first: integer?, count: integer?}?
function M.holder(ipu)
  return machine():holder(ipu)
end

local MOST_NAMES = 8 -- of processes, in a message

-- "60 by process 12 (train.lua), 4 by this process" of the IPUs first … last that
-- somebody has; "" if nobody has any.
local function holders(first, last)
  local names, counts, m = {}, {}, machine()
  for ipu = first, last do
    local h = m:holder(ipu)
    if h then
      local name = h.pid == core.devices.process() and "this process"
        or ("process %s%s"):format(h.pid or "?", h.script and (" (%s)"):format(h.script) or "")
      names[#names + 1] = not counts[name] and name or nil
      counts[name] = (counts[name] or 0) + 1
    end
  end
  for i, name in ipairs(names) do
    names[i] = ("%d by %s"):format(counts[name], name)
  end
  return table.concat(names, ", ", 1, math.min(#names, MOST_NAMES))
    .. (#names > MOST_NAMES and (" and %d more processes"):format(#names - MOST_NAMES) or "")
end

-- ---- attaching ---------------------------------------------------------------------

-- IPUs that this process cannot use any more (lupine.faults).
local broken = {}

--- A device that this process has.
---@class lupine.Device: lupine.DeviceGroup
local Device = class.new("Device")

function Device:init(group, handle)
  self.id, self.first, self.count, self._handle = group.id, group.first, group.count, handle
end

--- Gives the IPUs back; garbage collection and the end of the process do the same.
function Device:detach()
  self._handle:close()
end

--- This process cannot use its IPUs any more, until lupine.faults.clear().
function Device:break_down()
  for ipu = self.first, self.first + self.count - 1 do
    broken[ipu] = self.id
  end
end

function Device.__tostring(self)
  return self.count == 1 and ("device Id %d"):format(self.id)
    or ("device Id %d (IPUs %d to %d)"):format(self.id, self.first, self.first + self.count - 1)
end

--- Makes broken IPUs usable again.
function M.repair()
  broken = {}
end

local function is_broken(group)
  for ipu = group.first, group.first + group.count - 1 do
    if broken[ipu] then
      return true
    end
  end
  return false
end

--- Whether this process can use the IPUs of a device, as far as they have not failed.
---@param id integer
---@return boolean
function M.works(id)
  local group = M.find(id)
  return group ~= nil and not is_broken(group)
end

local function script()
  local arg = rawget(_G, "arg")
  return type(arg) == "table" and tostring(arg[0] or "-") or "-"
end

local function take(group)
  local handle = machine():take(group.first, group.count, script())
  return handle and Device(group, handle)
end

local function wanted_group(wanted)
  local group = M.find(wanted.id)
  if not group then
    errors.fail(nil, "Failed to acquire device Id %d: this machine has the ids 0 to %d%s",
      wanted.id, 2 * M.ipus() - 2, M.limit())
  elseif is_broken(group) then
    error(errors.new("UnrecoverableError", nil, ("Failed to acquire device Id %d: after an "
      .. "unrecoverable error this process cannot use it any more"):format(group.id)), 0)
  end
  return group
end

local function groups_of(wanted)
  if wanted.id then
    return { wanted_group(wanted) }
  end
  local groups = M.list(wanted.ipus)
  if #groups == 0 then
    errors.fail(nil, "Failed to acquire %d IPU(s): this machine has devices of 1, 2, 4, … %d "
      .. "IPUs%s", wanted.ipus, M.ipus(), M.limit())
  end
  return groups
end

local function try(groups)
  for _, group in ipairs(groups) do
    local device = not is_broken(group) and take(group)
    if device then
      return device
    end
  end
  return nil
end

--- Attaches to the device of an id, or to the first free one of so many IPUs.
--- Where all are busy, models that nothing refers to any more give back theirs
--- first.
--- error: poptorch.Error for an id or a number that the machine does not have,
--- UnrecoverableError for a device that is out of operation
---@param wanted {id: integer?, ipus: integer?}
---@return lupine.Device? nil: busy
function M.try_attach(wanted)
  local groups = groups_of(wanted)
  local device = try(groups)
  if not device then
    collectgarbage()
    device = try(groups)
  end
  return device
end

local function fail_busy(wanted)
  local group = wanted.id and M.find(wanted.id) or { first = 0, count = M.ipus() }
  local what = wanted.id and ("device Id %d"):format(wanted.id)
    or ("%d IPU(s)"):format(wanted.ipus)
  errors.fail("busy", "Failed to acquire %s: %s in use%s, %s%s", what,
    wanted.id and "it is" or "all such devices are", wanted.id and "" or M.limit(),
    holders(group.first, group.first + group.count - 1),
    next(broken) and ", some out of operation" or "")
end

--- The same; where it is busy it waits for others to give it back, or fails.
--- error: poptorch.Error naming who has how many IPUs; OSError for a table that
--- cannot be opened or that others may enter
---@param wanted {id: integer?, ipus: integer?}
---@param waits boolean
---@param waiting? fun() called when it begins to wait
---@return lupine.Device
function M.attach(wanted, waits, waiting)
  local device = M.try_attach(wanted)
  if not device and not waits then
    fail_busy(wanted)
  elseif not device and waiting then
    waiting()
  end
  while not device do
    core.devices.sleep(PAUSE)
    device = try(groups_of(wanted))
  end
  return device
end

return require("lupine.base.namespace").close(M, "lupine.devices")
