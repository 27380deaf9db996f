-- The positions of attributes that src/kernel/attrs.h, headers of families and
-- files of operators name, against the operators' signatures.
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

-- Over an enum of positions stands a comment of operators' names alone. Gives
-- { ops = these, members = the enum's }, …
local function enums(text, op_of)
  local found = {}
  for comment, body in text:gmatch("/%* ([%w_,%s*]-) %*/\nenum (%b{})") do
    local e = { ops = {}, members = {} }
    for name in comment:gmatch("[%w_]+") do
      table.insert(e.ops, name)
    end
    for member in body:gsub("/%*.-%*/", ""):gmatch("[%w_]+") do
      table.insert(e.members, (member:gsub("^LP_", "")))
    end
    if op_of[e.ops[1]] and not comment:find("[%w_] +[%w_]") then
      table.insert(found, e)
    end
  end
  return found
end

local function read(name)
  local file <close> = assert(io.open(name))
  return file:read("a")
end

describe("positions of attributes", function()
  local op_of, all, texts = {}, {}, {}
  for _, op in ipairs(core.ops()) do
    op_of[op.name] = op
  end
  for name in io.popen("find src runtime -name '*.[ch]'"):lines() do
    texts[name] = read(name)
    for _, e in ipairs(enums(texts[name], op_of)) do
      table.insert(all, e)
    end
  end

  it("have an operator over each enum of src/kernel/attrs.h", function()
    local text = texts["src/kernel/attrs.h"]
    local _, n = text:gsub("\nenum {", "")
    assert.equal(n, #enums(text, op_of))
    assert.is_true(n > 30)
  end)

  it("are where the signatures have the attributes", function()
    for _, e in ipairs(all) do
      local longest = 0
      for _, name in ipairs(e.ops) do
        local names = attributes(assert(op_of[name], name).forms)
        longest = math.max(longest, #names)
        assert.is_true(#names > 0, name .. " has no attributes")
        for i, attribute in ipairs(names) do
          local member = "_" .. (e.members[i] or "")
          -- LP_CONV_BACK_SIZE is input_size of one operator, weight_size of another
          local tail = attribute:gsub("^.*_size$", "size"):gsub("^available_memory_", ""):upper()
          assert.equal("_" .. tail, member:sub(-#tail - 1), name .. " attribute " .. attribute)
        end
      end
      local count = e.members[longest + 1]
      assert.is_true(not count or count:find("_ATTRS?$") and #e.members == longest + 1)
    end
  end)

  it("have no other names", function()
    local named = { LP_MAX_ATTR = true }
    for _, e in ipairs(all) do
      for _, member in ipairs(e.members) do
        named[member], named["LP_" .. member] = true, true
      end
    end
    for file, text in pairs(texts) do
      for name in text:gmatch("%f[%w_]attr%[(%u[%w_]*)") do
        assert.is_true(named[name], file .. " reads attribute " .. name)
      end
    end
  end)
end)
