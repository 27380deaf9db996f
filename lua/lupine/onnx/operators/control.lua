--- If, Loop and Scan of ONNX.
---
--- Eagerly they are Lua's own: any number of rounds, carried values of any shapes.
--- In a trace, what is known now is decided now, and the rest becomes loops and
--- branches of the program, whose bodies are compiled once (lupine.control). A Loop
--- there
---   * with a constant trip count and without a condition is a loop;
---   * whose rounds decide shapes or carry changing ones, is unrolled, if the number of
---     rounds follows from constants;
---   * with a condition that only a run knows is a loop of as many rounds as the trip
---     count says, which do nothing once the condition is false; it can have no scan
---     outputs, since their shape would depend on data.
--- On the device "meta" shapes are inferred in the same cases.
local control = require("lupine.control")
local core = require("lupine.core")
local torch = require("torch")

local function is_true(t)
  local value = core.untraced(t.item, t)
  return value ~= false and value ~= 0
end

local function type_of(t)
  return ("%s %s"):format(tostring(t.dtype), tostring(t.shape))
end

-- Whether the first n of both lists are tensors of the same types.
local function same_types(a, b, n)
  for i = 1, n do
    if type_of(a[i]) ~= type_of(b[i]) then
      return false, i
    end
  end
  return true
end

-- ---- If -----------------------------------------------------------------------------

