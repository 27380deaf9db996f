-- The recorded results of PyTorch, eagerly and compiled, and of some cases the
-- gradients of compiled programs and of gradients, which `make golden` replays
-- for all of them. Nothing of the set may be missing.
local book = require("spec.golden.book")

-- Every n-th case of an area runs this way; primes, so that no dtype or form
-- that comes back at a fixed distance is always passed over.
local EVERY = { eager = 1, compiled = 1, gradient = 23, second = 29 }

describe("the golden cases", function()
  local manifest = book.manifest("spec/golden")
  for area, record in pairs(manifest.areas) do
    it("of the area " .. area .. " have PyTorch's results", function()
      local books = book.area("spec/golden", area, record, EVERY)
      for way, n in pairs(books) do
        assert(n.failed == 0, way .. ": " .. table.concat(n.failures, "\n"))
        assert.same({}, n.skipped, way .. ": what is called is not there")
        assert.equal(n.total, n.passed)
      end
      assert.is_true(books.eager.total > 0)
    end)
  end

  it("that call what is not there are skipped, and named", function()
    local F = require("torch.nn.functional")
    local gelu = F.gelu
    F.gelu = nil
    local ok, books = pcall(book.area, "spec/golden", "activation", manifest.areas.activation,
      { eager = 1 })
    F.gelu = gelu
    assert(ok, books)
    assert.is_true(books.eager.skipped["nn.functional.gelu"] > 0)
    assert.equal(books.eager.total, books.eager.passed + books.eager.skipped["nn.functional.gelu"])
  end)
end)
