-- Windows, the mel scale and Fourier transforms, against their definitions.
local both = require("spec.lupine.onnx.both")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

describe("windows", function()
  local FORMULAS = {
    HannWindow = function(t)
      return 0.5 - 0.5 * math.cos(t)
    end,
    HammingWindow = function(t)
      return 25 / 46 - 21 / 46 * math.cos(t)
    end,
    BlackmanWindow = function(t)
      return 0.42 - 0.5 * math.cos(t) + 0.08 * math.cos(2 * t)
    end,
  }

  for name, fn in pairs(FORMULAS) do
    it(name .. " is periodic or symmetric, in every type", function()
      for periodic = 0, 1 do
        local want = {}
        for i = 0, 9 do
          want[i + 1] = fn(2 * math.pi * i / (periodic == 1 and 10 or 9))
        end
        for number, dtype in pairs({ [1] = torch.float32, [11] = torch.float64,
          [10] = torch.float16 }) do
          local y = both(name, { torch.tensor(10) }, { periodic = periodic,
            output_datatype = number }, { constants = { true } })
          assert.equal(dtype, y.dtype)
          both.near(y, want, number == 10 and { 1e-3, 1e-3 } or { 1e-6, 1e-6 })
        end
      end
      both.refuses("input 'size' is -1. Allowed: 0 or more", name, { torch.tensor(-1) })
    end)
  end
end)

