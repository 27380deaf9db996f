-- The recorded results of PyTorch, eagerly and compiled. `make golden` also
-- replays the gradients of compiled programs and of gradients.
local book = require("spec.golden.book")

describe("the golden cases", function()
  local manifest = book.manifest("spec/golden")
  for area, record in pairs(manifest.areas) do
    it("of the area " .. area .. " have PyTorch's results", function()
      local books = book.area("spec/golden", area, record, { eager = true, compiled = true })
      for way, n in pairs(books) do
        assert(n.failed == 0, way .. ": " .. table.concat(n.failures, "\n"))
      end
    end)
  end
end)
