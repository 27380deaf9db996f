--- Running sums with half partials, number by number: in float32, rounded to
--- float16 after each 16 products.
local M = {}

--- x as float32 has it.
function M.f32(x)
  return (string.unpack("<f", string.pack("<f", x)))
end

--- The number of float16 next to x, to even in the middle.
function M.f16(x)
  if x ~= x or x == 0 or math.abs(x) >= 65520 then
    return math.abs(x) >= 65520 and (x > 0 and math.huge or -math.huge) or x
  end
  local _, e = 0.0, -14
  while 2.0 ^ (e + 1) <= math.abs(x) do
    e = e + 1
  end
  local unit = 2.0 ^ (e - 10)
  local q = math.abs(x) / unit
  local low = math.floor(q)
  local up = q - low > 0.5 or (q - low == 0.5 and low % 2 == 1)
  return (x < 0 and -1 or 1) * (low + (up and 1 or 0)) * unit
end

--- The sum of product(1) … product(n); what is left over after the last 16 is
--- float32's.
function M.sum(n, product)
  local s = 0.0
  for q = 1, n do
    s = M.f32(s + product(q))
    if q % 16 == 0 then
      s = M.f16(s)
    end
  end
  return s
end

return M
