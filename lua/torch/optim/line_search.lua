--- A step length that meets the strong Wolfe conditions, by bracketing and
--- cubic interpolation.
---
--- source: Nocedal & Wright, Numerical Optimization, algorithms 3.5 and 3.6,
--- equation 3.59
local C1, C2 = 1e-4, 0.9
local TOLERANCE = 1e-9

-- The minimum of the cubic through two values and slopes, within bounds.
local function cubic(x1, f1, g1, x2, f2, g2, low, high)
  low, high = low or math.min(x1, x2), high or math.max(x1, x2)
  local d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
  local square = d1 * d1 - g1 * g2
  if square < 0 or square ~= square then
    return (low + high) / 2
  end
  local d2 = math.sqrt(square)
  local at
  if x1 <= x2 then
    at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
  else
    at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
  end
  return math.min(math.max(at, low), high)
end

local function point(t, f, g, d)
  return { t = t, f = f, g = g, slope = g:dot(d):item() }
end

-- Two points that enclose a good one, or one that is good.
local function bracket(at, start, t, most)
  local before = start
  for n = 1, most do
    local now = at(t)
    if now.f > start.f + C1 * t * start.slope or n > 2 and now.f >= before.f then
      return { before, now }, n
    elseif math.abs(now.slope) <= -C2 * start.slope then
      return { now }, n
    elseif now.slope >= 0 then
      return { before, now }, n
    end
    local low, high = t + 0.01 * (t - before.t), t * 10
    t = cubic(before.t, before.f, before.slope, now.t, now.f, now.slope, low, high)
    before = now
  end
  return { start, at(t) }, most + 1
end

-- Keeps the trial away from the ends of the bracket.
local function inside(t, pair, stuck)
  local low, high = math.min(pair[1].t, pair[2].t), math.max(pair[1].t, pair[2].t)
  local edge = 0.1 * (high - low)
  if math.min(high - t, t - low) >= edge then
    return t, false
  elseif stuck or t >= high or t <= low then
    return math.abs(t - high) < math.abs(t - low) and high - edge or low + edge, false
  end
  return t, true
end

--- evaluate(t) gives loss and gradient at x + t d. Returns the loss, the
--- gradient, the length and the number of evaluations, `most` + 1 at most.
return function(evaluate, t, d, f, g, slope, most)
  local size = d:abs():max():item()
  local start = { t = 0, f = f, g = g:clone(), slope = slope }
  local function at(x)
    local f1, g1 = evaluate(x)
    return point(x, f1, g1, d)
  end
  local pair, evals = bracket(at, start, t, most)
  local stuck = false
  while #pair == 2 and evals <= most do
    local low = pair[1].f <= pair[2].f and 1 or 2
    local best, other = pair[low], pair[3 - low]
    if math.abs(other.t - best.t) * size < TOLERANCE then
      break
    end
    t = cubic(pair[1].t, pair[1].f, pair[1].slope, pair[2].t, pair[2].f, pair[2].slope)
    t, stuck = inside(t, pair, stuck)
    local now = at(t)
    evals = evals + 1
    if now.f > start.f + C1 * t * slope or now.f >= best.f then
      pair[3 - low] = now
    elseif math.abs(now.slope) <= -C2 * slope then
      pair = { now }
    else
      if now.slope * (other.t - best.t) >= 0 then
        pair[3 - low] = best
      end
      pair[low] = now
    end
  end
  local best = pair[1]
  if pair[2] and pair[2].f < best.f then
    best = pair[2]
  end
  return best.f, best.g, best.t, evals
end
