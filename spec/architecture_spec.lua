--- docs/architecture.md: every file, folder and C name on the page is there.
local program = require("spec.support.program")

local function lines(command)
  local out = {}
  for line in program.shell(command):gmatch("[^\n]+") do
    out[#out + 1] = line
  end
  return out
end

-- The names in `…` outside of fenced blocks.
local function names()
  local out, fenced = {}, false
  for line in io.lines("docs/architecture.md") do
    fenced = fenced ~= (line:find("^```") ~= nil)
    for name in (fenced and "" or line):gmatch("`([^`]+)`") do
      out[#out + 1] = name
    end
  end
  return out
end

describe("the page on the architecture", function()
  it("has at most 300 lines", function()
    assert.is_true(#lines("cat docs/architecture.md") <= 300)
  end)

  it("names files and folders that are there", function()
    local n = 0
    for _, name in ipairs(names()) do
      if name:find("^[%w_]+/[%w_/%.]*$") then
        n = n + 1
        local _, _, code = program.shell("test -e " .. program.quote(name))
        assert.equal(0, code, name)
      end
    end
    assert.is_true(n > 50)
  end)

  it("names functions, types and constants that headers declare", function()
    local text, n = program.shell("cat src/*/*.h src/*/*/*.h runtime/*.h runtime/*/*.h"), 0
    for _, name in ipairs(names()) do
      if name:find("^lp_[%w_]+$") or name:find("^Lp%u[%w_]+$") or name:find("^LP_[%u_]+$") then
        n = n + 1
        assert.is_truthy(text:find("%f[%w_]" .. name .. "%f[^%w_]"), name)
      end
    end
    assert.is_true(n > 20)
  end)

  it("has the passes' lists as their files", function()
    for _, list in ipairs(lines("ls src/passes/passes.def src/passes/*/passes.def")) do
      assert.is_truthy(table.concat(names(), "\n"):find(list, 1, true), list)
    end
  end)
end)
