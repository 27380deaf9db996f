--- The list of what users expect: none is missing, and what proves each is there.
local expectations = require("spec.expectations.list")
local read = require("spec.support.files").read

local COUNT = 41

local function is_target(name)
  return ("\n" .. read("Makefile")):find("\n" .. name .. ":", 1, true)
end

describe("what users expect", function()
  it(("has the numbers 1 to %d, each once, in order"):format(COUNT), function()
    for i = 1, COUNT do
      assert.equal(i, expectations[i] and expectations[i][1])
      assert.is_true(#expectations[i][2] > 20)
    end
    assert.equal(COUNT, #expectations)
  end)

  for _, row in ipairs(expectations) do
    it(("%d is proved by specs that are there: %s"):format(row[1], row[2]), function()
      local proofs = 0
      for file, names in pairs(row) do
        if type(file) == "string" and file ~= "sweep" then
          local text = read(file)
          for _, name in ipairs(names) do
            proofs = proofs + 1
            assert.truthy(text:find('"' .. name .. '"', 1, true), file .. ": " .. name)
          end
        end
      end
      assert.is_true(proofs > 0)
      for _, name in ipairs(row.sweep or {}) do
        assert.truthy(is_target(name), "no target of make: " .. name)
      end
    end)
  end
end)
