-- The types of results under torch.autocast, as PyTorch 2.15 has them on the
-- CPU: every operator whose record names types for it, what Lua adds, and some
-- that keep the types of their operands.
local core = require("lupine.core")
local torch = require("torch")

local F, nn, linalg = torch.nn.functional, torch.nn, torch.linalg

-- Makers of operands in one type: normal numbers, numbers in (0, 1), the unit
-- matrix, a module's parameters.
local function makers(dtype)
  local function cast(x)
    return x:to(dtype)
  end
  return function(...)
    return cast(torch.randn({ ... }))
  end, function(...)
    return cast(torch.rand({ ... }) * 0.8 + 0.1)
  end, function(n)
    return cast(torch.eye(n))
  end, cast
end

-- Operator (or what else it is), the types inside autocast to bfloat16 of
-- float32 and of bfloat16 operands, then those inside autocast to float16 of
-- float32 and of float16 operands; a call of (normal, uniform, unit, cast).
-- luacheck: push ignore 212
local CASES = {
  -- products, convolutions
  { "prelu", "bf16 bf16 f16 f16", function(m, u, e, c) return torch.prelu(m(2, 3), m(3)) end },
  { "vecdot", "bf16 bf16 f16 f16", function(m, u, e, c)
    return linalg.vecdot(m(2, 2), m(2, 2))
  end },
  { "mm", "bf16 bf16 f16 f16", function(m, u, e, c) return torch.mm(m(2, 4), m(4, 3)) end },
  { "bmm", "bf16 bf16 f16 f16", function(m, u, e, c) return torch.bmm(m(1, 2, 4), m(1, 4, 3)) end },
  { "matmul", "bf16 bf16 f16 f16", function(m, u, e, c) return torch.matmul(m(2, 4), m(4)) end },
  { "matmul", "bf16 bf16 f16 f16", function(m, u, e, c) return torch.matmul(m(4), m(4)) end },
  { "inner", "bf16 bf16 f16 f16", function(m, u, e, c) return torch.inner(m(3, 4), m(5, 4)) end },
  { "addmm", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.addmm(m(2, 3), m(2, 4), m(4, 3))
  end },
  { "baddbmm", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.baddbmm(m(1, 2, 3), m(1, 2, 4), m(1, 4, 3))
  end },
  { "addbmm", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.addbmm(m(2, 3), m(1, 2, 4), m(1, 4, 3))
  end },
  { "linear", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.linear(m(2, 4), m(3, 4), m(3))
  end },
  { "einsum", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.einsum("ij,jk", m(2, 2), m(2, 2))
  end },
  { "einsum", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.einsum("i,i->", m(2), m(2))
  end },
  { "einsum", "f32 bf16 f32 f16", function(m, u, e, c)
    return torch.einsum("i,i->i", m(2), m(2))
  end },
  { "einsum", "f32 bf16 f32 f16", function(m, u, e, c) return torch.einsum("ij->i", m(2, 2)) end },
  { "tensordot", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.tensordot(m(3, 4), m(4, 5), 1)
  end },
  { "tensordot_lists", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.tensordot(m(3, 4), m(5, 4), { { 1 }, { 1 } })
  end },
  { "multi_dot", "bf16 bf16 f16 f16", function(m, u, e, c)
    return linalg.multi_dot({ m(3, 4), m(4, 5) })
  end },
  { "chain_matmul", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.chain_matmul(m(3, 4), m(4, 5))
  end },
  { "matrix_power", "bf16 bf16 f16 f16", function(m, u, e, c)
    return torch.matrix_power(m(3, 3), 2)
  end },
  { "scaled_dot_product_attention", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.scaled_dot_product_attention(m(1, 2, 4), m(1, 2, 4), m(1, 2, 4))
  end },
  -- (of float32 operands under float16 PyTorch's LSTM has no kernel)
  { "lstm_layer", "bf16 bf16 f16 f16", function(m, u, e, c)
    return (c(nn.LSTM(4, 3))(m(2, 1, 4)))
  end },
  { "rnn_layer", "bf16 bf16 f16 f16", function(m, u, e, c)
    return (c(nn.RNN(4, 3))(m(2, 1, 4)))
  end },
  { "conv1d", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv1d(m(1, 1, 4), m(1, 1, 2))
  end },
  { "conv1d_padding", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv1d(m(1, 1, 4), m(1, 1, 3), nil, 1, "same")
  end },
  { "conv_transpose1d", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv_transpose1d(m(1, 1, 4), m(1, 1, 2))
  end },
  { "conv2d", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv2d(m(1, 1, 4, 4), m(1, 1, 2, 2), m(1))
  end },
  { "conv2d_padding", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv2d(m(1, 1, 4, 4), m(1, 1, 3, 3), nil, 1, "valid")
  end },
  { "conv_transpose2d", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv_transpose2d(m(1, 1, 4, 4), m(1, 1, 2, 2))
  end },
  { "conv3d", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv3d(m(1, 1, 3, 3, 3), m(1, 1, 2, 2, 2))
  end },
  { "conv3d_padding", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv3d(m(1, 1, 3, 3, 3), m(1, 1, 3, 3, 3), nil, 1, "same")
  end },
  { "conv_transpose3d", "bf16 bf16 f16 f16", function(m, u, e, c)
    return F.conv_transpose3d(m(1, 1, 3, 3, 3), m(1, 1, 2, 2, 2))
  end },

  -- reductions, pooling, padding
  { "prod", "f32 f32 f32 f32", function(m, u, e, c) return torch.prod(m(3)) end },
  { "trace", "f32 f32 f32 f32", function(m, u, e, c) return torch.trace(m(3, 3)) end },
  { "quantile", "f32 f32 f32 f32", function(m, u, e, c) return torch.quantile(m(4), 0.5) end },
  { "nanquantile", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.nanquantile(m(4), 0.5)
  end },
  { "cdist", "f32 f32 f32 f32", function(m, u, e, c) return torch.cdist(m(3, 4), m(3, 4)) end },
  { "max_pool3d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.max_pool3d(m(1, 1, 4, 4, 4), 2)
  end },
  { "adaptive_avg_pool3d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.adaptive_avg_pool3d(m(1, 1, 4, 4, 4), 2)
  end },
  { "adaptive_max_pool3d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.adaptive_max_pool3d(m(1, 1, 4, 4, 4), 2)
  end },
  { "adaptive_max_pool3d_with_indices", "f32 f32 f32 f32", function(m, u, e, c)
    return (F.adaptive_max_pool3d_with_indices(m(1, 1, 4, 4, 4), 2))
  end },
  { "avg_pool3d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.avg_pool3d(m(1, 1, 4, 4, 4), 2)
  end },
  { "pad", "f32 f32 f32 f32", function(m, u, e, c)
    return F.pad(m(1, 1, 4, 4), { 1, 1, 1, 1 }, "reflect")
  end },
  { "pad", "f32 f32 f32 f32", function(m, u, e, c)
    return F.pad(m(1, 1, 4), { 1, 1 }, "replicate")
  end },
  { "pad", "f32 bf16 f32 f16", function(m, u, e, c)
    return F.pad(m(1, 1, 4, 4), { 1, 1 }, "constant")
  end },
  { "pad", "f32 bf16 f32 f16", function(m, u, e, c)
    return F.pad(m(1, 1, 4), { 1, 1 }, "circular")
  end },

  -- losses
  { "nll_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.nll_loss(m(2, 3), torch.tensor({ 0, 1 }))
  end },
  { "cross_entropy", "f32 f32 f32 f32", function(m, u, e, c)
    return F.cross_entropy(m(2, 3), torch.tensor({ 0, 1 }))
  end },
  { "mse_loss", "f32 f32 f32 f32", function(m, u, e, c) return F.mse_loss(m(3), m(3)) end },
  { "l1_loss", "f32 f32 f32 f32", function(m, u, e, c) return F.l1_loss(m(3), m(3)) end },
  { "smooth_l1_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.smooth_l1_loss(m(3), m(3))
  end },
  { "huber_loss", "f32 f32 f32 f32", function(m, u, e, c) return F.huber_loss(m(3), m(3)) end },
  { "binary_cross_entropy_with_logits", "f32 f32 f32 f32", function(m, u, e, c)
    return F.binary_cross_entropy_with_logits(m(3), u(3))
  end },
  { "kl_div", "f32 f32 f32 f32", function(m, u, e, c)
    return F.kl_div(m(3), u(3), nil, nil, "sum")
  end },
  { "poisson_nll_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.poisson_nll_loss(m(3), u(3))
  end },
  { "margin_ranking_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.margin_ranking_loss(m(3), m(3), u(3))
  end },
  { "hinge_embedding_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.hinge_embedding_loss(m(3), u(3))
  end },
  { "soft_margin_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.soft_margin_loss(m(3), m(3))
  end },
  { "binary_cross_entropy", "f32 f32 f32 f32", function(m, u, e, c)
    return F.binary_cross_entropy(u(3), u(3))
  end },

  -- linear algebra
  { "lu_solve", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.lu_solve(m(2, 2), e(2), torch.tensor({ 1, 2 }):int())
  end },
  { "cholesky_ex", "f32 f32 f32 f32", function(m, u, e, c) return (linalg.cholesky_ex(e(2))) end },
  { "cholesky_ex", "f32 f32 f32 f32", function(m, u, e, c) return linalg.cholesky(e(2)) end },
  { "cholesky_inverse", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.cholesky_inverse(e(2))
  end },
  { "cholesky_solve", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.cholesky_solve(m(2, 2), e(2))
  end },
  { "qr", "f32 f32 f32 f32", function(m, u, e, c) return (linalg.qr(m(2, 2))) end },
  { "geqrf", "f32 f32 f32 f32", function(m, u, e, c) return (torch.geqrf(m(2, 2))) end },
  { "householder_product", "f32 f32 f32 f32", function(m, u, e, c)
    return linalg.householder_product(m(2, 2), m(2))
  end },
  { "householder_product", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.orgqr(m(2, 2), m(2))
  end },
  { "ormqr", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.ormqr(m(2, 2), m(2), m(2, 2))
  end },
  { "triangular_solve", "f32 f32 f32 f32", function(m, u, e, c)
    return (torch.triangular_solve(m(2, 2), e(2)))
  end },
  { "solve_ex", "f32 f32 f32 f32", function(m, u, e, c) return linalg.solve(e(2), m(2, 2)) end },
  { "inv_ex", "f32 f32 f32 f32", function(m, u, e, c) return (linalg.inv_ex(e(2))) end },
  { "inv_ex", "f32 f32 f32 f32", function(m, u, e, c) return torch.inverse(e(2)) end },
  { "tensorinv", "f32 f32 f32 f32", function(m, u, e, c) return linalg.tensorinv(e(2), 1) end },
  { "tensorsolve", "f32 f32 f32 f32", function(m, u, e, c)
    return linalg.tensorsolve(e(2), m(2))
  end },
  { "lstsq", "f32 f32 f32 f32", function(m, u, e, c) return (linalg.lstsq(m(3, 2), m(3, 1))) end },
  { "svd", "f32 f32 f32 f32", function(m, u, e, c) return (linalg.svd(m(2, 2))) end },
  { "svd_old", "f32 f32 f32 f32", function(m, u, e, c) return (torch.svd(m(2, 2))) end },
  { "svdvals", "f32 f32 f32 f32", function(m, u, e, c) return linalg.svdvals(m(2, 2)) end },
  { "eigh", "f32 f32 f32 f32", function(m, u, e, c) return (linalg.eigh(e(2))) end },
  { "eigvalsh", "f32 f32 f32 f32", function(m, u, e, c) return linalg.eigvalsh(e(2)) end },
  { "matrix_rank", "i64 i64 i64 i64", function(m, u, e, c) return linalg.matrix_rank(e(2)) end },
  { "cond", "f32 f32 f32 f32", function(m, u, e, c) return linalg.cond(e(2)) end },
  { "cond_named", "f32 f32 f32 f32", function(m, u, e, c) return linalg.cond(e(2), "fro") end },

  -- the widest of the operands
  { "cat", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.cat({ m(2), torch.zeros(2) })
  end },
  { "cat", "f32 bf16 f32 f16", function(m, u, e, c) return torch.concat({ m(2), m(2) }) end },
  { "stack", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.stack({ m(2), torch.zeros(2) })
  end },
  { "stack", "f32 bf16 f32 f16", function(m, u, e, c) return torch.stack({ m(2), m(2) }) end },
  { "index_copy", "f32 f32 f32 f32", function(m, u, e, c)
    return torch.index_copy(m(2), 0, torch.tensor({ 1 }), torch.zeros(1))
  end },
  { "index_copy", "f32 bf16 f32 f16", function(m, u, e, c)
    return torch.index_copy(m(2), 0, torch.tensor({ 1 }), m(1))
  end },

  -- functions of Lua that run in float32 whole
  { "grid_sample", "f32 f32 f32 f32", function(m, u, e, c)
    return F.grid_sample(m(1, 1, 4, 4), m(1, 2, 2, 2))
  end },
  { "ctc_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.ctc_loss(m(4, 1, 3):log_softmax(2), torch.tensor({ { 1 } }), torch.tensor({ 4 }),
      torch.tensor({ 1 }))
  end },
  { "cosine_embedding_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.cosine_embedding_loss(m(2, 3), m(2, 3), torch.ones(2))
  end },
  { "triplet_margin_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.triplet_margin_loss(m(2, 3), m(2, 3), m(2, 3))
  end },
  { "multi_margin_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.multi_margin_loss(m(2, 3), torch.tensor({ 0, 1 }))
  end },
  { "multilabel_margin_loss", "f32 f32 f32 f32", function(m, u, e, c)
    return F.multilabel_margin_loss(m(1, 3), torch.tensor({ { 0, -1, -1 } }))
  end },
  { "max_unpool2d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.max_unpool2d(m(1, 1, 1, 1), torch.tensor({ { { { 0 } } } }), 2)
  end },
  { "max_unpool3d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.max_unpool3d(m(1, 1, 1, 1, 1), torch.tensor({ { { { { 0 } } } } }), 2)
  end },
  { "fractional_max_pool2d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.fractional_max_pool2d(m(1, 1, 4, 4), 2, 2)
  end },
  { "fractional_max_pool2d_with_indices", "f32 f32 f32 f32", function(m, u, e, c)
    return (F.fractional_max_pool2d_with_indices(m(1, 1, 4, 4), 2, 2))
  end },
  { "fractional_max_pool3d", "f32 f32 f32 f32", function(m, u, e, c)
    return F.fractional_max_pool3d(m(1, 1, 4, 4, 4), 2, 2)
  end },
  { "fractional_max_pool3d_with_indices", "f32 f32 f32 f32", function(m, u, e, c)
    return (F.fractional_max_pool3d_with_indices(m(1, 1, 4, 4, 4), 2, 2))
  end },

  -- as they are
  { "GRU", "f32 bf16 f32 f16", function(m, u, e, c) return (c(nn.GRU(4, 3))(m(2, 1, 4))) end },
  { "LSTMCell", "f32 bf16 f32 f16", function(m, u, e, c)
    return (c(nn.LSTMCell(4, 3))(m(1, 4)))
  end },
  { "addmv", "f32 bf16 f32 f16", function(m, u, e, c) return torch.addmv(m(3), m(3, 4), m(4)) end },
  { "mv", "f32 bf16 f32 f16", function(m, u, e, c) return torch.mv(m(3, 4), m(4)) end },
  { "dot", "f32 bf16 f32 f16", function(m, u, e, c) return torch.dot(m(4), m(4)) end },
  { "bilinear", "f32 bf16 f32 f16", function(m, u, e, c)
    return F.bilinear(m(2, 3), m(2, 4), m(5, 3, 4))
  end },
  { "kron", "f32 bf16 f32 f16", function(m, u, e, c) return torch.kron(m(2, 2), m(2, 2)) end },
  { "softmax", "f32 bf16 f32 f16", function(m, u, e, c) return torch.softmax(m(3), 0) end },
  { "layer_norm", "f32 bf16 f32 f16", function(m, u, e, c)
    return F.layer_norm(m(2, 3), { 3 })
  end },
  { "sum", "f32 bf16 f32 f16", function(m, u, e, c) return torch.sum(m(3)) end },
  { "norm", "f32 bf16 f32 f16", function(m, u, e, c) return torch.norm(m(3)) end },
  { "exp", "f32 bf16 f32 f16", function(m, u, e, c) return torch.exp(m(3)) end },
  { "pow", "f32 bf16 f32 f16", function(m, u, e, c) return torch.pow(u(3), 2.5) end },
  { "cumsum", "f32 bf16 f32 f16", function(m, u, e, c) return torch.cumsum(m(3), 0) end },
  { "max_pool2d", "f32 bf16 f32 f16", function(m, u, e, c)
    return F.max_pool2d(m(1, 1, 4, 4), 2)
  end },
  { "serialized_matmul", "bf16 bf16 f16 f16", function(m, u, e, c)
    local poptorch = require("poptorch")
    return poptorch.serializedMatMul(m(2, 4), m(4, 6),
      poptorch.MatMulSerializationMode.OutputChannels, 2)
  end },
  { "max_pool3d_with_indices", "f32 bf16 f32 f16", function(m, u, e, c)
    return (F.max_pool3d_with_indices(m(1, 1, 4, 4, 4), 2))
  end },
}
-- luacheck: pop

