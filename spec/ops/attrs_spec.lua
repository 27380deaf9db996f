-- The positions that src/kernel/attrs.h names against the operators' signatures.
local core = require("lupine.core")

-- Names of the attributes of a signature, in order.
local function attributes(signature)
  local names = {}
  local list = signature:match("%b()"):sub(2, -2):gsub("=%b''", "") .. ","
  for argument in list:gmatch("%s*([^,]*),") do
    local kind, name = argument:match("^([%a]+)[%[%]%d?]*%s+([%w_]+)")
    if kind and kind ~= "Tensor" and kind ~= "Value" then
      table.insert(names, name)
    end
  end
  return names
end

-- { ops = names over an enum, members = its members }, …
local function enums(text)
  local found = {}
  for comment, body in text:gmatch("/%* ([%w_,%s*]-) %*/\nenum (%b{})") do
    local e = { ops = {}, members = {} }
    for name in comment:gmatch("[%w_]+") do
      table.insert(e.ops, name)
    end
    for member in body:gsub("/%*.-%*/", ""):gmatch("LP_([%w_]+)") do
      table.insert(e.members, member)
    end
    table.insert(found, e)
  end
  return found
end

describe("src/kernel/attrs.h", function()
  local file <close> = assert(io.open("src/kernel/attrs.h"))
  local text = file:read("a")
  local op_of, all = {}, enums(text)
  for _, op in ipairs(core.ops()) do
    op_of[op.name] = op
  end

  it("has an operator over each enum", function()
    local _, n = text:gsub("\nenum {", "")
    assert.equal(n, #all)
    assert.is_true(n > 30)
  end)

  it("names attributes where the signatures have them", function()
    for _, e in ipairs(all) do
      local longest = 0
      for _, name in ipairs(e.ops) do
        local names = attributes(assert(op_of[name], name).forms)
        longest = math.max(longest, #names)
        assert.is_true(#names > 0, name .. " has no attributes")
        for i, attribute in ipairs(names) do
          local member = e.members[i] or ""
          -- LP_CONV_BACK_SIZE is input_size of one operator, weight_size of another
          local tail = attribute:gsub("^.*_size$", "size"):gsub("^available_memory_", ""):upper()
          assert.equal("_" .. tail, member:sub(-#tail - 1), name .. " attribute " .. attribute)
        end
      end
      local count = e.members[longest + 1]
      assert.is_true(not count or count:sub(-6) == "_ATTRS" and #e.members == longest + 1)
    end
  end)
end)
