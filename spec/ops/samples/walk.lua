--- What every operator has to do, checked on its samples. Each check takes the
--- operator's record and one sample and raises when something is wrong.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local lupine_compile = require("lupine.compile")
local make = require("spec.ops.samples.make")
local samples = require("spec.ops.samples")
local torch = require("torch")

local M = {}

-- ---- running a sample -----------------------------------------------------
local function is_variable(sample, k)
  return k <= (sample.variables or k)
end

--- The tensors of a sample; o as for Description:tensor.
function M.tensors(sample, o)
  local out = {}
  for k, d in ipairs(make.tensors(sample)) do
    local packed = sample.packed and k == 1
    out[k] = d:tensor({ dtype = o.dtype, grad = o.grad and is_variable(sample, k),
      strided = o.strided and not packed, empty = o.empty })
  end
  return out
end

local function flatten(out, value)
  if torch.is_tensor(value) then
    out[#out + 1] = value
  elseif type(value) == "table" then
    for _, v in ipairs(value) do
      flatten(out, v)
    end
  end
end

--- A function of the sample's tensors that returns the list of results. The
--- same random numbers every time.
function M.callable(op, sample)
  local fn, in_place = samples.function_of(op.name)
  return function(tensors)
    local args = make.arguments(sample, tensors)
    if in_place then
      args[1] = args[1]:clone()
    end
    if op.flags.random or sample.free then
      torch.manual_seed(7)
    end
    local out, got = {}, table.pack(fn(table.unpack(args)))
    for i = 1, got.n do
      flatten(out, got[i])
    end
    return out
  end
end

function M.free(op, sample)
  return sample.free or op.flags.random
end

-- ---- comparing ------------------------------------------------------------
local function type_of(t)
  return ("%s [%s]"):format(t.dtype, table.concat(t.shape, ", "))
end

-- What differs between two lists of tensors; nil if nothing does.
local function difference(got, want, tolerance)
  if #got ~= #want then
    return ("%d tensors, expected %d"):format(#got, #want)
  end
  for i, w in ipairs(want) do
    local g = got[i]
    if type_of(g) ~= type_of(w) then
      return ("result %d is %s, expected %s"):format(i - 1, type_of(g), type_of(w))
    end
    local same = compiled.same_bits(g, w)
    if not same and tolerance and w.dtype.is_floating_point then
      same = torch.allclose(g:to(torch.float64), w:to(torch.float64), tolerance, tolerance, true)
    end
    if not same then
      return ("result %d is %s, expected %s"):format(i - 1, g, w)
    end
  end
  return nil
end

local function expect(got, want, tolerance, what)
  local text = difference(got, want, tolerance)
  if text then
    error(("%s: %s"):format(what, text), 0)
  end
end

local function types_only(list)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = torch.zeros(t.shape, { dtype = t.dtype })
  end
  return out
end

-- ---- gradients ------------------------------------------------------------
local function float_inputs(tensors)
  local out = {}
  for i, t in ipairs(tensors) do
    out[i] = t.dtype.is_floating_point and i or nil
  end
  return out
end

--- Is there a gradient to speak of?
function M.differentiable(op, sample)
  if op.no_grad or sample.kink or sample.loud then
    return false
  end
  return next(float_inputs(M.tensors(sample, {}))) ~= nil
end

local closeness = { eps = 1e-5, atol = 2e-6, rtol = 1e-5 }

function M.gradient(op, sample)
  local call = M.callable(op, sample)
  local function fn(...)
    local out = call({ ... })
    return table.unpack(out, 1, sample.only or #out)
  end
  local inputs = M.tensors(sample, { grad = true })
  torch.autograd.gradcheck(fn, inputs, closeness)
  if not sample.first then
    torch.autograd.gradgradcheck(fn, inputs, nil, closeness)
  end
end

local function cotangents(results)
  local out = {}
  for i, y in ipairs(results) do
    local d = make.x({ table.unpack(y.shape) }, -1, 1)
    out[i] = d:tensor({ dtype = y.dtype })
  end
  return out
end

-- The results that have a gradient, and their numbers.
local function differentiable_results(sample, results)
  local out, numbers = {}, {}
  for i, y in ipairs(results) do
    if y.requires_grad and i <= (sample.only or i) then
      out[#out + 1] = y
      numbers[#numbers + 1] = i
    end
  end
  return out, numbers
end

-- Gradients of the results by all float inputs; zeros where there is none.
local function gradients(sample, call, tensors)
  local wrt = {}
  for _, t in ipairs(tensors) do
    wrt[#wrt + 1] = t.requires_grad and t or nil
  end
  local ys = differentiable_results(sample, call(tensors))
  if #ys == 0 or #wrt == 0 then
    return {}, ys
  end
  local got = torch.autograd.grad(ys, wrt, cotangents(ys), { allow_unused = true })
  for i, x in ipairs(wrt) do
    got[i] = torch.is_tensor(got[i]) and got[i] or torch.zeros_like(x:detach())
  end
  return got, ys
end

--- With a gradient asked of each operand alone, it is what it is with all.
function M.single(op, sample)
  local call = M.callable(op, sample)
  local all = gradients(sample, call, M.tensors(sample, { grad = true }))
  local n = 0
  for k, t in ipairs(M.tensors(sample, {})) do
    if t.dtype.is_floating_point and is_variable(sample, k) then
      n = n + 1
      local tensors = M.tensors(sample, {})
      tensors[k]:requires_grad_(true)
      local one = gradients(sample, call, tensors)
      if #one > 0 then
        expect(one, { all[n] }, nil, ("the gradient of operand %d alone"):format(k - 1))
      end
    end
  end
end

-- ---- compiled = eager -----------------------------------------------------
-- An operator that runs as written has the same kernel in both; one that a
-- program expands has not.
local function slack(op)
  if op.kind == "fused" and not op.flags.device then
    return 2e-5
  end
  return nil
end

local function compare_compiled(op, sample, dtype)
  local call = M.callable(op, sample)
  local tensors = M.tensors(sample, { dtype = dtype })
  local want = call(tensors)
  local run = lupine_compile(function(...)
    return table.unpack(call({ ... }))
  end, tensors)
  local got = { run(table.unpack(tensors)) }
  if M.free(op, sample) then
    got, want = types_only(got), types_only(want)
  end
  expect(got, want, slack(op), "compiled")
end

-- Compiled gradients, of results that have one.
local function compare_gradients(op, sample, dtype)
  local call = M.callable(op, sample)
  local tensors, wrt = M.tensors(sample, { dtype = dtype, grad = true }), {}
  local want, ys = gradients(sample, call, tensors)
  if #want == 0 then
    return
  end
  local _, keep = differentiable_results(sample, call(tensors))
  local function fn(...)
    local out, results = {}, call({ ... })
    for i, k in ipairs(keep) do
      out[i] = results[k]
    end
    return table.unpack(out)
  end
  for i, t in ipairs(tensors) do
    tensors[i] = t:detach()
    wrt[#wrt + 1] = t.requires_grad and i or nil
  end
  local cots = cotangents(ys)
  local run = lupine_compile(fn, tensors, { cotangents = cots, wrt = wrt })
  local args = table.move(tensors, 1, #tensors, 1, {})
  args[#args + 1] = cots
  local got = table.pack(run(table.unpack(args)))
  expect(got[got.n], want, slack(op), "compiled gradient")
end

-- The comparison ends in an error of that class.
local function refused(class, compare, op, sample)
  local ok, e = pcall(compare, op, sample, torch.float32)
  assert(not ok, "compiled all the same")
  assert(errors[class]:is(e), tostring(e))
end

function M.compiled(op, sample)
  if op.flags.dynamic or sample.dynamic then
    refused("RuntimeError", compare_compiled, op, sample)
    return
  end
  compare_compiled(op, sample, torch.float32)
  if op.no_grad or M.free(op, sample) then
    return
  elseif sample.eager or op.kind == "fused" and op.flags.device and not op.grad then
    refused("NotImplementedError", compare_gradients, op, sample)
  else
    compare_gradients(op, sample, torch.float32)
  end
end

-- ---- costs ----------------------------------------------------------------
-- No value to write; the host prints; a loss that is not reduced is its operand;
-- bodies are asked for by the IPU's pass alone (passes/ipu/bodies_spec.lua).
local NOTHING = { empty = true, print_tensor = true, abort_if = true, identity_loss = true,
  branch = true, call = true }

--- Operators that may cost nothing, views and markers among them: whoever
--- reads the result reads the operand in its place.
function M.costs_nothing(op)
  return op.flags.view or op.flags.marker or NOTHING[op.name]
end

--- Graph nodes of a sample, each with its operands as op_cost takes them.
function M.nodes(op, sample)
  local call = M.callable(op, sample)
  local tensors = M.tensors(sample, { dtype = torch.float32 })
  local step = compiled.step(function(...)
    return table.unpack(call({ ... }))
  end, tensors)
  local g = core.graph_parse(step:text("micro"))
  local types, out = {}, {}
  for _, v in ipairs(g:inputs()) do
    types[v.value] = v
  end
  for _, node in ipairs(g:nodes()) do
    local operands = {}
    for i, v in ipairs(node.operands) do
      operands[i] = type(v) == "table" and v[1] or v and types[v]
    end
    for _, v in ipairs(node.results) do
      types[v.value] = v
    end
    out[#out + 1] = { op = node.op, operands = operands, attributes = node.attributes }
  end
  return out
end

-- Tiles compute in vertices: what computes has some, in compute sets, whose cycles over all
-- tiles are those of the slowest tile at least and of as many tiles as there are at most.
local function check_vertices(node, c, tiles)
  local cycles, bytes = 0, 0
  for _, v in ipairs(c.vertices) do
    assert(v.n > 0 and v.cyc >= v.idle_cyc and v.idle_cyc >= 0, node.op .. ": " .. v.name)
    cycles, bytes = cycles + v.cyc, bytes + v.tile_bytes
  end
  assert(c.compute_cyc <= cycles and cycles <= tiles * c.compute_cyc, ("%s computes for %d cycles, "
    .. "its vertices for %d"):format(node.op, c.compute_cyc, cycles))
  assert(bytes == c.vertex_bytes, node.op .. ": state of vertices")
  assert((c.compute_sets > 0) == (#c.vertices > 0), node.op .. ": compute sets")
end

--- Cycles of a node on the three chips are there and positive.
function M.cost(record, node)
  for _, chip in ipairs({ "ipu1", "ipu2", "ipu21" }) do
    local c = core.op_cost(node.op, node.operands, node.attributes, chip)
    assert(c, node.op .. " has no cost")
    check_vertices(node, c, core.chip(chip).tiles)
    if not M.costs_nothing(record) then
      assert(c.cyc > 0, ("%s costs %d cycles on %s"):format(node.op, c.cyc, chip))
      assert(c.tiles > 0, ("%s uses no tile of %s"):format(node.op, chip))
    end
  end
end

-- ---- memory ---------------------------------------------------------------
--- Blocks and bytes of storages alive after collecting, without the kernels of eager
--- calls: of those that are kept the oldest make room, at other calls in each process.
function M.live()
  torch.set_num_threads(torch.get_num_threads()) -- drops them
  collectgarbage()
  collectgarbage()
  return core.mem_live(), torch.memory().live
end

--- The sample once, with its gradients.
function M.run(op, sample)
  gradients(sample, M.callable(op, sample), M.tensors(sample, { grad = not op.no_grad }))
end

--- Runs the step, after which no block and no byte is alive that was not before.
function M.leaves_nothing(step)
  local blocks, bytes = M.live()
  step()
  local blocks_after, bytes_after = M.live()
  assert(blocks_after <= blocks and bytes_after <= bytes,
    ("%d blocks and %d bytes stay"):format(blocks_after - blocks, bytes_after - bytes))
end

--- Each allocation of a run fails in turn: the result is right, since memory
--- is asked for again after collecting, or OutOfMemoryError.
function M.short_of_memory(op, sample)
  local call = M.callable(op, sample)
  local tensors = M.tensors(sample, {})
  local want = call(tensors)
  call(tensors)
  for i = 2, 20000 do -- each alone, then with all after it
    local n, lasting = i // 2, i % 2 == 1
    local where = ("allocation %d%s failed"):format(n, lasting and " and all after it" or "")
    core.mem_fail_at(n, lasting)
    local ok, got = pcall(call, tensors)
    local left = core.mem_fail_at(0)
    if ok then
      expect(got, want, nil, where)
    elseif not errors.OutOfMemoryError:is(got) then
      error(("%s: %s"):format(where, tostring(got)), 0)
    end
    if left > 0 then
      return n
    end
  end
end

--- The sample with its gradients, all allocations failing from the first, the
--- step-th after it, … on: it ends in OutOfMemoryError.
function M.out_of_memory(op, sample, step)
  local n, left = 1, 0
  while left == 0 do
    core.mem_fail_at(n, true)
    local ok, e = pcall(M.run, op, sample)
    left = core.mem_fail_at(0)
    if not ok and not errors.OutOfMemoryError:is(e) then
      error(("allocation %d and all after it failed: %s"):format(n, tostring(e)), 0)
    end
    n = n + step
  end
  M.run(op, sample) -- what finalizers let go of is dropped by the next call
end

-- ---- layouts and types ----------------------------------------------------
--- Operands with gaps between their elements give what packed ones give.
function M.strided(op, sample)
  local call = M.callable(op, sample)
  local want = call(M.tensors(sample, {}))
  local got = call(M.tensors(sample, { strided = true }))
  if M.free(op, sample) then
    got, want = types_only(got), types_only(want)
  end
  -- sums may be taken in another order
  local exact = op.flags.pointwise or op.flags.view
  expect(got, want, not exact and 1e-12 or nil, "not contiguous")
end

--- Operands without elements give a result or an error of the arguments.
function M.empty(op, sample)
  local call = M.callable(op, sample)
  local ok, e = pcall(call, M.tensors(sample, { empty = true }))
  if not ok then
    local known = false
    for _, class in ipairs({ "RuntimeError", "IndexError", "ValueError" }) do
      known = known or errors[class]:is(e)
    end
    assert(known and not tostring(e):lower():find("internal", 1, true), tostring(e))
  end
end

--- One operation in float16 is float32's rounded.
function M.half(op, sample)
  if sample.loose then
    return
  end
  local call = M.callable(op, sample)
  local narrow, wide = M.tensors(sample, { dtype = torch.float16 }), {}
  for i, t in ipairs(narrow) do
    wide[i] = t.dtype == torch.float16 and t:to(torch.float32) or t
  end
  local got, want = call(narrow), call(wide)
  if M.free(op, sample) then
    got, want = types_only(got), types_only(want)
  end
  for i, w in ipairs(want) do
    if got[i].dtype == torch.float16 then
      want[i] = w:to(torch.float16)
    end
  end
  local one = op.flags.pointwise and op.kind == "primitive"
  expect(got, want, not one and (op.kind == "primitive" and 2e-3 or 1e-2) or nil, "float16")
end

return M
