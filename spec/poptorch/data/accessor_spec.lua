-- AsynchronousDataAccessor: what it gives, when its process reads, what it
-- shares. Expected values are those of the same loop without it, or of the
-- documents.
local helper = require("spec.helper")
local Numbers = require("spec.support.datasets").Numbers
local poptorch = require("poptorch")
local processes = require("spec.support.processes")
local torch = require("torch")
local D = torch.utils.data
local Accessor, Mode = poptorch.AsynchronousDataAccessor, poptorch.DataLoaderMode
local raises = helper.raises

local function all(source)
  local out = {}
  for x in source do
    out[#out + 1] = x:tolist()
  end
  return out
end

local function rows(n)
  return D.TensorDataset(torch.arange(n))
end

-- A file into which a dataset writes a byte for each sample that it makes.
local function journal()
  local path = os.tmpname()
  local self = {}
  function self.note(i)
    local f = assert(io.open(path, "a"))
    f:write("x")
    f:close()
    return torch.tensor(i)
  end
  function self.made()
    local f = assert(io.open(path))
    local n = #f:read("a")
    f:close()
    return n
  end
  function self.reaches(n)
    for _ = 1, 6000 do
      if self.made() >= n then
        os.execute("sleep 0.05") -- what would be one too many would come
        return self.made()
      end
      os.execute("sleep 0.01")
    end
    return self.made()
  end
  setmetatable(self, { __close = function() os.remove(path) end })
  return self
end

describe("an accessor reads", function()
  it("a dataset, sample by sample", function()
    local a = Accessor(Numbers(5, function(i) return torch.tensor({ i, i * i }) end))
    for _ = 1, 3 do
      assert.same({ { 0, 0 }, { 1, 1 }, { 2, 4 }, { 3, 9 }, { 4, 16 } }, all(a))
    end
    assert.equal(5, #a)
  end)

  it("samples of several values, lists and dictionaries", function()
    local n = 0
    for x, y in Accessor(Numbers(3, function(i)
      return torch.tensor(i), torch.tensor({ -i })
    end)) do
      assert.same({ n, { -n } }, { x:item(), y:tolist() })
      n = n + 1
    end
    for t in Accessor(Numbers(3, function(i)
      return { b = torch.tensor(i), a = torch.ones(2) }
    end)) do
      assert.same({ n - 3, { 1, 1 } }, { t.b:item(), t.a:tolist() })
      n = n + 1
    end
    assert.equal(6, n)
  end)

  it("tensors, lists, iterable datasets and objects, functions", function()
    local x = torch.arange(6):reshape({ 3, 2 })
    assert.same(x:tolist(), all(Accessor(x)))
    assert.same({ 1, 0 }, all(Accessor({ torch.tensor(1), torch.tensor(0) })))
    local Stream = D.IterableDataset:extend("Stream")
    function Stream.__iter__()
      return coroutine.wrap(function()
        for i = 0, 3 do
          coroutine.yield(torch.tensor(i))
        end
      end)
    end
    local a = Accessor(Stream())
    assert.same({ { 0, 1, 2, 3 }, { 0, 1, 2, 3 } }, { all(a), all(a) })
    local i = 0
    a = Accessor(function()
      i = i + 1
      return i <= 2 and torch.tensor(i) or nil
    end)
    assert.same({ { 1, 2 }, {} }, { all(a), all(a) }) -- as a generator, once
  end)

  it("loaders, with workers of their own", function()
    for workers = 0, 2 do
      for _, persistent in ipairs({ false, workers > 0 }) do
        local loader = D.DataLoader(rows(7), { batch_size = 2, num_workers = workers,
          persistent_workers = persistent })
        local a = Accessor(loader)
        local want = { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6 } } -- the last one with fewer rows
        assert.same({ want, want, want }, { all(a), all(a), all(a) })
        assert.equal(4, #a)
        a:terminate()
      end
    end
  end)

  it("loaders that iterate in their own way", function()
    local Backwards = D.DataLoader:extend("Backwards")
    function Backwards:__iter__()
      local i = #self
      return function()
        i = i - 1
        return i >= 0 and torch.tensor({ i }) or nil
      end
    end
    assert.same({ { 2 }, { 1 }, { 0 } }, all(Accessor(Backwards(rows(3)))))
  end)

  it("loaders whose workers live on here", function()
    local loader = poptorch.DataLoader(poptorch.Options(), rows(4), { num_workers = 2 })
    assert.equal(4, #all(loader))
    assert.equal(2, processes.settled())
    local a = Accessor(loader)
    assert.same({ all(loader), all(loader) }, { all(a), all(a) })
    assert.equal(3, processes.children())
  end)

  it("from the beginning in each loop, also after one that was left", function()
    for _, forever in ipairs({ true, false }) do
      local a = Accessor(Numbers(9), { load_indefinitely = forever, buffer_size = 2 })
      for left = 0, 9 do
        local n = 0
        for x in a do
          assert.equal(n, x:item())
          if n == left then
            break
          end
          n = n + 1
        end
        assert.equal(left, n)
      end
      assert.equal(9, #all(a))
      a:terminate()
    end
  end)

  it("one loop at a time", function()
    local a = Accessor(Numbers(3))
    local first = a:iter()
    assert.equal(0, first():item())
    local second = a:iter()
    assert.equal(0, second():item())
    raises("RuntimeError", "was started after this one", first)
    assert.equal(1, second():item())
    assert.equal(2, second():item())
    assert.is_nil(second())
    assert.is_nil(second())
  end)

  it("any number of elements with any number of buffers", function()
    for _, size in ipairs({ 1, 2, 700 }) do
      local a = Accessor(Numbers(400), { buffer_size = size, early_preload = true })
      for _ = 1, 2 do
        local n = 0
        for x in a do
          assert.equal(n, x:item())
          n = n + 1
        end
        assert.equal(400, n)
      end
      a:terminate()
    end
  end)

  it("types and shapes as they are", function()
    local samples = { torch.ones({ 2, 0 }), torch.tensor(true), torch.ones({ 3 }):half(),
      torch.tensor({ 1.5 }, { dtype = torch.float64 }), torch.arange(6):reshape({ 2, 3 }):t() }
    local n = 0
    for a, b, c, d, e in Accessor(Numbers(2, function() return table.unpack(samples) end)) do
      for i, t in ipairs({ a, b, c, d, e }) do
        assert.equal(samples[i].dtype, t.dtype)
        assert.equal(tostring(samples[i].shape), tostring(t.shape))
        assert.is_true(torch.equal(samples[i], t))
      end
      n = n + 1
    end
    assert.equal(2, n)
  end)
end)

it("an accessor reads elements of many tensors, the last of fewer rows", function()
  local columns = {}
  for i = 1, 90 do
    columns[i] = torch.arange(1000, 1150) * i
  end
  local sizes, n = {}, 0
  for batch in Accessor(D.DataLoader(D.TensorDataset(table.unpack(columns)), { batch_size = 100,
    collate_fn = function(samples)
      local out = {}
      for i = 1, 90 do
        local column = {}
        for k, sample in ipairs(samples) do
          column[k] = sample[i]
        end
        out["c" .. i] = torch.stack(column)
      end
      return out
    end })) do
    for i = 1, 90 do
      local t = batch["c" .. i]
      assert.is_true(torch.equal(columns[i]:narrow(0, n, t:size(0)), t))
    end
    sizes[#sizes + 1] = batch.c90:size(0)
    n = n + batch.c1:size(0)
  end
  assert.same({ 100, 50 }, sizes)
end)

describe("the random numbers of an accessor", function()
  -- A loop's seed is drawn where the loop is made: nothing else draws here.
  it("are those of the loader without it", function()
    local set = Numbers(10, function(i) return torch.rand({ 2 }) + i end)
    for _, workers in ipairs({ 0, 2 }) do
      local function loader(extra)
        torch.manual_seed(7)
        extra.batch_size, extra.shuffle, extra.num_workers = 3, true, workers
        return poptorch.DataLoader(poptorch.Options(), set, extra)
      end
      local sync = loader({})
      local want = { all(sync), all(sync), all(sync) }
      local async = loader({ mode = Mode.Async })
      assert.same(want, { all(async), all(async), all(async) })
      async:terminate()
    end
  end)

  it("do not depend on how far it was ahead when a loop was left", function()
    local function run(wait)
      torch.manual_seed(3)
      local a = poptorch.DataLoader(poptorch.Options(), rows(4), { shuffle = true,
        mode = Mode.Async, async_options = { buffer_size = 8 } })
      a:iter()()
      os.execute(wait) -- the next loop is under way, or not
      local out = all(a)
      a:terminate()
      return out
    end
    assert.same(run("true"), run("sleep 0.1"))
  end)
end)

describe("the ring of an accessor", function()
  it("is memory that is used again: what is to be kept is cloned", function()
    local kept, cloned = {}, {}
    local set = Numbers(7, function(i) return torch.full({ 2 }, i) end)
    for x in Accessor(set, { buffer_size = 2 }) do
      kept[#kept + 1], cloned[#cloned + 1] = x, x:clone()
    end
    for i = 1, 7 do
      assert.same({ i - 1, i - 1 }, cloned[i]:tolist())
    end
    assert.are_not.same({ 0, 0 }, kept[1]:tolist())
    local places = {}
    for _, x in ipairs(kept) do
      places[x:data_ptr()] = true
    end
    assert.is_truthy(next(places, next(places)))
    assert.is_nil(next(places, next(places, next(places))))
  end)

  it("lets no gradient be taken of what is there no more", function()
    local w = torch.ones(2, { requires_grad = true })
    local step = Accessor(Numbers(3, function(i) return torch.full({ 2 }, i + 1.0) end)):iter()
    local loss = (w * step()):sum()
    loss:backward()
    assert.same({ 1, 1 }, w.grad:tolist())
    loss = (w * step()):sum()
    step()
    raises("RuntimeError", "modified", function() loss:backward() end)
  end)

  it("may be written to, and keeps no gradient from use to use", function()
    local w = torch.ones(1, { requires_grad = true })
    for x in Accessor(Numbers(5, function(i) return torch.tensor({ i + 0.5 }) end),
      { buffer_size = 1 }) do
      assert.is_false(x.requires_grad)
      assert.equal(0.5, x:item() % 1)
      x:mul_(w)
      assert.is_true(x.requires_grad)
    end
  end)

  it("holds the first element before a loop, or is full if it is to be", function()
    for _, early in ipairs({ false, true }) do
      local book <close> = journal()
      local a = Accessor(Numbers(20, book.note), { early_preload = early, buffer_size = 4 })
      -- one more is read, and waits for a buffer
      assert.equal(early and 5 or 1, book.reaches(early and 5 or 1))
      assert.equal(20, #all(a))
      a:terminate()
    end
  end)

  it("is filled for the next loop at the end, or only then when asked", function()
    for _, forever in ipairs({ true, false }) do
      local book <close> = journal()
      local a = Accessor(Numbers(6, book.note), { load_indefinitely = forever, buffer_size = 3 })
      assert.equal(6, #all(a))
      assert.equal(forever and 10 or 6, book.reaches(forever and 10 or 6))
      assert.equal(6, #all(a))
      a:terminate()
    end
  end)

  -- A loop whose whole dataset fits is not begun twice before it is asked for.
  it("holds no more than the next loop", function()
    local book <close> = journal()
    local a = Accessor(Numbers(2, book.note), { early_preload = true, buffer_size = 9 })
    assert.equal(2, book.reaches(2))
    assert.equal(2, #all(a))
    assert.equal(4, book.reaches(4))
    a:terminate()
  end)

  -- Neither side waits for the other's word, though a channel holds few of them.
  it("takes any number of loops that are begun and not read", function()
    local book <close> = journal()
    local a = Accessor(Numbers(300, book.note), { early_preload = true, buffer_size = 300 })
    assert.equal(300, book.reaches(300))
    for _ = 1, 300 do
      a:iter()
    end
    assert.equal(300, #all(a))
    a:terminate()
  end)

  it("is filled while the device runs", function()
    local book <close> = journal()
    local Twice = torch.nn.Module:extend("Twice")
    function Twice:forward(x) return x * 2 end
    local loader = poptorch.DataLoader(poptorch.Options(), Numbers(12, book.note), { batch_size = 1,
      mode = Mode.Async })
    local model = poptorch.inferenceModel(Twice())
    local n = 0
    for x in loader do
      -- Between two requests the process reads on, with nobody's help, until
      -- the buffers that this element leaves are full and one more is made.
      local most = math.min(n + 4, 12)
      assert.equal(most, math.min(book.reaches(most), 12))
      assert.same({ 2 * n }, model(x):tolist())
      n = n + 1
    end
    assert.equal(12, n)
    loader:terminate()
  end)
end)

describe("a rebatched accessor", function()
  it("makes full elements of smaller or larger ones, and drops the rest", function()
    local function made(size, total, by)
      local batch = Numbers(total // by, function(i)
        local t = torch.arange(i * by, i * by + by)
        return t, t:reshape({ by, 1 })
      end)
      local a = Accessor(batch, { rebatched_size = size, buffer_size = 2 })
      for _ = 1, 2 do
        local next_one = 0
        for x, y in a do
          assert.equal(size, x:size(0))
          assert.same(x:tolist(), y:flatten():tolist())
          assert.equal(next_one, x[0]:item())
          next_one = next_one + size
        end
        assert.equal(total // size * size, next_one)
      end
      a:terminate()
    end
    made(4, 21, 1)
    made(4, 21, 3)
    made(5, 24, 12)
    made(6, 24, 6)
  end)

  it("begins a loop with nothing of the one that was left", function()
    local three = Numbers(9, function(i)
      if i == 2 then -- two rows of the second buffer are there
        os.execute("sleep 0.05")
      end
      return torch.arange(i * 3, i * 3 + 3)
    end)
    local a = Accessor(three, { rebatched_size = 4, buffer_size = 2 })
    for _ = 1, 4 do
      assert.same({ 0, 1, 2, 3 }, a:iter()():tolist())
    end
    assert.equal(6, #all(a))
  end)

  it("takes loaders, whose drop_last tells what becomes of the rest", function()
    for _, drop in ipairs({ true, false }) do
      local loader = poptorch.DataLoader(poptorch.Options(), rows(11), { batch_size = 1,
        drop_last = drop })
      local a = Accessor(loader, { rebatched_size = 4 })
      local want = { { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, not drop and { 8, 9, 10 } or nil }
      assert.same(want, all(a))
      assert.same(want, all(a))
      assert.equal(#want, #a)
      local part = poptorch.DataLoader(poptorch.Options(), rows(11), { batch_size = 1,
        drop_last = drop, sampler = D.SubsetRandomSampler({ 8, 3, 5, 1, 0, 7 }) })
      assert.equal(drop and 1 or 2, #Accessor(part, { rebatched_size = 4 }))
    end
    assert.equal(2, #Accessor(D.DataLoader(rows(11), { batch_size = 2, drop_last = true }),
      { rebatched_size = 4 }))
  end)
end)

describe("an accessor refuses", function()
  it("options that cannot be", function()
    for _, c in ipairs({
      { "ValueError", { buffer_size = 0 }, "buffer_size: expected int" },
      { "ValueError", { miss_sleep_time_in_ms = -1 }, "miss_sleep_time_in_ms" },
      { "TypeError", { load_indefinitely = "yes" }, "load_indefinitely" },
      { "TypeError", { sharing_strategy = 2 }, "SharingStrategy.Fork" },
      { "AssertionError", { rebatched_size = 1 }, "rebatched_size: expected nil or an int > 1" },
      { "TypeError", { bufer_size = 2 }, "buffer_size" },
    }) do
      raises(c[1], c[3], function() Accessor(rows(3), c[2]) end)
    end
    raises("TypeError", "'dataset' is missing", function() Accessor() end)
    local async = poptorch.DataLoader(poptorch.Options(), rows(3), { mode = Mode.Async })
    raises("Error", "reads asynchronously already", function() Accessor(async) end)
    raises("Error", "reads asynchronously already", function() Accessor(Accessor(rows(3))) end)
    raises("AssertionError", "needs a rebatched_size", function()
      Accessor(poptorch.DataLoader(poptorch.Options(), rows(3), { batch_size = 2,
        drop_last = false }))
    end)
  end)

  it("elements that no ring can hold", function()
    local function of(sample, o)
      for _ in Accessor(Numbers(4, sample), o or {}) do -- luacheck: ignore
      end
    end
    for _, c in ipairs({
      { "Error", "TypeError: .*a flat list of tensors.*got int 0", function(i) return i end },
      { "Error", "part 1 is string \"a\"", function() return torch.ones(1), "a" end },
      { "Error", "'x' is a list", function() return { x = { torch.ones(1) } } end },
      { "Error", "the same number of rows", function(i) return torch.tensor(i) end,
        { rebatched_size = 2 } },
      { "AssertionError", "ValueError: .*part 0 of an element is .*%[2%]", function(i)
        return torch.ones(1 + i)
      end },
      { "AssertionError", "TypeError: .*is torch.int64, of the first one torch.float32",
        function(i) return i == 0 and torch.ones(1) or torch.tensor({ i }) end },
      { "AssertionError", "has 2 tensors, the first one has 1", function(i)
        return torch.ones(1), i > 0 and torch.ones(1) or nil
      end },
      { "AssertionError", "no key 'a'", function(i)
        return { [i == 0 and "a" or "b"] = torch.ones(1) }
      end },
      { "AssertionError", "2 keys, the first one 1", function(i)
        return { a = torch.ones(1), b = i > 0 and torch.ones(1) or nil }
      end },
    }) do
      raises(c[1], c[2], function() of(c[3], c[4]) end)
    end
    raises("Error", "the dataset is empty", function() Accessor(Numbers(0)) end)
    raises("Error", "too many tensors", function()
      Accessor(Numbers(1, function()
        local t = {}
        for i = 1, 20 do
          t[i] = torch.ones(1)
        end
        return t
      end), { buffer_size = 10000 })
    end)
    assert.equal(0, processes.settled())
  end)

  it("no strategy of sharing: the dataset is as it is with each", function()
    local secret = {} -- what no file could hold
    local set = Numbers(3, function(i) return torch.tensor(secret[i] and i or -1) end)
    secret[0], secret[1], secret[2] = print, secret, set
    for _, strategy in ipairs(poptorch.SharingStrategy:members()) do
      assert.same({ 0, 1, 2 }, all(Accessor(set, { sharing_strategy = strategy,
        miss_sleep_time_in_ms = 50 })))
    end
  end)

  it("what a report does not name: options without effect, while it is open", function()
    local function notes()
      local model = poptorch.inferenceModel(torch.nn.Linear(1, 1))
      model:compile(torch.ones(1, 1))
      return table.concat(model:report().no_effect, "\n")
    end
    local Strategy = poptorch.SharingStrategy
    local plain = Accessor(rows(3), { sharing_strategy = Strategy.Fork })
    collectgarbage()
    local before = notes()
    assert.is_nil(before:find("Accessor", 1, true))
    local loader = poptorch.DataLoader(poptorch.Options(), rows(3), { mode = Mode.Async,
      async_options = { sharing_strategy = Strategy.FileSystem } })
    local accessor <close> = setmetatable({ Accessor(rows(3), { miss_sleep_time_in_ms = 5,
      sharing_strategy = Strategy.FileSystem }) }, { __close = function(t) t[1]:terminate() end })
    assert.truthy(accessor)
    local _, n = notes():gsub("AsynchronousDataAccessor%b(): ", "")
    assert.equal(2, n)
    accessor[1]:terminate()
    assert.matches("sharing_strategy=SharingStrategy.FileSystem", notes(), 1, true)
    loader:terminate()
    assert.equal(before, notes())
    plain:terminate()
  end)
end)