describe("MelWeightMatrix", function()
  -- The triangles one by one.
  local function by_loops(count, length, rate, low, high)
    local function mel(f)
      return 2595 * math.log(1 + f / 700, 10)
    end
    local bins, out = {}, {}
    for i = 0, count + 1 do
      local m = mel(low) + i * (mel(high) - mel(low)) / (count + 2)
      bins[i] = (length + 1) * 700 * (10 ^ (m / 2595) - 1) // rate
    end
    for j = 0, length // 2 do
      for i = 0, count - 1 do
        local a, b, c = bins[i], bins[i + 1], bins[i + 2]
        local y = 0
        if j >= a and j <= b then
          y = a == b and 1 or (j - a) / (b - a)
        end
        if j >= b and j < c then
          y = (c - j) / (c - b)
        end
        out[#out + 1] = y
      end
    end
    return out
  end

  it("has a triangle for each band", function()
    for _, case in ipairs({ { 8, 16, 8192, 0.0, 4096.0 }, { 40, 512, 16000, 125.0, 7500.0 },
      { 20, 64, 16000, 0.0, 1000.0 } }) do
      local given = {}
      for i, x in ipairs(case) do
        given[i] = torch.tensor(x)
      end
      local y = both("MelWeightMatrix", given, nil, { constants = { true, true, true, true,
        true } })
      assert.same({ case[2] // 2 + 1, case[1] }, { table.unpack(y.shape) })
      both.near(y, by_loops(table.unpack(case)), { 1e-5, 1e-5 })
    end
    both.refuses("input 'dft_length' is 0. Allowed: above 0", "MelWeightMatrix", { torch.tensor(8),
      torch.tensor(0), torch.tensor(8192), torch.tensor(0.0), torch.tensor(4096.0) })
  end)
end)

-- The sums of a transform of lists of [re, im]; sign -1 forward, 1 back.
local function fourier(points, bins, sign)
  local out, n = {}, #points
  for k = 0, bins - 1 do
    local re, im = 0, 0
    for i, p in ipairs(points) do
      local angle = sign * 2 * math.pi * k * (i - 1) / n
      local c, s = math.cos(angle), math.sin(angle)
      re, im = re + p[1] * c - (p[2] or 0) * s, im + p[1] * s + (p[2] or 0) * c
    end
    local factor = sign > 0 and 1 / n or 1
    out[k + 1] = { re * factor, im * factor }
  end
  return torch.tensor(out, { dtype = torch.float64 })
end

local TIGHT = { 1e-10, 1e-10 }

describe("DFT", function()
  before_each(function()
    torch.manual_seed(14)
  end)

  it("sums turns of real and complex numbers", function()
    for n = 1, 9 do
      for parts = 1, 2 do
        local x = torch.randn({ 2, n, parts }, { dtype = torch.float64 })
        for inverse = 0, 1 do
          local y = both("DFT", { x }, { inverse = inverse })
          for row = 0, 1 do
            both.near(y[row], both.flat(fourier(x[row]:tolist(), n, inverse * 2 - 1)), TIGHT)
          end
        end
      end
      local x = torch.randn({ 2, n, 1 }, { dtype = torch.float64 })
      local y = both("DFT", { x }, { onesided = 1 })
      both.near(y[1], both.flat(fourier(x[1]:tolist(), n // 2 + 1, -1)), TIGHT)
    end
  end)

  it("goes over any dimension but the last", function()
    local x = torch.randn({ 2, 3, 4, 2 }, { dtype = torch.float64 })
    for _, axis in ipairs({ 0, 2, -2, -3 }) do
      local want = node("DFT", { x:transpose(axis, 1) }, { axis = 1 }):transpose(axis, 1)
      both.near(both("DFT", { x }, { axis = axis }), both.flat(want), TIGHT)
      both.near(both("DFT", { x, false, torch.tensor(axis) }, nil, { version = 20,
        constants = { [3] = true } }), both.flat(want), TIGHT)
    end
    both.near(both("DFT", { x }, nil, { version = 20 }), both.flat(node("DFT", { x },
      { axis = 2 })), TIGHT)
  end)

  it("cuts or lengthens with zeros", function()
    local options = { constants = { [2] = true } }
    local x = torch.randn({ 1, 5, 1 }, { dtype = torch.float64 })
    both.near(both("DFT", { x, torch.tensor(3) }, nil, options),
      both.flat(fourier(x[0]["0:3"]:tolist(), 3, -1)), TIGHT)
    local longer = torch.constant_pad_nd(x, { 0, 0, 0, 3 })
    both.near(both("DFT", { x, torch.tensor(8) }, { onesided = 1 }, options),
      both.flat(fourier(longer[0]:tolist(), 5, -1)), TIGHT)
  end)

  it("comes back to real numbers from one side", function()
    for n = 2, 9 do
      local x = torch.randn({ 2, n, 1 }, { dtype = torch.float64 })
      local bins = node("DFT", { x }, { onesided = 1 })
      local y = both("DFT", { bins, torch.tensor(n) }, { onesided = 1, inverse = 1 },
        { constants = { [2] = true } })
      assert.same({ 2, n, 1 }, { table.unpack(y.shape) })
      both.near(y, both.flat(x), TIGHT)
      if n % 2 == 0 then
        both.near(both("DFT", { bins }, { onesided = 1, inverse = 1 }), both.flat(x), TIGHT)
      end
    end
  end)

  it("splits long transforms", function()
    for _, n in ipairs({ 600, 1031, 1024 }) do
      local x = torch.randn({ n, 2 }, { dtype = torch.float64 })
      local want = fourier(x:tolist(), 3, -1)
      local y = both("DFT", { x:unsqueeze(0) })
      both.near(y[0]["0:3"], both.flat(want), { 1e-8, 1e-8 })
      both.near(node("DFT", { y }, { inverse = 1 }), both.flat(x), { 1e-8, 1e-8 })
      local real = x:unsqueeze(0):narrow(-1, 0, 1)
      local half = both("DFT", { real }, { onesided = 1 })
      assert.equal(n // 2 + 1, half:size(1))
      both.near(both("DFT", { half, torch.tensor(n) }, { onesided = 1, inverse = 1 },
        { constants = { [2] = true } }), both.flat(real), { 1e-8, 1e-8 })
    end
  end)

  it("keeps its type and has gradients", function()
    for _, dtype in ipairs({ torch.float32, torch.float16, torch.bfloat16 }) do
      local x = torch.randn({ 1, 6, 2 }):to(dtype)
      local y = both("DFT", { x })
      assert.equal(dtype, y.dtype)
      both.near(y[0], both.flat(fourier(x[0]:tolist(), 6, -1)), { 5e-2, 5e-2 })
    end
    both.gradients("DFT", { torch.randn({ 1, 4, 1 }) }, { onesided = 1 })
    both.gradients("DFT", { torch.randn({ 1, 3, 2 }) }, { onesided = 1, inverse = 1 })
  end)

  it("names what is wrong", function()
    local x = torch.ones({ 1, 4, 2 })
    both.refuses("attribute 'axis' is 2, the dimension of real and imaginary parts", "DFT", { x },
      { axis = -1 })
    both.refuses("attribute 'axis' is 3. Allowed: -3 to 2", "DFT", { x }, { axis = 3 })
    both.refuses("input 'input' has the shape [1, 4, 3]. Allowed: a last dimension of 1 (real) or "
      .. "2 (complex)", "DFT", { torch.ones({ 1, 4, 3 }) })
    both.refuses("attribute 'onesided' is 1, and input 'input' is complex", "DFT", { x },
      { onesided = 1 })
    both.refuses("input 'dft_length' is 0. Allowed: above 0", "DFT", { x, torch.tensor(0) })
  end)
end)

describe("STFT", function()
  local options = { constants = { [2] = true, [4] = true } }

  local function by_loops(signal, step, length, bins, window)
    local out, points = {}, signal:tolist()
    for start = 0, #points - length, step do
      local frame = {}
      for i = 1, length do
        local w = window and window[i - 1]:item() or 1
        local p = points[start + i]
        frame[i] = { p[1] * w, (p[2] or 0) * w }
      end
      out[#out + 1] = fourier(frame, bins, -1)
    end
    return both.flat(torch.stack(out))
  end

  it("transforms each frame", function()
    torch.manual_seed(15)
    local signal = torch.randn({ 2, 20, 1 }, { dtype = torch.float64 })
    local window = torch.hann_window(6, { dtype = torch.float64 })
    local y = both("STFT", { signal, torch.tensor(4), false, torch.tensor(6) }, nil, options)
    assert.same({ 2, 4, 4, 2 }, { table.unpack(y.shape) })
    both.near(y[1], by_loops(signal[1], 4, 6, 4), TIGHT)
    both.near(both("STFT", { signal, torch.tensor(3), window }, nil, options)[0],
      by_loops(signal[0], 3, 6, 4, window), TIGHT)
    both.near(both("STFT", { signal, torch.tensor(5), window, torch.tensor(6) }, { onesided = 0 },
      options)[0], by_loops(signal[0], 5, 6, 6, window), TIGHT)
    local complex = torch.randn({ 1, 9, 2 }, { dtype = torch.float64 })
    both.near(both("STFT", { complex, torch.tensor(2), false, torch.tensor(4) }, { onesided = 0 },
      options)[0], by_loops(complex[0], 2, 4, 4), TIGHT)
    both.gradients("STFT", { torch.randn({ 1, 8, 1 }), torch.tensor(2), torch.rand({ 4 }) }, nil,
      options)
  end)

  it("names what is wrong", function()
    local signal = torch.ones({ 1, 8, 1 })
    both.refuses("input 'frame_step' is 0. Allowed: above 0", "STFT", { signal, torch.tensor(0) })
    both.refuses("input 'window' has the shape [3]. Allowed: [frame_length]", "STFT", { signal,
      torch.tensor(2), torch.ones({ 3 }), torch.tensor(4) })
    both.refuses("input 'signal' has 8 samples, a frame 9", "STFT", { signal, torch.tensor(2),
      false, torch.tensor(9) })
    both.refuses("inputs 'signal' and 'window' must be of one type", "STFT", { signal,
      torch.tensor(2), torch.ones({ 4 }):double() })
    both.refuses("input 'signal' has the shape [8, 1]. Allowed: [batch, samples, 1 or 2]", "STFT",
      { signal[0], torch.tensor(2) })
  end)
end)
