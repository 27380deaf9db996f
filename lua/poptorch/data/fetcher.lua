--- What the process of an AsynchronousDataAccessor does: it reads the source and
--- writes the elements into a ring of buffers, which it shares with the
--- consumer (accessor.lua).
---
--- Loops over the source are counted from 1. The consumer says which loop it
--- wants (its number) and when it has read a buffer (0); the fetcher says, in
--- order, which buffer holds an element of which loop (loop, slot, and the rows
--- of each tensor if one has fewer than the buffer) and where a loop ends (loop).
--- Before a loop's elements it sends what the loop began with, a start
--- (poptorch/data/starts.lua), from which another process can go on.
--- When the consumer wants a later loop than the one that is read, this is left;
--- when that one is being read already, it goes on. Elements of a loop that was
--- left are skipped by the consumer, so neither side waits for the other's word.
---
--- One element is always read beyond the ring's room, so that even a ring of one
--- buffer overlaps. Nothing is polled: who cannot go on waits for a message.
local elements = require("poptorch.data.elements")
local errors = require("lupine.base.errors")
local loop = require("torch.utils.data.loop")
local messages = require("torch.utils.data.messages")
local check = require("lupine.base.check")
local starts = require("poptorch.data.starts")

local M = {}

---@class Fetcher
---@field source any
---@field o {buffer_size: integer, load_indefinitely: boolean, early_preload: boolean,
---  rebatched_size: integer?, drop_last: boolean}
---@field loop integer the one that is read
---@field wanted integer the last one that the consumer asked for
---@field held torch.Tensor[]? an element that is not in the ring yet
---@field at integer rows of it that are
---@field slot integer the buffer that is filled, from 0
---@field rows integer that it has, if rebatched
---@field free integer buffers that may be filled
---@field outgoing integer[][] signals that wait; of elements `announced` are under way
local Fetcher = {}
Fetcher.__index = Fetcher

function Fetcher:leave()
  local guard = self.guard
  self.guard = nil
  if guard then
    getmetatable(guard).__close(guard)
  end
  self.held, self.rows, self.ended = nil, 0, false
end

function Fetcher:begin(n)
  self:leave()
  self.loop = n
  local start
  start, self.step, self.guard = starts.begin(self.source)
  messages.send(self.channel, { loop = n, start = start }, "AsynchronousDataAccessor: the state")
end

-- Leaves out the rows of the source that were put into elements already.
function Fetcher:drop_rows(n)
  while n > 0 and self:read() do
    local rows = self.held[1]:size(0)
    self.at = math.min(n, rows)
    n = n - self.at
    self.held = self.at < rows and self.held or nil
  end
end

-- Loop 1 is the rest of one that an accessor before has given some elements of. The
-- ring is made like the first element of all.
function Fetcher:resume(resume)
  local size = self.o.rebatched_size
  self.step, self.guard = starts.again(self.source, resume.start, 0)
  if self:read() then
    self:make_ring()
  end
  self:leave()
  self.loop = 1
  messages.send(self.channel, { loop = 1, start = resume.start },
    "AsynchronousDataAccessor: the state")
  local left
  self.step, self.guard, left = starts.again(self.source, resume.start, resume.position, size,
    resume.ended)
  self:drop_rows(left)
end

-- Reads the next element; false at the end.
function Fetcher:read()
  local element = loop.tuple(self.step())
  if element == nil then
    return false
  end
  self.form = self.form or elements.form(element)
  self.held, self.at = elements.tensors(element, self.form), 0
  errors.check(#self.held == (self.parts or #self.held), "AssertionError",
    "AsynchronousDataAccessor: an element has %d tensors, the first one has %d", #self.held,
    self.parts)
  return true
end

-- ---- the ring --------------------------------------------------------------

local function check_rows(tensors)
  for i, t in ipairs(tensors) do
    errors.check(t:dim() > 0 and tensors[1]:dim() > 0 and t:size(0) == tensors[1]:size(0),
      "ValueError", "AsynchronousDataAccessor: rebatched_size: the tensors of an element must "
      .. "have the same number of rows, part %d is %s", i - 1, check.describe(t))
  end
end

