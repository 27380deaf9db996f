--- Half parameters on the host, where each operation of an update rounds: what PyTorch
--- 2.15's optimizers leave of four numbers after three steps, recorded.
local torch = require("torch")

local nan, inf = 0 / 0, math.huge

local START = { 0.5, -1.25, 3, 1e-3 }
local GRADIENTS = { { 0.25, -1e-3, 1e-4, 0 }, { 0.125, 2e-4, 0, 1e-5 }, { 0, 1e-3, 1e-4, 0.5 } }

-- An optimizer, its options, the type, the parameter after three steps.
local RECORDED = {
  { "SGD", { lr = 0.125, momentum = 0.5, weight_decay = 0.125, dampening = 0.25 }, "float16",
    { 0.401123047, -1.1796875, 2.83203125, -0.0458984375 } },
  { "SGD", { lr = 0.125, momentum = 0.5, nesterov = true }, "float16",
    { 0.4140625, -1.25, 3, -0.0927734375 } },
  { "Adam", {}, "float16",
    { 0.497314453, nan, -inf, nan } },
  { "Adam", { fused = true }, "float16",
    { 0.497314453, -1.24609375, -1.74609375, -0.000381469727 } },
  { "Adam", { lr = 0.01, eps = 0.001, weight_decay = 0.125, amsgrad = true }, "float16",
    { 0.472167969, -1.22070312, 2.97070312, -0.00709915161 } },
  { "AdamW", { eps = 0.001 }, "float16",
    { 0.497314453, -1.24902344, 3, 0.000358104706 } },
  { "RMSprop", {}, "float16",
    { 0.355224609, nan, nan, nan } },
  { "RMSprop", { lr = 0.0078125, eps = 0.001, centered = true, momentum = 0.5 }, "float16",
    { 0.316650391, -1.24707031, 3, -0.0761108398 } },
  { "Adagrad", {}, "float16",
    { 0.485595703, -1.24902344, nan, nan } },
  { "Adagrad", { eps = 0.001, lr_decay = 0.5 }, "float16",
    { 0.487060547, -1.24804688, 2.99804688, -0.00405502319 } },
  { "NAdam", {}, "float16",
    { 0.496582031, nan, nan, nan } },
  { "NAdam", { eps = 0.001, weight_decay = 0.125, decoupled_weight_decay = true }, "float16",
    { 0.495849609, -1.24902344, 3, -0.00126361847 } },
  { "Adamax", {}, "float16",
    { 0.495605469, -1.24707031, 2.99609375, nan } },
  { "RAdam", { betas = { 0.5, 0.5 }, lr = 0.25 }, "float16",
    { 0.377929688, -1.25, 3, -0.0704345703 } },
  { "Adadelta", { eps = 0.001 }, "float16",
    { 0.34765625, -1.25, 3, -0.0970458984 } },
  { "Adam", {}, "bfloat16",
    { 0.498046875, -1.25, 3, -0.000383377075 } },
  { "Adam", { lr = 0.01, eps = 0.001, weight_decay = 0.125, amsgrad = true }, "bfloat16",
    { 0.47265625, -1.2265625, 2.953125, -0.00701904297 } },
  { "RMSprop", {}, "bfloat16",
    { 0.35546875, -1.2421875, 2.828125, -0.198242188 } },
  { "RMSprop", { lr = 0.0078125, eps = 0.001, centered = true, momentum = 0.5 }, "bfloat16",
    { 0.31640625, -1.25, 3, -0.076171875 } },
}

local function trained(name, options, dtype)
  local p = torch.tensor(START, { dtype = dtype }):requires_grad_()
  local optimizer = torch.optim[name]({ p }, options)
  for _, g in ipairs(GRADIENTS) do
    p.grad = torch.tensor(g, { dtype = dtype })
    optimizer:step()
  end
  return p:detach()
end

