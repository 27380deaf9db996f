--- Keys of tables in an order that is always the same.
local core = require("lupine.core")
local ordered = require("torch.nn.ordered")
local tables = require("lupine.base.tables")

describe("tables.keys", function()
  it("gives numbers before strings, each sorted", function()
    local t = { b = 1, a = 2, [10] = 3, [2] = 4, [1.5] = 5, [true] = 6 }
    assert.same({ 1.5, 2, 10, "a", "b", true }, tables.keys(t))
    assert.same({}, tables.keys({}))
  end)

  it("keeps a dictionary's own order", function()
    local t = ordered.dict()
    for _, key in ipairs({ "b", "c", "a" }) do
      t[key] = 1
    end
    assert.same({ "b", "c", "a" }, tables.keys(t))
  end)

  it("takes the keys that are wanted", function()
    assert.same({ "a", "c" }, tables.keys({ a = 1, b = 2, c = 3 }, function(_, value)
      return value ~= 2
    end))
  end)
end)

it("tables.set has the elements of a list or the words of a text as keys", function()
  assert.same({ a = true, [2] = true }, tables.set({ "a", 2, "a" }))
  assert.same({ a = true, b = true }, tables.set(" a\n  b a"))
  assert.same({}, tables.set({}))
end)

it("an array that is empty is JSON's", function()
  assert.equal("[]", core.json_encode(tables.array({ n = 0 })))
end)
