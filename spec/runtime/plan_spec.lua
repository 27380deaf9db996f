--- A plan: what the simulated system knows of a step, for as long as it is wanted,
--- described field by field in one place.
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local report = require("lupine.report")

local KIND = { integer = "number", number = "number", boolean = "boolean", string = "string",
  integers = "table", named = "table", list = "table", map = "table" }

-- {group = {name = field}}
local function groups()
  local out = {}
  for _, f in ipairs(report.fields()) do
    out[f.group] = out[f.group] or {}
    if f.name then
      out[f.group][f.name] = f
    end
  end
  return out
end

local function check(entry, group, all, met)
  for name, value in pairs(entry) do
    local f = all[group][name]
    assert.is_truthy(f, ("%s.%s is not described"):format(group, tostring(name)))
    met[group .. "." .. name] = true
    assert.equal(KIND[f.kind], type(value), name)
    if f.kind == "integer" then
      assert.equal("integer", math.type(value), name)
    elseif f.of then
      for _, x in pairs(value) do
        check(x, f.of, all, met)
      end
    end
  end
end

-- Arrays of JSON as lists, names that are numbers as such.
local function plain(v)
  if type(v) ~= "table" then
    return v
  end
  local out = {}
  for k, x in pairs(v) do
    if k ~= "n" or getmetatable(v) == nil then
      out[math.tointeger(tonumber(k)) or k] = plain(x)
    end
  end
  return out
end

local function planned(options)
  return core.plan(helper.chain(2, { accumulation = 4 }), options or {})
end

-- In phases, with a backward pass.
local function phased()
  return core.plan(helper.chain(2, { accumulation = 4, train = true, phases = true }),
    { strategy = "serial_phased" })
end

-- The schedule is asked for by itself.
local function figures(plan)
  local out = plan:report()
  assert.is_nil(out.schedule)
  out.schedule = plan:schedule()
  return out
end

describe("a plan", function()
  it("has the fields that are described, each of which is somewhere", function()
    local all, met = groups(), {}
    for _, plan in ipairs({ planned(), planned({ strategy = "sharded" }), phased(),
      planned({ weight = { on_chip = false }, optimizer = { on_chip = false } }) }) do
      check(figures(plan), "report", all, met)
      check({ nodes = plan:nodes() }, "plan", all, met)
      check(plan:liveness(), "liveness", all, met)
    end
    for group, fields in pairs(all) do
      for name, f in pairs(fields) do
        assert.is_true(met[group .. "." .. name], ("%s.%s is never there"):format(group, name))
        assert.is_true(#f.doc > 0 or f.kind ~= "named")
      end
    end
  end)

  it("is the same in JSON", function()
    local plan = planned()
    local json = core.json_decode(plan:json())
    assert.same(figures(plan), plain(json.report))
    assert.same({ nodes = plan:nodes() }, plain(json.plan))
    assert.same(plan:liveness(), plain(json.liveness))
  end)

  it("names every operator, and its cycles are those of the totals", function()
    local step = helper.chain(1, {})
    local plan = core.plan(step, {})
    local cycles, count = {}, 0
    for _, n in ipairs(plan:nodes()) do
      assert.is_true(n.cycles >= n.compute)
      cycles[n.operator] = (cycles[n.operator] or 0) + n.cycles
      count = count + (n.update and 0 or 1)
    end
    assert.equal(select(2, step:text("micro"):gsub("\n%%[^\n]* = ", "")), count)
    for _, o in ipairs(plan:report().operators) do
      assert.equal(o.cycles, cycles[o.name], o.name)
    end
  end)

  it("outlives its step, its executor and their collection", function()
    local step = helper.chain(2, { accumulation = 4 })
    local plan = core.plan(step, {})
    local want = plan:json()
    step:compile({}):close()
    step = nil -- luacheck: ignore
    collectgarbage()
    assert.equal(want, plan:json())
    assert.matches("^step iterations", plan:step():text("step"))
    assert.equal(want, core.plan(plan:step(), {}):json())
  end)

  it("is read into annotations for editors", function()
    local text = require("lupine.annotations").files()["lupine_report.lua"]
    assert.matches("%-%-%-@class lupine.report.stage\n", text)
    assert.matches("%-%-%-@field forward_cycles integer %[cycles%] of the forward pass\n", text)
    assert.matches("%-%-%-@field stages lupine.report.stage%[%] from 0\n", text)
    assert.matches("%-%-%-@field memory table<integer, lupine.report.memory>", text)
  end)
end)