describe("half parameters", function()
  for i, r in ipairs(RECORDED) do
    it(("are PyTorch's after steps of %s, %s (%d)"):format(r[1], r[3], i), function()
      local want = torch.tensor(r[4], { dtype = torch.float64 }):to(torch[r[3]])
      local got = trained(r[1], r[2], torch[r[3]])
      assert.is_true(torch.equal(torch.nan_to_num(want, 77), torch.nan_to_num(got, 77)),
        tostring(got))
    end)
  end

  it("are PyTorch's after steps of Adafactor, which keeps means of rows and columns", function()
    for dtype, want in pairs({
      float16 = { -2.638519287109375, 0.33349609375, 2.668701171875 },
      bfloat16 = { -2.5863037109375, 0.333984375, 2.66650390625 } }) do
      local i = torch.arange(128)
      local function shaped(x)
        return x:reshape(4, 32):to(torch[dtype])
      end
      local p = torch.nn.Parameter(shaped((i * 37 % 64 - 32) / 32))
      local optimizer = torch.optim.Adafactor({ p }, { lr = 0.125, weight_decay = 0.125 })
      for step = 0, 2 do
        p.grad = shaped((i * (29 + 2 * step) % 64 - 31) / 64)
        optimizer:step()
      end
      local state = optimizer.state[p]
      local got = { p:detach(), state.row_var, state.col_var }
      for k, t in ipairs(got) do
        got[k] = t:double():sum():item()
      end
      assert.same(want, got)
    end
  end)

  it("lose nothing between the operations of a fused update", function()
    -- with eps, which alone float16 does not have, everything stays finite
    for _, name in ipairs({ "Adam", "AdamW" }) do
      assert.is_false(torch.isfinite(trained(name, {}, torch.float16)):all():item())
      assert.is_true(torch.isfinite(trained(name, { fused = true }, torch.float16)):all():item())
    end
  end)

  it("are stepped as the flag fused says, a number too", function()
    for _, on in ipairs({ 1, 0 }) do
      local got = trained("Adam", { fused = on }, torch.float16)
      local want = trained("Adam", { fused = on == 1 }, torch.float16)
      assert.is_true(torch.equal(torch.nan_to_num(want, 77), torch.nan_to_num(got, 77)))
    end
    local p = torch.ones({ 1 }):requires_grad_()
    assert.has_no_error(function()
      torch.optim.Adam({ p }, { fused = 0, differentiable = true })
    end)
  end)
end)

-- A class of a script's own below Adam.
describe("an optimizer's own update", function()
  local function stepped(Mine, dtype, options, grad)
    local p = torch.tensor({ 1.0, 2 }, { dtype = dtype }):requires_grad_()
    p.grad = torch.tensor(grad or { 0.5, -0.25 }, { dtype = dtype })
    Mine({ p }, options or {}):step()
    return p:detach():tolist()
  end

  it("holds for every type of parameter, and with differentiable", function()
    local Mine = torch.optim.Adam:extend("Mine")
    function Mine.update(_, _, param, grad)
      param:sub_(grad)
    end
    for _, dtype in ipairs({ "float32", "float16", "bfloat16" }) do
      assert.same({ 0.5, 2.25 }, stepped(Mine, torch[dtype]), dtype)
    end
    local p = torch.tensor({ 1.0, 2 }):requires_grad_()
    local q = p:clone()
    q.grad = torch.tensor({ 0.5, -0.25 })
    Mine({ q }, { differentiable = true }):step()
    assert.same({ 0.5, 2.25 }, q:detach():tolist())
  end)

  it("may ask for that of the class above, which rounds as it does", function()
    local Mine = torch.optim.Adam:extend("Mine")
    function Mine:update(group, param, grad)
      torch.optim.Adam.update(self, group, param, grad * 2)
    end
    -- the square of 5e-5 is 0 in float16, and eps too: 0.1 g / 0
    local options = { lr = 0.5 }
    assert.same({ 0.5, inf }, stepped(Mine, torch.float16, options, { 0.5, -2.5e-5 }))
    options.fused = true
    assert.same({ 0.5, 2.5 }, stepped(Mine, torch.float16, options, { 0.5, -2.5e-5 }))
  end)

  it("may be a rule, which holds for half parameters, too", function()
    local Mine = torch.optim.Adam:extend("Mine")
    function Mine.update_rule()
      return { op = "sgd_step", inputs = { "param", "grad", false, "hyper:lr", "hyper:zero",
        "hyper:zero", "hyper:zero" }, outputs = { "param", false }, attrs = {} }
    end
    function Mine:hyper_value(group, name)
      return name == "zero" and 0 or torch.optim.Adam.hyper_value(self, group, name)
    end
    for _, dtype in ipairs({ "float32", "float16", "bfloat16" }) do
      assert.same({ 0.5, 2.25 }, stepped(Mine, torch[dtype], { lr = 1 }), dtype)
    end
  end)
end)
