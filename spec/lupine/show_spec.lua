local show = require("lupine.show")

describe("lupine.show", function()
  it("shows a string alone as it is and quotes it inside a table", function()
    assert.equal("a\nb", show.show("a\nb"))
    assert.equal([[{"a\nb"}]], show.show({ "a\nb" }))
  end)

  it("lists elements, then fields in order", function()
    assert.equal('{1, 2, a = 3, b = 4, ["c d"] = 5, ["end"] = 6, [true] = 7}',
      show.show({ 1, 2, ["end"] = 6, b = 4, a = 3, ["c d"] = 5, [true] = 7 }))
    assert.equal("{}", show.show({}))
    assert.equal("{[-1] = 1, [0.5] = 2}", show.show({ [0.5] = 2, [-1] = 1 }))
  end)

  it("marks cycles but not what is merely shared", function()
    local t = { {} }
    t[2] = t[1]
    t.self = t
    assert.equal("{{}, {}, self = <cycle>}", show.show(t))
  end)

  it("breaks what does not fit a line", function()
    local t = {}
    for i = 1, 20 do
      t["key" .. string.char(96 + i)] = { i }
    end
    local text = show.show(t)
    assert.matches("^{\n  keya = {1},\n  keyb = {2},\n", text)
    assert.matches("\n  keyt = {20}\n}$", text)
  end)

  it("cuts long and deep tables", function()
    local t = {}
    for i = 1, 5000 do
      t[i] = i
    end
    assert.matches("... (4000 more)", show.show(t), 1, true)
    local deep = {}
    for _ = 1, 20 do
      deep = { deep }
    end
    assert.equal("{{{{{{{...}}}}}}}", show.show(deep))
  end)

  it("lets objects print themselves", function()
    local object = setmetatable({ 1 }, { __tostring = function() return "<object>" end })
    assert.equal("<object>", show.show(object))
    assert.equal("{<object>}", show.show({ object }))
  end)

  it("fills lines with numbers", function()
    local list = {}
    for i = 1, 30 do
      list[i] = i * 1000
    end
    local text = show.show(list)
    assert.equal(4, select(2, text:gsub("\n", "")))
    for line in text:gmatch("[^\n]+") do
      assert.is_true(#line <= 80)
    end
    assert.matches("^{\n  1000, 2000, ", text)
    assert.same(list, load("return " .. text)())
  end)
end)
