-- Linear algebra against what defines it: products that give the matrix back,
-- symmetric arguments where one triangle is read, errors of singular matrices.
local errors = require("lupine.base.errors")
local torch = require("torch")
local linalg = torch.linalg

local f64 = { dtype = torch.float64 }

local function m(list)
  return torch.tensor(list, f64)
end

local A = m{ { { 2, -0.3, 0.5 }, { 0.4, 1.5, -0.6 }, { -0.7, 0.2, 1.8 } },
  { { 1.2, 0.5, -0.9 }, { -0.4, -1.6, 0.3 }, { 0.1, 0.8, 2.1 } } }
local TALL = m{ { 1.3, 0.2 }, { -0.5, 1.1 }, { 0.7, 0.9 } }
local SINGULAR = m{ { 1, 2 }, { 2, 4 } }

local function close(got, want)
  assert(torch.allclose(got, want, 1e-10, 1e-10), tostring(got) .. tostring(want))
end

local function eye(n)
  return torch.eye(n, f64)
end

-- A symmetric positive definite matrix of any.
local function definite(x)
  return x:matmul(x.mT) + eye(x:size(-1)) * 0.5
end

local function check(fn, ...)
  local inputs = { ... }
  for i, x in ipairs(inputs) do
    inputs[i] = x:clone():requires_grad_()
  end
  torch.autograd.gradcheck(fn, inputs)
  torch.autograd.gradgradcheck(fn, inputs)
end

local function raises(class, text, fn, ...)
  local ok, e = pcall(fn, ...)
  assert(not ok, "no error")
  assert(errors[class]:is(e), tostring(e))
  assert(e.message:find(text, 1, true), e.message)
end

describe("a factorisation", function()
  it("multiplies to the matrix", function()
    for _, x in ipairs({ A, TALL, TALL:t() }) do
      local p, l, u = linalg.lu(x)
      close(p:matmul(l):matmul(u), x)
      local q, r = linalg.qr(x)
      close(q:matmul(r), x)
      local uu, s, vh = linalg.svd(x, false)
      close((uu * s:unsqueeze(-2)):matmul(vh), x)
      uu, s, vh = linalg.svd(x)
      close(s, linalg.svdvals(x))
      close(uu:matmul(uu.mT), torch.eye(x:size(-2), f64):expand_as(uu))
      close(vh:matmul(vh.mT), torch.eye(x:size(-1), f64):expand_as(vh))
      local lu, pivots = linalg.lu_factor(x)
      p, l, u = torch.lu_unpack(lu, pivots)
      close(p:matmul(l):matmul(u), x)
    end
    local x = definite(A)
    local l = linalg.cholesky(x)
    close(l:matmul(l.mT), x)
    local u = linalg.cholesky(x, { upper = true })
    close(u.mT:matmul(u), x)
    local values, v = linalg.eigh(x)
    close((v * values:unsqueeze(-2)):matmul(v.mT), x)
    close(linalg.eigvalsh(x, "U"), values)
  end)

  it("of reflectors is the same Q", function()
    local a, tau = torch.geqrf(TALL)
    local q, r = linalg.qr(TALL)
    close(linalg.householder_product(a, tau), q)
    close(torch.ormqr(a, tau, TALL, true, true):narrow(0, 0, 2), r)
    close(torch.triu(a):narrow(0, 0, 2), r)
  end)

  it("has gradients where only a triangle is read", function()
    check(function(x) return linalg.cholesky(definite(x)) end, A)
    check(function(x) return linalg.cholesky(definite(x), { upper = true }) end, A)
    check(function(x) return linalg.eigvalsh(definite(x)) end, A)
    check(function(x) return (select(2, linalg.eigh(definite(x), "U"))):abs() end, A[0])
    check(function(x, y) return torch.cholesky_solve(y, linalg.cholesky(definite(x))) end, A, A)
    check(function(x) return torch.cholesky_inverse(linalg.cholesky(definite(x))) end, A)
    check(function(x) return linalg.pinv(definite(x), { hermitian = true }) end, A[0])
  end)
end)

