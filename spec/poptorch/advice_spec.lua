--- Each hint that an error of the core gives has its advice, and no other has.
local advice = require("poptorch.advice")
local program = require("spec.support.program")

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

-- The hints that a call's third argument stands for: itself, what its variable
-- is set to, or the first field of every such record of the file.
local function hints_of(argument, text)
  local name, field = argument:match("^(%w+)%.?(%w*)$")
  if not name then
    return argument
  elseif field == "hint" then
    local all = {}
    for literal in text:gmatch('%(Advice%){("[%w_]+")') do
      all[#all + 1] = literal
    end
    return table.concat(all, " ")
  end
  return text:match("char %*" .. name .. " =(.-);") or ""
end

local function given()
  local out = {}
  for path in program.shell("grep -rl 'lp_fail_hint(' src runtime --include=*.c"):gmatch("%S+") do
    local text = read(path)
    for argument in text:gmatch("lp_fail_hint%(%s*[%w%->]+,%s*LP_E_[%w_]+,%s*([^,]+),") do
      local found = false
      for hint in hints_of(argument, text):gmatch('"([%w_]+)"') do
        out[hint], found = path, true
      end
      assert.is_true(found, path .. ": " .. argument)
    end
    local _, calls = text:gsub("lp_fail_hint%(%s*[%w%->]+,%s*LP_E_", "")
    local _, all = text:gsub("lp_fail_hint%(", "")
    assert.is_true(calls == all or path == "src/base/status.c", path)
  end
  return out
end

describe("the advice of poptorch", function()
  it("is there for each hint of the core, and for nothing else", function()
    local hints = given()
    for hint, path in pairs(hints) do
      assert.is_string(advice.ADVICE[hint], path .. ": " .. hint)
    end
    for hint in pairs(advice.ADVICE) do
      assert.is_string(hints[hint], hint)
    end
  end)
end)
