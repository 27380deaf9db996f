-- torch.utils.data.DataLoader: what a loop gets, epoch by epoch.
local datasets = require("spec.support.datasets")
local helper = require("spec.helper")
local torch = require("torch")
local D = torch.utils.data
local raises = helper.raises

local function rows(n)
  return D.TensorDataset(torch.arange(n):to(torch.float32), torch.arange(n))
end

-- The same samples without the fast path.
local Slow = D.Dataset:extend("Slow")

function Slow:init(tensors)
  self.tensors = tensors
end

function Slow:__getitem__(i)
  return self.tensors:__getitem__(i)
end

function Slow:__len__()
  return #self.tensors
end

local function labels(loader)
  local list = {}
  for _, y in loader do
    list[#list + 1] = y:tolist()
  end
  return list
end

describe("a loader of batches", function()
  it("gives them in order, the last one short or dropped", function()
    assert.same({ { 0, 1 }, { 2, 3 }, { 4 } }, labels(D.DataLoader(rows(5), 2)))
    local dropping = D.DataLoader(rows(5), { batch_size = 2, drop_last = true })
    assert.same({ { 0, 1 }, { 2, 3 } }, labels(dropping))
    assert.equal(2, #dropping)
    assert.equal(3, #D.DataLoader(rows(5), 2))
  end)

  it("gives its first batch to whom asks once", function()
    local x, i = D.DataLoader(rows(5), { batch_size = 2 }):iter()()
    helper.near(x, { 0, 1 })
    helper.near(i, { 0, 1 })
  end)

  it("gives the same with whole rows and sample by sample", function()
    for _, make in ipairs({
      function(d) return D.DataLoader(d, 3) end,
      function(d) return D.DataLoader(d, 3, true) end,
      function(d) return D.DataLoader(D.Subset(d, { 6, 1, 5, 0, 2 }), 2) end,
      function(d) return D.DataLoader(D.Subset(d, { 6, 1, 5, 0, 2 }), 2, true) end,
      function(d) return D.DataLoader(d, { batch_size = 2, sampler = { 4, 0, 3 } }) end,
      function(d) return D.DataLoader(d, { sampler = torch.tensor({ 4, 0, 3 }) }) end,
      function(d) return D.DataLoader(d, { batch_sampler = { { 1 }, { 5, 2, 2 } } }) end,
    }) do
      torch.manual_seed(11)
      local fast = labels(make(rows(7)))
      torch.manual_seed(11)
      assert.same(fast, labels(make(Slow(rows(7)))))
    end
  end)

  it("keeps the parts of a sample together", function()
    for x, y in D.DataLoader(rows(10), 4, true) do
      assert.same(y:tolist(), x:to(torch.int64):tolist())
      assert.equal(torch.float32, x.dtype)
    end
  end)

  it("shuffles anew each epoch, repeatably", function()
    local function epochs(generator)
      local loader = D.DataLoader(rows(30), { batch_size = 30, shuffle = true,
        generator = generator })
      return { labels(loader)[1], labels(loader)[1] }
    end
    torch.manual_seed(3)
    local a = epochs()
    torch.manual_seed(3)
    assert.same(a, epochs())
    assert.are_not.same(a[1], a[2])
    local b = epochs(torch.Generator():manual_seed(8))
    assert.same(b, epochs(torch.Generator():manual_seed(8)))
    table.sort(a[1])
    table.sort(b[1])
    assert.same(a[1], b[1])
  end)

  it("starts a new epoch in each loop, also after one that was left", function()
    local loader = D.DataLoader(rows(6), 2)
    for _, y in loader do
      if y[0]:item() == 0 then
        break
      end
      error("started in the middle")
    end
    for _, y in loader:iter() do
      if y[0]:item() == 0 then
        break
      end
      error("started in the middle")
    end
    assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 } }, labels(loader))
  end)

  it("stands in two loops at once", function()
    local loader, pairs_seen = D.DataLoader(rows(4), 2), {}
    for _, a in loader do
      for _, b in loader do
        pairs_seen[#pairs_seen + 1] = a[0]:item() * 10 + b[0]:item()
      end
    end
    assert.same({ 0, 2, 20, 22 }, pairs_seen)
  end)

  it("returns no closing value", function()
    assert.equal(1, select("#", D.DataLoader(rows(4), 2):iter()))
  end)

  it("leaves the dataset alone when a batch is changed", function()
    local d = rows(4)
    for x in D.DataLoader(d, 4) do
      x:zero_()
    end
    assert.same({ 0, 1, 2, 3 }, d.tensors[1]:tolist())
  end)

  it("gives a dictionary as one table", function()
    local S = D.Dataset:extend("S")
    function S.__getitem__(_, i)
      return { x = i, name = "n" .. i }
    end
    function S.__len__()
      return 2
    end
    for batch in D.DataLoader(S(), 2) do
      assert.same({ 0, 1 }, batch.x:tolist())
      assert.same({ "n0", "n1" }, batch.name)
    end
  end)

  it("calls collate_fn with the samples", function()
    local function collate(samples)
      return #samples, samples[1][2]:item()
    end
    local seen = {}
    for n, first in D.DataLoader(rows(5), { batch_size = 2, collate_fn = collate }) do
      seen[#seen + 1] = n * 10 + first
    end
    assert.same({ 20, 22, 14 }, seen)
  end)

  it("takes lists and tensors as datasets", function()
    for x in D.DataLoader({ 5, 6 }, 2) do
      assert.same({ 5, 6 }, x:tolist())
    end
    for x in D.DataLoader(torch.tensor({ { 1, 2 }, { 3, 4 } }), 2) do
      assert.same({ { 1, 2 }, { 3, 4 } }, x:tolist())
    end
  end)

  it("asks a batch sampler anew each epoch", function()
    local size = 1
    local Growing = D.Sampler:extend("Growing")
    function Growing.__iter__()
      return D.BatchSampler(D.SequentialSampler(rows(4)), size, false):__iter__()
    end
    local loader = D.DataLoader(rows(4), { batch_sampler = Growing() })
    assert.same({ { 0 }, { 1 }, { 2 }, { 3 } }, labels(loader))
    size = 3
    assert.same({ { 0, 1, 2 }, { 3 } }, labels(loader))
  end)
end)

describe("a loader without batches", function()
  it("gives sample by sample", function()
    local got = {}
    for x, y in D.DataLoader(rows(3), { batch_size = torch.none }) do
      assert.equal(0, x:dim())
      got[#got + 1] = y:item()
    end
    assert.same({ 0, 1, 2 }, got)
    assert.equal(3, #D.DataLoader(rows(3), { batch_size = torch.none }))
  end)
end)

describe("a loader of an iterable dataset", function()
  local function values(loader)
    local list = {}
    for x in loader do
      list[#list + 1] = torch.is_tensor(x) and x:tolist() or x
    end
    return list
  end

  it("batches what comes", function()
    local loader = D.DataLoader(datasets.Count(5), 2)
    assert.same({ { 0, 1 }, { 2, 3 }, { 4 } }, values(loader))
    assert.same({ { 0, 1 }, { 2, 3 }, { 4 } }, values(loader))
    assert.same({ { 0, 1 }, { 2, 3 } },
      values(D.DataLoader(datasets.Count(5), { batch_size = 2, drop_last = true })))
    assert.same({ 0, 1 }, values(D.DataLoader(datasets.Count(2), { batch_size = torch.none })))
  end)

  it("has a length only if the dataset has one", function()
    raises("TypeError", "'Count' has no __len__", function()
      return #D.DataLoader(datasets.Count(5), 2)
    end)
    local Sized = datasets.Count:extend("Sized")
    function Sized:__len__()
      return self.n
    end
    assert.equal(3, #D.DataLoader(Sized(5), 2))
  end)
end)

describe("a loader refuses", function()
  it("arguments that exclude one another", function()
    local cases = {
      { { sampler = { 0 }, shuffle = true }, "sampler and shuffle" },
      { { batch_sampler = { { 0 } }, batch_size = 2 }, "batch_sampler is mutually exclusive" },
      { { batch_sampler = { { 0 } }, drop_last = true }, "batch_sampler is mutually exclusive" },
      { { batch_size = torch.none, drop_last = true }, "drop_last needs batches" },
      { { prefetch_factor = 2 }, "prefetch_factor: only allowed with num_workers > 0" },
      { { persistent_workers = true }, "needs num_workers > 0" },
      { { batch_size = 0 }, "batch_size: expected int >= 1, got int 0" },
      { { num_workers = -1 }, "num_workers: expected int in 0..1024" },
    }
    for _, c in ipairs(cases) do
      raises("ValueError", c[2], function()
        D.DataLoader(rows(4), c[1])
      end)
    end
    raises("ValueError", "IterableDataset: shuffle", function()
      D.DataLoader(datasets.Count(4), { shuffle = true })
    end)
    raises("TypeError", "batch_siz", function()
      D.DataLoader(rows(4), { batch_siz = 2 })
    end)
  end)
end)

describe("a loop over a loader", function()
  it("needs no ipairs or pairs", function()
    local loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4)))
    for _, loop in ipairs({ ipairs, pairs }) do
      raises("TypeError", "for x, y in loader do", function()
        for _ in loop(loader) do end
      end)
    end
    local n = 0
    for _ in loader do
      n = n + 1
    end
    assert.equal(4, n)
  end)
end)

describe("an iterator of coroutine.wrap", function()
  -- What `make(values)` yields, one value after another.
  local function yielding(class, values)
    local Yields = class:extend("Yields")
    function Yields:__iter__()
      return coroutine.wrap(function()
        for _, value in ipairs(values) do
          coroutine.yield(value)
        end
      end)
    end
    return Yields()
  end

  local function values(loader)
    local list = {}
    for x in loader do
      list[#list + 1] = x:tolist()
    end
    return list
  end

  it("is not called again after its end", function()
    for workers = 0, 2 do
      local function loader(data, extra)
        extra.num_workers = workers
        return D.DataLoader(data, extra)
      end
      local data = D.TensorDataset(torch.arange(6))
      local batches = loader(data,
        { batch_sampler = yielding(D.Sampler, { { 0, 1 }, { 2, 3 }, { 4, 5 } }) })
      for _ = 1, 2 do -- each epoch has an iterator of its own
        assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 } }, values(batches))
      end
      assert.same({ { 3, 1, 2 }, { 0 } },
        values(loader(data, { batch_size = 3, sampler = yielding(D.Sampler, { 3, 1, 2, 0 }) })))
      local stream = yielding(D.IterableDataset, { torch.tensor(7), torch.tensor(8) })
      local want = workers == 2 and { { 7, 8 }, { 7, 8 } } or { { 7, 8 } }
      assert.same(want, values(loader(stream, { batch_size = 4 })))
    end
  end)
end)
