-- poptorch.Attribute: what of the operators' code is shared.
local core = require("lupine.core")
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local x = torch.randn(3, 64)

-- Two equal layers, each inside what its scope makes of a function.
local function made(first, second)
  local model = poptorch.inferenceModel(device.module(function(self, v)
    v = first(function() return self.a(v) end)
    return second(function() return self.b(v) end)
  end, function(self)
    self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)
  end))
  model(x)
  return model
end

local function outline(values)
  return function(f) return poptorch.Attribute({ __outline = values }, f) end
end

local function plain(f) return f() end

local function code_bytes(model)
  local kinds = model:report().memory[0].categories
  return kinds.vertex_state + kinds.exchange_code
end

local function outlines(model)
  local out = {}
  local graph = core.graph_parse(model:report().plan:step():text("micro"))
  for _, node in ipairs(graph:nodes()) do
    out[node.origin.scope] = node.origin.outline
  end
  return out
end

describe("an attribute", function()
  it("is the operators' own inside its scope (test_outline_attribute)", function()
    local got = outlines(made(outline({ layer = "embedding" }), plain))
    assert.same({ a = "layer:embedding", b = "" }, { a = got.a, b = got.b })
    got = outlines(made(function(f)
      return outline({ layer = "one", part = "x" })(function()
        return outline({ layer = "two" })(f)
      end)
    end, outline({ layer = "one" })))
    assert.same({ a = "layer:two, part:x", b = "layer:one" }, { a = got.a, b = got.b })
  end)

  it("keeps code apart", function()
    local shared = code_bytes(made(plain, plain))
    assert.equal(shared, code_bytes(made(outline({ a = "1" }), outline({ a = "1" }))))
    assert(code_bytes(made(outline({ a = "1" }), outline({ a = "2" }))) > shared)
    assert(code_bytes(made(outline({ a = "1" }), plain)) > shared)
  end)

  it("of another name is named by the report", function()
    local function other(f) return poptorch.Attribute({ priority = { level = "3" } }, f) end
    assert.matches("Attribute%(priority%): ",
      table.concat(made(other, plain):report().no_effect, "\n"))
    local mine = table.concat(made(outline({ a = "1" }), plain):report().no_effect, "\n")
    assert.is_nil(mine:find("Attribute", 1, true))
  end)

  it("is made of strings", function()
    for _, wrong in ipairs({ 3, "x", { __outline = "x" }, { __outline = { 1 } },
      { __outline = { a = 1 } }, { { a = "b" } } }) do
      raises("TypeError", poptorch.Attribute, wrong)
    end
    raises("TypeError", poptorch.Attribute)
  end)

  it("does nothing outside a trace, and is closed", function()
    assert.equal(3, outline({ a = "1" })(function() return 3 end))
    local model = device.infer(function(v)
      poptorch.Attribute({ __outline = { a = "1" } })
      return v + 1
    end)
    assert.matches("never closed", raises("Error", model, x).message)
  end)
end)
