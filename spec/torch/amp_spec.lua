-- torch.autocast and torch.amp.GradScaler: types and scales as PyTorch 2.15 has
-- them on the CPU.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local F = torch.nn.functional
local bf16, f32 = torch.bfloat16, torch.float32

local function inside(f)
  return torch.autocast("cpu", f)
end

-- name, function of a maker of tensors; the result's type for float32 and for
-- bfloat16 operands, as PyTorch gives it
local CASES = {
  { "linear", function(m) return F.linear(m(2, 4), m(3, 4), m(3)) end, bf16, bf16 },
  { "mm", function(m) return m(2, 4):mm(m(4, 3)) end, bf16, bf16 },
  { "matmul", function(m) return m(2, 4):matmul(m(4)) end, bf16, bf16 },
  { "matmul of vectors", function(m) return m(4):matmul(m(4)) end, bf16, bf16 },
  { "bmm", function(m) return m(1, 2, 4):bmm(m(1, 4, 3)) end, bf16, bf16 },
  { "addmm", function(m) return torch.addmm(m(2, 3), m(2, 4), m(4, 3)) end, bf16, bf16 },
  { "baddbmm", function(m) return torch.baddbmm(m(1, 2, 3), m(1, 2, 4), m(1, 4, 3)) end, bf16,
    bf16 },
  { "inner", function(m) return torch.inner(m(3, 4), m(5, 4)) end, bf16, bf16 },
  { "tensordot", function(m) return torch.tensordot(m(3, 4), m(4, 5), 1) end, bf16, bf16 },
  { "multi_dot", function(m) return torch.linalg.multi_dot({ m(3, 4), m(4, 5) }) end, bf16, bf16 },
  { "matrix_power", function(m) return torch.matrix_power(m(3, 3), 2) end, bf16, bf16 },
  { "vecdot", function(m) return torch.linalg.vecdot(m(2, 2), m(2, 2)) end, bf16, bf16 },
  { "einsum", function(m) return torch.einsum("ij,jk", m(2, 2), m(2, 2)) end, bf16, bf16 },
  { "einsum of a sum", function(m) return torch.einsum("i,i->", m(2), m(2)) end, bf16, bf16 },
  { "einsum without one", function(m) return torch.einsum("i,i->i", m(2), m(2)) end, f32, bf16 },
  { "conv1d", function(m) return F.conv1d(m(1, 1, 4), m(1, 1, 2)) end, bf16, bf16 },
  { "conv2d", function(m) return F.conv2d(m(1, 1, 4, 4), m(1, 1, 2, 2), { padding = "same" }) end,
    bf16, bf16 },
  { "conv_transpose2d", function(m) return F.conv_transpose2d(m(1, 1, 4, 4), m(1, 1, 2, 2)) end,
    bf16, bf16 },
  { "attention", function(m)
    return F.scaled_dot_product_attention(m(1, 2, 4), m(1, 2, 4), m(1, 2, 4))
  end, bf16, bf16 },
  { "LSTM", function(m) return (torch.nn.LSTM(4, 3):to(m(1).dtype)(m(2, 1, 4))) end, bf16, bf16 },
  { "GRU", function(m) return (torch.nn.GRU(4, 3):to(m(1).dtype)(m(2, 1, 4))) end, f32, bf16 },
  { "LSTMCell", function(m) return (torch.nn.LSTMCell(4, 3):to(m(1).dtype)(m(1, 4))) end, f32,
    bf16 },
  { "addmv", function(m) return torch.addmv(m(3), m(3, 4), m(4)) end, f32, bf16 },
  { "mv", function(m) return torch.mv(m(3, 4), m(4)) end, f32, bf16 },
  { "dot", function(m) return torch.dot(m(4), m(4)) end, f32, bf16 },
  { "bilinear", function(m) return F.bilinear(m(2, 3), m(2, 4), m(5, 3, 4)) end, f32, bf16 },
  { "kron", function(m) return torch.kron(m(2, 2), m(2, 2)) end, f32, bf16 },
  { "softmax", function(m) return m(3):softmax(0) end, f32, bf16 },
  { "layer_norm", function(m) return F.layer_norm(m(2, 3), { 3 }) end, f32, bf16 },
  { "sum", function(m) return m(3):sum() end, f32, bf16 },
  { "norm", function(m) return m(3):norm() end, f32, bf16 },
  { "prod", function(m) return m(3):prod() end, f32, f32 },
  { "trace", function(m) return m(3, 3):trace() end, f32, f32 },
  { "cdist", function(m) return torch.cdist(m(3, 4), m(3, 4)) end, f32, f32 },
  { "quantile", function(m) return torch.quantile(m(4), .5) end, f32, f32 },
  { "max_pool3d", function(m) return F.max_pool3d(m(1, 1, 4, 4, 4), 2) end, f32, f32 },
  { "avg_pool3d", function(m) return F.avg_pool3d(m(1, 1, 4, 4, 4), 2) end, f32, f32 },
  { "reflection", function(m) return F.pad(m(1, 1, 4, 4), { 1, 1, 1, 1 }, "reflect") end, f32,
    f32 },
  { "constant padding", function(m) return F.pad(m(1, 1, 4, 4), { 1, 1 }) end, f32, bf16 },
  { "grid_sample", function(m) return F.grid_sample(m(1, 1, 4, 4), m(1, 2, 2, 2)) end, f32, f32 },
  { "mse_loss", function(m) return F.mse_loss(m(3), m(3)) end, f32, f32 },
  { "cross_entropy", function(m) return F.cross_entropy(m(2, 3), torch.tensor({ 0, 1 })) end, f32,
    f32 },
  { "kl_div", function(m) return F.kl_div(m(3), m(3), { reduction = "sum" }) end, f32, f32 },
  { "ctc_loss", function(m)
    return F.ctc_loss(m(4, 1, 3):log_softmax(2), torch.tensor({ { 1 } }), torch.tensor({ 4 }),
      torch.tensor({ 1 }))
  end, f32, f32 },
  { "triplet_margin_loss", function(m)
    return F.triplet_margin_loss(m(2, 3), m(2, 3), { negative = m(2, 3) })
  end, f32, f32 },
  { "inv", function(m) return torch.linalg.inv(m(2, 2) + 5 * torch.eye(2):to(m(1).dtype)) end, f32,
    f32 },
  { "solve", function(m) return torch.linalg.solve(m(2, 2), m(2, 2)) end, f32, f32 },
  { "svdvals", function(m) return torch.linalg.svdvals(m(2, 2)) end, f32, f32 },
  { "cat", function(m) return torch.cat({ m(2), torch.zeros(2) }) end, f32, f32 },
}

