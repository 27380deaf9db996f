-- Datasets, samplers and collation against what PyTorch documents.
local helper = require("spec.helper")
local torch = require("torch")
local D = torch.utils.data
local raises = helper.raises

-- Squares of 0 … n-1, as (i, i * i).
local Squares = D.Dataset:extend("Squares")

function Squares:init(n)
  self.n = n
end

function Squares.__getitem__(_, i)
  return i, i * i
end

function Squares:__len__()
  return self.n
end

local function all(iterable)
  local list = {}
  for x in iterable do
    list[#list + 1] = x
  end
  return list
end

local function sorted(list)
  local copy = table.move(list, 1, #list, 1, {})
  table.sort(copy)
  return copy
end

describe("a dataset", function()
  it("gives samples by index, a tuple as a list, and its length", function()
    local s = Squares(5)
    assert.same({ 3, 9 }, s[3])
    assert.equal(5, #s)
  end)

  it("takes an index out of a tensor, and no float", function()
    local s, rows = Squares(5), D.TensorDataset(torch.arange(10))
    assert.same({ 3, 9 }, s[torch.tensor(3)])
    assert.equal(7, rows[torch.tensor(7)]:item())
    assert.same({ 7, 2 }, rows[torch.tensor({ 7, 2 })]:tolist())
    assert.equal(4, D.Subset(rows, { 8, 4 })[torch.tensor(1)]:item())
    raises("IndexError", "an index of a dataset: expected int, got float 2.0; // divides integers",
      function()
        return s[4 / 2]
      end)
    assert.is_nil(s.nothing)
  end)

  it("without its methods says which one is missing", function()
    local E = D.Dataset:extend("Empty")
    raises("NotImplementedError", "Empty has no method __getitem__", function()
      return E()[0]
    end)
    raises("TypeError", "'Empty' has no __len__", function()
      return #E()
    end)
    raises("NotImplementedError", "__iter__", function()
      D.IterableDataset:extend("I")()()
    end)
  end)

  it("of tensors has their rows", function()
    local d = D.TensorDataset(torch.tensor({ { 1, 2 }, { 3, 4 } }), torch.tensor({ 7, 8 }))
    local a, b = d:__getitem__(1)
    assert.same({ 3, 4 }, a:tolist())
    assert.equal(8, b:item())
    assert.equal(2, #d)
    raises("AssertionError", "argument 1 has 2 rows, argument 2 has 3", function()
      D.TensorDataset(torch.zeros(2), torch.zeros(3))
    end)
    raises("TypeError", "argument 1", function()
      D.TensorDataset({ 1, 2 })
    end)
  end)

  it("can be cut and joined", function()
    local part = D.Subset(Squares(10), { 4, 2 })
    assert.same({ 2, 4 }, part[1])
    assert.equal(2, #part)
    local both = D.ConcatDataset({ part, Squares(3) })
    assert.equal(5, #both)
    assert.same({ 4, 16 }, both[0])
    assert.same({ 1, 1 }, both[3])
    assert.same({ 2, 4 }, both[-1])
    assert.equal(6, #(Squares(2) + Squares(4)))
    raises("IndexError", "index 5, length 5", function()
      return both[5]
    end)
    raises("ValueError", "index %-6", function()
      return both[-6]
    end)
    raises("AssertionError", "empty", function()
      D.ConcatDataset({})
    end)
  end)
end)

describe("random_split", function()
  it("puts every sample into one part", function()
    local parts = D.random_split(Squares(10), { 7, 3 })
    assert.equal(7, #parts[1])
    local seen = table.move(parts[2].indices, 1, 3, 8, table.move(parts[1].indices, 1, 7, 1, {}))
    assert.same({ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, sorted(seen))
  end)

  it("takes fractions, what is left over goes round", function()
    local parts = D.random_split(Squares(10), { 0.33, 0.33, 0.34 })
    assert.same({ 4, 3, 3 }, { #parts[1], #parts[2], #parts[3] })
  end)

  it("repeats with a generator of the same seed", function()
    local function split(seed)
      return D.random_split(Squares(50), { 25, 25 },
        torch.Generator():manual_seed(seed))[1].indices
    end
    assert.same(split(42), split(42))
    assert.are_not.same(split(42), split(43))
  end)

  it("refuses counts with another sum", function()
    raises("ValueError", "sum 9 does not equal the length of the dataset, 10", function()
      D.random_split(Squares(10), { 5, 4 })
    end)
  end)
end)

describe("a sampler", function()
  it("in sequence", function()
    assert.same({ 0, 1, 2 }, all(D.SequentialSampler(Squares(3))))
  end)

  it("at random gives each index once, in another order each epoch", function()
    torch.manual_seed(5)
    local s = D.RandomSampler(Squares(100))
    local first, second = all(s), all(s)
    assert.are_not.same(first, second)
    assert.same(sorted(first), sorted(second))
    assert.equal(99, sorted(first)[100])
    torch.manual_seed(5)
    assert.same(first, all(s))
    assert.equal(100, #s)
  end)

  it("at random puts no index more often at the front than others", function()
    local n, count = 4000, { [0] = 0, 0, 0, 0 }
    local s = D.RandomSampler({ "a", "b", "c", "d" },
      { generator = torch.Generator():manual_seed(1) })
    for _ = 1, n do
      local i = s:__iter__()()
      count[i] = count[i] + 1
    end
    for i = 0, 3 do -- expectation 1000, standard deviation 27.4
      assert.near(1000, count[i], 5 * 27.4)
    end
  end)

  it("with replacement gives as many as wanted", function()
    local s = D.RandomSampler(Squares(3), true, 50)
    local got = all(s)
    assert.equal(50, #got)
    assert.equal(0, sorted(got)[1])
    assert.equal(2, sorted(got)[50])
    assert.equal(7, #all(D.RandomSampler(Squares(3), false, 7)))
  end)

  it("of a subset gives its indices once", function()
    assert.same({ 2, 5, 9 }, sorted(all(D.SubsetRandomSampler({ 9, 2, 5 }))))
  end)

  it("of batches", function()
    local function batches(drop_last)
      local b = D.BatchSampler(D.SequentialSampler(Squares(5)), 2, drop_last)
      return all(b), #b
    end
    local list, n = batches(false)
    assert.same({ { 0, 1 }, { 2, 3 }, { 4 } }, list)
    assert.equal(3, n)
    list, n = batches(true)
    assert.same({ { 0, 1 }, { 2, 3 } }, list)
    assert.equal(2, n)
    raises("ValueError", "batch_size: expected int >= 1", function()
      D.BatchSampler(D.SequentialSampler(Squares(5)), 0, false)
    end)
  end)
end)

describe("default_collate", function()
  it("stacks tensors and makes tensors of numbers", function()
    assert.same({ { 1, 2 }, { 3, 4 } },
      D.default_collate({ torch.tensor({ 1, 2 }), torch.tensor({ 3, 4 }) }):tolist())
    assert.equal(torch.int64, D.default_collate({ 1, 2 }).dtype)
    assert.equal(torch.float64, D.default_collate({ 1.5, 2.0 }).dtype)
    assert.equal(torch.bool, D.default_collate({ true, false }).dtype)
    assert.same({ "a", "b" }, D.default_collate({ "a", "b" }))
  end)

  it("takes lists and dictionaries apart", function()
    local got = D.default_collate({ { x = 1, y = { 2, 3.5 } }, { x = 4, y = { 5, 6.5 } } })
    assert.same({ 1, 4 }, got.x:tolist())
    assert.same({ 2, 5 }, got.y[1]:tolist())
    assert.same({ 3.5, 6.5 }, got.y[2]:tolist())
  end)

  it("refuses what has no common form", function()
    raises("RuntimeError", "sample 1 has no part 1", function()
      D.default_collate({ { 1, 2 }, { 3 } })
    end)
    raises("RuntimeError", "equal size", function()
      D.default_collate({ { 1 }, { 2, 3 } })
    end)
    raises("TypeError", "found function", function()
      D.default_collate({ print })
    end)
    raises("TypeError", "sample 1", function()
      D.default_collate({ 1, "x" })
    end)
  end)
end)

describe("datasets side by side and in a row", function()
  it("StackDataset pairs samples, by place or by name", function()
    local a, b = { 1, 2, 3 }, { "x", "y", "z" }
    assert.same({ 2, "y" }, { D.StackDataset(a, b):__getitem__(1) })
    local named = D.StackDataset({ left = a, right = b })
    assert.same({ left = 3, right = "z" }, named:__getitem__(2))
    assert.equal(3, #named)
    raises("ValueError", "size mismatch", function()
      D.StackDataset(a, { 1 })
    end)
  end)

  it("ChainDataset reads iterable datasets one after another", function()
    local Upto = D.IterableDataset:extend("Upto")
    function Upto:init(n) self.n = n end
    function Upto:__len__() return self.n end
    function Upto:__iter__()
      local i = 0
      return function()
        i = i + 1
        return i <= self.n and i or nil
      end
    end
    local chain = D.ChainDataset({ Upto(2), Upto(0), Upto(1) })
    assert.equal(3, #chain)
    for _ = 1, 2 do
      local got = {}
      for batch in D.DataLoader(chain, { batch_size = torch.none }) do
        got[#got + 1] = batch
      end
      assert.same({ 1, 2, 1 }, got)
    end
  end)

  it("WeightedRandomSampler draws by weight, DistributedSampler every n-th", function()
    torch.manual_seed(1)
    local counts = { [0] = 0, 0, 0 }
    for i in D.WeightedRandomSampler({ 1.0, 0.0, 3.0 }, 4000) do
      counts[i] = counts[i] + 1
    end
    assert.equal(0, counts[1])
    -- the standard deviation of the count is 27
    assert.is_true(math.abs(counts[2] - 3000) < 140)
    local distinct = {}
    for i in D.WeightedRandomSampler({ 1, 2, 3 }, 3, false) do
      distinct[i] = true
    end
    assert.same({ [0] = true, true, true }, distinct)
    local function part(rank, drop_last)
      local got = {}
      for i in D.DistributedSampler({ 1, 2, 3, 4, 5, 6, 7 }, { num_replicas = 3, rank = rank,
        shuffle = false, drop_last = drop_last }) do
        got[#got + 1] = i
      end
      return got
    end
    assert.same({ { 0, 3, 6 }, { 1, 4, 0 }, { 2, 5, 1 } }, { part(0), part(1), part(2) })
    assert.same({ { 0, 3 }, { 1, 4 }, { 2, 5 } }, { part(0, true), part(1, true), part(2, true) })
    local seen = {}
    for rank = 0, 1 do
      local s = D.DistributedSampler({ 1, 2, 3, 4 }, 2, rank)
      s:set_epoch(3)
      for i in s do
        seen[i] = true
      end
    end
    assert.same({ [0] = true, true, true, true }, seen)
  end)

  local function indices(sampler)
    local out = {}
    for i in sampler do
      out[#out + 1] = i
    end
    return out
  end

  it("DistributedSampler's order is the epoch's", function()
    local set = {}
    for i = 1, 50 do
      set[i] = i
    end
    local s = D.DistributedSampler(set, 2, 0)
    local orders = {}
    for epoch = 0, 2 do
      s:set_epoch(epoch)
      orders[epoch] = table.concat(indices(s), " ")
      assert.equal(orders[epoch], table.concat(indices(s), " "))
    end
    assert.is_true(orders[0] ~= orders[1] and orders[1] ~= orders[2] and orders[0] ~= orders[2])
  end)

  it("RandomSampler draws a new permutation when all are used up", function()
    torch.manual_seed(1)
    local n, set = 50, {}
    for i = 1, n do
      set[i] = i
    end
    local got = indices(D.RandomSampler(set, { num_samples = 2 * n + 7 }))
    assert.equal(2 * n + 7, #got)
    local equal = 0
    for part = 0, 1 do
      local seen = {}
      for i = 1, n do
        seen[got[part * n + i]] = true
        equal = equal + (got[i] == got[n + i] and 1 or 0)
      end
      for i = 0, n - 1 do
        assert.is_true(seen[i])
      end
    end
    assert.is_true(equal < n)
  end)
end)

describe("a dataset made of others", function()
  it("refuses a nil among them", function()
    raises("TypeError", "element 2 of 2", function()
      torch.utils.data.TensorDataset(torch.ones(2), nil)
    end)
    raises("TypeError", "ConcatDataset: element 1 of 2 is nil", function()
      D.ConcatDataset({ nil, D.TensorDataset(torch.ones(2)) })
    end)
  end)

  it("shows the list where several arguments stand in its place", function()
    local set = D.TensorDataset(torch.ones(2))
    raises("TypeError", "ConcatDataset: expected one list of datasets", function()
      D.ConcatDataset(set, set)
    end)
    raises("TypeError", "ChainDataset: expected one list of datasets", function()
      D.ChainDataset(set, set)
    end)
    raises("TypeError", "StackDataset: expected datasets", function()
      D.StackDataset({ set, set })
    end)
    assert.equal(2, #D.StackDataset(D.TensorDataset(torch.ones(2)), { 1, 2 }))
  end)
end)
