-- Rows of metrics: what readers of other people make of them, what is left after a
-- process was killed, and what a row costs. (Expectations 26 and 30.)
local core = require("lupine.core")
local csv = require("lupine.csv")
local files = require("spec.support.files")
local helper = require("spec.helper")
local records = require("lupine.run.records")

describe("rows of metrics", function()
  local folder

  before_each(function()
    folder = files.folder()
  end)
  after_each(function()
    files.remove(folder)
  end)

  local function written(rows, count)
    local r = records.Records(folder, count or 0)
    for _, row in ipairs(rows) do
      r:write(row)
    end
    r:close()
  end

  local function text(name)
    return files.read(folder .. "/" .. name)
  end

  it("are on the disk before the checkpoint that counts on them", function()
    local recorder = require("lupine.run.recorder")(false)
    local calls, sync, new = {}, core.sync_file, core.new_folder
    local _ <close> = setmetatable({}, { __close = function()
      core.sync_file, core.new_folder = sync, new
    end })
    function core.sync_file(path)
      calls[#calls + 1] = path .. select(2, text("metrics.jsonl"):gsub("\n", ""))
      sync(path)
    end
    function core.new_folder(path)
      calls[#calls + 1] = "checkpoint"
      return new(path)
    end
    recorder:place(folder, print)
    assert.same({ rows = 0 }, recorder:state_dict()) -- nothing is open yet
    recorder:on_start({ step = 0 })
    recorder:on_log(nil, { step = 1, loss = 0.5 })
    recorder:on_log(nil, { step = 2, loss = 0.25 })
    require("lupine.checkpoint").save(folder .. "/last", { recorder = recorder })
    recorder:close()
    assert.same({ folder .. "/metrics.jsonl2", "checkpoint" }, calls)
    assert.has_error(function()
      core.sync_file(folder .. "/nope")
    end)
  end)

  it("go to event files that begin where a checkpoint was made", function()
    local function write(state, step)
      local recorder = require("lupine.run.recorder")(true)
      recorder:place(folder, print)
      if state then
        recorder:load_state_dict(state)
      end
      recorder:on_start({ step = step })
      recorder:on_log(nil, { step = step + 1, loss = 0.5 })
      local rows = recorder:state_dict()
      recorder:close()
      return rows
    end
    local rows = write(nil, 0)
    assert.same({ rows = 1 }, rows)
    assert.same({ rows = 2 }, write(rows, 4))
    local texts = {}
    for _, name in ipairs(select(2, core.list_folder(folder))) do
      texts[#texts + 1] = name:find("^events") and text(name) or nil
    end
    table.sort(texts, function(a, b)
      return #a < #b
    end)
    assert.equal(2, #texts)
    local events = require("lupine.run.events")
    local start = #events.record(events.start(1.0, 5))
    assert.equal(#texts[1] + start, #texts[2])
    assert.is_truthy(texts[2]:find(events.start(1.0, 5):sub(10), 1, true)) -- behind the time
  end)

  it("are JSON objects, one a line, and lines of a CSV", function()
    written({ { step = 1, epoch = 1, loss = 0.1, lr = 1e-4 },
      { step = 2, epoch = 1, loss = 2.5, lr = 1e-4 } })
    assert.equal("step,epoch,loss,lr\n1,1,0.1,0.0001\n2,1,2.5,0.0001\n", text("metrics.csv"))
    local lines = {}
    for line in text("metrics.jsonl"):gmatch("[^\n]+") do
      lines[#lines + 1] = core.json_decode(line)
    end
    assert.same({ { step = 1, epoch = 1, loss = 0.1, lr = 1e-4 },
      { step = 2, epoch = 1, loss = 2.5, lr = 1e-4 } }, lines)
  end)

  it("accept new columns, each row with as many fields as the head", function()
    written({ { step = 1, loss = 1.0 }, { step = 1, ["validation.loss"] = 3.0 },
      { step = 2, loss = 2.0, note = 'a "b", c' } })
    assert.equal("step,loss,validation.loss,note\n1,1,,\n1,,3,\n2,2,,\"a \"\"b\"\", c\"\n",
      text("metrics.csv"))
    local t = csv.read(folder .. "/metrics.csv", { header = true })
    assert.equal(3, t.rows)
    helper.near(t:column("validation.loss"), { 0 / 0, 3, 0 / 0 })
    assert.same({ "", "", 'a "b", c' }, t:column("note"))
  end)

  it("say what is no finite number as each format can", function()
    written({ { step = 1, a = 0 / 0, b = math.huge, c = -math.huge, d = 1 } })
    assert.equal("step,a,b,c,d\n1,nan,inf,-inf,1\n", text("metrics.csv"))
    assert.same({ step = 1, a = core.none, b = core.none, c = core.none, d = 1 },
      core.json_decode((text("metrics.jsonl"))))
    assert.same({ { step = 1, d = 1 } }, records.read(folder .. "/metrics.jsonl"))
  end)

  it("keep every bit of a number", function()
    local values = { 1 / 3, 2 ^ 0.5, 1e-310, 123456789012345678 }
    for i, x in ipairs(values) do
      written({ { step = i, x = x } }, i - 1)
    end
    for i, row in ipairs(records.read(folder .. "/metrics.jsonl")) do
      assert.equal(values[i], row.x)
      assert.equal(math.type(values[i]), math.type(row.x))
    end
    local i = 0
    for line in text("metrics.csv"):gmatch("\n%d+,([^\n]+)") do
      i = i + 1
      assert.equal(values[i], tonumber(line))
    end
    assert.equal(4, i)
  end)

  it("go on behind the rows that a checkpoint has seen", function()
    written({ { step = 1, loss = 1 }, { step = 2, loss = 2 }, { step = 3, loss = 3, late = 1 } })
    written({ { step = 3, loss = 4 } }, 2)
    assert.equal("step,loss\n1,1\n2,2\n3,4\n", text("metrics.csv"))
    assert.equal(3, #records.read(folder .. "/metrics.jsonl"))
    written({}, 0)
    assert.equal("", text("metrics.csv") .. text("metrics.jsonl"))
  end)

  it("lose a torn last line at most", function()
    written({ { step = 1, loss = 1 }, { step = 2, loss = 2 } })
    local whole = text("metrics.jsonl")
    local first = whole:find("\n")
    for cut = first, #whole - 1 do
      files.write(folder .. "/metrics.jsonl", whole:sub(1, cut))
      assert.same({ { step = 1, loss = 1 } }, records.read(folder .. "/metrics.jsonl"))
    end
    written({ { step = 2, loss = 5 } }, 2)
    assert.equal("step,loss\n1,1\n2,5\n", text("metrics.csv"))
    files.write(folder .. "/metrics.jsonl", "no row\n")
    helper.refuses("ValueError", "metrics.jsonl:1: this is no row", records.read,
      folder .. "/metrics.jsonl")
  end)

  it("are with the system when write returns", function()
    local r = records.Records(folder, 0)
    r:write({ step = 1, loss = 1 })
    assert.equal("step,loss\n1,1\n", text("metrics.csv"))
    assert.equal(1, #records.read(folder .. "/metrics.jsonl"))
    r:close()
  end)

  it("cost the same after ten thousand others", function()
    local r = records.Records(folder, 0)
    local function bytes_of_row(step)
      local before = io.open("/proc/self/io")
      if not before then
        return 0
      end
      local wrote = tonumber(before:read("a"):match("wchar: (%d+)"))
      before:close()
      r:write({ step = step, loss = 0.5 })
      local after = io.open("/proc/self/io")
      local now = tonumber(after:read("a"):match("wchar: (%d+)"))
      after:close()
      return now - wrote
    end
    r:write({ step = 10000, loss = 0.5 })
    local first = bytes_of_row(10001)
    for step = 10002, 19999 do
      r:write({ step = step, loss = 0.5 })
    end
    assert.equal(first, bytes_of_row(20000))
    r:close()
  end)
end)
