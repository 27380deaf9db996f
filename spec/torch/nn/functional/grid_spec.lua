--- grid_sample: cubic interpolation of volumes, with figures of PyTorch 2.15.
local helper = require("spec.helper")
local torch = require("torch")

local F = torch.nn.functional
local f64 = { dtype = torch.float64 }

describe("grid_sample", function()
  it("is tricubic on a volume in the mode bicubic", function()
    local x = (torch.arange(12, f64):square() / 10):reshape({ 1, 1, 2, 2, 3 })
    local grid = torch.tensor({ 0.2, -0.4, 0.7, -0.9, 0.1, -0.3 }, f64):reshape({ 1, 1, 1, 2, 3 })
    for _, c in ipairs({
      { "zeros", false, 6.08101258325, 1.29694188 },
      { "zeros", true, 7.79491327375, 3.58589478186 },
      { "border", false, 6.4331569, 1.4969244 }, { "border", true, 5.974406275, 2.42712730469 },
      { "reflection", false, 6.5666521, 1.4564112 }, { "reflection", true, 6.104344, 2.1245467 },
    }) do
      local y = F.grid_sample(x, grid,
        { mode = "bicubic", padding_mode = c[1], align_corners = c[2] })
      helper.near(y:flatten(), { c[3], c[4] }, { 1e-10, 1e-10 })
    end
  end)

  it("knows nothing of places that are no numbers, and leaves out what is outside", function()
    local inf, nan = math.huge, 0 / 0
    local x = torch.arange(1.0, 10.0):reshape({ 1, 1, 3, 3 })
    local grid = torch.tensor({ nan, 0, inf, 0, -inf, 0, 1e20, 0 }):reshape({ 1, 1, 4, 2 })
    for _, c in ipairs({ -- PyTorch 2.15's
      { "bilinear", "zeros", nan, nan, nan, 0 }, { "bilinear", "border", 4, 6, 4, 6 },
      { "nearest", "zeros", 0, 0, 0, 0 }, { "nearest", "border", 4, 6, 4, 6 },
      { "bicubic", "zeros", nan, nan, nan, 0 }, { "bicubic", "border", nan, nan, nan, 6 },
    }) do
      local y = F.grid_sample(x, grid, { mode = c[1], padding_mode = c[2] })
      local want = torch.tensor({ c[3], c[4], c[5], c[6] }, { dtype = torch.float32 })
      assert.is_true(torch.allclose(y:flatten(), want, 0, 0, true), c[1] .. " " .. c[2])
    end
    x[{ 0, 0, 0, 0 }] = nan
    local y = F.grid_sample(x, torch.tensor({ 0.9, 0.9, 5.0, 5.0 }):reshape({ 1, 1, 2, 2 }))
    assert.is_true(y:isfinite():all():item())
  end)

  it("sums the taps of narrow types in float32", function()
    local x = torch.linspace(-2, 2, 60):reshape({ 1, 1, 3, 4, 5 }):bfloat16()
    local grid = torch.linspace(-0.9, 0.8, 24):reshape({ 1, 2, 2, 2, 3 }):bfloat16()
    local how = { mode = "bicubic", align_corners = true }
    assert.is_true(torch.equal(F.grid_sample(x, grid, how),
      F.grid_sample(x:float(), grid:float(), how):bfloat16()))
  end)
end)
