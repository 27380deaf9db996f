--- lupine info.
local devices = require("lupine.devices")
local machine = require("spec.support.machine")
local program = require("spec.support.program")

describe("lupine info", function()
  local folder

  before_each(function()
    folder = machine.begin()
  end)

  after_each(function()
    machine.finish()
  end)

  local function info(arguments)
    return program.shell(("LUPINE_DEVICES=%s LUPINE_IPUS=4 %s info %s"):format(folder,
      program.host, arguments or ""))
  end

  it("lists ids, IPUs, chip and who has them", function()
    local pair = devices.attach({ id = 65 }) -- of 64 IPUs: 2 and 3
    local who = ("process %d (%s)"):format(require("lupine.core").devices.process(), arg[0])
    assert.equal(table.concat({
      ("4 IPUs, table %s/ipus"):format(folder),
      "   id  IPUs       chip  in use by",
      "    0  0          ipu2  -",
      "    1  1          ipu2  -",
      "    2  2          ipu2  " .. who,
      "    3  3          ipu2  " .. who,
      "    4  0-1        ipu2  -",
      "    5  2-3        ipu2  " .. who,
      "    6  0-3        ipu2  " .. who, "" }, "\n"), (info()))
    pair:detach()
  end)

  it("explains itself and refuses other words", function()
    local out, err, code = info("--help")
    assert.matches("^usage: lupine info\n", out)
    assert.same({ "", 0 }, { err, code })
    out, err, code = info("-x")
    assert.matches("^lupine info: unrecognized option '%-x'\nusage: ", err)
    assert.same({ "", 1 }, { out, code })
  end)

  it("names a LUPINE_IPUS that is wrong", function()
    local _, err, code = program.shell("LUPINE_IPUS=5 " .. program.host .. " info")
    assert.matches("LUPINE_IPUS: expected a power of two from 1 to 4096, got '5'", err)
    assert.equal(1, code)
  end)
end)
