-- A walk over the whole table of operators: what each has to do, on the
-- samples of spec/ops/samples. An operator without a sample fails. The families
-- are those of the samples' files; busted's --filter takes one: "linalg
-- operator".
local core = require("lupine.core")
local mistakes = require("spec.ops.samples.mistakes")
local samples = require("spec.ops.samples")
local walk = require("spec.ops.samples.walk")

local records = core.ops()
local record = {}
for _, op in ipairs(records) do
  record[op.name] = op
end

-- check(op, sample) for the samples of a family, or of all; the error lists
-- every operator that fails. wanted(op, sample): is there anything to check?
local function each_of(family, check, wanted)
  local wrong = {}
  for _, op in ipairs(records) do
    local here = not family or samples.family[op.name] == family
    for k, sample in ipairs(here and samples.of[op.name] or {}) do
      if wanted(op, sample) then
        local ok, e = pcall(check, op, sample)
        if not ok then
          wrong[#wrong + 1] = ("%s, sample %d: %s"):format(op.name, k, tostring(e))
        end
      end
    end
  end
  if wrong[1] then
    error(#wrong .. " samples fail\n" .. table.concat(wrong, "\n"), 0)
  end
end

local function quiet(_, sample)
  return not sample.loud
end

-- Is it called by its forms, and quietly?
local function has_forms(_, sample)
  return not sample.loud and not sample.script
end

local function compiles(op, sample)
  return not op.flags.dynamic and not sample.dynamic
end

describe("the table of operators", function()
  it("has a sample call for each, and no sample without one", function()
    for _, op in ipairs(records) do
      assert(samples.of[op.name], "no sample of " .. op.name .. " in spec/ops/samples")
    end
    for name in pairs(samples.of) do
      assert(record[name], "samples of " .. name .. ", which is no operator")
    end
  end)

  it("gives every operator that runs a gradient or the reason why not", function()
    for _, op in ipairs(records) do
      local given = op.grad or op.no_grad or op.kind ~= "primitive"
      assert(given, op.name .. " has neither grad nor no_grad")
      assert(not (op.grad and op.no_grad), op.name .. " has both grad and no_grad")
    end
  end)

  it("gives every operator of the device a cost", function()
    for _, op in ipairs(records) do
      local runs = (op.kind == "primitive" or op.flags.device) and not op.flags.dynamic
      assert(op.cost or not runs, op.name .. " has no cost")
    end
  end)

  it("is reached as a whole by traces of the samples, at a cost", function()
    local seen = {}
    each_of(nil, function(op, sample)
      for _, node in ipairs(walk.nodes(op, sample)) do
        walk.cost(record[node.op], node)
        seen[node.op] = true
      end
    end, compiles)
    for _, op in ipairs(records) do
      local runs = (op.kind == "primitive" or op.flags.device) and not op.flags.dynamic
      assert(seen[op.name] or not runs, "no sample's trace has the node " .. op.name)
    end
  end)
end)

-- What every operator of a family has to do.
local function family_specs(family)
  local function each(check, wanted)
    each_of(family, check, wanted)
  end

  it("has the first and second gradients that differences have", function()
    each(walk.gradient, walk.differentiable)
  end)

  it("has a gradient by each operand alone", function()
    each(walk.single, walk.differentiable)
  end)

  it("is in a compiled program, bit by bit, what it is in eager calls", function()
    each(walk.compiled, quiet)
  end)

  -- Nothing stays of check(op, sample) of all of them: asked once, as each collection
  -- takes longer than most samples; if something does, of one by one, and of all again.
  local function leave_nothing(check, wanted)
    local function all()
      each(check, wanted)
    end
    each(walk.run, wanted) -- what is made once
    if not pcall(walk.leaves_nothing, all) then
      each(function(op, sample)
        walk.leaves_nothing(function()
          check(op, sample)
        end)
      end, wanted)
      walk.leaves_nothing(all)
    end
  end

  it("leaves nothing in memory", function()
    leave_nothing(walk.run, quiet)
  end)

  it("has samples that call all its forms", function()
    local seen, missing = {}, {}
    each(function(op, sample)
      mistakes.forms(seen, op, sample)
    end, has_forms)
    for _, form in ipairs(mistakes.all_forms()) do
      local op = record[form.op]
      local wanted = op and samples.family[op.name] == family
        and has_forms(op, samples.of[op.name][1])
      missing[#missing + 1] = wanted and not seen[form.text] and form.text or nil
    end
    assert(#missing == 0, table.concat(missing, "\n"))
  end)

  it("names wrong arguments", function()
    each(mistakes.check, has_forms)
  end)

  it("refuses dimensions that are not there", function()
    each(mistakes.ranges, has_forms)
  end)

  it("takes tensors of other types and dimensions or says what it was given", function()
    each(mistakes.tensors, has_forms)
  end)

  it("takes or refuses integers at the ends of their range", function()
    each(mistakes.extremes, quiet)
  end)

  it("takes or refuses operands of other types", function()
    each(mistakes.other_types, quiet)
  end)

  it("reads operands with gaps between their elements", function()
    each(walk.strided, quiet)
  end)

  it("takes or refuses operands without elements", function()
    each(walk.empty, function(_, sample)
      return not sample.loud and not sample.whole
    end)
  end)

  it("is in float16 what float32 is, rounded", function()
    each(walk.half, quiet)
  end)

  it("survives, on a few, the failure of any allocation", function()
    local chosen = {}
    for name in ([[add where sum max_dim var_mean cat pad meshgrid split index_put sort unique_all
      mm bilinear conv2d max_pool2d layer_norm cross_entropy dropout adam_step]]):gmatch("%S+") do
      assert(record[name], name)
      chosen[name] = true
    end
    leave_nothing(walk.short_of_memory, function(op)
      return chosen[op.name]
    end)
  end)

  local function survives(step)
    leave_nothing(function(op, sample)
      walk.out_of_memory(op, sample, step)
    end, quiet)
  end

  it("survives memory that runs out", function()
    survives(13)
  end)

  it("survives memory that runs out at any place #slow", function()
    survives(1)
  end)
end

for _, family in ipairs(samples.families) do
  describe("every " .. family .. " operator", function()
    family_specs(family)
  end)
end