local NAMES = { f32 = torch.float32, bf16 = torch.bfloat16, f16 = torch.float16, i64 = torch.int64 }
local SCOPES = { { torch.bfloat16, torch.float32 }, { torch.bfloat16, torch.bfloat16 },
  { torch.float16, torch.float32 }, { torch.float16, torch.float16 } }

describe("torch.autocast gives the types of PyTorch:", function()
  for _, case in ipairs(CASES) do
    it(case[1] .. " " .. case[2], function()
      local got = {}
      for i, scope in ipairs(SCOPES) do
        local dtype = torch.autocast("cpu", { dtype = scope[1] }, function()
          return (case[3](makers(scope[2]))).dtype
        end)
        for name, known in pairs(NAMES) do
          got[i] = dtype == known and name or got[i]
        end
      end
      assert.equal(case[2], table.concat(got, " "))
      assert.is_nil(core.autocast())
    end)
  end

  it("of every operator whose record says so", function()
    local shown = {}
    for _, case in ipairs(CASES) do
      shown[case[1]] = true
    end
    local n = 0
    for _, form in ipairs(core.form_list()) do
      if form.cast ~= "as_is" then
        assert.is_true(shown[form.op], form.op .. " has no case here")
        n = n + 1
      end
    end
    assert.is_true(n > 77)
  end)
end)
