-- TensorBoard's event files: known checksums, bytes that a reader's own format asks for,
-- and where it is there TensorBoard's reader itself. (Expectation 30.)
local events = require("lupine.run.events")
local files = require("spec.support.files")
local program = require("spec.support.program")

local function hex(bytes)
  return (bytes:gsub(".", function(c)
    return ("%02x"):format(c:byte())
  end))
end

describe("event files", function()
  it("have the checksums of RFC 3720, B.4", function()
    assert.equal(0x8a9136aa, events.crc32c(("\0"):rep(32)))
    assert.equal(0x62a8ab43, events.crc32c(("\xff"):rep(32)))
    local up = {}
    for i = 0, 31 do
      up[#up + 1] = string.char(i)
    end
    assert.equal(0x46dd794e, events.crc32c(table.concat(up)))
    assert.equal(0x113fdb5c, events.crc32c(table.concat(up):reverse()))
    assert.equal(0xe3069283, events.crc32c("123456789"))
  end)

  it("have records and messages of these bytes", function()
    assert.equal("09000000000000f03f1a0d627261696e2e4576656e743a32", hex(events.version(1.0)))
    assert.equal("09000000000000f03f10ac023a020801", hex(events.start(1.0, 300)))
    assert.equal("09000000000000004010052a0d0a0b0a046c6f7373150000003f",
      hex(events.scalars(2.0, 5, { loss = 0.5 })))
    -- by masked_crc32c of tensorboard.compat.tensorflow_stub.pywrap_tensorflow
    assert.equal("1800000000000000a37f4b22" .. hex(events.version(1.0)) .. "86bf577a",
      hex(events.record(events.version(1.0))))
  end)

  it("are read in the order of their names, and have all numbers of a row", function()
    local folder = files.folder(true)
    finally(function()
      files.remove(folder)
    end)
    local texts, names = {}, {}
    for k = 1, 3 do
      local e = events.Events(folder, k == 3 and 7 or nil)
      e:write({ step = k, epoch = 1, loss = 0.5, time = 9.0, note = "text", ["a.b.c"] = 2.0 })
      e:close()
      names[k] = e.path:match("[^/]+$")
      texts[k] = files.read(e.path)
    end
    assert.is_true(names[1] < names[2] and names[2] < names[3])
    local time = names[1]:match("^events.out.tfevents.(%d%d%d%d%d%d%d%d%d%d)%.")
    assert.is_true(math.abs(tonumber(time) - os.time()) < 30)
    local row = events.record(events.scalars(9.0, 2, { epoch = 1, loss = 0.5, ["a/b/c"] = 2.0 }))
    assert.equal(row, texts[2]:sub(-#row))
    assert.equal(#events.record(events.version(1.0)) + #row, #texts[2])
    local start = events.record(events.start(1.0, 8))
    assert.equal(#texts[2] + #start, #texts[3])
  end)

  it("are read by TensorBoard", function()
    local python = os.getenv("LUPINE_TENSORBOARD_PYTHON") or "python3"
    if select(3, program.shell(python .. " -c 'import tensorboard'")) ~= 0 then
      pending("tensorboard is not installed")
      return
    end
    local folder = files.folder()
    finally(function()
      files.remove(folder)
    end)
    local e = events.Events(folder)
    for step = 1, 4 do
      e:write({ step = step, time = 100.0 + step, loss = step / 4,
        ["validation.loss"] = 1e6 * step })
    end
    e:close()
    e = events.Events(folder, 2) -- goes on behind step 2
    e:write({ step = 3, loss = 7.0, time = 200.0, note = "text is left out" })
    e:close()
    local out, err = program.shell(python .. " - " .. folder, [[
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1])
a.Reload()
for tag in sorted(a.Tags()["scalars"]):
    print(tag, [(e.step, e.value, e.wall_time) for e in a.Scalars(tag)])
]])
    assert.equal("loss [(1, 0.25, 101.0), (2, 0.5, 102.0), (3, 7.0, 200.0)]\n"
      .. "validation/loss [(1, 1000000.0, 101.0), (2, 2000000.0, 102.0)]\n", out, err)
  end)
end)