describe("a system", function()
  it("is solved by every way alike", function()
    local b = A:narrow(-1, 0, 2)
    local want = torch.inverse(A):matmul(b)
    close(linalg.solve(A, b), want)
    close(linalg.solve(A.mT, b.mT, { left = false }), want.mT)
    local lu, pivots = linalg.lu_factor(A)
    close(linalg.lu_solve(lu, pivots, b), want)
    close(linalg.lu_solve(lu, pivots, b.mT, { left = false, adjoint = true }), want.mT)
    close(torch.lu_solve(b, lu, pivots), want)
    close((linalg.lstsq(A, b)), want)
    close(linalg.tensorsolve(A[0], b[0]:select(-1, 0)), want[0]:select(-1, 0))
    close(linalg.matrix_power(A, -2):matmul(A):matmul(A), eye(3):expand_as(A))
    local x = definite(A)
    local ld, at = linalg.ldl_factor(x)
    close(x:matmul(linalg.ldl_solve(ld, at, b)), b)
    local wide = b:unsqueeze(1):expand(-1, 4, -1, -1)
    close(linalg.ldl_solve(ld:unsqueeze(1), at:unsqueeze(1), wide[0]),
      linalg.solve(x:unsqueeze(1), wide[0]))
    close(x:matmul(torch.cholesky_solve(b, linalg.cholesky(x))), b)
    close(x:matmul(torch.cholesky_inverse(linalg.cholesky(x))), eye(3):expand_as(x))
  end)

  it("broadcasts batches", function()
    local b = torch.ones({ 4, 1, 3, 2 }, f64)
    local x = linalg.solve(A, b)
    assert.same({ 4, 2, 3, 2 }, { table.unpack(x.shape) })
    close(A:matmul(x), b:expand_as(x))
    local y = linalg.solve_triangular(A, b, { upper = true })
    close(torch.triu(A):matmul(y), b:expand_as(y))
  end)

  it("has least squares by all drivers", function()
    local b = m{ { 1 }, { 2 }, { -1 } }
    local want = linalg.pinv(TALL):matmul(b)
    for _, driver in ipairs({ "gels", "gelsy", "gelsd", "gelss" }) do
      local x, residuals, rank = linalg.lstsq(TALL, b, { driver = driver })
      close(x, want)
      if driver == "gelsy" then
        assert.equal(0, residuals:numel())
      else
        close(residuals, (TALL:matmul(want) - b):square():sum(0))
      end
      assert.equal(driver == "gels" and 0 or 1, rank:numel())
    end
    local same = torch.ones({ 3, 2 }, f64)
    local _, residuals, rank = linalg.lstsq(same, b, { driver = "gelsd" })
    assert.equal(0, residuals:numel())
    assert.equal(1, rank:item())
  end)

  it("that is singular raises LinAlgError", function()
    local stacked = torch.stack({ eye(2), SINGULAR })
    raises("LinAlgError", "linalg.inv: The diagonal element 2 is zero", linalg.inv, SINGULAR)
    raises("LinAlgError", "linalg.inv: (Batch element 1): The diagonal element 2 is zero",
      torch.inverse, stacked)
    raises("RuntimeError", "torch.linalg.solve: The solver failed because the input matrix is "
      .. "singular.", linalg.solve, SINGULAR, torch.ones({ 2 }, f64))
    raises("LinAlgError", "(the leading minor of order 1 is not positive-definite)",
      linalg.cholesky, -SINGULAR)
    raises("LinAlgError", "U[2,2] is zero", linalg.lu_factor, SINGULAR)
    raises("LinAlgError", "non-finite values", linalg.svdvals, SINGULAR / 0)
    raises("NotImplementedError", "linalg.eigh takes symmetric matrices", linalg.eig, SINGULAR)
    local _, info = linalg.inv_ex(stacked)
    assert.same({ 0, 2 }, info:tolist())
  end)
end)

describe("empty matrices", function()
  it("have empty results and gradients, and the values of empty products", function()
    local x = torch.zeros({ 2, 0, 0 }, f64):requires_grad_()
    assert.same({ 1, 1 }, torch.det(x):tolist())
    torch.det(x):sum():backward()
    assert.equal(0, x.grad:numel())
    assert.equal(0, linalg.inv(x):numel())
    assert.equal(0, linalg.cond(x):sum():item())
    local q, r = linalg.qr(torch.zeros({ 3, 0 }, f64), "complete")
    close(q, eye(3))
    assert.same({ 3, 0 }, { table.unpack(r.shape) })
    local u, _, vh = linalg.svd(torch.zeros({ 0, 2 }, f64))
    assert.equal(0, u:numel())
    close(vh, eye(2))
    local wide = torch.zeros({ 2, 3, 0 }, f64):requires_grad_()
    linalg.householder_product(wide, torch.zeros({ 2, 0 }, f64)):sum():backward()
    assert.equal(0, wide.grad:numel())
  end)
end)

