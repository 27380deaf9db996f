-- Curves as text and as SVG: where dots, ticks and points have to be by hand.
local helper = require("spec.helper")
local plot = require("lupine.plot")
local scale = require("lupine.plot.scale")
local torch = require("torch")

local function lines_of(text)
  local out = {}
  for line in text:gmatch("([^\n]*)\n") do
    out[#out + 1] = line
  end
  return out
end

describe("a scale", function()
  local function ticks(...)
    local out = {}
    for i, tick in ipairs(scale.new(...).ticks) do
      out[i] = tick[2]
    end
    return table.concat(out, " ")
  end

  it("has ticks at round numbers", function()
    assert.equal("0.0 0.5 1.0 1.5 2.0 2.5", ticks(0.03, 2.3, 5))
    assert.equal("0 20 40 60 80 100", ticks(1, 100, 5))
    assert.equal("-0.010 -0.005 0.000 0.005 0.010", ticks(-0.0099, 0.0099, 5))
    assert.equal("0 5e+5 1e+6", ticks(0, 1e6, 3))
    assert.equal("1e-4 1e-3 1e-2 1e-1 1e0", ticks(2e-4, 0.7, 4, true))
  end)

  it("gives equal ends room, and keeps its own where it is tight", function()
    local s = scale.new(5, 5, 3)
    assert.is_true(s.low < 5 and s.high > 5)
    assert.near(0.5, s:at(5), 0.2)
    s = scale.new(1, 7, 4, false, true)
    assert.equal(0, s:at(1))
    assert.equal(1, s:at(7))
    assert.equal("2 4 6", ticks(1, 7, 4, false, true))
  end)
end)

describe("plot.text", function()
  it("draws a line from corner to corner", function()
    local out = lines_of(plot.text({ { name = "y", y = { 0, 1 } } }, { width = 24, height = 5 }))
    -- ticks 0.0, 0.5, 1.0: 3 characters and the axis leave 19 cells, 38 dots by 20
    assert.matches("^1%.0 ┤", out[1])
    assert.matches("^0%.0 ┤", out[5])
    assert.matches("⠊$", out[1]) -- with the right dot of the first row
    assert.matches("┤⡠", out[5]) -- with the left dot of the last
    assert.matches("└", out[6])
    assert.matches("y 1$", out[#out])
  end)

  it("leaves gaps, and has a curve without points", function()
    local nan = 0 / 0
    local text = plot.text({ { name = "a", y = { 1, nan, math.huge, 2 } },
      { name = "none", y = { nan } } })
    assert.matches("a 2", text)
    assert.matches("none no value", text)
    local dots = 0
    for _, code in utf8.codes(text) do
      dots = dots + (code > 0x2800 and code < 0x2900 and 1 or 0)
    end
    assert.equal(2, dots) -- two points, no line between
  end)

  it("takes tensors, colours and means", function()
    local x, y = torch.tensor({ 0.0, 10.0 }), torch.tensor({ 4.0, 2.0 })
    local text = plot.text({ { x = x, y = y } }, { color = true, title = "loss", xlabel = "step" })
    assert.matches("^loss\n", text)
    assert.matches("\27%[34m", text)
    assert.matches("step", text)
    -- of 4, 2 with a half: (4 / 4 + 2 / 2) / 0.75
    assert.matches("series 1 2.6667", plot.text({ { y = y } }, { smooth = 0.5 }))
  end)

  it("has no values that are not positive on a logarithmic axis", function()
    local text = plot.text({ { name = "lr", y = { 0, -1, 1e-3, 1 } } }, { log = true })
    assert.matches("1e%-3 ┤", text)
    assert.matches("1e0 ┤", text)
    assert.matches("\n", plot.text({ { y = { 0 } } }, { log = true }))
  end)

  it("refuses what it cannot draw", function()
    helper.refuses("ValueError", "series: expected one curve", plot.text, {})
    helper.refuses("ValueError", "x has 1 number, y has 2 numbers", plot.text,
      { { x = { 1 }, y = { 1, 2 } } })
    helper.refuses("TypeError", "series%[1%]%.y%[2%]", plot.text, { { y = { 1, "two" } } })
    helper.refuses("TypeError", "unknown option 'logs'; allowed are .*nearest: 'log'", plot.text,
      { { y = { 1 } } }, { logs = true })
    helper.refuses("ValueError", "width: expected", plot.text, { { y = { 1 } } }, { width = 2 })
    helper.refuses("ValueError", "one dimension", plot.text, { { y = torch.ones(2, 2) } })
  end)
end)

describe("plot.svg", function()
  it("is well-formed, whatever the names", function()
    local text = plot.svg({ { name = 'a<b>&"\1', y = { 1, 2, 3 } } }, { title = "<t>" })
    local open = 0
    for close, empty in text:gmatch("<(/?)[^<>]-(/?)>") do
      open = open + (close == "/" and -1 or empty == "/" and 0 or 1)
    end
    assert.equal(0, open)
    assert.matches("a&lt;b&gt;&amp;&quot;<", text)
    assert.is_nil(text:find("\1", 1, true))
  end)

  it("has the points in their places, and a new line behind a gap", function()
    local text = plot.svg({ { y = { 0, 1, 0 / 0, 0, 1 } } }, { width = 480, height = 278 })
    -- inner width 480 - 64 - 16 = 400, height 278 - 34 - 44 = 200; y is 0 to 1
    local d = text:match('<path d="([^"]*)"')
    assert.equal("M64.0 234.0", d:match("^M[%d. ]+"))
    assert.equal(2, select(2, d:gsub("M", "")))
    assert.matches("L164.0 34.0", d)
    assert.matches("M364.0 234.0", d)
    assert.matches("464.0 34.0$", d)
  end)

  it("keeps the least and the greatest of many points", function()
    local y = {}
    for i = 1, 100000 do
      y[i] = i == 54321 and 7 or i == 12345 and -7 or 0
    end
    local text = plot.svg({ { y = y } })
    assert.is_true(#text < 100000)
    local low, high = math.huge, 0
    for _, at in text:match('<path d="([^"]*)"'):gmatch("([%d.]+) ([%d.]+)") do
      low, high = math.min(low, tonumber(at)), math.max(high, tonumber(at))
    end
    assert.is_true(high - low > 220) -- both are there, far from each other
  end)
end)