describe("torch.autocast", function()
  for _, c in ipairs(CASES) do
    it("gives the types of PyTorch: " .. c[1], function()
      for i, dtype in ipairs({ f32, bf16 }) do
        local function make(...)
          return torch.randn({ ... }):to(dtype)
        end
        assert.equal(c[2 + i], inside(function()
          return c[2](make).dtype
        end))
      end
      assert.is_nil(require("lupine.core").autocast())
    end)
  end

  it("leaves float64, integers and everything outside as they are", function()
    inside(function()
      assert.equal(torch.float64, torch.ones(2, 2):double():mm(torch.ones(2, 2):double()).dtype)
      assert.equal(torch.int64, torch.tensor({ { 1 } }):mm(torch.tensor({ { 2 } })).dtype)
    end)
    assert.equal(f32, torch.ones(2, 2):mm(torch.ones(2, 2)).dtype)
  end)

  it("computes the product of the rounded operands, and float32 gradients", function()
    local x = torch.randn({ 5, 7 })
    local w = torch.randn({ 3, 7 }):requires_grad_()
    local y = torch.autocast("cpu", { dtype = torch.float16 }, function()
      return F.linear(x, w)
    end)
    assert.equal(torch.float16, y.dtype)
    local want = x:half():float():matmul(w:detach():half():float():t())
    assert.is_true(torch.allclose(want, y:float(), 2e-3, 2e-3))
    y:float():sum():backward()
    assert.equal(f32, w.grad.dtype)
    assert.is_true(torch.allclose(x:half():float():sum(0):expand(3, 7), w.grad, 2e-3, 4e-3))
  end)

  it("nests, is switched off inside and ends with its scope, also after an error", function()
    assert.is_false(torch.is_autocast_enabled("cpu"))
    do
      local _ <close> = torch.autocast({ device_type = "cpu", dtype = torch.float16 })
      assert.is_true(torch.is_autocast_enabled("cpu"))
      assert.equal(torch.float16, torch.get_autocast_dtype("cpu"))
      torch.autocast("cpu", { enabled = false }, function()
        assert.equal(f32, torch.ones(2, 2):mm(torch.ones(2, 2)).dtype)
      end)
      pcall(torch.amp.autocast, "cpu", error)
      assert.equal(torch.float16, torch.ones(2, 2):mm(torch.ones(2, 2)).dtype)
    end
    assert.is_false(torch.is_autocast_enabled())
    assert.equal(bf16, torch.get_autocast_dtype("cpu"))
    local f = torch.autocast("cpu")(function(x)
      return x:mm(x).dtype
    end)
    assert.equal(bf16, f(torch.ones(2, 2)))
    assert.is_false(torch.is_autocast_enabled())
  end)

  it("works in a compiled model", function()
    local Net = torch.nn.Module:extend("Net")
    function Net:init()
      self.fc = torch.nn.Linear(4, 2)
    end
    function Net:forward(x)
      return torch.autocast("cpu", function()
        return self.fc(x):float()
      end)
    end
    local net, x = Net(), torch.randn({ 3, 4 })
    helper.near(poptorch.inferenceModel(net)(x), net(x):tolist(), { 1e-2, 1e-2 })
  end)

  it("refuses what cannot be, and is off where PyTorch only warns", function()
    helper.raises("RuntimeError", "poptorch.autocasting", function()
      torch.autocast("ipu")
    end)
    helper.raises("TypeError", "enabled", function()
      torch.autocast("cpu", { enabled = 1 })
    end)
    for _, options in ipairs({ { "cuda" }, { "cpu", torch.float64 } }) do
      local _ <close> = torch.autocast(table.unpack(options))
      assert.is_false(torch.is_autocast_enabled())
    end
  end)
end)

