-- out= an operand of a function that reads elements after it has written others:
-- values and refusals are PyTorch 2.15's; those of larger matrices are what the
-- function gives in memory of its own.
local helper = require("spec.helper")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local i64 = { dtype = torch.int64 }

local function operand()
  return torch.tensor({ { 2.0, -1 }, { 0.5, 3 } })
end

local b = torch.tensor({ { 1.0, 2 }, { 3, 4 } })

-- name, f(x, other, out), what x is after f(x, b, x)
local MATRICES = {
  { "mm", function(x, _, out) torch.mm(x, x, { out = out }) end, { { 3.5, -5 }, { 2.5, 8.5 } } },
  { "mm of the second", function(x, y, out) torch.mm(y, x, { out = out }) end,
    { { 3, 5 }, { 8, 9 } } },
  { "matmul", function(x, y, out) torch.matmul(x, y, { out = out }) end,
    { { -1, 0 }, { 9.5, 13 } } },
  { "addmm of what is added and a factor",
    function(x, y, out) torch.addmm(x, x, y, { out = out }) end, { { 1, -1 }, { 10, 16 } } },
  -- PyTorch puts what is added where the factor lies before it multiplies
  { "addmm of the last factor", function(x, y, out) torch.addmm(y, y, x, { out = out }) end,
    { { 4, 7 }, { 11, 13 } } },
  { "cumsum of columns", function(x, _, out) torch.cumsum(x, 0, { out = out }) end,
    { { 2, -1 }, { 2.5, 2 } } },
  { "cumsum of rows", function(x, _, out) torch.cumsum(x, 1, { out = out }) end,
    { { 2, 1 }, { 0.5, 3.5 } } },
  { "cumprod", function(x, _, out) torch.cumprod(x, 0, { out = out }) end,
    { { 2, -1 }, { 1, -3 } } },
  { "logcumsumexp", function(x, _, out) torch.logcumsumexp(x, 1, { out = out }) end,
    { { 2, 2.04858732 }, { 0.5, 3.07888985 } } },
  { "softmax", function(x, _, out) torch.softmax(x, 0, { out = out }) end,
    { { 0.817574441, 0.0179862101 }, { 0.182425514, 0.982013762 } } },
  { "log_softmax", function(x, _, out) torch.log_softmax(x, 1, { out = out }) end,
    { { -0.0485873297, -3.04858733 }, { -2.57888985, -0.0788897499 } } },
  { "inverse", function(x, _, out) torch.linalg.inv(x, { out = out }) end,
    { { 0.461538464, 0.15384616 }, { -0.0769230798, 0.307692319 } } },
  { "solve", function(x, y, out) torch.linalg.solve(x, y, { out = out }) end,
    { { 0.923076928, 1.53846157 }, { 0.846153855, 1.07692313 } } },
  { "solve of the right side", function(x, y, out) torch.linalg.solve(y, x, { out = out }) end,
    { { -3.5, 5 }, { 2.75, -3 } } },
  { "matrix_power", function(x, _, out) torch.linalg.matrix_power(x, 2, { out = out }) end,
    { { 3.5, -5 }, { 2.5, 8.5 } } },
  { "tril", function(x, _, out) torch.tril(x, -1, { out = out }) end, { { 0, 0 }, { 0.5, 0 } } },
  { "renorm", function(x, _, out) torch.renorm(x, 2, 0, 1, { out = out }) end,
    { { 0.894427191, -0.447213595 }, { 0.164398984, 0.986393928 } } },
  { "normalize",
    function(x, _, out) torch.nn.functional.normalize(x, { dim = 0, out = out }) end,
    { { 0.970142543, -0.316227764 }, { 0.242535636, 0.948683262 } } },
}

