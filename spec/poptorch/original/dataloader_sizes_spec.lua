-- PopTorch's own tests of how many batches its data loader gives, and of batch
-- samplers, by name. Figures are theirs: 101 elements over seven workers.
local increments = require("spec.support.increments")
local poptorch = require("poptorch")
local torch = require("torch")
local D = torch.utils.data
local Increment, Labelled = increments.Increment, increments.Labelled
local Unsized, Sized = increments.Unsized, increments.Sized
local Mode = poptorch.DataLoaderMode
local MODES = Mode:members()
local DTYPES = { torch.float32, torch.float16 }
local SHAPE = { 2, 3 }

local function loader_of(set, extra)
  extra.num_workers = extra.num_workers or 7
  if D.IterableDataset:is(set) then
    extra.worker_init_fn = increments.split
  end
  return poptorch.DataLoader(poptorch.Options(), set, extra)
end

local function count(source)
  local n = 0
  for _ in source do
    n = n + 1
  end
  return n
end

-- The elements of a loop, each once; `rows` of each batch.
local function distinct(loader, rows)
  local seen, n = {}, 0
  for x in loader do
    assert.equal(rows or x:size(0), x:size(0))
    for _, v in ipairs(x:float():mean({ 1, 2 }):tolist()) do
      assert.is_nil(seen[v])
      seen[v], n = true, n + 1
    end
  end
  return n
end

