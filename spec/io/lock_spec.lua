-- Locks between processes, on files that come and go with them.
local core = require("lupine.core")
local files = require("spec.support.files")
local program = require("spec.support.program")

describe("a lock", function()
  local folder

  before_each(function()
    folder = files.folder(true)
  end)
  after_each(function()
    files.remove(folder)
  end)

  it("is held by one process at a time, whoever removes its file", function()
    files.write(folder .. "/count", "0")
    local script = program.temporary(([[
      local core = require("lupine.core")
      for _ = 1, 100 do
        local held <close> = core.lock_file(%q)
        local file <close> = assert(io.open(%q, "r+"))
        local n = file:read("n")
        file:seek("set", 0)
        file:write(n + 1)
      end
    ]]):format(folder .. "/.lock", folder .. "/count"))
    local _, err = program.shell(("for i in 1 2 3 4; do %s %s & done; wait"):format(program.host,
      script))
    os.remove(script)
    assert.equal("", err)
    assert.equal("400", files.read(folder .. "/count"))
    assert.is_nil(io.open(folder .. "/.lock"))
  end)

  it("takes its own file away, and no other of the name", function()
    local path = folder .. "/.lock"
    local held = core.lock_file(path)
    assert.equal("", files.read(path))
    os.remove(path)
    files.write(path, "another's")
    held:close()
    held:close() -- once more is nothing
    assert.equal("another's", files.read(path))
  end)

  it("cannot be where there is no folder", function()
    assert.has_error(function()
      core.lock_file(folder .. "/none/.lock")
    end)
  end)
end)
