--- Running sums, products and extremes in every arrangement of their lines, against
--- what Lua adds up.
local torch = require("torch")

local NAN = 0 / 0

local function sums(list, back)
  local out, run, n = {}, nil, #list
  for k = 1, n do
    local i = back and n + 1 - k or k
    run = run and run + list[i] or list[i]
    out[i] = run
  end
  return out
end

local function products(list)
  local out, run = {}, 1.0
  for i, v in ipairs(list) do
    run = run * v
    out[i] = run
  end
  return out
end

-- The values and their places, of the greatest (sign 1) or the least.
local function extremes(list, sign)
  local out, at, best, where = {}, {}, nil, nil
  for i, v in ipairs(list) do
    local takes = not best or (best ~= best and v ~= v)
      or (best == best and (v ~= v or sign * v >= sign * best))
    if takes then
      best, where = v, i - 1
    end
    out[i], at[i] = best, where
  end
  return out, at
end

local function close(want, got, what)
  for i, v in ipairs(want) do
    local same = v == got[i] or (v ~= v and got[i] ~= got[i])
      or math.abs(v - got[i]) <= 1e-6 * math.max(1, math.abs(v))
    assert.is_true(same, ("%s[%d]: %s, not %s"):format(what, i, got[i], v))
  end
end

-- The lines of x along `dim`, each as a list; y has the same arrangement.
local function lines(x, dim)
  local rows = x:movedim(dim, -1):reshape({ -1, x:size(dim) }):contiguous()
  return rows:tolist()
end

describe("a scan", function()
  local shapes = { { 1, 1 }, { 3, 7 }, { 5, 300 }, { 6, 2, 5 }, { 2, 4, 3, 9 }, { 17 }, { 9, 517 } }
  for _, shape in ipairs(shapes) do
    local x = torch.randn(shape)
    x:flatten():narrow(0, x:numel() // 2, 1):fill_(NAN)
    local clean = torch.randn(shape)
    for dim = 0, #shape - 1 do
      for _, turned in ipairs({ false, true }) do
        local what = table.concat(shape, "x") .. " along " .. dim
          .. (turned and ", turned" or "")
        local function arranged(t)
          return turned and t:transpose(0, -1):contiguous():transpose(0, -1) or t
        end

        it("adds and multiplies as Lua does: " .. what, function()
          local t = arranged(clean)
          local y, p = lines(t:cumsum(dim), dim), lines(t:cumprod(dim), dim)
          for i, line in ipairs(lines(t, dim)) do
            close(sums(line), y[i], "cumsum")
            close(products(line), p[i], "cumprod")
          end
        end)

        it("finds extremes and NaN: " .. what, function()
          local t = arranged(x)
          for _, kind in ipairs({ { "cummax", 1 }, { "cummin", -1 } }) do
            local values, places = t[kind[1]](t, dim)
            local v, at = lines(values, dim), lines(places, dim)
            for i, line in ipairs(lines(t, dim)) do
              local want, where = extremes(line, kind[2])
              close(want, v[i], kind[1])
              assert.same(where, at[i])
            end
          end
        end)
      end
    end
  end

  for _, dtype in ipairs({ "int64", "int32", "bool", "float64" }) do
    it("adds and multiplies " .. dtype .. " exactly", function()
      local x = torch.randint(-2, 3, { 7, 301 }):to(torch[dtype])
      for dim = 0, 1 do
        local y, p = lines(x:cumsum(dim), dim), lines(x:cumprod(dim), dim)
        for i, line in ipairs(lines(x:to(torch.float64), dim)) do
          close(sums(line), y[i], "cumsum")
          close(products(line), p[i], "cumprod")
        end
      end
    end)
  end

  it("wraps integers and takes one line alone", function()
    local most = torch.tensor({ math.maxinteger, 1, -5 }, { dtype = torch.int64 })
    assert.same({ math.maxinteger, math.mininteger, math.maxinteger - 4 }, most:cumsum(0):tolist())
    assert.same({ 1, 3, 6 }, torch.tensor({ 1, 2, 3 }):to(torch.int32):cumsum(0):tolist())
  end)

  it("runs backwards in its gradient", function()
    for dim = 0, 1 do
      local x = torch.randn({ 5, 6 }):requires_grad_()
      local g = torch.randn({ 5, 6 })
      x:cumsum(dim):backward(g)
      local got = lines(x.grad, dim)
      for i, line in ipairs(lines(g, dim)) do
        close(sums(line, true), got[i], "gradient")
      end
    end
  end)

  it("keeps the sign of zero", function()
    local y = torch.tensor({ -0.0, -0.0, 0.0 }):cumsum(0)
    assert.equal("-0.0 -0.0 0.0", table.concat(y:tolist(), " "))
  end)
end)
