--- The tables of examples/README.md: the file that a row names exists and has
--- what the row says, by its number or its name.
local read = require("spec.support.files").read

-- Rows of the tables as lists of cells.
local function rows()
  local list = {}
  for line in read("examples/README.md"):gmatch("[^\n]+") do
    local cells = {}
    for cell in line:gmatch("|%s*([^|]-)%s*%f[|]") do
      cells[#cells + 1] = cell
    end
    if line:sub(1, 1) == "|" and not line:find("^| %-%-%-") then
      list[#list + 1] = cells
    end
  end
  return list
end

-- `name` as a word of the text: 4.2 is none of 4.23.
local function has(text, name)
  return text:find("%f[%w_]" .. name:gsub("%p", "%%%0") .. "%f[^%w_]") ~= nil
end

local function file_of(cells)
  for _, cell in ipairs(cells) do
    local file = cell:match("^`([%w_/]+%.lua)`$")
    if file and file:find("/", 1, true) then
      return file
    end
  end
end

describe("the list of listings", function()
  local seen = {}

  -- The file of the row says `name`.
  local function check(name, cells)
    local file = file_of(cells)
    assert.is_string(file, name)
    assert.truthy(has(read(file), name), ("%s is not in %s"):format(name, file))
    seen[name] = true
  end

  it("names files that have them", function()
    for _, cells in ipairs(rows()) do
      if cells[1]:match("^4%.%d+$") or cells[1]:match("^P%d+$") then
        check(cells[1], cells)
      elseif file_of(cells) and cells[1]:find("^`") then
        for name in cells[1]:gmatch("`([%w_.]+)`") do
          check(name:match("^poptorch%.(.+)$") or name:match("^profiling%.(.+)$") or name, cells)
        end
      end
    end
  end)

  it("has all", function()
    for i = 1, 35 do
      assert.is_true(seen["4." .. i], "4." .. i)
    end
    for i = 1, 6 do
      assert.is_true(seen["AC" .. i], "AC" .. i)
    end
    for i = 1, 10 do
      assert.is_true(seen["P" .. i], "P" .. i)
    end
    assert.is_true(seen.I1 and seen.I2)
  end)

  it("names every example and tutorial that there is", function()
    local text = read("examples/README.md")
    for _, pattern in ipairs({ "examples/*.lua", "spec/tutorials/*.lua" }) do
      local found = io.popen("ls " .. pattern)
      for file in found:lines() do
        local name = file:match("^examples/(.+)") or file
        assert.truthy(text:find(name .. "`", 1, true), file)
      end
      found:close()
    end
  end)
end)
