local examples = require("lupine.repl.examples")
local tables = require("lupine.base.tables")
local torch = require("torch")

describe("the example of ?", function()
  local env = setmetatable({ torch = torch, nn = torch.nn, F = torch.nn.functional },
    { __index = _G })

  for _, name in ipairs(tables.keys(examples.list)) do
    it(name .. " gives what it says", function()
      local e = examples.list[name]
      local result = assert(load("return " .. e.code, "=" .. name, "t", env))()
      local shape = torch.is_tensor(result) and "[" .. table.concat(result.shape, ", ") .. "]"
      assert.equal(e.gives, shape or tostring(result))
      assert.truthy(e.code:find(name:match("[%w_]+$"), 1, true))
    end)
  end
end)
