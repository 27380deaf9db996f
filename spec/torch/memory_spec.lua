--- Memory that tensors hold is known to Lua's collector: garbage does not pile
--- up, in either of its modes. The peak is the process's own (VmHWM), or that
--- of all storages where pages are not touched.
local program = require("spec.support.program")

local MB = 1 << 20

-- Peak resident bytes of a script that drops `n` tensors of 1 MB.
local function peak(n, mode, hold, make)
  local script = ([[
    collectgarbage(%q)
    local torch = require("torch")
    local held = {}
    for i = 1, %d do
      held[i %% %d] = torch.%s(1 << 18)
    end
    for line in io.lines("/proc/self/status") do
      local kb = line:match("^VmHWM:%%s*(%%d+)")
      if kb then print(math.max(kb * 1024, torch.memory().peak)) end
    end
  ]]):format(mode, n, hold, make or "zeros")
  -- a sanitized host would keep what was freed
  local host = "ASAN_OPTIONS=quarantine_size_mb=1 " .. program.host
  local out, err = program.shell(host .. " -", script)
  return assert(tonumber(out), err)
end

describe("dropped tensors", function()
  it("do not pile up", function()
    for _, mode in ipairs({ "incremental", "generational" }) do
      local bytes = peak(10000, mode, 1)
      assert.is_true(bytes < 200 * MB, ("%s: %d MB"):format(mode, bytes // MB))
    end
  end)

  it("beside those of a step that holds a hundred do not either", function()
    assert.is_true(peak(5000, "incremental", 100) < 350 * MB)
  end)

  it("stay below 200 MB over a million #slow", function()
    assert.is_true(peak(1000000, "incremental", 1, "empty") < 200 * MB)
  end)
end)
