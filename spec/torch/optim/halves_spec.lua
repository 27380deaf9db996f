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

  it("lose nothing between the operations of a fused update", function()
    -- with eps, which alone float16 does not have, everything stays finite
    for _, name in ipairs({ "Adam", "AdamW" }) do
      assert.is_false(torch.isfinite(trained(name, {}, torch.float16)):all():item())
      assert.is_true(torch.isfinite(trained(name, { fused = true }, torch.float16)):all():item())
    end
  end)
end)