-- Both sides without values, which must agree.
local function outline_if(n)
  local yes, no = n:outline("then_branch", {}), n:outline("else_branch", {})
  n:check(#yes == #no, "then_branch has %d outputs, else_branch has %d", #yes, #no)
  local same, i = same_types(yes, no, #yes)
  n:check(same, "output %d of then_branch is %s, of else_branch %s; which one only a run knows",
    (i or 1) - 1, i and type_of(yes[i]), i and type_of(no[i]))
  return yes
end

local function choose(n, condition)
  n:check(condition:numel() == 1, "the condition has %d elements, allowed is 1",
    condition:numel())
  local out
  if n:knows(1) then
    out, n.known = n:run(is_true(condition) and "then_branch" or "else_branch", {})
  elseif core.is_tracing() then
    out = control.branch(condition, n:body("then_branch"), {}, n:body("else_branch"), {}, "If")
  else
    out = outline_if(n)
  end
  return table.unpack(out, 1, #n.outputs)
end

-- ---- rounds of a Loop -----------------------------------------------------------------

-- The shape that the body declares for its input i: a scalar or one element.
local function input_shape(n, i)
  local info = n:graph("body").input[i]
  local shape = info and info.type and info.type.tensor_type and info.type.tensor_type.shape
  return shape and #(shape.dim or {}) == 1 and { 1 } or {}
end

local function formed(t, shape, known)
  return known and core.untraced(t.reshape, t, shape) or t:reshape(shape)
end

-- What a round gets: its number, the condition, what is carried; and which are known.
local function arguments(n, i, alive, values, known)
  local list, flags = { formed(i, input_shape(n, 1), known.i),
    formed(alive, input_shape(n, 2), known.alive) }, { known.i, known.alive }
  for k, v in ipairs(values) do
    list[k + 2], flags[k + 2] = v, known[k]
  end
  return list, flags
end

local function number(i)
  return core.untraced(torch.tensor, i, { dtype = torch.int64 })
end

local function yes()
  return core.untraced(torch.tensor, true)
end

-- One round: the condition, the carried values, the scan outputs; and what is known.
---@class lupine.onnx.Round
---@field alive torch.Tensor
---@field values torch.Tensor[]
---@field scans torch.Tensor[]
---@field known table known.alive, known[k] of the values, known.scans[k]
local function as_round(n_carried, out, flags)
  local round = { alive = out[1], values = {}, scans = {},
    known = { alive = flags[1], scans = {} } }
  for k = 2, #out do
    local scan = k - 1 - n_carried
    if scan > 0 then
      round.scans[scan], round.known.scans[scan] = out[k], flags[k]
    else
      round.values[k - 1], round.known[k - 1] = out[k], flags[k]
    end
  end
  return round
end

local function run_round(n, i, alive, values, known)
  return as_round(#values, n:run("body", arguments(n, i, alive, values, known)))
end

-- The first round without values.
local function outline_round(n, values, known)
  return core.untraced(function()
    local list, flags = arguments(n, number(0), yes(), values, known)
    return as_round(#values, n:outline("body", list, flags))
  end)
end

-- Zero rounds of scan outputs, of a round's types.
local function no_rounds(round)
  local out = {}
  for k, t in ipairs(round.scans) do
    out[k] = core.untraced(torch.empty, { 0, table.unpack(t.shape) }, { dtype = t.dtype })
  end
  return out
end

-- ---- Loop: one round after the other -----------------------------------------------------

-- The scan outputs of all rounds as stacks; those of known values are known.
local function stacked(rounds)
  local out, known = {}, {}
  for k = 1, #rounds[1].scans do
    local list = {}
    known[k] = true
    for i, round in ipairs(rounds) do
      list[i] = round.scans[k]
      known[k] = known[k] and round.known.scans[k]
    end
    out[k] = known[k] and core.untraced(torch.stack, list) or torch.stack(list)
  end
  return out, known
end

local function joined(a, b)
  return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

-- A trip count from here on is none: exporters of `while` write the greatest integer.
local MOST = 1 << 31

-- The condition must be known in each round; nil if it is not.
local function unroll(n, trips, alive, values, known)
  local rounds, first = {}, values
  local going = not alive or is_true(alive)
  while going and #rounds < trips do
    local round = run_round(n, number(#rounds), alive or yes(), values,
      table.move(known, 1, #values, 1, { i = true, alive = true }))
    if alive and not round.known.alive and (core.is_tracing() or round.alive.is_meta) then
      return nil
    end
    going = not alive or is_true(round.alive)
    alive, values, known = alive and round.alive, round.values, round.known
    rounds[#rounds + 1] = round
  end
  if #rounds == 0 then
    local none = no_rounds(outline_round(n, first, {}))
    n.known = table.move(known, 1, #values, 1, {})
    return joined(values, none)
  end
  local scans, scans_known = stacked(rounds)
  n.known = joined(table.move(known, 1, #values, 1, {}), scans_known)
  return joined(values, scans)
end

-- ---- Loop: as a loop of the program --------------------------------------------------

-- As many rounds as the trip count says.
local function counted(n, trips, values)
  local out = control.scan(trips, function(i, ...)
    local round = run_round(n, i, yes(), { ... }, { alive = true })
    return joined({ i + 1 }, joined(round.values, round.scans))
  end, joined({ number(0) }, values), {}, "Loop")
  return table.move(out, 2, #out, 1, {})
end

-- As many at most: those behind the last hand on what they get.
local function guarded(n, trips, alive, values)
  local function hand_on(...)
    return ...
  end
  local function round_of(i, going, ...)
    local round = run_round(n, i, going, { ... }, {})
    return joined({ i + 1, round.alive:reshape({}) }, round.values)
  end
  local out = control.loop(trips, function(...)
    local all = { ... }
    return control.branch(all[2], round_of, all, hand_on, all, "Loop")
  end, joined({ number(0), alive:reshape({}) }, values), "Loop")
  return table.move(out, 3, #out, 1, {})
end

-- The results' types alone, of so many rounds.
local function of_types(round, trips)
  local out = table.move(round.values, 1, #round.values, 1, {})
  for k, t in ipairs(round.scans) do
    out[#round.values + k] = torch.empty({ trips, table.unpack(t.shape) },
      { dtype = t.dtype, device = "meta" })
  end
  return out
end

-- A round whose number is not known: what its body makes, or nil and why it has none.
local function common_round(n, values)
  local ok, round = pcall(outline_round, n, values, { alive = true })
  if not ok then
    return nil, type(round) == "table" and round.message or tostring(round)
  end
  local same, i = same_types(round.values, values, #values)
  if not same then
    return nil, ("what it carries changes: value %d from %s to %s"):format(i - 1,
      type_of(values[i]), type_of(round.values[i]))
  end
  return round
end

-- Whether the condition of a round follows from constants.
local function decided(n, values, known)
  local ok, round = pcall(outline_round, n, values,
    table.move(known, 1, #values, 1, { i = true, alive = true }))
  return not ok or round.known.alive
end

local function traced_loop(n, trips, alive, values, known)
  local alive_known = not alive or n:knows(2)
  local round, why = common_round(n, values)
  local endless = round and (not alive or round.known.alive and is_true(round.alive))
  if round and endless and alive_known and trips ~= math.huge and trips > 0
    and (not alive or is_true(alive)) then
    return core.is_tracing() and counted(n, trips, values) or of_types(round, trips)
  end
  n:check(not endless or trips ~= math.huge, "its condition is always true, and %s",
    n.inputs[1] and ("its trip count M is %d. Allowed: up to %d"):format(n:number(1), MOST - 1)
    or "it has no trip count M")
  local out = alive_known and (not alive or decided(n, values, known))
    and unroll(n, trips, alive, values, known)
  if out then
    return out
  end
  n:check(round, "a loop whose condition only a run knows must have one body for all rounds: %s",
    why)
  n:check(trips ~= math.huge, "a loop whose condition only a run knows must have a constant trip "
    .. "count (M), the most rounds")
  n:check(#round.scans == 0, "its %d scan outputs have as many elements as there are rounds, which "
    .. "only a run knows; shapes must be constants", #round.scans)
  return core.is_tracing() and guarded(n, trips, alive or yes(), values) or round.values
end

local function loop(n, trips, alive, ...)
  local values, known = table.pack(...), {}
  values.n = nil
  for k = 1, #n:graph("body").input - 2 do
    n:check(values[k], "its body has %d carried values, value %d is not given",
      #n:graph("body").input - 2, k - 1)
    known[k] = n:knows(k + 2)
  end
  n:check(#n:graph("body").output > #values, "its body has %d outputs, the condition and %d "
    .. "carried values are the least", #n:graph("body").output, #values)
  local most = trips and n:number(1) or math.huge
  most = most < MOST and math.max(most, 0) or math.huge
  local blank = n:reads_meta("body")
  for _, t in ipairs({ alive, table.unpack(values) }) do
    blank = blank or t.is_meta
  end
  local run = (core.is_tracing() or blank) and traced_loop or unroll
  return table.unpack((run(n, most, alive, values, known)))
end

-- ---- Scan ------------------------------------------------------------------------------

-- An attribute that has a number for each of so many tensors, 0 unless given.
local function each_of(n, name, count)
  local given, list = n.attr[name], {}
  n:check(not given or #given == 0 or #given == count, "%s has %d elements, allowed are %d", name,
    #(given or {}), count)
  for k = 1, count do
    list[k] = given and given[k] or 0
  end
  return list
end

-- A scan input as the loop reads it: its axis in front, forwards.
local function to_stack(n, t, axis, reversed)
  t = t:movedim(axis, 0)
  t = reversed ~= 0 and t:flip({ 0 }) or t
  return n.joins and t:dim() == 1 and t:unsqueeze(1) or t
end

local SCAN_OUTPUT = "attribute 'scan_output_axes'"

-- A stack as a scan output.
local function from_stack(n, t, axis, reversed)
  t = reversed ~= 0 and t:flip({ 0 }) or t
  if not n.joins then
    return t:movedim(0, n:axis(axis, t:dim(), SCAN_OUTPUT))
  end
  axis = n:axis(axis, t:dim() - 1, SCAN_OUTPUT)
  local shape = { table.unpack(t.shape, 2) }
  shape[axis + 1] = shape[axis + 1] * t:size(0)
  return t:movedim(0, axis):reshape(shape)
end

local function blank(n, tensors)
  local any = n:reads_meta("body")
  for _, t in ipairs(tensors) do
    any = any or t.is_meta
  end
  return any and not core.is_tracing()
end

-- So many rounds over stacks, whose slices lie in front.
local function rounds(n, count, states, stacks)
  if not blank(n, joined(states, stacks)) and count > 0 then
    return control.scan(count, n:body("body"), states, stacks, "Scan")
  end
  local slices = {}
  for k, t in ipairs(stacks) do
    slices[k] = torch.empty({ table.unpack(t.shape, 2) }, { dtype = t.dtype, device = "meta" })
  end
  local out = n:outline("body", joined(states, slices))
  local types = as_round(#states, joined({ yes() }, out), {})
  local same, i = same_types(types.values, states, #states)
  n:check(same, "state %d is %s, its body makes %s of it", (i or 1) - 1, i and type_of(states[i]),
    i and type_of(types.values[i]))
  return count > 0 and of_types(types, count) or joined(states, no_rounds(types))
end

-- The states and the scan inputs of a list of both.
local function divided(n, all)
  local scanned = n.attr.num_scan_inputs
  n:check(scanned >= 1 and scanned <= #all, "num_scan_inputs is %d of %d inputs", scanned, #all)
  local first = #all - scanned
  n:check(#n:graph("body").output >= first, "its body has %d outputs, there are %d states",
    #n:graph("body").output, first)
  return table.move(all, 1, first, 1, {}), table.move(all, first + 1, #all, 1, {})
end

local function length_of(n, stacks, axis)
  local count = stacks[1]:size(axis)
  for k, t in ipairs(stacks) do
    n:check(t:size(axis) == count, "scan input %d has %d slices, input 0 has %d", k - 1,
      t:size(axis), count)
  end
  return count
end

local function scan(n, ...)
  local states, stacks = divided(n, { ... })
  local axes = each_of(n, "scan_input_axes", #stacks)
  local ways = each_of(n, "scan_input_directions", #stacks)
  for k, t in ipairs(stacks) do
    stacks[k] = to_stack(n, t, n:axis(axes[k], t:dim(), "attribute 'scan_input_axes'"), ways[k])
  end
  local out = rounds(n, length_of(n, stacks, 0), states, stacks)
  local emitted = #out - #states
  axes = each_of(n, "scan_output_axes", emitted)
  ways = each_of(n, "scan_output_directions", emitted)
  for k = 1, emitted do
    out[#states + k] = from_stack(n, out[#states + k], axes[k], ways[k])
  end
  return table.unpack(out)
end

-- Scan of version 8, of one sequence: what it has behind its length is zero.
local function scan_sequence(n, b, count, states, stacks, longest)
  local first, slices = {}, {}
  for k, t in ipairs(states) do
    first[k] = t[b]
  end
  local ways = each_of(n, "directions", #stacks)
  for k, t in ipairs(stacks) do
    slices[k] = to_stack(n, t[b]:narrow(0, 0, count), 0, ways[k])
  end
  local out = rounds(n, count, first, slices)
  for k = #states + 1, #out do
    if count < longest then
      local rest = out[k]:new_zeros({ longest - count, table.unpack(out[k].shape, 2) })
      out[k] = torch.cat({ out[k], rest }, 0)
    end
  end
  return out
end

-- Version 8 has batches, in front, and sequences of several lengths.
local function scan_batch(n, _, ...)
  local states, stacks = divided(n, { ... })
  local longest, lens = length_of(n, stacks, 1), n:ints(1)
  local batch, per = length_of(n, stacks, 0), {}
  for b = 0, batch - 1 do
    local count = lens and lens[b + 1] or longest
    n:check(count >= 0 and count <= longest, "sequence %d has the length %d, allowed is 0 to %d", b,
      count, longest)
    for k, t in ipairs(scan_sequence(n, b, count, states, stacks, longest)) do
      per[k] = per[k] or {}
      table.insert(per[k], t)
    end
  end
  for k, list in ipairs(per) do
    per[k] = torch.stack(list)
  end
  return table.unpack(per)
end

return function(op)
  op("If(cond; else_branch: graph!, then_branch: graph!) -> (outputs...)", { 1, 11, 13, 16 },
    choose)
  op("Loop(M?, cond?, v_initial...?; body: graph!) -> (v_final_and_scan_outputs...)",
    { 1, 11, 13, 16 }, loop, { constants = { [1] = true } })
  op("Scan(sequence_lens?, initial_state_and_scan_inputs...; body: graph!, num_scan_inputs: int!, "
    .. "directions: ints) -> (final_state_and_scan_outputs...)", 8, scan_batch,
    { constants = { [1] = true } })
  op("Scan(initial_state_and_scan_inputs...; body: graph!, num_scan_inputs: int!, "
    .. "scan_input_axes: ints, scan_input_directions: ints, scan_output_axes: ints, "
    .. "scan_output_directions: ints) -> (final_state_and_scan_outputs...)", { 9, 11, 16 }, scan)
end
