-- poptorch's loaders go on in another process where they stood, in every mode, whatever
-- their processes had read ahead. Values: the run that was not interrupted.
local epochs = require("spec.support.epochs")
local poptorch = require("poptorch")
local torch = require("torch")

local Mode = poptorch.DataLoaderMode
local STOPS = { 0, 1, 2, 4, 5, 6, 9 }

poptorch.setLogLevel("ERR")

local function all_right(make, first, second, stops)
  local wrong, n = epochs.wrong_stops(make, first, second or first, 3, stops or STOPS)
  assert.same({}, wrong)
  assert.is_true(n > 9)
end

local function loader_of(kind)
  return function(workers)
    local opts = poptorch.Options():deviceIterations(2)
    return poptorch.DataLoader(opts, kind.stream and epochs.Stream(19) or epochs.Noisy(19), {
      batch_size = not kind.batches and 2 or nil, shuffle = not kind.stream and not kind.batches
        or nil, num_workers = workers, mode = kind.mode, drop_last = kind.drop_last,
      rebatched_worker_size = kind.part, async_options = kind.options,
      batch_sampler = kind.batches and torch.utils.data.BatchSampler(epochs.Lazy(19), 2, false),
    })
  end
end

local KINDS = {
  sync = { mode = Mode.Sync },
  async = { mode = Mode.Async },
  ["async, the last batch short"] = { mode = Mode.Async, drop_last = false },
  rebatched = { mode = Mode.AsyncRebatched, part = 3 },
  ["rebatched, the last batch short"] = { mode = Mode.AsyncRebatched, part = 3,
    drop_last = false },
  ["async, of batches of a sampler"] = { mode = Mode.Async, batches = true },
  ["rebatched, of batches of a sampler"] = { mode = Mode.AsyncRebatched, batches = true },
  ["rebatched, of a stream"] = { mode = Mode.AsyncRebatched, stream = true },
  ["async, one loop at a time"] = { mode = Mode.Async,
    options = { load_indefinitely = false, buffer_size = 1 } },
  ["async, read ahead at once"] = { mode = Mode.Async,
    options = { early_preload = true, buffer_size = 8 } },
}

describe("resuming a poptorch.DataLoader", function()
  for name, kind in pairs(KINDS) do
    it(name, function()
      all_right(loader_of(kind), 0)
      all_right(loader_of(kind), 2, kind.stream and 2 or 1, { 2, 5 })
    end)
  end

  it("of a process's part of the data", function()
    all_right(function()
      local opts = poptorch.Options():randomSeed(4)
      opts.Distributed:configureProcessId(1, 2)
      return poptorch.DataLoader(opts, epochs.Noisy(21), { batch_size = 2, shuffle = true })
    end, 0)
  end)
end)

describe("resuming an AsynchronousDataAccessor", function()
  local SOURCES = {
    dataset = function()
      return epochs.Noisy(5)
    end,
    stream = function()
      return epochs.Stream(5)
    end,
    ["torch's loader"] = function()
      return torch.utils.data.DataLoader(epochs.Noisy(10), { batch_size = 2, shuffle = true })
    end,
  }
  for name, source in pairs(SOURCES) do
    it("of a " .. name, function()
      all_right(function()
        return poptorch.AsynchronousDataAccessor(source())
      end, 0)
    end)
  end

  it("begins at the beginning after end_epoch", function()
    local function read(accessor)
      local out = {}
      for x in accessor do
        out[#out + 1] = x:clone():item()
      end
      return out
    end
    local first = poptorch.AsynchronousDataAccessor(torch.arange(4))
    local step = first:iter()
    step()
    first:end_epoch()
    local state = first:state_dict()
    first:terminate()
    local second = poptorch.AsynchronousDataAccessor(torch.arange(4))
    second:load_state_dict(state)
    assert.same({ 0, 1, 2, 3 }, read(second))
    second:terminate()
    assert.has_error(function()
      second:state_dict()
    end)
  end)

  it("refuses what is no state", function()
    local accessor = poptorch.AsynchronousDataAccessor(torch.arange(4))
    for _, bad in ipairs({ 1, {}, { start = {}, ended = 1 },
      { start = {}, ended = false, position = -1 } }) do
      assert.has_error(function()
        accessor:load_state_dict(bad)
      end)
    end
    accessor:terminate()
  end)
end)
