--- PopTorch's rules of loading data, a numbered case each.
local datasets = require("spec.support.datasets")
local helper = require("spec.helper")
local increments = require("spec.support.increments")
local poptorch = require("poptorch")
local torch = require("torch")

local D = torch.utils.data
local Mode = poptorch.DataLoaderMode
local MODES = Mode:members()
local raises = helper.raises

local function load(dataset, extra, options)
  return poptorch.DataLoader(options or poptorch.Options(), dataset, extra)
end

-- All elements of a loop, and the sizes of its batches (or its elements' values).
local function loop(loader)
  local all, sizes = {}, {}
  for x in loader do
    for _, v in ipairs(x:float():reshape(x:size(0), -1):mean(1):tolist()) do
      all[#all + 1] = v
    end
    sizes[#sizes + 1] = x:size(0)
  end
  return all, sizes
end

local function range(first, last)
  local list = {}
  for i = first, last do
    list[#list + 1] = i
  end
  return list
end

local function rows(n)
  return D.TensorDataset(torch.arange(n))
end

-- 101 elements over seven workers.
local function shared(Set, extra)
  extra.num_workers = 7
  extra.worker_init_fn = Set ~= increments.Increment and increments.split or nil
  return load(Set({ 1 }, 101), extra)
end

describe("conformance, data:", function()
  it("DAT01 a combined batch", function()
    local loader = load(rows(100), { batch_size = 2 },
      poptorch.Options():deviceIterations(5):replicationFactor(2))
    assert.same({ 20, 5 }, { loader.combinedBatchSize, #loader })
  end)

  it("DAT03 what workers leave over is dropped unless it is rebatched", function()
    for _, mode in ipairs(MODES) do
      local iterable = shared(increments.Sized, { batch_size = 4, mode = mode })
      local all, sizes = loop(iterable)
      local want = mode == Mode.AsyncRebatched and { 100, 25 } or { 80, 20 }
      assert.same(want, { #all, #sizes })
      local indexed = shared(increments.Increment, { batch_size = 4, mode = mode })
      all, sizes = loop(indexed)
      assert.same({ 100, 25 }, { #all, #sizes })
      iterable:terminate()
      indexed:terminate()
    end
  end)

  it("DAT04 drop_last = false", function()
    for mode, want in pairs({ [Mode.AsyncRebatched] = { [6] = 16, [5] = 1 },
      [Mode.Sync] = { [6] = 13, [5] = 1, [3] = 6 } }) do
      local loader = shared(increments.Sized, { batch_size = 6, mode = mode, drop_last = false })
      local _, sizes = loop(loader)
      local counts = {}
      for _, n in ipairs(sizes) do
        counts[n] = (counts[n] or 0) + 1
      end
      assert.same(want, counts)
      assert.equal(17, #loader)
      loader:terminate()
    end
  end)

  it("DAT06 three processes", function()
    for id = 0, 2 do
      local options = poptorch.Options()
      options.Distributed:configureProcessId(id, 3)
      local loader = load(rows(100), { batch_size = 4 }, options)
      assert.same(range(32 * id, 32 * id + 31), (loop(loader)))
    end
  end)

  it("DAT08 shuffling them needs a seed", function()
    local function shuffled(seed)
      local options = poptorch.Options()
      options.Distributed:configureProcessId(0, 2)
      if seed then
        options:randomSeed(seed)
      end
      return load(rows(100), { batch_size = 4, shuffle = true }, options)
    end
    raises("AssertionError", "randomSeed", shuffled)
    assert.equal(12, #shuffled(1))
  end)

  it("DAT09 a loop after one that was left", function()
    for _, mode in ipairs(MODES) do
      local loader = load(rows(10), { batch_size = 2, mode = mode })
      for x in loader do
        if x[0]:item() == 4 then
          break
        end
      end
      assert.same(range(0, 9), (loop(loader)))
      loader:terminate()
    end
  end)

  it("DAT11 elements that are batches", function()
    local loader = load(torch.rand(4, 2, 3), { batch_size = torch.none })
    assert.is_nil(loader.combinedBatchSize)
    local n = 0
    for x in loader do
      assert.same({ 2, 3 }, { table.unpack(x.shape) })
      n = n + 1
    end
    assert.equal(4, n)
  end)

  it("DAT12 a loader without a length", function()
    raises("TypeError", "__len__", function()
      return #load(datasets.Count(10), { batch_size = 2 })
    end)
  end)

  it("DAT14 batches of a sampler", function()
    local options = poptorch.Options():deviceIterations(4)
    local function sampled(extra)
      extra.batch_sampler = D.BatchSampler(D.SequentialSampler(rows(30)), 3, false)
      return load(rows(30), extra, options)
    end
    local loader = sampled({})
    assert.equal(12, loader.combinedBatchSize)
    local all, sizes = loop(loader)
    assert.same({ 12, 12 }, sizes)
    assert.same(range(0, 23), all)
    all, sizes = loop(sampled({ drop_last = false }))
    assert.same({ 12, 12, 6 }, sizes)
    assert.same(range(0, 29), all)
    for _, extra in ipairs({ { batch_size = 2 }, { shuffle = true } }) do
      raises("Error", "batch_sampler", function() sampled(extra) end)
    end
  end)

  it("DAT15 a sampler that changes between epochs", function()
    local order = { 0, 1, 2, 3 }
    local Ordered = D.Sampler:extend("Ordered")
    function Ordered:init() end
    function Ordered.__len__() return #order end
    function Ordered.__iter__()
      local i = 0
      return function()
        i = i + 1
        return order[i]
      end
    end
    local loader = load(rows(4), { batch_size = 2, sampler = Ordered() })
    assert.same({ 0, 1, 2, 3 }, (loop(loader)))
    order = { 3, 1, 0, 2 }
    assert.same({ 3, 1, 0, 2 }, (loop(loader)))
  end)

  it("DAT17 an incomplete batch is dropped unless told otherwise", function()
    local _, sizes = loop(load(rows(11), { batch_size = 4 }))
    assert.same({ 4, 4 }, sizes)
  end)

  it("DAT18 tensors of a ring are used again", function()
    -- five batches: the next loop, of which some are read already, begins elsewhere
    local accessor = poptorch.AsynchronousDataAccessor(load(rows(10), { batch_size = 2 }),
      { buffer_size = 2 })
    local first, clone
    for x in accessor do
      first = first or x
      clone = clone or x:clone()
    end
    assert.same({ 0, 1 }, clone:tolist())
    assert.are_not.same({ 0, 1 }, first:tolist())
    accessor:terminate()
  end)

  it("DAT20 elements come in order in every mode", function()
    local model = poptorch.inferenceModel(require("spec.support.models").of(function(_, x)
      return x * 2
    end))
    for _, mode in ipairs(MODES) do
      local loader, got = load(rows(20), { batch_size = 4, num_workers = 2, mode = mode }), {}
      for x in loader do
        table.move(model(x):tolist(), 1, 4, #got + 1, got)
      end
      for i = 0, 19 do
        assert.equal(2 * i, got[i + 1])
      end
      loader:terminate()
    end
  end)
end)
