--- Processes that bench.lua drives: lines of text in through a named pipe, lines
--- out through another.
local M = {}

local Side = {}
Side.__index = Side

local function quote(s)
  return "'" .. tostring(s):gsub("'", "'\\''") .. "'"
end

local function command(words)
  local out = {}
  for i, word in ipairs(words) do
    out[i] = quote(word)
  end
  return table.concat(out, " ")
end

--- The first line a command prints; nil if it fails.
---@param words any[]
---@return string?
function M.read(words)
  local pipe = assert(io.popen(command(words)))
  local line = pipe:read("l") or ""
  return pipe:close() and line or nil
end

local function keep(values, line)
  local key, value = line:match("^(%w+[%w_]*) (.*)$")
  if key then
    values[key] = tonumber(value) or value
  end
end

--- What a command prints as lines `key value`; nil if it fails.
---@param words any[]
---@return table<string, any>?
function M.values(words)
  local pipe, out = assert(io.popen(command(words))), {}
  for line in pipe:lines() do
    keep(out, line)
  end
  return pipe:close() and out or nil
end

--- Starts a side (one.lua has what it says) and waits until it is ready; nil if
--- it fails before. Its fields: loss (a list), first, library, after finish rss.
---@param words any[]
---@param threads integer
function M.start(words, threads)
  local pipe = os.tmpname()
  os.remove(pipe)
  if not os.execute("mkfifo " .. quote(pipe)) then
    return nil
  end
  local self = setmetatable({ loss = {}, pipe = pipe }, Side)
  self.from = assert(io.popen(("OMP_NUM_THREADS=%d MKL_NUM_THREADS=%d %s <%s"):format(threads,
    threads, command(words), quote(pipe))))
  self.to = assert(io.open(pipe, "w"))
  os.remove(pipe)
  for line in self.from:lines() do
    if line == "ready" then
      return self
    end
    local loss = line:match("^loss (.*)$")
    if loss then
      self.loss[#self.loss + 1] = tonumber(loss)
    else
      keep(self, line)
    end
  end
  self.to:close()
  self.from:close()
  return nil
end

--- Says a line and takes the next one that the side says; nil at its end.
---@param line string
---@return string?
function Side:ask(line)
  self.to:write(line, "\n")
  self.to:flush()
  return self.from:read("l")
end

--- Milliseconds of a step, the median of some seconds; nil if the side fails.
---@param seconds number
---@return number?
function Side:time(seconds)
  local line = self:ask(("time %g"):format(seconds))
  return line and tonumber(line:match("^ms (.*)$"))
end

--- Ends the side and takes what it says at its end.
function Side:finish()
  self.to:close()
  for line in self.from:lines() do
    keep(self, line)
  end
  self.from:close()
end

return M
