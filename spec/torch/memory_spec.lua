--- Memory that tensors hold is known to Lua's collector: garbage does not pile
--- up, in either of its modes. The peak is the process's own (VmHWM), or that
--- of all storages where pages are not touched.
local program = require("spec.support.program")

local MB = 1 << 20
local MODES = { "incremental", "generational" }
-- A sanitizer has its own tables beside each block, and takes its time.
local sanitized = program.shell("ldd " .. program.host):find("libasan", 1, true)
local ROOM, FEWER = sanitized and 1.4 or 1, sanitized and 5 or 1

-- Bytes of a script that drops `n` tensors of 1 MB and holds those of steps of `hold`:
-- resident before the first, the peak, resident at the end.
local function bytes(n, mode, hold, make)
  local script = ([[
    local torch = require("torch")
    collectgarbage(%q)
    local function status(name)
      for line in io.lines("/proc/self/status") do
        local kb = line:match("^" .. name .. ":%%s*(%%d+)")
        if kb then return kb * 1024 end
      end
    end
    local hold, held = %d, {}
    held[1] = torch.zeros(1)
    local before = status("VmRSS")
    for i = 1, %d do
      if (i - 1) %% hold == 0 then held = {} end
      held[#held + 1] = torch.%s(1 << 18)
    end
    print(before, math.max(status("VmHWM"), torch.memory().peak), status("VmRSS"))
  ]]):format(mode, hold, n, make or "zeros")
  -- a sanitized host would keep what was freed
  local host = "ASAN_OPTIONS=quarantine_size_mb=1 " .. program.host
  local out, err = program.shell(host .. " -", script)
  local before, peak, after = out:match("(%d+)%s+(%d+)%s+(%d+)")
  assert(before, err)
  return tonumber(before), tonumber(peak), tonumber(after)
end

local function below(most, got, what)
  assert.is_true(got < most * ROOM * MB, ("%s: %d MB"):format(what, got // MB))
end

describe("dropped tensors", function()
  it("of 1 MiB, 10,000 of them, raise the resident memory by less than 80 MiB", function()
    for _, mode in ipairs(MODES) do
      local before, peak, after = bytes(10000 // FEWER, mode, 1)
      below(80, peak - before, mode)
      below(80, after - before, mode)
    end
  end)

  it("of steps that hold a hundred peak below 250 MiB", function()
    for _, mode in ipairs(MODES) do
      local _, peak = bytes(3000 // FEWER, mode, 100)
      below(250, peak, mode)
    end
  end)

  it("stay below 200 MB over a million #slow", function()
    local _, peak = bytes(1000000, "incremental", 1, "empty")
    below(200, peak, "a million")
  end)
end)

describe("torch.memory()", function()
  local torch = require("torch")

  it("reports live, peak and cached bytes", function()
    collectgarbage()
    local before = torch.memory()
    local x = torch.zeros(1 << 20)
    local held = torch.memory()
    assert.equal(4 * MB, held.live - before.live)
    assert.is_true(held.peak >= held.live)
    assert.equal("integer", math.type(held.cached))
    x:free()
    local after = torch.memory()
    assert.equal(before.live, after.live)
    assert.is_true(after.peak >= held.peak)
  end)
end)
