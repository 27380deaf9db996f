--- Tables that contain themselves, and very deep ones, wherever structures are
--- taken apart.
local data = require("torch.utils.data")
local helper = require("spec.helper")
local nesting = require("lupine.base.nesting")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

-- f(...) raises an error of that class.
local function raises(class, text, f, ...)
  local args = table.pack(...)
  helper.raises(class, text, function()
    f(table.unpack(args, 1, args.n))
  end)
end

local function infer(f)
  local cls = nn.Module:extend("Function")
  cls.forward = f
  return poptorch.inferenceModel(cls())
end

local function cycle(key)
  local t = { torch.ones(2) }
  t[key or 2] = t
  return t
end

local function levels(n, leaf)
  for _ = 1, n do
    leaf = { leaf }
  end
  return leaf
end

describe("a table that contains itself", function()
  it("is no result of forward", function()
    raises("Error", "result%[2%]: a table that contains itself", infer(function(_, x)
      local t = { x }
      t[2] = t
      return t
    end), torch.ones(2))
  end)

  it("is no argument, at any depth", function()
    local first = infer(function(_, t)
      return t[1]
    end)
    raises("Error", "t%[2%]: a table that contains itself", first, cycle())
    raises("Error", "t%[1%]: a table that contains itself", first, cycle(1))
    raises("Error", "t%[1%]%.x%[2%]: a table that contains itself", first, { { x = cycle() } })
  end)

  it("is not marked for overlap", function()
    for _, name in ipairs({ "input", "output" }) do
      raises("Error", name .. "_tensors%[2%]: a table that contains itself",
        poptorch["set_overlap_for_" .. name], cycle(),
        poptorch.OverlapMode.OverlapDeviceIterationLoop)
    end
  end)

  it("is no sample of a loader", function()
    local text = "sample 0%[2%]: a table that contains itself"
    raises("ValueError", text, data.default_collate, { cycle(), cycle() })
    local Set = data.Dataset:extend("Cycles")
    function Set.__getitem__()
      return cycle()
    end
    function Set.__len__()
      return 4
    end
    raises("ValueError", text, function()
      for _ in poptorch.DataLoader(poptorch.Options(), Set()):iter() do
        error("unreachable")
      end
    end)
  end)

  it("is no batch that a collate_fn makes", function()
    local opts = poptorch.Options():deviceIterations(2)
    local loader = poptorch.DataLoader(opts, data.TensorDataset(torch.ones(4, 1)), {
      batch_sampler = data.BatchSampler(data.SequentialSampler(torch.ones(4)), 1, false),
      collate_fn = function()
        return cycle()
      end })
    raises("ValueError", "collate_fn%[2%][%[%]2]*: a table that contains itself", function()
      for _ in loader:iter() do
        error("unreachable")
      end
    end)
  end)

  it("is no session option", function()
    local opts = poptorch.Options()
    local t = {}
    t.x = t
    raises("ValueError", "engineOptions%.x: a table that contains itself", function()
      opts._Popart:set("engineOptions", t)
    end)
    assert.is_nil(opts._Popart:toDict().engineOptions)
  end)
end)

describe("a deep structure", function()
  it("comes back as it was given, up to the limit", function()
    local same = infer(function(_, t)
      return t
    end)
    local out = same(levels(2000, torch.ones(1)))
    for _ = 1, 2000 do
      out = out[1]
    end
    helper.near(out, { 1 })
  end)

  it("is refused beyond it", function()
    raises("Error", "nested more than " .. nesting.DEEPEST .. " deep", infer(function(_, t)
      return t
    end), levels(nesting.DEEPEST + 1, torch.ones(1)))
  end)

  it("may have the same table twice", function()
    local pair = { 1, 2 }
    for _ = 1, 40 do
      pair = { pair, pair }
    end
    assert.equal(pair, nesting.check(pair, "pair", "ValueError"))
  end)
end)
