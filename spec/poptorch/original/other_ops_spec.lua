--- PopTorch's own tests of einsum, grids, scattering and buckets (other_ops_test)
--- and of reductions (reduce_ops_test), on the device against the host.
local device = require("spec.support.on_device")
local torch = require("torch")

local both, infer = device.both, device.same

local function randn(...)
  return torch.randn({ ... })
end

describe("other_ops_test", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  it("test_einsum", function()
    for _, case in ipairs({ { "i->", { 5 } }, { "ij->i", { 5, 4 } }, { "i,j->j", { 5 }, { 4 } },
      { "i,j->ji", { 5 }, { 4 } }, { "bij,bjk->bik", { 3, 2, 5 }, { 3, 5, 4 } },
      { "bn,anm,bm->ba", { 2, 5 }, { 3, 5, 4 }, { 2, 4 } },
      { "bfnd,ndh->bfh", { 2, 3, 4, 5 }, { 4, 5, 6 } },
      { "nmku,buvm->bnkv", { 2, 3, 4, 5 }, { 6, 5, 7, 3 } } }) do
      for _, equation in ipairs({ case[1], case[1]:match("^(.*)%->") }) do
        local inputs = {}
        for i = 2, #case do
          inputs[i - 1] = torch.randn(case[i])
        end
        both(function(...)
          return torch.einsum(equation, ...)
        end, inputs, { tol = { rtol = 1e-4, atol = 1e-4 },
          weights = { rtol = 1e-3, atol = 1e-4 }, lr = 1e-5 })
      end
    end
  end)

  it("test_einsum_chained", function()
    both(function(x, y, z)
      local r = torch.einsum("b u k m, b u v m -> b k v", x, y)
      return torch.einsum("b h k n, b k v -> b h v n", z, r)
    end, { randn(1, 4, 8, 4), randn(1, 4, 8, 4), randn(1, 4, 8, 4) },
      { tol = { rtol = 1e-3, atol = 1e-3 }, lr = 1e-7 })
  end)

  it("test_einsum_transpose", function()
    both(function(x)
      return torch.einsum("n c h w -> n h w c", x)
    end, { randn(2, 3, 4, 5) })
  end)

  local LENGTHS = { { 3 }, { 3, 3 }, { 2, 4 }, { 3, 2, 4 }, { 5, 2, 3, 4 } }

  local function vectors(lengths)
    local list = {}
    for i, n in ipairs(lengths) do
      list[i] = randn(n)
    end
    return list
  end

  it("test_meshgrid", function()
    for _, lengths in ipairs(LENGTHS) do
      both(function(...)
        return torch.meshgrid({ ... }, { indexing = "ij" })
      end, vectors(lengths))
    end
  end)

  it("test_cartesian_prod", function()
    for _, lengths in ipairs(LENGTHS) do
      both(torch.cartesian_prod, vectors(lengths))
    end
  end)

  it("test_tensordot", function()
    for _, dims in ipairs({ 2, { { 2 }, { 0 } }, { { 2, 3 }, { 0, 1 } } }) do
      both(function(a, b)
        return torch.tensordot(a, b, { dims = dims })
      end, { randn(2, 3, 5, 4), randn(5, 4, 1) }, { lr = 1e-5 })
    end
  end)

  it("test_scatter_add", function()
    for dim = -3, 2 do
      for _, name in ipairs({ "scatter_add", "scatter_add_" }) do
        local x = randn(4, 4, 8)
        local n = x:size(dim) // 2
        local shape = { 4, 4, 8 }
        shape[dim % 3 + 1] = n
        both(function(src, index)
          local out = torch.ones(shape)
          return out[name](out, dim, index, src)
        end, { x, torch.randint(0, n, { 4, 4, 8 }) })
      end
    end
  end)

  -- f(reduce, include_self, inputs) for all reductions.
  local function reductions(names, f, inputs)
    for _, reduce in ipairs(names) do
      for _, include_self in ipairs({ true, false }) do
        both(function(...)
          return f(reduce, include_self, ...)
        end, inputs, { tol = { rtol = 1e-4, atol = 1e-4 },
          weights = { rtol = 1e-3, atol = 1e-3 }, lr = 1e-6 })
      end
    end
  end

  local SCATTERS = { "sum", "amin", "amax", "mean", "prod" }

  it("test_scatter_reduce", function()
    for dim = -3, 2 do
      local shape = { 4, 6, 8 }
      shape[dim % 3 + 1] = shape[dim % 3 + 1] // 2
      reductions(SCATTERS, function(reduce, include_self, x, index, src)
        return x:scatter_reduce(dim, index, src, { reduce = reduce, include_self = include_self })
      end, { torch.randn(shape), torch.randint(0, shape[dim % 3 + 1], { 4, 6, 8 }),
        randn(4, 6, 8) })
    end
  end)

  it("test_scatter_reduce_fusable", function()
    reductions(SCATTERS, function(reduce, include_self, x, index, ...)
      local out = {}
      for i, src in ipairs({ ... }) do
        out[i] = x:scatter_reduce(0, index, src, { reduce = reduce, include_self = include_self })
      end
      return torch.cat(out, 1)
    end, { randn(4, 6), torch.randint(0, 4, { 8, 6 }), randn(8, 6), randn(8, 6), randn(8, 6) })
  end)

  it("test_scatter_reduce_should_not_apply_grouped_fuse", function()
    local index = torch.randint(0, 8, { 8, 1 })
    for _, reduce in ipairs(SCATTERS) do
      for _, include_self in ipairs({ true, false }) do
        infer(function(a, b, c, x, y, z)
          local out = {}
          for i, pair in ipairs({ { a, x }, { b, y }, { c, z } }) do
            out[i] = pair[1]:scatter_reduce(0, index, pair[2],
              { reduce = reduce, include_self = include_self })
          end
          return torch.cat(out, 1)
        end, { randn(8, 6), randn(8, 7), randn(8, 8), randn(8, 6), randn(8, 7), randn(8, 8) })
      end
    end
  end)

  it("test_index_reduce", function()
    for dim = -3, 2 do
      local shape = { 5, 8, 6 }
      local n = shape[dim % 3 + 1] // 2
      shape[dim % 3 + 1] = n
      reductions({ "mean", "amax", "amin", "prod" }, function(reduce, include_self, x, index, src)
        x = x * 1
        return x:index_reduce_(dim, index, src, { reduce = reduce, include_self = include_self })
      end, { randn(5, 8, 6), torch.randint(0, n, { n }), torch.randn(shape) })
    end
  end)

  it("test_2d_scatter_reduce_with_index_expansion", function()
    for _, expand_as in ipairs({ true, false }) do
      for _, reduce in ipairs({ "sum", "amin", "amax", "mean" }) do
        for _, include_self in ipairs({ true, false }) do
          infer(function(x, index, src)
            index = expand_as and index:expand_as(src) or index:expand(src.shape)
            return x:scatter_reduce(-2, index, src,
              { reduce = reduce, include_self = include_self })
          end, { randn(5, 3), torch.randint(0, 5, { 6, 1 }), torch.rand({ 6, 3 }) })
        end
      end
    end
  end)

  it("test_2d_scatter_add_with_index_expansion", function()
    for _, expand_as in ipairs({ true, false }) do
      infer(function(index, src)
        index = expand_as and index:expand_as(src) or index:expand(src.shape)
        return torch.zeros({ 5, 3 }):scatter_add_({ dim = -2, index = index, src = src })
      end, { torch.randint(0, 5, { 6, 1 }), torch.rand({ 6, 3 }) })
    end
  end)

  it("test_gather_with_index_expansion", function()
    for _, case in ipairs({ { { 3, 5 }, 0, 0 }, { { 3, 5 }, 0, 1 }, { { 3, 5 }, 1, 0 },
      { { 3, 5 }, 1, 1 }, { { 1, 1, 3, 1, 5, 1 }, 3, 2 }, { { 1, 1, 3, 1, 5, 1 }, 2, 4 },
      { { 1, 1, 3, 1, 5, 1 }, 4, 2 }, { { 1, 1, 3, 1, 5, 1 }, 4, 1 }, { { 3, 4, 5 }, 0, 1 } }) do
      for _, expand_as in ipairs({ true, false }) do
        local shape, dim, along = table.unpack(case)
        local data = torch.randint(10, shape, { dtype = torch.int })
        local size = { table.unpack(shape) }
        size[along + 1] = 1
        infer(function(x, index)
          index = expand_as and index:expand_as(x) or index:expand(x.shape)
          return torch.gather(x, dim, index):add(8)
        end, { data, torch.randint(0, shape[dim + 1], size) })
      end
    end
  end)

  it("test_available_memory_scatter_add", function()
    infer(function(src, index)
      local poptorch = require("poptorch")
      local sum = torch.ones({ 4, 8, 8 }):scatter_add(2, index, src)
      return poptorch.isRunningOnIpu() and poptorch.set_available_memory(sum, 0.9) or sum
    end, { randn(4, 8, 16), torch.randint(0, 8, { 4, 8, 16 }) })
  end)

  local BUCKETS = {
    { { { 3, 6, 9 }, { 3, 6, 10 }, { -1, 0, 1 }, { 8, 9, 140 } }, { 1, 3, 5, 7, 9 } },
    { { { 2, 5, 10 }, { 6, 8, 3 } }, { 1, 5, 7, 8, 10 } },
    { 1, { 1, 5, 7, 8, 10 } },
    { { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { 1, 2, 3, 4, 5, 6 } },
    { { { { 1, 3, 5 }, { 2, 4, 6 } }, { { 1, 2, 3 }, { 4, 5, 6 } } }, { 1, 2, 3, 4, 5, 6 } },
  }
  local FRACTIONS = {
    { { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { 0.9, 1, 2, 2, 3, 3, 4, 4.1, 9, 9 } },
    { { { { 1, 3, 5 }, { 2, 4, 6 } }, { { 1, 2, 3 }, { 4, 5, 6 } } },
      { 0.9, 1, 2, 2, 3, 3, 4, 4.1, 9, 9 } },
  }

  local function buckets(cases, dtypes)
    for _, case in ipairs(cases) do
      for _, pair in ipairs(dtypes) do
        for _, right in ipairs({ true, false }) do
          infer(function(x, boundaries)
            return torch.bucketize(x, boundaries, { right = right })
          end, { torch.tensor(case[1], { dtype = pair[1] }),
            torch.tensor(case[2], { dtype = pair[2] }) })
        end
      end
    end
  end

  it("test_bucketize_basic", function()
    local f, i = torch.float32, torch.int32
    buckets(BUCKETS, { { f, f }, { i, f }, { f, i } })
  end)

  it("test_bucketize_fp", function()
    buckets(FRACTIONS, { { torch.float32, torch.float32 } })
  end)

  it("test_bucketize_inplace", function()
    local boundaries = torch.tensor({ 1, 5, 7, 8, 10 }, { dtype = torch.int32 })
    local x = torch.tensor({ { 2, 5, 10 }, { 6, 8, 3 } }, { dtype = torch.int32 })
    for _, narrow in ipairs({ true, false }) do
      local function bucketize(y, b, out)
        return torch.bucketize(y, b, { out_int32 = narrow, out = out })
      end
      local out = torch.zeros({ 2, 3 }, { dtype = narrow and torch.int32 or torch.int64 })
      infer(bucketize, { x, boundaries, out })
      device.infer(bucketize)(x, boundaries, out)
      assert.same({ { 1, 1, 4 }, { 2, 3, 1 } }, out:tolist())
    end
  end)
end)

describe("reduce_ops_test", function()
  -- The keywords without those that are "none".
  local function reduce(op, x, cases)
    for _, keywords in ipairs(cases) do
      infer(function(y)
        return op(y + 0, keywords)
      end, { x })
    end
  end

  local DIMS = { {}, { dim = 0 }, { dim = -1 } }

  it("test_any_all", function()
    local x = torch.randint(0, 3, { 16, 32 })
    reduce(torch.all, x, DIMS)
    reduce(torch.any, x, DIMS)
  end)

  it("test_sum_mean", function()
    local x = torch.rand({ 16, 32 })
    reduce(torch.sum, x, DIMS)
    reduce(torch.mean, x, DIMS)
  end)

  it("test_count_nonzero", function()
    reduce(torch.count_nonzero, torch.randint(10, { 2, 3, 4, 5 }),
      { {}, { dim = 0 }, { dim = -1 }, { dim = { 1, 2 } } })
  end)

  it("test_nansum", function()
    local x = torch.rand({ 10, 10 })
    x = torch.where(x:gt(0.5), x, torch.tensor(0 / 0))
    local cases = {}
    for _, keepdim in ipairs({ true, false }) do
      for _, dtype in ipairs({ torch.float32, torch.float16 }) do
        for _, dim in ipairs({ 0, -1, { 0, 1 } }) do
          cases[#cases + 1] = { dim = dim, keepdim = keepdim, dtype = dtype }
        end
        cases[#cases + 1] = { dtype = dtype }
      end
    end
    reduce(torch.nansum, x, cases)
  end)
end)
