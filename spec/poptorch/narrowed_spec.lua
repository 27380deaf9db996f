--- Integers on the device: int64 becomes int32 at its boundary, and operators
--- whose operands are int64 on the host take them all the same.
local core = require("lupine.core")
local helper = require("spec.helper")
local make = require("spec.ops.samples.make")
local models = require("spec.support.models")
local samples = require("spec.ops.samples")
local torch = require("torch")
local walk = require("spec.ops.samples.walk")

local infer, raises = models.infer, helper.raises

local function has_integers(sample)
  for _, d in ipairs(make.tensors(sample)) do
    if d.kind == "int" and (d.dtype or "int64") == "int64" then
      return true
    end
  end
  return false
end

-- What the boundary makes of a result.
local function narrowed(t)
  return t.dtype == torch.int64 and t:int() or t.dtype == torch.float64 and t:float() or t
end

-- Indices that only the gradients of other operators make; bits, which are those
-- of the narrower type.
local APART = { max_pool_backward = true, max_pool_gather = true, view_dtype = true }

-- f's results, a list, on the device and on the host.
local function compare(f, tensors, tolerance)
  local want = f(tensors)
  local got = table.pack(infer(function(_, ...)
    return table.unpack(f({ ... }))
  end)(table.unpack(tensors)))
  assert(got.n == #want, ("%d results, expected %d"):format(got.n, #want))
  for i, w in ipairs(want) do
    w = narrowed(w)
    assert(got[i].dtype == w.dtype, ("%s, expected %s"):format(got[i].dtype, w.dtype))
    helper.near(got[i], w, tolerance or { 1e-5, 1e-5 })
  end
end

describe("every operator of an int64 operand", function()
  it("has on the device the values that it has on the host", function()
    local wrong, n = {}, 0
    for _, op in ipairs(core.ops()) do
      for k, sample in ipairs(samples.of[op.name] or {}) do
        local runs = not (op.flags.dynamic or sample.dynamic or sample.loud or sample.script)
        if runs and not APART[op.name] and has_integers(sample) then
          n = n + 1
          local ok, e = pcall(compare, walk.callable(op, sample),
            walk.tensors(sample, { dtype = torch.float32 }),
            walk.free(op, sample) and { math.huge, 0 } or nil)
          wrong[#wrong + 1] = not ok and ("%s, sample %d: %s"):format(op.name, k, tostring(e))
            or nil
        end
      end
    end
    assert(n > 50, n)
    assert(#wrong == 0, table.concat(wrong, "\n"))
  end)
end)

describe("on the device, with int64 inputs", function()
  local F = torch.nn.functional
  local x = torch.arange(12):float():reshape(3, 4) - 5
  local i, classes = torch.tensor({ 0, 2 }), torch.tensor({ 0, 3, 1 })
  local cases = {
    { "indexing", function(a, k) return a[{ k }], a[{ k, k }] end, x, i },
    { "assigning", function(a, k) a = a + 0 a[{ k }] = 7 return a end, x, i },
    { "index_put, accumulate", function(a, k)
      return a:index_put({ k }, torch.ones(4), true) end, x, i },
    { "put_", function(a, k) a = a + 0 return a:put_(k, torch.ones(2)) end, x, i },
    { "index_fill_", function(a, k) a = a + 0 return a:index_fill_(0, k, -1) end, x, i },
    { "embedding", function(a, k) return F.embedding(k, a, { padding_idx = 0 }) end, x, i },
    { "embedding_bag", function(a, k) return F.embedding_bag(k, a) end, x,
      torch.tensor({ { 0, 2 }, { 1, 1 } }) },
    { "nll_loss", function(a, k) return F.nll_loss(a, k) end, x, classes },
    { "cross_entropy", function(a, k) return F.cross_entropy(a, k) end, x, classes },
    { "multi_margin_loss", function(a, k) return F.multi_margin_loss(a, k) end, x, classes },
    { "ctc_loss", function(a, k) return F.ctc_loss(a:log_softmax(2), k, torch.tensor({ 3 }),
      torch.tensor({ 2 })) end, x:reshape(3, 1, 4), torch.tensor({ { 1, 2 } }) },
    { "max_unpool", function(a, k) return F.max_unpool2d(a, k, 2) end, x:reshape(1, 1, 3, 4),
      torch.arange(12):reshape(1, 1, 3, 4) * 4 },
    { "bincount", function(k) return torch.bincount(k, { minlength = 5 }) end, classes },
    { "bincount, weights", function(k, w)
      return torch.bincount(k, { weights = w, minlength = 5 }) end, classes, x["0, :3"] },
  }
  for _, case in ipairs(cases) do
    it(case[1] .. " is what it is on the host", function()
      compare(function(tensors)
        return { case[2](table.unpack(tensors)) }
      end, { table.unpack(case, 3) })
    end)
  end

  it("bincount has minlength counts and refuses more, and a call without it", function()
    raises("IndexError", "index 3 is out of bounds for dimension 0 with size 3", function()
      infer(function(_, k) return torch.bincount(k, { minlength = 3 }) end)(classes)
    end)
    raises("Error", "without minlength.* depends on its data", function()
      infer(function(_, k) return torch.bincount(k) end)(classes)
    end)
  end)
end)

describe("assigning under a mask", function()
  local x = torch.arange(12):float():reshape(3, 4) - 5
  local rows, positive = torch.tensor({ true, false, true }), x:gt(0)

  local function assigned(_, a, mask, values)
    a = a + 0
    a[mask] = values
    return a
  end

  -- values by hand: x is -5 to 6, its rows 0 and 2 or its last 6 elements are set
  local kept = { { -5, -4, -3, -2 }, { -1, 0, 1, 2 }, { 3, 4, 5, 6 } }
  local cases = {
    { "one element", positive, torch.tensor({ 9. }),
      { kept[1], { -1, 0, 9, 9 }, { 9, 9, 9, 9 } } },
    { "an element for each place", positive, torch.arange(6):float() * 10,
      { kept[1], { -1, 0, 0, 10 }, { 20, 30, 40, 50 } } },
    { "one row", rows, torch.tensor({ 1., 2, 3, 4 }), { { 1, 2, 3, 4 }, kept[2], { 1, 2, 3, 4 } } },
    { "a row for each place", rows, torch.arange(8):float():reshape(2, 4),
      { { 0, 1, 2, 3 }, kept[2], { 4, 5, 6, 7 } } },
    { "a number for each row", rows, torch.tensor({ { 7. }, { 8. } }),
      { { 7, 7, 7, 7 }, kept[2], { 8, 8, 8, 8 } } },
  }
  for _, case in ipairs(cases) do
    it("sets " .. case[1] .. ", on the host and on the device", function()
      helper.near(assigned(nil, x, case[2], case[3]), case[4])
      helper.near(infer(assigned)(x, case[2], case[3]), case[4])
    end)
  end

  it("gives the values their gradient", function()
    for _, case in ipairs(cases) do
      torch.autograd.gradcheck(function(a, values)
        return assigned(nil, a, case[2], values)
      end, { x:double():requires_grad_(), case[3]:double():requires_grad_() })
      local net = models.of(function(self, a)
        return torch.nn.functional.mse_loss(assigned(nil, a, case[2], self.v),
          torch.zeros(3, 4), { reduction = "sum" })
      end)
      net.v = torch.nn.Parameter(case[3]:clone())
      local poptorch = require("poptorch")
      local host = case[3]:clone():requires_grad_()
      assigned(nil, x, case[2], host):square():sum():backward()
      poptorch.trainingModel(net, nil, poptorch.optim.SGD(net:parameters(), { lr = 1 }))(x)
      helper.near(net.v, case[3] - host.grad)
    end
  end)

  it("refuses another number of values than places", function()
    for n, pattern in pairs({ [5] = "6 elements, the values have 5", [7] = "6 .* 7" }) do
      raises("RuntimeError", "shape mismatch: the mask has places for " .. pattern, function()
        infer(assigned)(x, positive, torch.zeros(n))
      end)
    end
    raises("IndexError", "shape mismatch: value tensor of shape %[3%]", function()
      infer(assigned)(x, rows, torch.zeros(3))
    end)
  end)

  it("is all that a compiled program does with a mask", function()
    raises("RuntimeError", "a mask as an index.*depends on its data.*Allowed.*masked_fill",
      function()
        infer(function(_, a, mask) return a[mask] end)(x, positive)
      end)
  end)
end)

describe("integers of a call", function()
  it("that the device's type does not hold are warned of, high or low", function()
    local function logged(f, n)
      return helper.logged(function()
        models.infer(f)(torch.tensor({ n, 0 }))
      end)
    end
    local function low(_, lowest) return lowest end
    local function high(_, highest) return highest end
    assert.not_matches("do not fit", logged(low, -2 ^ 31 | 0))
    assert.not_matches("do not fit", logged(high, 2 ^ 31 - 1 | 0))
    assert.matches("lowest: values from %-2147483649.* do not fit in int32", logged(low,
      -2 ^ 31 - 1 | 0))
    assert.matches("highest: values from .* to 2147483648.* do not fit in int32", logged(high,
      2 ^ 31 | 0))
  end)
end)
