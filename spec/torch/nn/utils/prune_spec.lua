-- torch.nn.utils.prune: masks, names and gradients are PyTorch 2.15's.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local prune = nn.utils.prune
local keys = helper.state_keys

-- sin(0.7 i + seed) in three rows of four
local function linear(seed)
  local l = nn.Linear(4, 3)
  torch.no_grad(function()
    l.weight:copy_((torch.arange(12.) * .7 + (seed or 0)):sin():reshape({ 3, 4 }))
    l.bias:copy_(torch.tensor({ .1, -.2, .3 }))
  end)
  return l
end

local LEAST = { { 0, 1, 1, 1 }, { 0, 0, 1, 1 }, { 1, 0, 1, 1 } } -- 4 of 12 smallest

describe("pruning", function()
  it("masks the smallest, then more of what is left", function()
    local l = linear()
    assert.equal(l, prune.l1_unstructured(l, "weight", { amount = .3 }))
    assert.same(LEAST, l.weight_mask:tolist())
    assert.same({ "bias", "weight_orig", "weight_mask" }, keys(l))
    prune.ln_structured(l, "weight", { amount = .5, n = 2, dim = 1 })
    assert.same({ { 0, 0, 1, 1 }, { 0, 0, 1, 1 }, { 0, 0, 1, 1 } }, l.weight_mask:tolist())
    prune.l1_unstructured(l, "weight", 2)
    local mask = { { 0, 0, 1, 0 }, { 0, 0, 1, 1 }, { 0, 0, 0, 1 } }
    assert.same(mask, l.weight_mask:tolist())
    l(torch.ones(2, 4)):sum():backward()
    for i, row in ipairs(mask) do
      for j, v in ipairs(row) do
        assert.equal(2 * v, l.weight_orig.grad[i - 1][j - 1]:item())
      end
    end
    assert.is_true(prune.is_pruned(nn.Sequential(nn.ReLU(), l)))
    local original = l.weight_orig
    prune.remove(l, "weight")
    assert.equal(original, l.weight)
    assert.same({ "bias", "weight" }, keys(l))
    helper.near(l.weight, { { 0, 0, 0.98544973, 0 }, { 0, 0, -0.87157565, -0.98245257 },
      { 0, 0, 0, 0.98816818 } }, { 1e-6, 1e-6 })
    assert.is_false(prune.is_pruned(l))
  end)

  it("masks channels by their norm", function()
    local l = linear()
    prune.ln_structured(l, "weight", { amount = 1, n = math.huge, dim = 0 })
    assert.same({ { 1, 1, 1, 1 }, { 0, 0, 0, 0 }, { 1, 1, 1, 1 } }, l.weight_mask:tolist())
    prune.ln_structured(l, "weight", 1, 1, 0)
    assert.same({ { 1, 1, 1, 1 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 } }, l.weight_mask:tolist())
  end)

  it("masks several tensors as one", function()
    local a, b = linear(), linear(2)
    prune.l1_unstructured(a, "weight", 3)
    prune.global_unstructured({ { a, "weight" }, { b, "weight" }, { a, "bias" } },
      prune.L1Unstructured, { amount = .4 })
    assert.same(LEAST, a.weight_mask:tolist())
    assert.same({ { 1, 0, 0, 1 }, { 1, 1, 0, 0 }, { 1, 1, 0, 0 } }, b.weight_mask:tolist())
    assert.same({ 0, 0, 0 }, a.bias_mask:tolist())
    helper.raises("TypeError", "Only \"unstructured\"", function()
      prune.global_unstructured({ { a, "weight" } }, prune.LnStructured, { amount = 1, n = 2 })
    end)
  end)

  it("masks at random as many as told, by elements and by channels", function()
    torch.manual_seed(3)
    local seen = {}
    for _ = 1, 8 do
      local l = prune.random_unstructured(linear(), "weight", 5)
      assert.equal(7, l.weight_mask:sum():item())
      seen[table.concat(l.weight_mask:flatten():tolist())] = true
      local c = prune.random_structured(linear(), "weight", { amount = 2, dim = 1 })
      assert.equal(6, c.weight_mask:sum():item())
      assert.same(c.weight_mask[0]:tolist(), c.weight_mask[2]:tolist())
    end
    assert.not_nil(next(seen, (next(seen))))
  end)

  it("takes importances, masks and methods of one's own", function()
    local scores = torch.arange(12.):reshape({ 3, 4 })
    local l = prune.l1_unstructured(linear(), "weight", 2, { importance_scores = scores })
    assert.same({ { 0, 0, 1, 1 }, { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, l.weight_mask:tolist())
    prune.custom_from_mask(l, "weight", scores:lt(6))
    assert.same({ { 0, 0, 1, 1 }, { 1, 1, 0, 0 }, { 0, 0, 0, 0 } }, l.weight_mask:tolist())
    prune.identity(l, "bias")
    assert.same({ 1, 1, 1 }, l.bias_mask:tolist())

    local Second = prune.BasePruningMethod:extend("Second")
    Second.PRUNING_TYPE = "unstructured"
    function Second.compute_mask(_, _, mask)
      mask = mask:clone()
      mask:view(-1)["::2"] = 0
      return mask
    end
    local m = linear()
    Second.apply(m, "bias")
    assert.same({ 0, 1, 0 }, m.bias_mask:tolist())
    helper.near(m.bias, { 0, -.2, 0 })
    helper.near(prune.L1Unstructured(1):prune(torch.tensor({ 3., 1., 2. })), { 3, 0, 2 })
  end)

  it("computes the pruned tensor in a compiled model too", function()
    local l, x = prune.l1_unstructured(linear(), "weight", .5), torch.ones({ 2, 4 })
    local compiled = require("lupine").compile(l, { x })
    helper.near(compiled(x), l(x):tolist(), { 1e-6, 1e-6 })
  end)

  it("refuses amounts, dimensions and tensors that cannot be, and changes nothing", function()
    local function refuses(class, pattern, f, ...)
      local l, arguments = linear(), { ... }
      helper.raises(class, pattern, function()
        prune[f](l, table.unpack(arguments))
      end)
      assert.same({ "weight", "bias" }, keys(l))
      assert.is_false(prune.is_pruned(l))
    end
    refuses("ValueError", "range %[0, 1%]", "l1_unstructured", "weight", 1.5)
    refuses("ValueError", "parameters to prune=12", "l1_unstructured", "weight", 13)
    refuses("TypeError", "Invalid type for amount", "l1_unstructured", "weight", "a")
    refuses("ValueError", "multidimensional", "ln_structured", "bias", 1, 2, 0)
    refuses("IndexError", "Invalid index 5", "ln_structured", "weight", 1, 2, 5)
    refuses("AttributeError", "no 'nope'", "l1_unstructured", "nope", 1)
    refuses("AssertionError", "the mask has shape", "custom_from_mask", "weight", torch.ones(3))
    helper.raises("ValueError", "has to be pruned before", function()
      prune.remove(linear(), "weight")
    end)
  end)
end)

describe("a wrong argument of prune", function()
  local l1 = prune.L1Unstructured
  for _, c in ipairs({
    { "AttributeError", "element 1: the module Linear has no 'wieght'", function()
      prune.global_unstructured({ { linear(), "wieght" } }, l1, { amount = 1 })
    end },
    { "TypeError", "element 1: module: expected a Module, got string", function()
      prune.global_unstructured({ { "weight" } }, l1, { amount = 1 })
    end },
    { "TypeError", "element 2: expected table, got string", function()
      prune.global_unstructured({ { linear(), "weight" }, "bias" }, l1, { amount = 1 })
    end },
    { "TypeError", "remove: module: expected a Module, got int 3", function()
      prune.remove(3, "weight")
    end },
    { "TypeError", "remove: name: expected string, got nil", function()
      prune.remove(linear())
    end },
    { "TypeError", "is_pruned: module: expected a Module, got nil", function()
      prune.is_pruned(nil)
    end },
    { "TypeError", "CustomFromMask: mask: expected a Tensor, got nil", function()
      prune.custom_from_mask(linear(), "weight")
    end },
  }) do
    it(c[2], function()
      helper.raises(c[1], c[2], c[3])
    end)
  end
end)
