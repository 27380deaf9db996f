--- docs/architecture.md: every file, folder and C name on the page is there; so
--- are the C files that README.md and comments of C name.
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

-- Visits what a file says in prose: all of a page, the comments of C.
local function prose(path, visit)
  local text = io.open(path):read("a")
  if path:find("%.md$") then
    visit(text)
    return
  end
  for comment in text:gmatch("/%*.-%*/") do
    visit(comment)
  end
end

describe("a C file named in README.md or in a comment", function()
  it("is there", function()
    local there, dead, n = {}, {}, 0
    local files = lines("find include src runtime spec -name '*.[ch]'")
    for _, path in ipairs(files) do
      there[path] = true
      for at in path:gmatch("()/") do
        there[path:sub(at + 1)] = true
      end
    end
    for _, def in ipairs(lines("find src runtime -name '*.def'")) do
      files[#files + 1] = def
    end
    files[#files + 1] = "README.md"
    for _, path in ipairs(files) do
      prose(path, function(text)
        for name in text:gmatch("%f[%w_/][%w_/]+%.[ch]%f[^%w_]") do
          n = n + 1
          dead[#dead + 1] = not there[name] and path .. ": " .. name or nil
        end
      end)
    end
    assert.same({}, dead)
    assert.is_true(n > 100)
  end)
end)
