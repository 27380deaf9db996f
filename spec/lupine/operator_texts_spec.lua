--- Every public operator has a text, and every text an operator.
local core = require("lupine.core")
local texts = require("lupine.base.operator_texts")

describe("texts of operators", function()
  local public = {}
  for _, form in ipairs(core.form_list()) do
    for _, surface in ipairs({ "function", "nn", "special", "linalg", "method", "inplace" }) do
      if form[surface] and not form.name:find("^_") then
        public[form.name] = true
      end
    end
  end

  it("leave none out", function()
    for name in pairs(public) do
      assert.is_string(texts[name], name)
    end
  end)

  it("name no other", function()
    for name in pairs(texts) do
      assert.is_true(public[name], name)
    end
  end)
end)
