-- lupine.progress with a stream, a width and a clock of its own.
local helper = require("spec.helper")
local lupine = require("lupine")
local torch = require("torch")

local now, text

local function bar(total, options)
  now, text = 0, {}
  options.clock = function()
    return now
  end
  options.stream = {
    write = function(_, ...)
      text[#text + 1] = table.concat({ ... })
    end,
    flush = function() end,
  }
  return lupine.progress(total, options)
end

local function later(seconds, b, n, values)
  now = now + seconds
  b:update(n, values)
end

describe("progress in a file", function()
  it("is a line every interval, and one at the end", function()
    local b = bar(100, { desc = "epoch 1", interval = 2 })
    later(1, b, 10)
    later(1, b, 10, { loss = 0.5 })
    later(1, b, 10)
    now = 4
    b:close()
    b:close()
    assert.same({
      "epoch 1: 20/100 (20 %), 10/s, loss 0.5, ETA 0:08\n",
      "epoch 1: 30/100 (30 %), 7.5/s, loss 0.5, 4.0 s\n",
    }, text)
  end)

  it("is one line of the end, which close has", function()
    local b = bar(2, { interval = 1 })
    later(2, b)
    later(2, b, 1, { loss = 0.25 })
    b:close()
    assert.same({
      "1/2 (50 %), 0.5/s, ETA 0:02\n",
      "2/2 (100 %), 0.5/s, loss 0.25, 4.0 s\n",
    }, text)
  end)

  it("does without a total and names the unit", function()
    local b = bar(nil, { unit = "samples", interval = 1 })
    later(2, b, 3000, { lr = 1e-3, acc = 0.25 })
    assert.same({ "3000 samples, 1500 samples/s, acc 0.25, lr 0.001\n" }, text)
  end)

  it("reads tensors, lists of losses as their mean", function()
    local b = bar(4, { interval = 0 })
    later(1, b, 1, { loss = torch.tensor({ 1.0, 2.0 }), t = torch.tensor(3) })
    assert.truthy(text[1]:find("loss 1.5, t 3", 1, true))
  end)
end)

describe("progress on a terminal", function()
  it("is one line drawn again, never wider than the terminal", function()
    for _, columns in ipairs({ 30, 60, 80, 200 }) do
      local b = bar(50, { desc = "training", columns = columns })
      for _ = 1, 5 do
        later(0.2, b, 10, { loss = 1 / 3 })
      end
      b:close()
      assert.equal(6, #text)
      for i, line in ipairs(text) do
        local shown = line:match("^\r(.*)\27%[K\n?$")
        assert.truthy(shown)
        assert.is_true(utf8.len(shown) < columns)
        assert.equal(i == 6, line:sub(-1) == "\n")
      end
      assert.truthy(text[6]:find("100%", 1, true))
    end
  end)

  it("is not drawn more than ten times a second", function()
    local b = bar(1000, { columns = 80 })
    for _ = 1, 1000 do
      later(0.001, b, 1)
    end
    assert.is_true(#text <= 10)
  end)
end)

describe("progress", function()
  it("refuses unknown options and updates after its end", function()
    helper.raises("TypeError", "nearest: 'desc'", function()
      lupine.progress(3, { dsc = "x" })
    end)
    local b = bar(1, {})
    b:close()
    helper.raises("RuntimeError", "after close", function()
      b:update(1)
    end)
  end)

  it("closes at the end of its scope", function()
    do
      local b <close> = bar(2, { interval = 100 })
      b:update(2)
    end
    assert.equal(1, #text)
  end)
end)