describe("out= an operand", function()
  for _, case in ipairs(MATRICES) do
    it("of " .. case[1], function()
      local x = operand()
      case[2](x, b, x)
      near(x, case[3])
      torch.manual_seed(3)
      local large = torch.randn(37, 37, { dtype = torch.float64 }) * 0.1 + torch.eye(37):double()
      local other = torch.rand(37, 37, { dtype = torch.float64 }) * 0.1 + torch.eye(37):double()
      local want = torch.empty_like(large)
      case[2](large:clone(), other, want)
      case[2](large, other, large)
      near(large, want, { 1e-9, 1e-9 })
    end)
  end

  it("of sort, topk and cummax leaves the places right", function()
    local x, at = operand(), torch.empty({ 2, 2 }, i64)
    torch.sort(x, 0, { out = { x, at } })
    near(x, { { 0.5, -1 }, { 2, 3 } })
    near(at, { { 1, 0 }, { 0, 1 } })
    x = operand()
    torch.sort(x, 1, true, { out = { x, at } })
    near(x, { { 2, -1 }, { 3, 0.5 } })
    near(at, { { 0, 1 }, { 1, 0 } })
    x = operand()
    torch.topk(x, 2, 1, { out = { x, at } })
    near(x, { { 2, -1 }, { 3, 0.5 } })
    near(at, { { 0, 1 }, { 1, 0 } })
    x = operand()
    torch.cummax(x, 0, { out = { x, at } })
    near(x, { { 2, -1 }, { 2, 3 } })
    near(at, { { 0, 0 }, { 0, 1 } })
  end)

  it("'s row is a reduction's or a product's", function()
    local x = operand()
    torch.sum(x, 0, { out = x[{ 0 }] })
    near(x, { { 2.5, 2 }, { 0.5, 3 } })
    x = operand()
    torch.mean(x, 1, { out = x[{ 0 }] })
    near(x, { { 0.5, 1.75 }, { 0.5, 3 } })
    x = operand()
    torch.amax(x, 0, { out = x[{ 1 }] })
    near(x, { { 2, -1 }, { 2, 3 } })
    x = operand()
    torch.mv(x, x[{ 0 }], { out = x[{ 0 }] })
    near(x, { { 5, -2 }, { 0.5, 3 } })
    x = operand()
    torch.diag(x, { out = x[{ 0 }] })
    near(x, { { 2, 3 }, { 0.5, 3 } })
  end)

  it("is refused where both would lie in one place, element beside element", function()
    local x = operand()
    for _, call in ipairs({
      function() torch.add(x, x:t(), { out = x }) end,
      function() torch.where(b:gt(2), x:t(), b, { out = x }) end,
      function() torch.exp(x:t(), { out = x }) end,
      function() torch.cat({ x:narrow(0, 1, 1), x:narrow(0, 0, 1) }, { out = x }) end,
    }) do
      raises("RuntimeError", "single memory location", call)
      near(x, operand())
    end
  end)

  -- PyTorch refuses these too; here they are made apart and then written.
  it("is written last where elements are picked or stacked", function()
    torch.manual_seed(3)
    local picks, rows = torch.randint(0, 9, { 9, 9 }), torch.randperm(9)
    local y = torch.randn(9, 9)
    for name, call in pairs({
      gather = function(x, o) torch.gather(x, 1, picks, { out = o }) end,
      index_select = function(x, o) torch.index_select(x, 0, rows, { out = o }) end,
      take = function(x, o) torch.take(x, picks, { out = o }) end,
      stack = function(x, o)
        torch.stack({ x[8], x[7], x[6], x[5], x[4], x[3], x[2], x[1], x[0] }, { out = o })
      end,
      outer = function(x, o) torch.outer(x[0], x[1], { out = o }) end,
      scatter = function(x, o) torch.scatter(x, 1, picks, x:clone(), { out = o }) end,
      ["scatter of its source"] = function(x, o) torch.scatter(y, 1, picks, x, { out = o }) end,
      scatter_add = function(x, o) torch.scatter_add(y, 0, picks, x, { out = o }) end,
      index_add = function(x, o) torch.index_add(x, 0, rows, x, { out = o }) end,
    }) do
      local x, want = torch.randn(9, 9), torch.empty(9, 9)
      call(x, want)
      call(x, x)
      assert.is_true(torch.equal(want, x), name)
    end
  end)
end)
