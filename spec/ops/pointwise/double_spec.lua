--- Functions of float64, which have loops of their own, against the C library's.
local torch = require("torch")

local INF, NAN = math.huge, 0 / 0

local function expm1(x) -- by its series where e^x - 1 loses digits
  if math.abs(x) > 0.5 then
    return math.exp(x) - 1
  end
  local sum, term = 0.0, 1.0
  for k = 1, 20 do
    term = term * x / k
    sum = sum + term
  end
  return sum == 0 and x or sum
end

local function log1p(x) -- the series of 2 artanh(x / (2 + x))
  if math.abs(x) > 0.3 then
    return math.log(1 + x)
  end
  local s = x / (2 + x)
  local sum, power = 0.0, s
  for k = 1, 31, 2 do
    sum = sum + power / k
    power = power * s * s
  end
  return sum == 0 and x or 2 * sum
end

local functions = {
  exp = math.exp,
  log = math.log,
  expm1 = expm1,
  log1p = log1p,
  tanh = function(x)
    local e = expm1(2 * math.min(math.abs(x), 30))
    local y = e / (e + 2)
    return (x < 0 or 1 / x < 0) and -y or y
  end,
  sigmoid = function(x)
    local e = math.exp(-math.abs(x))
    return (x < 0 and e or 1) / (1 + e)
  end,
}

local function units(want, got)
  return math.abs(want - got) / math.max(math.abs(want) * 0x1p-52, 0x1p-1074)
end

describe("float64", function()
  local list = { 0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0x1p-1074, 0x1p-1022 }
  for _, edge in ipairs({ 709.78, 709.79, -745.1, -745.2, -708.5 }) do
    list[#list + 1] = edge
  end
  for k = -300, 300 do
    list[#list + 1] = k * 0.0371
    list[#list + 1] = k * 2.53
    list[#list + 1] = 10.0 ^ k
    list[#list + 1] = 1 + k / 4096
  end
  local x = torch.tensor(list, { dtype = torch.float64 })
  for name, f in pairs(functions) do
    it(name .. " is right to a few units", function()
      local y = x[name](x):tolist()
      for i, v in ipairs(list) do
        local want = f(v)
        local same = want == y[i] or (want ~= want and y[i] ~= y[i]) or units(want, y[i]) <= 8
        assert.is_true(same, ("%s(%.17g) is %.17g, not %.17g"):format(name, v, y[i], want))
      end
    end)
  end

  it("keeps the sign of zero", function()
    local zero = torch.tensor({ -0.0 }, { dtype = torch.float64 })
    for _, name in ipairs({ "expm1", "log1p", "tanh" }) do
      assert.equal(-INF, 1 / zero[name](zero):item())
    end
  end)
end)
