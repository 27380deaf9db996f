--- Memory that runs short, or out, while outside data is read: a reader gives
--- the answer that it gives otherwise, or OutOfMemoryError, and keeps nothing.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local torch = require("torch")

local READERS = { "csv", "graph_text", "idx", "jpeg", "json", "load", "npy", "npz", "onnx", "onnx",
  "options_file", "options_json", "png", "safetensors" }

local LONGEST = 2000 -- bytes; of longer inputs the ways are the same

-- What lives, after up to three collections while that is more than `blocks`, `size`.
local function live(blocks, size)
  for _ = 1, 3 do
    local now, bytes = core.mem_live(), torch.memory().live
    if blocks and now <= blocks and bytes <= size then
      return now, bytes
    end
    collectgarbage()
  end
  return core.mem_live(), torch.memory().live
end

-- What a reader makes of the bytes: an error's class, or true.
local function verdict(reader, bytes)
  local ok, e = pcall(reader.read, bytes)
  return ok or (type(e) == "table" and e.message and e.__name or tostring(e)), e
end

-- Fails the n-th allocation, and if `lasting` all after it, for n = 1, 2, …
local function sweep(reader, bytes, what, lasting)
  local want = verdict(reader, bytes)
  verdict(reader, bytes)
  local n, left = 0, 0
  local blocks, size = live()
  while left == 0 do
    n = n + 1
    core.mem_fail_at(n, lasting)
    local got, e = verdict(reader, bytes)
    left = core.mem_fail_at(0)
    local where = ("%s, allocation %d%s failed: "):format(what, n, lasting and " and on" or "")
    assert(got == want or errors.OutOfMemoryError:is(e), where .. tostring(e))
    e = nil -- luacheck: ignore
    local blocks_after, size_after = live(blocks, size)
    assert(blocks_after <= blocks and size_after <= size, where .. "something stays")
    assert(n < 3000, "the sweep does not end")
  end
end

describe("the reader", function()
  for _, name in ipairs(READERS) do
    it(name .. " says when memory runs short, and loses nothing", function()
      local reader = require("spec.hostile." .. name)
      -- what computes with what was read is swept elsewhere
      reader = reader.codec and { read = reader.codec, valid = reader.valid, refused = {} }
        or reader
      for i, bytes in ipairs(reader.valid) do
        sweep(reader, bytes, "valid " .. i, false)
        sweep(reader, bytes, "valid " .. i, true)
      end
      for _, case in ipairs(reader.refused) do
        local what, bytes = case[1], case[2]
        if type(bytes) == "string" and #bytes <= LONGEST then
          sweep(reader, bytes, what, true)
        end
      end
    end)
  end
end)