-- Buffers like the held element, or of as many of its rows as a batch has.
function Fetcher:make_ring()
  local like, size = {}, self.o.rebatched_size
  if size then
    check_rows(self.held)
  end
  for i, t in ipairs(self.held) do
    local shape = { table.unpack(t.shape) }
    shape[1] = size or shape[1]
    like[i] = t:new_empty(shape)
  end
  self.parts = #like
  messages.send(self.channel, self.form, "AsynchronousDataAccessor: an element")
  self.ring = M.slots(messages.share(self.channel, { parts = #like }, like, self.o.buffer_size),
    #like)
  self.slot, self.free = 0, self.o.buffer_size
end

--- The buffers of a ring, from 0.
---@param tensors torch.Tensor[] buffer by buffer
---@param n integer tensors of a buffer
---@return table<integer, torch.Tensor[]>
function M.slots(tensors, n)
  local ring = {}
  for k = 0, #tensors // n - 1 do
    ring[k] = table.move(tensors, k * n + 1, k * n + n, 1, {})
  end
  return ring
end

function Fetcher:announce(signal)
  self.outgoing[#self.outgoing + 1] = signal
  while #self.outgoing > 0 and self.announced < messages.MOST_UNREAD do
    local first = table.remove(self.outgoing, 1)
    self.announced = self.announced + (first[2] and 1 or 0)
    messages.signal(self.channel, table.unpack(first))
  end
end

-- The buffer is the consumer's now; `rows` as it is told.
function Fetcher:hand_over(rows)
  local slot = self.slot
  self.slot = (slot + 1) % self.o.buffer_size
  self.free, self.rows = self.free - 1, 0
  self:announce({ self.loop, slot, table.unpack(rows or {}) })
end

function Fetcher:put_whole()
  local rows, full = {}, true
  for i, t in ipairs(self.held) do
    full = elements.fill(self.ring[self.slot][i], t, i - 1) and full
    rows[i] = t:dim() > 0 and t:size(0) or 1
  end
  self.held = nil
  self:hand_over(not full and rows or nil)
end

-- As many rows as the buffer has room for.
function Fetcher:put_rows()
  check_rows(self.held)
  local size, n = self.o.rebatched_size, self.held[1]:size(0)
  local count = math.min(n - self.at, size - self.rows)
  for i, t in ipairs(self.held) do
    elements.fill(self.ring[self.slot][i]:narrow(0, self.rows, size - self.rows),
      t:narrow(0, self.at, count), i - 1)
  end
  self.at, self.rows = self.at + count, self.rows + count
  if self.at == n then
    self.held = nil
  end
  if self.rows == size then
    self:hand_over()
  end
end

function Fetcher:put()
  if self.o.rebatched_size then
    self:put_rows()
  else
    self:put_whole()
  end
end

function Fetcher:finish()
  if self.rows > 0 and not self.o.drop_last then
    local rows = {}
    for i = 1, self.parts do
      rows[i] = self.rows
    end
    self:hand_over(rows)
  end
  self.rows, self.ended = 0, true
  self:announce({ self.loop })
end

-- ---- the process -----------------------------------------------------------

-- The last loop that may be read: until it is wanted the first one is if it is
-- to be preloaded, later ones if loading goes on for ever.
function Fetcher:last_loop()
  local ahead
  if self.wanted == 0 then
    ahead = self.o.early_preload
  else
    ahead = self.o.load_indefinitely
  end
  return self.wanted + (ahead and 1 or 0)
end

-- What can be done now, a method; nil if a message must come first.
function Fetcher:next_step()
  if self.loop < self.wanted then
    return self.begin, self.wanted
  elseif self.ended then
    return self.loop < self:last_loop() and self.begin or nil, self.loop + 1
  elseif self.held then
    return self.free > 0 and self.put or nil
  elseif self.loop <= self:last_loop() then
    return self.advance
  end
end

function Fetcher:advance()
  if not self:read() then
    self:finish()
  end
end

-- Takes the messages that are there, of which one is waited for if nothing can
-- be done without; false when the consumer is gone.
function Fetcher:listen()
  while true do
    local signal, why = messages.receive(self.channel, not self:next_step() and math.huge or 0)
    if signal == nil then
      return why ~= "closed"
    elseif signal[1] > 0 then
      self.wanted = signal[1]
    else
      self.free, self.announced = self.free + 1, self.announced - 1
      self:announce()
    end
  end
end

local function work(self, resume)
  if resume then
    self:resume(resume)
  else
    self:begin(1)
    errors.check(self:read(), "AssertionError", "the dataset is empty")
    self:make_ring()
    self:put()
  end
  while self:listen() do
    local step, n = self:next_step()
    step(self, n)
  end
end

--- Fetches until the consumer closes the channel; tells it of an error.
---@param channel table
---@param source any
---@param o table the options, checked
---@param resume? {start: table, position: integer, ended: boolean} the loop to go on with
function M.run(channel, source, o, resume)
  local self = setmetatable({ channel = channel, source = source, o = o, wanted = 0,
    outgoing = {}, announced = 0 }, Fetcher)
  local done, e = xpcall(work, messages.failure, self, resume)
  if not done then
    messages.send(channel, { error = e }, "AsynchronousDataAccessor")
  end
end

return M