describe("the determinant", function()
  it("has the gradient of a singular matrix too", function()
    local x = SINGULAR:clone():requires_grad_()
    torch.det(x):backward()
    close(x.grad, m{ { 4, -2 }, { -2, 1 } })
    x = torch.zeros({ 3, 3 }, f64):requires_grad_()
    torch.det(x):backward()
    close(x.grad, torch.zeros({ 3, 3 }, f64))
  end)

  it("of a negative one has no logarithm", function()
    assert(torch.isnan(torch.logdet(-eye(3))):item())
    local sign, logs = linalg.slogdet(-eye(3) * 2)
    assert.equal(-1, sign:item())
    assert.near(3 * math.log(2), logs:item(), 1e-12)
    assert.equal(1, torch.det(torch.ones({ 0, 0 }, f64)):item())
  end)
end)

describe("einsum", function()
  local x, y = A, A.mT:contiguous()

  it("is the product that the equation says", function()
    close(torch.einsum("bij,bjk->bik", { x, y }), x:matmul(y))
    close(torch.einsum("bij,ckj", x, x), torch.tensordot(x, x, { { 2 }, { 2 } })
      :permute(0, 2, 1, 3))
    close(torch.einsum("...ii", { x }), x:diagonal(0, -2, -1):sum(-1))
    close(torch.einsum("b...i->i...b", { x }), x:permute(2, 1, 0))
    close(torch.einsum(x, { 0, 1, 2 }, y, { 0, 2, 3 }, { 0, 1, 3 }), x:matmul(y))
    close(torch.einsum(x, { torch.ellipsis, 0 }, { torch.ellipsis }), x:sum(-1))
    close(torch.einsum("ij,jk,kl->il", { x[0], x[1], y[0] }), x[0]:matmul(x[1]):matmul(y[0]))
  end)

  it("names what is wrong in it", function()
    raises("RuntimeError", "output subscript l does not appear", torch.einsum, "ij,jk->il",
      { x[0], x[0] })
    raises("RuntimeError", "more operands were provided", torch.einsum, "ij", { x[0], x[0] })
    raises("RuntimeError", "fewer operands were provided", torch.einsum, "ij,jk", { x[0] })
    raises("RuntimeError", "invalid subscript given at index 1", torch.einsum, "i1", { x[0] })
    raises("RuntimeError", "appears more than once", torch.einsum, "ij->ii", { x[0] })
    raises("RuntimeError", "does not broadcast", torch.einsum, "ij,ij->i", { x[0], TALL })
  end)
end)

describe("norms of matrices", function()
  it("are their definitions", function()
    local x = TALL
    assert.near(1.6, linalg.matrix_norm(x, math.huge):item(), 1e-12)
    close(linalg.matrix_norm(x, 1), x:abs():sum(0):max())
    close(linalg.matrix_norm(x, -1), x:abs():sum(0):min())
    close(linalg.norm(x, math.huge), x:abs():sum(1):max())
    close(linalg.norm(x, -math.huge), x:abs():sum(1):min())
    close(linalg.norm(x, 2):square(), linalg.eigvalsh(x:t():matmul(x)):max())
    close(linalg.norm(x, "nuc"), linalg.svdvals(x):sum())
    close(torch.norm(x, "nuc"), linalg.svdvals(x):sum())
    close(linalg.cond(x), linalg.norm(x, 2) / linalg.norm(x, -2))
    close(linalg.cond(A, 1), linalg.norm(A, 1, { -2, -1 }) * linalg.norm(torch.inverse(A), 1,
      { -2, -1 }))
    assert.equal(math.huge, linalg.cond(SINGULAR, "fro"):item())
    assert.equal(1, linalg.matrix_rank(SINGULAR):item())
  end)

  it("and exponentials follow the series", function()
    local x, sum, term = A[0] * 3, eye(3), eye(3)
    for k = 1, 80 do
      term = term:matmul(x) / k
      sum = sum + term
    end
    assert(torch.allclose(torch.matrix_exp(x), sum, 1e-9, 1e-9))
  end)
end)
