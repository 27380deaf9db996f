-- Random numbers: their forms, ranges, moments and sequences.
local compile = require("lupine.compile")
local both = require("spec.lupine.onnx.both")
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local SIZE = { 100, 100 }

local function moments(t)
  t = t:double()
  return t:mean():item(), t:std():item()
end

local function near(want, got, tol)
  assert.is_true(math.abs(want - got) < tol, ("%g, want %g"):format(got, want))
end

-- A node run eagerly and compiled.
local function each_way(check, op, inputs, values, options)
  local model, given = node.model(op, inputs, values, options)
  check(model(table.unpack(given)))
  check(compile(model, given)(table.unpack(given)))
end

describe("random numbers", function()
  before_each(function()
    torch.manual_seed(13)
  end)

  it("RandomNormal has a mean and a scale", function()
    each_way(function(y)
      local mean, deviation = moments(y)
      near(3, mean, 0.1)
      near(2, deviation, 0.1)
      assert.equal(torch.float32, y.dtype)
    end, "RandomNormal", {}, { shape = SIZE, mean = 3.0, scale = 2.0 })
    for number, dtype in pairs({ [10] = torch.float16, [11] = torch.float64 }) do
      each_way(function(y)
        assert.equal(dtype, y.dtype)
        assert.same({ 2, 3 }, { table.unpack(y.shape) })
      end, "RandomNormal", {}, { shape = { 2, 3 }, dtype = number })
    end
  end)

  it("RandomUniform lies between low and high", function()
    each_way(function(y)
      assert.is_true(y:min():item() >= -1 and y:max():item() < 3)
      local mean, deviation = moments(y)
      near(1, mean, 0.1)
      near(4 / math.sqrt(12), deviation, 0.05)
    end, "RandomUniform", {}, { shape = SIZE, low = -1.0, high = 3.0 })
  end)

  it("those like another tensor have its shape, and its type or their own", function()
    for _, op in ipairs({ "RandomNormalLike", "RandomUniformLike" }) do
      each_way(function(y)
        assert.equal(torch.float16, y.dtype)
        assert.same({ 2, 3 }, { table.unpack(y.shape) })
      end, op, { torch.ones({ 2, 3 }):half() })
      each_way(function(y)
        assert.equal(torch.float64, y.dtype)
      end, op, { torch.tensor({ 1, 2 }) }, { dtype = 11 })
      both.refuses("attribute 'dtype' is torch.int64. Allowed: floating point", op,
        { torch.tensor({ 1, 2 }) })
    end
  end)

  it("Bernoulli draws by probabilities", function()
    local p = torch.cat({ torch.full({ 5000 }, 0.25), torch.zeros({ 10 }), torch.ones({ 10 }) })
    for number, dtype in pairs({ [1] = torch.float32, [9] = torch.bool, [6] = torch.int32 }) do
      each_way(function(y)
        assert.equal(dtype, y.dtype)
        near(0.25, y["0:5000"]:double():mean():item(), 0.03)
        assert.equal(0, y["5000:5010"]:double():sum():item())
        assert.equal(10, y["5010:"]:double():sum():item())
      end, "Bernoulli", { p }, { dtype = number })
    end
  end)

  it("Multinomial draws by logarithms of probabilities", function()
    local logits = torch.tensor({ { 0.0, math.log(3) }, { 2, -1 / 0 } })
    each_way(function(y)
      assert.equal(torch.int32, y.dtype)
      near(0.75, y[0]:double():mean():item(), 0.05)
      assert.equal(0, y[1]:sum():item())
    end, "Multinomial", { logits }, { sample_size = 2000 })
    each_way(function(y)
      assert.equal(torch.int64, y.dtype)
      assert.same({ 2, 1 }, { table.unpack(y.shape) })
    end, "Multinomial", { logits:double() }, { dtype = 7 })
    both.refuses("attribute 'sample_size' is 0. Allowed: 1 or more", "Multinomial", { logits },
      { sample_size = 0 })
    both.refuses("attribute 'dtype' is torch.float32. Allowed: int32, int64", "Multinomial",
      { logits }, { dtype = 1 })
    both.refuses("input 'input' has the shape [2]. Allowed: [batch, classes]", "Multinomial",
      { logits[0] })
  end)

  it("follow torch.manual_seed, each call anew", function()
    local model = node.model("RandomNormal", {}, { shape = { 4 } })
    for _, run in ipairs({ model, (compile(model, {})) }) do
      torch.manual_seed(5)
      local first, second = run(), run()
      torch.manual_seed(5)
      assert.is_true(torch.equal(first, run()))
      assert.is_false(torch.equal(first, second))
    end
  end)

  it("follow a seed of their own in eager calls alone", function()
    local function draw(seed)
      local model = node.model("RandomUniform", {}, { shape = { 4 }, seed = seed })
      return { model(), model() }
    end
    local a, b, c = draw(2.0), draw(2.0), draw(2.5)
    assert.is_true(torch.equal(a[1], b[1]) and torch.equal(a[2], b[2]))
    assert.is_false(torch.equal(a[1], a[2]))
    assert.is_false(torch.equal(a[1], c[1]))
    helper.refuses("ValueError", "attribute 'seed'", node.run, "RandomUniform", {},
      { shape = { 4 }, seed = 2.0 }, { compiled = true })
    both.refuses("attribute 'shape' is missing", "RandomUniform", {})
    both.refuses("attribute 'shape' has a size -1", "RandomNormal", {}, { shape = { -1 } })
  end)
end)