describe("torch.amp.GradScaler", function()
  local function setup(options)
    local w = torch.tensor({ 1.0, 2.0 }, { requires_grad = true })
    options = options or {}
    options.device = "cpu"
    return w, torch.optim.SGD({ w }, { lr = 0.5 }), torch.amp.GradScaler(options)
  end

  it("scales losses and steps as without it", function()
    local w, sgd, scaler = setup({ init_scale = 1024.0 })
    local loss = (w * torch.tensor({ 2.0, 4.0 })):sum()
    assert.equal(loss:item() * 1024, scaler:scale(loss):item())
    scaler:scale(loss):backward()
    assert.same({ 2048, 4096 }, w.grad:tolist())
    scaler:unscale_(sgd)
    assert.same({ 2, 4 }, w.grad:tolist())
    helper.raises("RuntimeError", "already been called", function()
      scaler:unscale_(sgd)
    end)
    scaler:step(sgd)
    assert.same({ 0, 0 }, w:tolist())
    helper.raises("RuntimeError", "step%(%) has already", function()
      scaler:step(sgd)
    end)
    scaler:update()
    assert.equal(1024, scaler:get_scale())
    assert.same({ 2, 3 }, { scaler:scale({ torch.tensor(2.0), torch.tensor(3.0) })[1]:item() / 1024,
      scaler:scale(torch.tensor(3.0)):item() / 1024 })
  end)

  it("leaves steps out that are not finite, and adjusts the scale", function()
    local w, sgd, scaler = setup({ init_scale = 8.0, growth_interval = 2 })
    local seen = {}
    for _, factor in ipairs({ math.huge, 1, 1, 1, math.huge }) do
      sgd:zero_grad()
      scaler:scale((w * factor):sum()):backward()
      scaler:step(sgd)
      scaler:update()
      seen[#seen + 1] = scaler:get_scale()
    end
    assert.same({ 4, 4, 8, 8, 4 }, seen)
    assert.same({ -0.5, 0.5 }, w:tolist()) -- three steps of 0.5
    local state = scaler:state_dict()
    assert.same({ scale = 4, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2,
      _growth_tracker = 0 }, state)
    local _, _, other = setup()
    other:load_state_dict(state)
    assert.same(state, other:state_dict())
    scaler:update(16.0)
    assert.equal(16, scaler:get_scale())
  end)

  it("does nothing when it is off, and refuses a wrong order", function()
    local w, sgd, scaler = setup({ enabled = false })
    local loss = w:sum()
    assert.equal(loss, scaler:scale(loss))
    loss:backward()
    scaler:step(sgd)
    scaler:update()
    assert.same({ 0.5, 1.5 }, w:tolist())
    assert.same({}, scaler:state_dict())
    assert.equal(1, scaler:get_scale())
    assert.is_false(torch.amp.GradScaler():is_enabled())
    local _, opt, fresh = setup()
    assert.equal(65536, fresh:get_scale())
    helper.raises("AssertionError", "_scale is None", function()
      fresh:step(opt)
    end)
    fresh:scale(torch.ones(1))
    helper.raises("AssertionError", "No inf checks were recorded", function()
      fresh:update()
    end)
    helper.raises("AssertionError", "growth factor must be > 1", function()
      setup({ growth_factor = 1.0 })
    end)
  end)
end)

describe("a wrong argument of amp", function()
  local function scaler()
    return torch.amp.GradScaler("cpu")
  end

  it("is named", function()
    helper.raises("TypeError", "set_growth_interval: expected int, got float 1.5", function()
      scaler():set_growth_interval(1.5)
    end)
    helper.raises("ValueError", "set_growth_interval: expected int >= 1", function()
      scaler():set_growth_interval(0)
    end)
    helper.raises("KeyError", "state_dict has no 'growth_factor'", function()
      scaler():load_state_dict({ scale = 4 })
    end)
    helper.raises("TypeError", "autocast: dtype: expected a dtype .* got string", function()
      torch.autocast("cpu", { dtype = "float16" })
    end)
  end)

  it("leaves the scaler as it was", function()
    local s = scaler()
    pcall(s.load_state_dict, s, { scale = 4 })
    assert.equal(65536, s:get_scale())
    s:set_growth_interval(7)
    assert.equal(7, s:get_growth_interval())
    local other = scaler()
    other:load_state_dict(s:state_dict())
    assert.equal(7, other:get_growth_interval())
  end)
end)
