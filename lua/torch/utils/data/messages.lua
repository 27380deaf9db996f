--- What the processes of a loader send one another over a channel
--- (src/io/worker.h): plain values with tensors in them, objects that have a parser
--- (lupine/base/arguments.lua), and errors, which are
--- raised again where they are waited for, with the words and the place that
--- they had where they arose.
local arguments = require("lupine.base.arguments")
local array = require("lupine.base.tables").array
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local show = require("lupine.show").show
local ordered = require("torch.nn.ordered")
local serialization = require("torch.serialization")

local M = {}

-- A channel takes some 160 messages before its writer waits; were both sides to wait
-- for that, neither would go on.
M.MOST_UNREAD = 64
M.GRACE = 1.0 -- seconds in which an idle process ends by itself

-- An object that has a parser (poptorch.parsers): its fields, and the number that its
-- metatable has in all these processes.
local function describe_object(w, value, path, depth)
  local number = not ordered.is_dict(value) and arguments.number_of(value)
  if not number then
    return nil
  end
  local fields = {}
  for key, field in next, value do
    fields[key] = field
  end
  return { parsed = number, fields = serialization.describe_part(w, fields, path, depth + 1) }
end

local KINDS = {
  parsed = function(r, d)
    return setmetatable(serialization.restore_part(r, d.fields), arguments.numbered(d.parsed))
  end,
}

-- A value as a text, and the tensors in it.
local function encode(value, where)
  local description, parts = serialization.describe(value, where, describe_object)
  return core.json_encode(array({ description, array(parts.names), n = 2 })), parts.tensors
end

--- Sends a value of plain data and tensors.
---@param channel table
---@param value any
---@param where string the sender, for messages
function M.send(channel, value, where)
  channel:send(encode(value, where))
end

--- Sends some integers, in a fraction of the time; a list of them arrives.
---@param channel table
---@param ... integer
function M.signal(channel, ...)
  channel:send(table.concat({ ... }, " "), {})
end

--- Sends a value of plain data and tensors like those of `like`, `copies` of
--- each, whose memory both sides share from now on.
---@param channel table
---@param value any
---@param like torch.Tensor[]
---@param copies integer
---@return torch.Tensor[] tensors copy by copy
function M.share(channel, value, like, copies)
  return channel:share((encode(value, "share")), like, copies)
end

--- Waits for the next value, for ever or for some seconds (0: not at all).
---@param channel table
---@param seconds number?
---@return any value nil if none came
---@return torch.Tensor[]|string|nil tensors that came with it; "timeout" or "closed"
function M.receive(channel, seconds)
  local text, tensors = channel:receive(seconds)
  if not text then
    return nil, tensors
  elseif text:byte() ~= 91 then -- no "["
    local list = {}
    for n in text:gmatch("%S+") do
      list[#list + 1] = math.tointeger(n)
    end
    return list
  end
  local message, where = core.json_decode(text, "a message"), "a message of another process"
  return serialization.restore(message[1], message[2], tensors, where, KINDS), tensors
end

--- A handler for xpcall: the error as plain data.
---@param e any
---@return table
function M.failure(e)
  if type(e) == "table" and errors.Exception:is(e) then
    return { class = getmetatable(e).__name, type = e.type, message = e.message,
      origin = e.origin, location = e.location, traceback = e.frames or e.traceback }
  end
  local text = show(e)
  local origin, message = text:match("^([^\n]-:%d+): (.*)$")
  local host_traceback = package.loaded["lupine.host_traceback"]
  return { class = "RuntimeError", message = message or text, origin = origin,
    traceback = host_traceback and host_traceback(2) or debug.traceback(nil, 2) }
end

--- The error of another process, which points to the line that raised it there.
---@param e table of M.failure
---@param process string "DataLoader worker process 3"
---@param as? {class: string, type: string?, message: string} in place of its own
---@return table error to raise
function M.error(e, process, as)
  as = as or e
  local raised = errors.new(as.class, as.type, ("%s\nraised in %s%s"):format(as.message, process,
    e.traceback and ":\n" .. e.traceback or ""))
  if e.origin and e.origin ~= "" then
    raised.origin, raised.location = e.origin, e.location or e.origin
  end
  return raised
end

return M
