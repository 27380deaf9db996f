-- torch.nn.utils.parametrizations.orthogonal: values and gradients of loaded
-- states are PyTorch 2.15's.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local Z = nn.utils.parametrizations
local near = helper.near
local FLOAT64 = { dtype = torch.float64 }

-- map, use_trivialization, shape, weight, gradient to the original
local CASES = {
  { "matrix_exp", true, { 3, 3 },
    { 0.395995556, -0.292140976, 0.870540734, -0.190847042, 0.901154317, 0.389227831, 0.898200939,
      0.320272615, -0.301098864 },
    { 0, 0, 0, 0.792827046, 0, 0, 1.35316525, -0.211117449, 0 } },
  { "matrix_exp", true, { 3, 2 },
    { 0.987993106, -0.0429044956, 0.102686142, 0.900129467, -0.115434735, 0.433504495 },
    { 0, 0, -0.457217346, 0, -0.104555936, -1.17035166 } },
  { "matrix_exp", false, { 3, 3 },
    { 0.390274967, -0.896208039, 0.210942176, 0.20228822, 0.306979809, 0.929969286, -0.898200939,
      -0.320272615, 0.301098864 },
    { 0, 0, 0, -0.325456217, 0, 0, 0.116326578, -1.68664565, 0 } },
  { "matrix_exp", false, { 3, 2 },
    { 0.51064695, -0.745846271, 0.85200617, 0.505754084, 0.115434735, -0.433504495 },
    { 0, 0, -0.285919902, 0, -0.492440754, 0.81470512 } },
  { "matrix_exp", false, { 2, 3 },
    { 0.389830565, 0.646142058, 0.656149809, -0.34180802, 0.763145182, -0.548431135 },
    { 0, -0.255128042, -1.21602536, 0, 0, 0.847225595 } },
  { "cayley", true, { 3, 3 },
    { 0.536087864, -0.101978573, 0.837979816, -0.266489914, 0.92147027, 0.282622836, 0.800994961,
      0.374823842, -0.466812768 },
    { 0, 0, 0, 0.687639717, 0, 0, 1.09879704, -0.129189767, 0 } },
  { "cayley", true, { 3, 2 },
    { 0.99210729, 0.0365659513, 0.014273401, 0.917386523, -0.124576863, 0.396314142 },
    { 0, 0, -0.415936318, 0, -0.108837792, -1.07353981 } },
  { "cayley", false, { 3, 3 },
    { 0.53484465, -0.79836336, 0.276689621, 0.268976343, 0.471299304, 0.839957554, -0.800994961,
      -0.374823842, 0.466812768 },
    { 0, 0, 0, -0.355183495, 0, 0, 0.39645075, -1.34782754, 0 } },
  { "cayley", false, { 3, 2 },
    { 0.583845653, -0.711969647, 0.802249873, 0.579684675, 0.124576863, -0.396314142 },
    { 0, 0, -0.216564024, 0, -0.372000913, 0.74296776 } },
  { "cayley", false, { 2, 3 },
    { 0.496793176, 0.593233715, 0.633458997, -0.342249388, 0.804665796, -0.48515803 },
    { 0, -0.0928225909, -0.949790535, 0, 0, 0.73676293 } },
  { "householder", true, { 3, 3 },
    { 0.430485875, 0.899590512, -0.0736126546, 0.57477066, -0.210335961, 0.790820758, 0.695931462,
      -0.38274756, -0.607604893 },
    { 0, 0, 0, 0.345941764, 0, 0, 1.10331125, -1.10642397, 0 } },
  { "householder", true, { 3, 2 },
    { 0.732828657, 0.122008319, 0.599618554, -0.580781165, -0.321589412, -0.804864714 },
    { 0, 0, -1.5116501, 0, -0.465243215, 0.997701409 } },
  { "householder", false, { 3, 3 },
    { -0.201525003, 0.708023076, -0.676824199, 0.689251096, 0.593470832, 0.415602331, -0.695931462,
      0.38274756, 0.607604893 },
    { 0, 0, 0, -0.78512085, 0, 0, 0.443711341, -0.804981125, 0 } },
  { "householder", false, { 3, 2 },
    { -0.0399976489, 0.537829924, 0.946034058, -0.250862044, 0.321589412, 0.804864714 },
    { 0, 0, -1.17080383, 0, 1.46449452, -1.71576067 } },
  { "householder", false, { 2, 3 },
    { -0.161821857, 0.539969185, 0.825982425, -0.0943458288, -0.841645649, 0.531724991 },
    { 0, 0.278070252, -0.645247584, 0, 0, -0.819349426 } },
}

local function double(values)
  return torch.tensor(values, FLOAT64)
end

local function linear(n, k)
  return nn.Linear(k, n, { bias = false, dtype = torch.float64 })
end

-- The state of the cases: sines, signs on the diagonal.
local function load(m, n, k)
  local x, state = (torch.arange(n * k, FLOAT64):reshape(n, k) * 0.7):sin(), m:state_dict()
  for i = 0, math.min(n, k) - 1 do
    x[{ i, i }] = i % 2 == 0 and -1 or 1
  end
  state["parametrizations.weight.original"] = x
  if state["parametrizations.weight.0.base"] then
    state["parametrizations.weight.0.base"] = double({ { .6, .8, 0 }, { -.8, .6, 0 },
      { 0, 0, -1 } })
  end
  m:load_state_dict(state)
end

