--- What a session's device has that neither the model's tensors nor the optimizer's
--- say: where its random numbers are, buffers of which each replica has its own value,
--- the optimizer's numbers as they were uploaded last, states that the optimizer does
--- not know. With those tensors and this another process goes on with the same bits.
local check = require("lupine.base.check")
local core = require("lupine.core")

local methods = {}

-- Buffers whose values the host does not have: those of each replica, and what a
-- program for inference writes.
local function own_buffers(self)
  local out = {}
  for _, m in ipairs(self.mirrored) do
    if m.role == "buffer" and (self.exec:values(m.index) > 1 or not self.training) then
      out[m.name] = m
    end
  end
  return out
end

local function replicas_of(self, m)
  local values = {}
  for r = 1, self.exec:values(m.index) do
    values[r] = self.exec:read(m.index, r - 1)
  end
  return values
end

-- States that only the device has.
local function own_states(self)
  local out = {}
  for _, state in ipairs(self.states) do
    if not self.optimizer:tensor(state) then
      out[self.vars[state.index].name] = state.index
    end
  end
  return out
end

--- Plain data and tensors for load_device_state.
---@return {random: integer[], hypers: table, buffers: table, states: table}
function methods:device_state()
  local out = { random = { self.exec:rng() }, hypers = {}, buffers = {}, states = {} }
  for _, h in ipairs(self.hypers) do
    out.hypers[self.vars[h.index].name] = self.exec:read(h.index)
  end
  for name, m in pairs(own_buffers(self)) do
    out.buffers[name] = replicas_of(self, m)
  end
  for name, index in pairs(own_states(self)) do
    out.states[name] = self.exec:read(index)
  end
  return out
end

-- A value of the same type; nil for another program's.
local function fitting(self, value, index)
  return core.is_tensor(value) and pcall(self.exec.fits, self.exec, index, value) and value or nil
end

-- Of as many replicas as there were: else all have the host's value.
local function load_buffer(self, m, values)
  local n = self.exec:values(m.index)
  if type(values) ~= "table" or #values ~= n then
    return
  end
  for r = 1, n do
    local value = fitting(self, values[r], m.index)
    if value then
      self.exec:write(m.index, value, n > 1 and r - 1 or nil)
    end
  end
end

local function load_all(self, values, index_of)
  for name, index in pairs(index_of) do
    local value = fitting(self, values[name], index)
    if value then
      self.exec:write(index, value)
    end
  end
end

--- Takes over what device_state gave, once the model's tensors and the optimizer's are
--- there. What a program of other loops, replicas or another optimizer has not is left out.
--- error: TypeError for something else
---@param state table
function methods:load_device_state(state)
  local where = "load_device_state: "
  for _, name in ipairs({ "random", "hypers", "buffers", "states" }) do
    check.table(state[name], where .. name)
  end
  local hypers = {}
  for _, h in ipairs(self.hypers) do
    hypers[self.vars[h.index].name] = h.index
  end
  load_all(self, state.hypers, hypers)
  load_all(self, state.states, own_states(self))
  for name, m in pairs(own_buffers(self)) do
    load_buffer(self, m, state.buffers[name])
  end
  self:random_state(check.int(state.random[1], where .. "random[1]"),
    check.int(state.random[2], where .. "random[2]"))
end

return { methods = methods }