describe("the original's loader of 101 elements", function()
  local function drop_last(Set, want)
    for _, mode in ipairs(MODES) do
      for _, dtype in ipairs(DTYPES) do
        local loader = loader_of(Set(SHAPE, 101, dtype), { batch_size = 4, mode = mode,
          drop_last = true })
        for _ = 1, 2 do
          assert.equal(want(mode), distinct(loader, 4))
        end
        loader:terminate()
      end
    end
  end

  it("test_iterable_dataloader_drop_last", function()
    drop_last(Unsized, function(mode) return mode == Mode.AsyncRebatched and 100 or 80 end)
  end)

  it("test_indexable_dataloader_drop_last", function()
    drop_last(Increment, function() return 100 end)
  end)

  local function lengths(Set, want)
    for _, mode in ipairs(MODES) do
      for _, dtype in ipairs(DTYPES) do
        local set = Set(SHAPE, 101, dtype)
        local loader = loader_of(set, { batch_size = 4, mode = mode })
        if mode == Mode.Sync then
          assert.equal(want(mode), count(poptorch.AsynchronousDataAccessor(loader)))
          local accessor = poptorch.AsynchronousDataAccessor(set)
          assert.same({ 101, 101 }, { #accessor, count(accessor) })
        end
        assert.same({ 25, want(mode) }, { #loader, count(loader) })
        loader:terminate()
      end
    end
  end

  it("test_indexable_dataloader_len", function()
    lengths(Increment, function() return 25 end)
  end)

  -- As PyTorch's, the length does not know what the workers have left over.
  it("test_iterable_dataloader_len", function()
    lengths(Sized, function(mode) return mode == Mode.AsyncRebatched and 25 or 20 end)
  end)

  it("test_leftover", function()
    for _, mode in ipairs({ Mode.AsyncRebatched, Mode.Sync }) do
      for _, Set in ipairs({ Increment, Sized }) do
        for _, dtype in ipairs(DTYPES) do
          local parts = Set == Sized and mode == Mode.Sync
          local loader = loader_of(Set(SHAPE, 101, dtype), { batch_size = 6, mode = mode,
            drop_last = false })
          assert.equal(17, #loader)
          for _ = 1, 2 do
            local sizes = {}
            for x in loader do
              sizes[x:size(0)] = (sizes[x:size(0)] or 0) + 1
            end
            assert.same(parts and { [6] = 13, [5] = 1, [3] = 6 } or { [6] = 16, [5] = 1 }, sizes)
          end
          loader:terminate()
        end
      end
    end
  end)

  it("test_rebatched_worker_size", function()
    for _, Set in ipairs({ Increment, Sized }) do
      for _, drop in ipairs({ true, false }) do
        for i, size in ipairs({ 1, 2, 3, 4, torch.none }) do
          local loader = loader_of(Set(SHAPE, 101, DTYPES[i % #DTYPES + 1]), { batch_size = 4,
            drop_last = drop, mode = Mode.AsyncRebatched, rebatched_worker_size = size })
          for _ = 1, 2 do
            assert.equal(drop and 100 or 101, distinct(loader, drop and 4 or nil))
          end
          loader:terminate()
        end
      end
    end
  end)

  it("test_dictionary_dataset", function()
    for _, mode in ipairs(MODES) do
      local loader = poptorch.DataLoader(poptorch.Options():deviceIterations(2)
        :replicationFactor(3), increments.Dictionaries(SHAPE, 500), { num_workers = 3,
        mode = mode })
      local n = 0
      for t in loader do
        assert.same({ 6, 2, 3 }, { table.unpack(t.data.shape) })
        assert.same({ 6, 1 }, { table.unpack(t.label.shape) })
        t.data, t.label = nil, nil
        assert.is_nil(next(t))
        n = n + 1
      end
      assert.equal(500 // 6, n)
    end
  end)
end)

-- ---- batch samplers ----------------------------------------------------------

-- Batches of 1, 2, …, size and again 1, 2, … elements.
local Growing = D.Sampler:extend("Growing")

function Growing:init(sampler, size)
  self.sampler, self.batch_size = sampler, size
end

function Growing:__iter__()
  local order, at, size = {}, 0, 0
  for i in self.sampler do
    order[#order + 1] = i
  end
  return function()
    if at < #order then
      size = size % self.batch_size + 1
      at = at + size
      return table.move(order, at - size + 1, math.min(at, #order), 1, {})
    end
  end
end

function Growing:__len__()
  local n = 0
  for _ in self:__iter__() do
    n = n + 1
  end
  return n
end

-- Batches of random sizes, without a length.
local Random = D.Sampler:extend("Random")
Random.init = Growing.init

function Random:__iter__()
  local order, at = {}, 0
  for i in self.sampler do
    order[#order + 1] = i
  end
  math.randomseed(self.batch_size)
  return function()
    if at < #order then
      local size = math.random(1, math.min(#order - at, self.batch_size))
      at = at + size
      return table.move(order, at - size + 1, at, 1, {})
    end
  end
end

-- A collate_fn that fills batches up with zeros; as a list, or by name.
local function padding(size, named)
  return function(samples)
    local columns = {}
    for k = 1, 2 do
      local column = {}
      for i = 1, size do
        column[i] = samples[i] and samples[i][k]:float() or torch.zeros(samples[1][k].shape)
      end
      columns[k] = torch.stack(column)
    end
    return named and { data = columns[1], label = columns[2] } or columns
  end
end

local function shapes(loader)
  local out = {}
  for x, y in loader do
    if not torch.is_tensor(x) then
      x, y = x.data, x.label
    end
    assert.same({ x:size(0), 3, 1 }, { table.unpack(x.shape) })
    assert.same({ x:size(0), 1 }, { table.unpack(y.shape) })
    out[#out + 1] = x:size(0)
  end
  return out
end

describe("the original's batch sampler", function()
  it("test_batch_sampler_basic", function()
    for _, size in ipairs({ 2, 3 }) do
      for _, iterations in ipairs({ 1, 4, 5 }) do
        for _, drop in ipairs({ true, false }) do
          for _, workers in ipairs({ 1, 10 }) do
            local set = Increment(SHAPE, 100)
            local loader = poptorch.DataLoader(poptorch.Options():deviceIterations(iterations), set,
              { batch_sampler = D.BatchSampler(D.SequentialSampler(set), size, drop),
                drop_last = drop, num_workers = workers })
            local all, at = size * iterations, 0
            for x in loader do
              local n = math.min(all, 100 - at)
              assert.same({ n, 2, 3 }, { table.unpack(x.shape) })
              assert.is_true(torch.equal(torch.arange(at, at + n):float(), x:mean({ 1, 2 })))
              at = at + n
            end
            assert.equal(drop and 100 // all * all or 100, at)
          end
        end
      end
    end
  end)

  it("test_custom_batch_sampler", function()
    for _, size in ipairs({ 4, 11 }) do
      for _, iterations in ipairs({ 1, 5 }) do
        for _, workers in ipairs({ 0, 3 }) do
          for _, drop in ipairs({ true, false }) do
            for _, named in ipairs({ false, true }) do
              for _, mode in ipairs(workers > 0 and named == drop and {} or MODES) do
                local set = Labelled({ 3, 1 }, 149)
                local sampler = Growing(D.SequentialSampler(set), size)
                local n = sampler:__len__()
                local loader = poptorch.DataLoader(poptorch.Options()
                  :deviceIterations(iterations), set, { batch_sampler = sampler,
                  collate_fn = padding(size, named), num_workers = workers, drop_last = drop,
                  mode = mode })
                local want = {}
                for i = 1, n // iterations do
                  want[i] = size * iterations
                end
                if not drop and n % iterations ~= 0 then
                  want[#want + 1] = n % iterations * size
                end
                assert.same(want, shapes(loader))
                loader:terminate()
              end
            end
          end
        end
      end
    end
  end)

  it("test_default_batch_sampler", function()
    for _, size in ipairs({ 1, 4 }) do
      for _, drop in ipairs({ true, false }) do
        local n = size + 5
        local loader = poptorch.DataLoader(poptorch.Options(), Labelled({ 3, 1 }, n * size), {
          batch_size = size, collate_fn = padding(size), num_workers = 4, drop_last = drop,
          mode = Mode.Async })
        local want = {}
        for i = 1, n do
          want[i] = size
        end
        assert.same(want, shapes(loader))
      end
    end
  end)

  it("test_custom_batch_sampler_non_deterministic_len", function()
    for _, iterations in ipairs({ 1, 5 }) do
      for _, workers in ipairs({ 0, 3 }) do
        local set = Labelled({ 3, 1 }, 111)
        local loader = poptorch.DataLoader(poptorch.Options():deviceIterations(iterations), set, {
          batch_sampler = Random(D.SequentialSampler(set), 13), collate_fn = padding(13, true),
          num_workers = workers })
        local got = shapes(loader)
        assert.is_true(#got > 0)
        for _, n in ipairs(got) do
          assert.equal(13 * iterations, n)
        end
      end
    end
  end)
end)
