describe("objects of a user's class", function()
  local class = require("lupine.base.class")
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  local Pair = class.new("Pair")
  function Pair:init(a, b)
    self.a, self.b = a, b
  end

  local PairParser = poptorch.ICustomArgParser:extend("PairParser")
  function PairParser:yieldTensors(pair)
    coroutine.yield(pair.a)
    coroutine.yield(pair.b)
  end
  function PairParser:reconstruct(pair, next_tensor)
    return class.of(pair)(next_tensor(), next_tensor())
  end

  local Swap = nn.Module:extend("Swap")
  function Swap.forward(_, pair, x)
    return { swapped = Pair(pair.b * 1, pair.a + x) }
  end

  before_each(function()
    poptorch.registerCustomArgParser(Pair, PairParser())
  end)
  after_each(function()
    poptorch.registerCustomArgParser(Pair, nil)
  end)

  local function tensor(...)
    return torch.tensor({ ... })
  end

  it("are arguments and results, also inside lists and dictionaries", function()
    local model = poptorch.inferenceModel(Swap())
    for i = 1, 3 do
      local out = model(Pair(tensor(1.0 * i), tensor(2.0)), tensor(10.0)).swapped
      assert.is_true(Pair:is(out))
      assert.equal(2, out.a:item())
      assert.equal(10 + i, out.b:item())
    end
  end)

  it("are split like other tensors", function()
    local model = poptorch.inferenceModel(Swap(), poptorch.Options():deviceIterations(2))
    local out = model(Pair(torch.ones(4), torch.zeros(2)), torch.ones(4)).swapped
    assert.same({ { 2 }, { 4 } }, { { table.unpack(out.a.shape) }, { table.unpack(out.b.shape) } })
    helper.raises("AssertionError", function()
      model:destroy()
      model(Pair(torch.ones(3), torch.zeros(2)), torch.ones(4))
    end)
  end)

  it("must fit what was compiled", function()
    local model = poptorch.inferenceModel(Swap())
    model(Pair(tensor(1.0), tensor(2.0)), tensor(1.0))
    local e = helper.raises("Error", model, Pair(tensor(1.0, 2.0), tensor(2.0)), tensor(1.0))
    assert.matches("pair.1: compiled for shape torch.Size([1]), got torch.Size([2])", e.message, 1,
      true)
    e = helper.raises("Error", model, tensor(1.0), tensor(1.0))
    assert.matches("pair: compiled for Pair, got a tensor", e.message)
    local Twin = class.new("Twin")
    Twin.init = Pair.init
    poptorch.registerCustomArgParser(Twin, PairParser())
    e = helper.raises("Error", model, Twin(tensor(1.0), tensor(2.0)), tensor(1.0))
    assert.matches("pair: compiled for Pair, got Twin", e.message)
    poptorch.registerCustomArgParser(Twin, nil)
  end)

  it("may be of a class that extends it, or of any metatable", function()
    local Named = Pair:extend("Named")
    local model = poptorch.inferenceModel(Swap())
    assert.equal(2, model(Named(tensor(1.0), tensor(2.0)), tensor(1.0)).swapped.a:item())

    local List = poptorch.ICustomArgParser:extend("ListParser")
    local mt = {}
    function List.yieldTensors(_, list)
      return list.items
    end
    function List.reconstruct(_, _, next_tensor)
      local items = {}
      for t in next_tensor do
        items[#items + 1] = t
      end
      return setmetatable({ items = items }, mt)
    end
    poptorch.registerCustomArgParser(mt, List())
    local Sum = nn.Module:extend("Sum")
    function Sum.forward(_, list)
      return list.items[1] + list.items[2] + list.items[3]
    end
    local sum = poptorch.inferenceModel(Sum())
    assert.equal(6, sum(setmetatable({ items = { tensor(1.0), tensor(2.0), tensor(3.0) } },
      mt)):item())
    poptorch.registerCustomArgParser(mt, nil)
  end)

  it("are values compiled in without a parser", function()
    poptorch.registerCustomArgParser(Pair, nil)
    local pair = Pair(tensor(1.0), tensor(2.0))
    local model = poptorch.inferenceModel(Swap())
    model:compile(pair, tensor(1.0))
    helper.raises("Error", model, Pair(tensor(1.0), tensor(2.0)), tensor(1.0))
  end)

  it("need a parser with both methods", function()
    helper.raises("Error", poptorch.registerCustomArgParser, Pair, {})
    helper.raises("Error", poptorch.registerCustomArgParser, "Pair", PairParser())
    poptorch.registerCustomArgParser(Pair, poptorch.ICustomArgParser:extend("Empty")())
    local e = helper.raises("NotImplementedError", function()
      poptorch.inferenceModel(Swap())(Pair(tensor(1.0), tensor(2.0)), tensor(1.0))
    end)
    assert.matches("Empty has no method yieldTensors", e.message)
    local Wrong = poptorch.ICustomArgParser:extend("Wrong")
    function Wrong:yieldTensors()
      coroutine.yield(5)
    end
    poptorch.registerCustomArgParser(Pair, Wrong())
    e = helper.raises("Error", function()
      poptorch.inferenceModel(Swap())(Pair(tensor(1.0), tensor(2.0)), tensor(1.0))
    end)
    assert.matches("pair: yieldTensors of Wrong gave int 5", e.message)
  end)

  it("are batches of every loader, with and without workers", function()
    local Marked = Pair:extend("Marked")
    function Marked:init(a, b, mark)
      Pair.init(self, a, b)
      self.mark = mark
    end
    local Parser = PairParser:extend("MarkedParser")
    function Parser.reconstruct(_, pair, next_tensor)
      return Marked(next_tensor(), next_tensor(), pair.mark)
    end
    poptorch.registerCustomArgParser(Marked, Parser())
    local data = torch.utils.data.TensorDataset(torch.arange(8))
    local function collate(samples)
      local x = torch.stack(samples)
      return Marked(x, x * 2, "mark")
    end
    local function check(extra, options, n, size)
      extra.collate_fn = collate
      local loader, seen = poptorch.DataLoader(options or poptorch.Options(), data, extra), 0
      for pair in loader do
        assert.equal(Marked, getmetatable(pair))
        assert.equal("mark", pair.mark)
        local first = seen * size
        assert.same(torch.arange(first, first + size):tolist(), pair.a:tolist())
        assert.same((pair.a * 2):tolist(), pair.b:tolist())
        seen = seen + 1
      end
      assert.equal(n, seen)
      loader:terminate()
    end
    for _, mode in ipairs(poptorch.DataLoaderMode:members()) do
      for _, workers in ipairs({ 0, 2 }) do
        check({ batch_size = 2, mode = mode, num_workers = workers }, nil, 4, 2)
      end
    end
    local samplers = torch.utils.data
    check({ batch_sampler = samplers.BatchSampler(samplers.SequentialSampler(data), 2, false) },
      poptorch.Options():deviceIterations(2), 2, 4)
    poptorch.registerCustomArgParser(Marked, nil)
  end)

  it("of a process of a loader must be of a class that itself has a parser", function()
    local Other = Pair:extend("Other")
    helper.raises("Error", poptorch.DataLoader, poptorch.Options(),
      torch.utils.data.TensorDataset(torch.arange(4)), { batch_size = 2,
      mode = poptorch.DataLoaderMode.Async, collate_fn = function(samples)
        return Other(samples[1], samples[2])
      end })
  end)
end)