describe("the orthogonal parametrization", function()
  for _, case in ipairs(CASES) do
    local map, base, n, k = case[1], case[2], case[3][1], case[3][2]
    it(("%s, %s base, %d x %d"):format(map, base and "with" or "without", n, k), function()
      local m = Z.orthogonal(linear(n, k), "weight", map, { use_trivialization = base })
      assert.equal(base, m:state_dict()["parametrizations.weight.0.base"] ~= nil)
      load(m, n, k)
      local w = m.weight
      local by = torch.arange(1, n * k + 1, FLOAT64):reshape(n, k):cos();
      (w * by):sum():backward()
      near(w:reshape({ -1 }), case[4])
      near(m.parametrizations.weight.original.grad:reshape({ -1 }), case[5])
    end)
  end

  local W = { { 1., 2 }, { 3, 4 }, { -1, 0.5 } }

  local function of(...)
    local l = linear(3, 2)
    l.weight = nn.Parameter(double(W))
    return Z.orthogonal(l, ...)
  end

  it("starts from the QR decomposition of the weight", function()
    local q = { 0.301511345, 0.402712464, 0.904534034, 0.165822779, -0.301511345, 0.900180802 }
    near(of().weight:reshape({ -1 }), q)
    local m = of({ use_trivialization = false })
    near(m.weight:reshape({ -1 }), q)
    near(m.parametrizations.weight.original:reshape({ -1 }),
      { -1, -4.07040315, 0.694987437, 1, -0.231662479, -0.891762164 })
    near(of("weight", "cayley", { use_trivialization = false }).weight:reshape({ -1 }),
      { -0.403508772, -0.771929825, 0.912280702, -0.298245614, -0.0701754386, 0.561403509 })
  end)

  it("takes an orthogonal value, wide, tall or square, in batches too", function()
    for _, shape in ipairs({ { 3, 3 }, { 4, 2 }, { 2, 4 }, { 2, 3, 2 } }) do
      for _, map in ipairs({ "matrix_exp", "cayley", "householder" }) do
        local m = nn.Module()
        m.w = nn.Parameter(torch.randn(shape, FLOAT64))
        Z.orthogonal(m, "w", map)
        local wide = shape[#shape] > shape[#shape - 1]
        local q = torch.randn(shape, FLOAT64)
        q = torch.linalg.qr(wide and q.mT or q)
        q = wide and q.mT or q
        m.w = q
        near(m.w, q)
      end
    end
  end)

  it("keeps a square value as the base if it is orthogonal to 10 n units of its type", function()
    for dtype, off in pairs({ [torch.float32] = { 2e-6, 1e-4 },
      [torch.float64] = { 1e-15, 1e-12 } }) do
      for i, skew in ipairs(off) do
        local m = nn.Module()
        local given = torch.tensor({ { 1, skew }, { 0, -1 } }, { dtype = dtype })
        m.w = nn.Parameter(given)
        Z.orthogonal(m, "w")
        local base = m:state_dict()["parametrizations.w.0.base"]
        local want = i == 1 and given or torch.tensor({ { 1.0, 0 }, { 0, -1 } }, { dtype = dtype })
        near(base, want, { i == 1 and 0 or skew / 10, 0 })
        near(m.w, base, { 1e-15, 0 })
      end
    end
  end)

  it("trains in a program as it does eagerly", function()
    local poptorch = require("poptorch")
    for _, map in ipairs({ "matrix_exp", "cayley", "householder" }) do
      local nets, losses = {}, {}
      for i = 1, 2 do
        torch.manual_seed(5)
        nets[i] = Z.orthogonal(nn.Linear(4, 3), "weight", map)
      end
      nets[2]:load_state_dict(nets[1]:state_dict())
      local x, y = torch.randn(5, 4), torch.randn(5, 3)
      local Net = nn.Module:extend("Net")
      function Net:init(layer) self.layer = layer end
      function Net:forward(a, b)
        local out = self.layer(a)
        return out, nn.functional.mse_loss(out, b)
      end
      local model = poptorch.trainingModel(Net(nets[1]), poptorch.Options(),
        poptorch.optim.SGD(nets[1]:parameters(), { lr = 0.2 }))
      local sgd = torch.optim.SGD(nets[2]:parameters(), { lr = 0.2 })
      for i = 1, 3 do
        sgd:zero_grad()
        local loss = nn.functional.mse_loss(nets[2](x), y)
        loss:backward()
        sgd:step()
        losses[i] = { loss:item(), (select(2, model(x, y))):item() }
      end
      for _, pair in ipairs(losses) do
        near(torch.tensor(pair[2]), pair[1])
      end
      model:destroy()
    end
  end)

  it("refuses what it cannot do", function()
    helper.raises("ValueError", "orthogonal_map has to be one of", function()
      Z.orthogonal(linear(2, 2), "weight", "qr")
    end)
    helper.raises("ValueError", "Expected a matrix or batch of matrices", function()
      Z.orthogonal(nn.Linear(2, 2), "bias")
    end)
    helper.raises("NotImplementedError", "not possible to assign", function()
      local m = Z.orthogonal(linear(2, 2), "weight", "cayley", { use_trivialization = false })
      m.weight = torch.eye(2, FLOAT64)
    end)
    helper.raises("ValueError", "Expected a matrix or batch of matrices of shape", function()
      Z.orthogonal(linear(2, 2)).weight = torch.eye(3, FLOAT64)
    end)
  end)
end)
