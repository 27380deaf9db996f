--- Numbers of a loader that are too large, or too small, to be meant.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local M = poptorch.DataLoaderMode
local data = torch.utils.data.TensorDataset(torch.arange(16.0):reshape(16, 1))

local SETTERS = {
  deviceIterations = function(o, n)
    o:deviceIterations(n)
  end,
  replicationFactor = function(o, n)
    o:replicationFactor(n)
  end,
  gradientAccumulation = function(o, n)
    o.Training:gradientAccumulation(n)
  end,
}

local function options(name, n)
  local o = poptorch.Options()
  SETTERS[name](o, n)
  return o
end

describe("a loader's numbers", function()
  it("that a call cannot have are refused with all factors", function()
    for name in pairs(SETTERS) do
      for _, mode in ipairs({ M.Sync, M.Async, M.AsyncRebatched }) do
        for _, n in ipairs({ (1 << 40) + 1, 1 << 62, math.maxinteger }) do
          helper.raises("Error", ("must not be more than 2%%^40, got .*%d"):format(n), function()
            poptorch.DataLoader(options(name, n), data, { mode = mode })
          end)
        end
        for _, n in ipairs({ -1, math.mininteger }) do
          helper.raises("Error", name .. ".* must be greater than 0, got %" .. n, function()
            poptorch.DataLoader(options(name, n), data, { mode = mode })
          end)
        end
      end
    end
    local two = options("deviceIterations", -2):replicationFactor(-3) -- their product is positive
    helper.refuses("Error", "greater than 0", poptorch.DataLoader, two, data)
    two = options("deviceIterations", 1 << 32):replicationFactor(1 << 32) -- this one is 0
    helper.refuses("Error", "got 4294967296 x 1 x 4294967296", poptorch.DataLoader, two, data)
  end)

  it("that make an overflow with batch_size are refused", function()
    for _, c in ipairs({ { 1, 1 << 62 }, { 1 << 40, 1 << 24 }, { 2, math.maxinteger } }) do
      helper.raises("ValueError", ("batch_size x .* 2%%^40, got %d x %d"):format(c[2], c[1]),
        function()
          poptorch.DataLoader(options("deviceIterations", c[1]), data, { batch_size = c[2] })
        end)
    end
  end)

  it("of workers have a limit", function()
    for _, Loader in ipairs({ torch.utils.data.DataLoader, function(...)
      return poptorch.DataLoader(poptorch.Options(), ...)
    end }) do
      helper.raises("ValueError", "num_workers: expected int in 0..1024", function()
        Loader(data, { num_workers = 1 << 40 })
      end)
    end
  end)

  it("may be larger than the data where what is left over comes too", function()
    for _, mode in ipairs({ M.Async, M.AsyncRebatched }) do
      for name in pairs(SETTERS) do
        local loader = poptorch.DataLoader(options(name, 1 << 40), data, { mode = mode,
          drop_last = false })
        local seen = {}
        for x in loader do
          seen[#seen + 1] = x:clone()
        end
        assert.equal(1, #seen)
        assert.is_true(torch.equal(seen[1], torch.arange(16.0):reshape(16, 1)))
        loader:terminate()
      end
    end
  end)

  it("of buffers that no memory holds are an error, and kill nobody", function()
    local script = [[
      local poptorch, torch = require("poptorch"), require("torch")
      local Rows = torch.utils.data.IterableDataset:extend("Rows")
      function Rows:__iter__()
        return coroutine.wrap(function()
          coroutine.yield(torch.zeros(4))
        end)
      end
      local ok, e = pcall(poptorch.DataLoader, poptorch.Options():deviceIterations(1 << 35), Rows(),
        { mode = poptorch.DataLoaderMode.AsyncRebatched })
      print(ok, poptorch.Error:is(e), e.message:match("out of memory"))
    ]]
    local out = program.shell(("ASAN_OPTIONS=allocator_may_return_null=1 %s -e %s"):format(
      program.host, program.quote(script)))
    assert.equal("false\ttrue\tout of memory\n", out)
  end)
end)
