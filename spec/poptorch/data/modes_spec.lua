-- The modes of poptorch.DataLoader beside one another and beside PyTorch's
-- DataLoader, whose batches were recorded from PyTorch 2.15.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local poptorch = require("poptorch")
local processes = require("spec.support.processes")
local torch = require("torch")
local D = torch.utils.data
local Mode = poptorch.DataLoaderMode

-- The numbers 0 … n - 1, of which each worker reads every n-th.
local Strided = D.IterableDataset:extend("Strided")

function Strided:init(n)
  self.n = n
end

function Strided:__len__()
  return self.n
end

function Strided:__iter__()
  local info = D.get_worker_info()
  local at, step = info and info.id or 0, info and info.num_workers or 1
  return function()
    at = at + step
    return at - step < self.n and torch.tensor(at - step) or nil
  end
end

local function rows(n)
  return D.TensorDataset(torch.arange(n))
end

local function text(loader)
  local out = {}
  for x in loader do
    out[#out + 1] = table.concat(x:tolist(), " ")
  end
  return table.concat(out, " | ")
end

-- elements, batch size, workers, drop_last; PyTorch's length and batches, of a
-- map-style dataset and of the iterable one.
local RECORDED = {
  { 10, 3, 0, false, 4, "0 1 2 | 3 4 5 | 6 7 8 | 9" },
  { 10, 3, 1, true, 3, "0 1 2 | 3 4 5 | 6 7 8" },
  { 10, 3, 3, false, 4, "0 1 2 | 3 4 5 | 6 7 8 | 9", "0 3 6 | 1 4 7 | 2 5 8 | 9" },
  { 10, 3, 3, true, 3, "0 1 2 | 3 4 5 | 6 7 8", "0 3 6 | 1 4 7 | 2 5 8" },
  { 7, 2, 1, false, 4, "0 1 | 2 3 | 4 5 | 6" },
  { 7, 2, 3, false, 4, "0 1 | 2 3 | 4 5 | 6", "0 3 | 1 4 | 2 5 | 6" },
  { 7, 2, 3, true, 3, "0 1 | 2 3 | 4 5", "0 3 | 1 4 | 2 5" },
  { 3, 5, 0, false, 1, "0 1 2" },
  { 3, 5, 0, true, 0, "" },
  { 3, 5, 3, false, 1, "0 1 2", "0 | 1 | 2" },
  { 3, 5, 3, true, 0, "" },
  { 12, 4, 3, false, 3, "0 1 2 3 | 4 5 6 7 | 8 9 10 11", "0 3 6 9 | 1 4 7 10 | 2 5 8 11" },
}

describe("PyTorch's batches are given by", function()
  local function check(make)
    for _, c in ipairs(RECORDED) do
      for kind, set in ipairs({ rows(c[1]), Strided(c[1]) }) do
        local want = kind == 2 and c[7] or c[6]
        local loader = make(set, { batch_size = c[2], num_workers = c[3], drop_last = c[4] }, want)
        if loader then
          assert.equal(c[5], #loader)
          assert.equal(want, text(loader))
          assert.equal(want, text(loader))
        end
      end
    end
    assert.equal(0, processes.settled())
  end

  it("torch.utils.data.DataLoader", function()
    check(function(set, o) return D.DataLoader(set, o) end)
  end)

  it("poptorch.DataLoader", function()
    check(function(set, o) return poptorch.DataLoader(poptorch.Options(), set, o) end)
  end)

  it("an asynchronous one, if there are any", function()
    check(function(set, o, want)
      o.mode = Mode.Async
      local split = D.IterableDataset:is(set) and not o.drop_last -- is rebatched
      return want ~= "" and not split and poptorch.DataLoader(poptorch.Options(), set, o) or nil
    end)
  end)

  it("an accessor of PyTorch's loader", function()
    check(function(set, o, want)
      return want ~= "" and poptorch.AsynchronousDataAccessor(D.DataLoader(set, o)) or nil
    end)
  end)
end)

describe("all modes agree", function()
  it("on datasets with indices, whatever the options", function()
    math.randomseed(4)
    local function coin()
      return math.random(2) == 1
    end
    for _ = 1, 25 do
      local n, size, iterations = math.random(40), math.random(5), math.random(3)
      local seed, hosts = math.random(1000), coin() and math.random(2, 3) or 1
      local o = { batch_size = size, num_workers = math.random(0, 2), drop_last = coin(),
        shuffle = coin(), persistent_workers = nil }
      local shape = coin() and {} or { 3 }
      local set = D.TensorDataset(torch.arange(n):reshape({ n, 1 }):expand({ n, shape[1] or 1 }),
        torch.rand({ n }))
      local function read(mode)
        local opts = poptorch.Options():deviceIterations(iterations):randomSeed(seed)
        opts.Distributed:configureProcessId(hosts - 1, hosts)
        o.mode = mode
        o.async_options = mode ~= Mode.Sync and { buffer_size = math.random(4),
          early_preload = coin(), load_indefinitely = coin() } or nil
        o.rebatched_worker_size = mode == Mode.AsyncRebatched and coin()
          and math.random(size * iterations) or nil
        torch.manual_seed(seed)
        local loader = poptorch.DataLoader(opts, set, o)
        local out = { #loader }
        for _ = 1, 2 do
          for x, y in loader do
            out[#out + 1] = { x:tolist(), y:tolist() }
          end
        end
        loader:terminate()
        return out
      end
      local want = read(Mode.Sync)
      if #want > 1 then -- else there is no first element
        assert.same(want, read(Mode.Async))
        assert.same(want, read(Mode.AsyncRebatched))
      end
    end
    assert.equal(0, processes.settled())
  end)

  -- An allocation of this process or of the other one; the words of the latter's
  -- error may lack memory as well.
  it("when memory runs short at some place, or say so", function()
    local want = "0 1 | 2 3 | 4 5"
    local function read()
      local loader = poptorch.DataLoader(poptorch.Options(), rows(6), { batch_size = 2,
        mode = Mode.Async })
      return text(loader)
    end
    assert.equal(want, read())
    local n = 0
    repeat
      n = n + 1
      core.mem_fail_at(n)
      local ok, got = pcall(read)
      local left = core.mem_fail_at(0)
      assert.is_true(ok and got == want or errors.OutOfMemoryError:is(got)
        or tostring(got):find("OutOfMemoryError", 1, true) ~= nil
        or tostring(got):find("exit code 1", 1, true) ~= nil, tostring(got))
      assert.equal(0, processes.settled())
      assert.equal(0, processes.mappings())
    until left > 0 or n > 2000
    assert.is_true(n < 2000)
    assert.equal(want, read())
  end)
end)
