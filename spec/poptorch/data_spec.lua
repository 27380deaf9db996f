-- poptorch.DataLoader: batches of one model call, parts of several processes.
-- Figures: PopTorch's API reference and its documented behaviour.
local datasets = require("spec.support.datasets")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local D = torch.utils.data
local raises = helper.raises

local function rows(n)
  return D.TensorDataset(torch.arange(n))
end

local function options(di, rf)
  return poptorch.Options():deviceIterations(di or 1):replicationFactor(rf or 1)
end

local function batches(loader)
  local list = {}
  for x in loader do
    list[#list + 1] = x:tolist()
  end
  return list
end

local function flat(list)
  local out = {}
  for _, batch in ipairs(list) do
    table.move(batch, 1, #batch, #out + 1, out)
  end
  return out
end

local function range(first, last)
  local list = {}
  for i = first, last do
    list[#list + 1] = i
  end
  return list
end

describe("a combined batch", function()
  it("has batch_size x device iterations x replicas elements", function()
    local loader = poptorch.DataLoader(options(5, 2), rows(100), 2)
    assert.equal(20, loader.combinedBatchSize)
    assert.equal(5, #loader)
    assert.same(range(0, 99), flat(batches(loader)))
  end)

  it("counts gradient accumulation and input groups", function()
    local o = poptorch.Options():deviceIterations(2):replicationFactor(4)
      :inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    o.Training:gradientAccumulation(3)
    local loader = poptorch.DataLoader(o, rows(40), { batch_size = 3 })
    assert.equal(3 * 2 * 2 * 3, loader.combinedBatchSize)
    assert.equal(1, #loader)
  end)

  it("drops an incomplete one unless told otherwise", function()
    assert.equal(16, #poptorch.DataLoader(options(), rows(101), 6))
    local loader = poptorch.DataLoader(options(), rows(101), { batch_size = 6, drop_last = false })
    local got = batches(loader)
    assert.equal(17, #got)
    assert.equal(17, #loader)
    assert.same(range(96, 100), got[17])
  end)

  it("is read of an iterable dataset, too", function()
    local got = batches(poptorch.DataLoader(options(), datasets.Count(101), 4))
    assert.equal(25, #got)
    assert.same(range(0, 99), flat(got))
    raises("TypeError", "no __len__", function()
      return #poptorch.DataLoader(options(), datasets.Count(101), 4)
    end)
  end)

  it("is absent without batches", function()
    local loader = poptorch.DataLoader(options(3), torch.arange(6):reshape(3, 2),
      { batch_size = torch.none })
    assert.is_nil(loader.combinedBatchSize)
    assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 } }, batches(loader))
  end)

  it("is shuffled, each element once", function()
    torch.manual_seed(2)
    local loader = poptorch.DataLoader(options(2), rows(64), 4, true)
    local a, b = flat(batches(loader)), flat(batches(loader))
    assert.are_not.same(a, b)
    table.sort(a)
    table.sort(b)
    assert.same(range(0, 63), a)
    assert.same(a, b)
  end)

  it("is the same in every mode", function()
    for _, mode in ipairs(poptorch.DataLoaderMode:members()) do
      local loader = poptorch.DataLoader(options(2), rows(20), { batch_size = 3, mode = mode })
      assert.same({ range(0, 5), range(6, 11), range(12, 17) }, batches(loader))
      assert.same(range(0, 5), batches(loader)[1])
      loader:terminate()
    end
  end)

  it("starts at the beginning after a loop that was left", function()
    local loader = poptorch.DataLoader(options(), rows(8), { batch_size = 2,
      mode = poptorch.DataLoaderMode.Async })
    loader()
    assert.same({ 0, 1 }, batches(loader)[1])
  end)
end)

-- The figures are those of PopTorch's documented behaviour: 101 elements over
-- seven workers of fifteen each, batches of four.
describe("a rebatched loader of an iterable dataset", function()
  local Mode = poptorch.DataLoaderMode
  local Part = datasets.Count:extend("Part")

  function Part:init(n)
    datasets.Count.init(self, n)
    self.first = 0
  end

  function Part:__len__()
    return self.n
  end

  function Part:__iter__()
    local i = self.first - 1
    return function()
      i = i + 1
      if i < self.n then
        return i
      end
    end
  end

  local function loader(extra)
    extra.num_workers = 7
    function extra.worker_init_fn(id)
      local part = D.get_worker_info().dataset
      part.first, part.n = id * 15, math.min(id * 15 + 15, 101)
    end
    return poptorch.DataLoader(options(), Part(101), extra)
  end

  local function sizes(l)
    local counts, all = {}, {}
    for _, batch in ipairs(batches(l)) do
      counts[#batch] = (counts[#batch] or 0) + 1
      table.move(batch, 1, #batch, #all + 1, all)
    end
    table.sort(all)
    return counts, all
  end

  it("makes full batches of what the workers have left over", function()
    local l = loader({ batch_size = 4, mode = Mode.AsyncRebatched })
    local counts = sizes(l)
    assert.same({ [4] = 25 }, counts)
    assert.equal(25, #l)
    assert.same({ [4] = 20 }, (sizes(loader({ batch_size = 4 }))))
    assert.same({ [4] = 20 }, (sizes(loader({ batch_size = 4, mode = Mode.Async }))))
  end)

  it("gives the rest if it is to drop nothing, then in the mode Async, too", function()
    for _, mode in ipairs({ Mode.AsyncRebatched, Mode.Async }) do
      local l = loader({ batch_size = 6, mode = mode, drop_last = false })
      local counts, all = sizes(l)
      assert.same({ [6] = 16, [5] = 1 }, counts)
      assert.same(range(0, 100), all)
      assert.equal(17, #l)
    end
  end)

  it("lets the workers read batches of another size", function()
    local l = poptorch.DataLoader(options(2), rows(9), { batch_size = 2,
      mode = Mode.AsyncRebatched, rebatched_worker_size = 3, collate_fn = function(list)
        return torch.stack(list) * 10 + #list
      end })
    assert.same({ { 3, 13, 23, 33 }, { 43, 53, 63, 73 } }, batches(l))
    assert.equal(2, #l)
  end)
end)

describe("the options", function()
  it("are kept and frozen", function()
    local o = options(2)
    local loader = poptorch.DataLoader(o, rows(8), 2)
    assert.equal(o, loader.options)
    assert.is_true(o:isFrozen())
    raises("AttributeError", "poptorch.DataLoader", function()
      o:deviceIterations(3)
    end)
  end)
end)

describe("a batch sampler", function()
  local function sampler(n, size, drop_last)
    return D.BatchSampler(D.SequentialSampler(rows(n)), size, drop_last or false)
  end

  it("gives as many batches as one call takes", function()
    local loader = poptorch.DataLoader(options(4), rows(30),
      { batch_sampler = sampler(30, 3) })
    assert.equal(12, loader.combinedBatchSize)
    assert.same({ range(0, 11), range(12, 23) }, batches(loader))
    assert.equal(2, #loader)
    loader = poptorch.DataLoader(options(4), rows(30),
      { batch_sampler = sampler(30, 3), drop_last = false })
    assert.same(range(24, 29), batches(loader)[3])
    assert.equal(3, #loader)
  end)

  -- PopTorch's DataLoader concatenates the batches that PyTorch's has collated.
  it("has each batch collated by itself, the results concatenated", function()
    local function padded(list)
      local t = {}
      for i = 1, 4 do
        t[i] = list[i] or torch.tensor(-1)
      end
      return { x = torch.stack(t), n = { torch.tensor({ #list }) }, name = "rows" }
    end
    for workers = 0, 1 do
      local loader = poptorch.DataLoader(options(2), rows(6), { num_workers = workers,
        batch_sampler = { { 0, 1, 2 }, { 3 }, { 4, 5 }, { 0, 5 }, { 1 } }, collate_fn = padded,
        drop_last = false })
      local got = {}
      for batch in loader do
        assert.equal("rows", batch.name)
        got[#got + 1] = { batch.x:tolist(), batch.n[1]:tolist() }
      end
      assert.same({ { { 0, 1, 2, -1, 3, -1, -1, -1 }, { 3, 1 } },
        { { 4, 5, -1, -1, 0, 5, -1, -1 }, { 2, 2 } }, { { 1, -1, -1, -1 }, { 1 } } }, got)
    end
  end)

  it("has results of several values", function()
    local loader = poptorch.DataLoader(options(2), rows(4), { batch_sampler = { { 0, 1 }, { 2 } },
      collate_fn = function(list)
        local x = torch.stack(list)
        return x, -x
      end })
    for x, y in loader do
      assert.same({ 0, 1, 2 }, x:tolist())
      assert.same({ 0, -1, -2 }, y:tolist())
    end
  end)

  it("excludes batch_size and shuffle", function()
    for _, extra in ipairs({ { batch_size = 2 }, { shuffle = true } }) do
      extra.batch_sampler = sampler(8, 2)
      raises("Error", "mutually exclusive", function()
        poptorch.DataLoader(options(), rows(8), extra)
      end)
    end
  end)
end)

describe("several processes", function()
  local function of(id, n, extra, seed)
    local o = poptorch.Options()
    o.Distributed:configureProcessId(id, n)
    if seed then
      o:randomSeed(seed)
    end
    return poptorch.DataLoader(o, rows(100), extra)
  end

  it("read consecutive blocks of equal size", function()
    for id = 0, 2 do
      local loader = of(id, 3, { batch_size = 4 })
      assert.same(range(32 * id, 32 * id + 31), flat(batches(loader)))
      assert.equal(8, #loader)
    end
  end)

  it("share all elements when the last batch is kept", function()
    local sizes, all = {}, {}
    for id = 0, 2 do
      local part = flat(batches(of(id, 3, { batch_size = 4, drop_last = false })))
      sizes[id + 1] = #part
      table.move(part, 1, #part, #all + 1, all)
    end
    assert.same({ 34, 33, 33 }, sizes)
    assert.same(range(0, 99), all)
  end)

  it("shuffle together: disjoint parts, left-overs in every second epoch", function()
    local loaders = {}
    for id = 0, 2 do
      loaders[id + 1] = of(id, 3, { batch_size = 4, shuffle = true }, 7)
    end
    local seen = {}
    for _ = 1, 8 do
      local epoch = {}
      for _, loader in ipairs(loaders) do
        for _, x in ipairs(flat(batches(loader))) do
          assert.is_nil(epoch[x])
          epoch[x], seen[x] = true, true
        end
      end
    end
    for x = 0, 99 do
      assert.is_true(seen[x], "element " .. x)
    end
  end)

  it("need a seed and a batch size to shuffle", function()
    raises("AssertionError", "options:randomSeed", function()
      of(0, 3, { batch_size = 4, shuffle = true })
    end)
    raises("AssertionError", "needs a batch_size", function()
      of(0, 3, { batch_size = torch.none, shuffle = true }, 1)
    end)
  end)

  it("cannot split what has no indices", function()
    local o = poptorch.Options()
    o.Distributed:configureProcessId(0, 2)
    raises("AssertionError", "IterableDataset cannot be split over 2", function()
      poptorch.DataLoader(o, datasets.Count(8), 2)
    end)
    raises("Error", "batch_sampler cannot be split over 2", function()
      poptorch.DataLoader(o, rows(8), { batch_sampler = { { 0 } } })
    end)
    assert.same({ { 0, 1 } }, batches(poptorch.DataLoader(o, datasets.Count(2),
      { batch_size = 2, auto_distributed_partitioning = false })))
  end)
end)

describe("poptorch.DataLoader refuses", function()
  it("what cannot be", function()
    local async = poptorch.DataLoaderMode.AsyncRebatched
    local cases = {
      { "AssertionError", { mode = async, batch_size = 4, rebatched_worker_size = 5 },
        "at most the combined batch size, got 5 and 4" },
      { "AssertionError", { mode = async, async_options = { rebatched_size = 2 } },
        "rebatched_size is set by the loader" },
      { "TypeError", { mode = async, async_options = { bufer_size = 2 } },
        "nearest: 'buffer_size'" },
      { "AssertionError", { async_options = { buffer_size = 2 } }, "need an asynchronous mode" },
      { "ValueError", { batch_size = 0 }, "batch_size: expected int >= 1" },
      { "ValueError", { persistent_workers = true }, "num_workers > 0" },
      { "TypeError", { batchsize = 2 }, "batch_size" },
      { "TypeError", { mode = 1 }, "DataLoaderMode.Sync" },
    }
    for _, c in ipairs(cases) do
      raises(c[1], c[3], function()
        poptorch.DataLoader(options(), rows(8), c[2])
      end)
    end
    raises("TypeError", "expected poptorch.Options", function()
      poptorch.DataLoader({}, rows(8), 2)
    end)
  end)
end)

describe("a loader warns", function()
  local function said(dataset, extra)
    return helper.logged(function()
      poptorch.DataLoader(options(2), dataset, extra):terminate()
    end)
  end

  it("of a last batch that is short, and of batches of unknown number", function()
    assert.matches("101 elements.*batch size 6.*the last batch will have 5 elements",
      said(rows(101), { batch_size = 3, drop_last = false }))
    local function sampler(n)
      return D.BatchSampler(D.SequentialSampler(rows(n)), 2, false)
    end
    assert.matches("2 batches of the batch_sampler, which gives 5.*will have 1 of them",
      said(rows(9), { batch_sampler = sampler(9), drop_last = false }))
    assert.matches("an unknown number", said(rows(9), { drop_last = false,
      batch_sampler = function() end }))
    assert.equal("", said(rows(8), { batch_sampler = sampler(8), drop_last = false }))
    assert.equal("", said(rows(9), { batch_sampler = sampler(9) }))
  end)

  it("of workers that read the same, and of a size without effect", function()
    assert.matches("each of the 2 workers reads the whole iterable dataset",
      said(datasets.Count(8), { num_workers = 2 }))
    assert.equal("", said(datasets.Count(8), { num_workers = 2, worker_init_fn = print }))
    assert.equal("", said(datasets.Count(8), { num_workers = 1 }))
    local async = poptorch.DataLoaderMode.Async
    assert.matches("rebatched_worker_size = 2 has no effect",
      said(rows(8), { mode = async, batch_size = 2, rebatched_worker_size = 2 }))
    assert.equal("", said(rows(8), { mode = async, batch_size = 2, rebatched_worker_size = 2,
      drop_last = false }))
  end)
end)

describe("a loader that is empty", function()
  local warn = require("lupine.base.warn")
  local data = D
  local six = data.TensorDataset(torch.zeros(6, 1))

  local function said(opts, arguments, dataset)
    return helper.logged(function()
      poptorch.DataLoader(opts, dataset or six, arguments)
    end)
  end

  before_each(warn.reset)

  it("is told with its figures, once", function()
    local opts = poptorch.Options():deviceIterations(2)
    assert.matches("6 samples, one call needs 8: the loader is empty", said(opts,
      { batch_size = 4 }), 1, true)
    assert.equal("", said(opts, { batch_size = 4 }))
    assert.matches("1 batch, one call needs 2: the loader is empty", said(opts,
      { batch_sampler = data.BatchSampler(data.SequentialSampler(six), 6, false) }), 1, true)
    assert.matches("5 samples, one call needs 6", said(opts, { batch_size = 3,
      sampler = data.SubsetRandomSampler({ 0, 1, 2, 3, 4 }) }), 1, true)
    opts = poptorch.Options():deviceIterations(2)
    opts.Distributed:configureProcessId(0, 2)
    assert.matches("6 samples, one call needs 4 in each of 2 processes", said(opts,
      { batch_size = 2 }), 1, true)
  end)

  it("is not told of one that has a batch, or none to count", function()
    local opts = poptorch.Options():deviceIterations(2)
    assert.equal("", said(opts, { batch_size = 3 }))
    assert.not_matches("is empty", said(opts, { batch_size = 4, drop_last = false }))
    local Endless = data.IterableDataset:extend("Endless")
    assert.equal("", said(opts, { batch_size = 4 }, Endless()))
    assert.equal("", said(opts, { batch_sampler = function() end }))
  end)
end)
