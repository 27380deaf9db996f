-- If, Loop and Scan of ONNX: eagerly, compiled, on shapes, and their gradients.
local compile = require("lupine.compile")
local compiled = require("spec.support.compiled")
local graphs = require("spec.lupine.onnx.graphs")
local helper = require("spec.helper")
local torch = require("torch")

local function joined(a, b)
  return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

-- The text of what a model is as a program.
local function step_text(model, inputs)
  return (compiled.step(model, inputs)):text("micro")
end

-- Gradients of what fn gives, by the inputs (those of the numbers), are those of what
-- `like` gives: eagerly and compiled.
local function same_gradients(fn, like, inputs, by)
  local function leaves()
    local list = {}
    for i, t in ipairs(inputs) do
      list[i] = t:clone():requires_grad_(t:is_floating_point())
    end
    return list
  end
  local function chosen(list)
    local out = {}
    for i, k in ipairs(by or {}) do
      out[i] = list[k]
    end
    return by and out or list
  end
  local mine, yours = leaves(), leaves()
  local want = { like(table.unpack(yours)) }
  local cotangents = {}
  for i, t in ipairs(want) do
    cotangents[i] = torch.rand(t.shape)
  end
  want = torch.autograd.grad(want, chosen(yours), cotangents)
  local eager = torch.autograd.grad({ fn(table.unpack(mine)) }, chosen(mine), cotangents)
  local run = compile(function(...)
    return fn(...)
  end, inputs, { cotangents = cotangents })
  local results = table.pack(run(table.unpack(joined(inputs, { cotangents }))))
  local got = chosen(results[results.n])
  for i, g in ipairs(want) do
    helper.near(eager[i], g)
    helper.near(got[i], g)
  end
end

local I64 = { dtype = torch.int64 }

local function trips(m)
  return torch.tensor(m, I64)
end

-- v' = v * w + x, s = v' summed, so often.
local function recurrence(m, body_nodes)
  local body = graphs.graph("i, going, v -> going_out, v_out, s", body_nodes or {
    { "going_out = Identity(going)" }, { "p = Mul(v, w)" }, { "v_out = Add(p, x)" },
    { "s = Mul(v_out, v_out)" },
  })
  return graphs.model("x, v -> y, all", { { "y, all = Loop(M, going, v)", { body = body } } },
    { M = trips(m), going = torch.tensor(true), w = torch.tensor({ 0.5, -0.8 }) })
end

local function unrolled(m, w, x, v)
  local all = {}
  for i = 1, m do
    v = v * w + x
    all[i] = v * v
  end
  return v, torch.stack(all)
end

describe("Loop", function()
  local x, v = torch.tensor({ 1.0, 2.0 }), torch.tensor({ 0.25, -1.0 })

  it("runs as often as the trip count says", function()
    local y, all = graphs.both(recurrence(4), { x, v })
    local want, stack = unrolled(4, torch.tensor({ 0.5, -0.8 }), x, v)
    helper.near(y, want)
    helper.near(all, stack)
    y, all = graphs.both(recurrence(0), { x, v })
    helper.near(y, v)
    assert.equal("torch.Size([0, 2])", tostring(all.shape))
  end)

  it("is one body of a compiled program", function()
    local long = recurrence(1000)
    helper.near((compile(long, { x, v })(x, v)), (long(x, v)))
    local text = step_text(long, { x, v })
    assert(select(2, text:gsub("mul%(", "")) < 10, text)
    assert(text:find("loop(", 1, true), text)
  end)

  it("has the gradients of the unrolled graph", function()
    local body = graphs.graph("i, going, v -> going, v_out, s", {
      { "p = Mul(v, w)" }, { "v_out = Add(p, x)" }, { "s = Mul(v_out, v_out)" } })
    local model = graphs.model("w, x, v -> y, all", {
      { "y, all = Loop(M, , v)", { body = body } } }, { M = trips(5) })
    same_gradients(model, function(w, given, start)
      return unrolled(5, w, given, start)
    end, { torch.tensor({ 0.5, -0.8 }), x, v })
  end)

  it("gives its body the number of the round", function()
    local body = graphs.graph("i, going, v -> going, v_out, s", {
      { "f = Cast(i)", { to = 1 } }, { "s = Mul(f, x)" }, { "v_out = Add(v, s)" } })
    local model = graphs.model("x, v -> y, all", {
      { "y, all = Loop(M, , v)", { body = body } } }, { M = trips(4) })
    local y, all = graphs.both(model, { x, v })
    helper.near(y, { 6.25, 11.0 })
    helper.near(all, { { 0.0, 0.0 }, { 1.0, 2.0 }, { 2.0, 4.0 }, { 3.0, 6.0 } })
  end)

  it("ends with a condition of its values", function()
    local body = graphs.graph("i, going, v -> going_out, v_out", {
      { "v_out = Mul(v, w)" }, { "sum = ReduceSum(v_out)", { keepdims = 0 } },
      { "going_out = Less(sum, limit)" } })
    local function model(m)
      return graphs.model("w, limit, v -> y", {
        { "y = Loop(M, go, v)", { body = body } } }, { M = trips(m), go = torch.tensor(true) })
    end
    local w, limit = torch.tensor({ 2.0, 3.0 }), torch.tensor(100.0)
    helper.near(graphs.both(model(50), { w, limit, torch.ones({ 2 }) }), { 32.0, 243.0 })
    helper.near(graphs.both(model(2), { w, limit, torch.ones({ 2 }) }), { 4.0, 9.0 })
    same_gradients(model(50), function(u, _, start)
      local product = start
      for _ = 1, 5 do
        product = product * u
      end
      return product
    end, { w, limit, torch.ones({ 2 }) }, { 1, 3 })
  end)

  it("counts its rounds, whoever knows when they end; one round is a stack", function()
    local body = graphs.graph("i, going, v -> going_out, v_out", { { "f = Cast(i)", { to = 1 } },
      { "v_out = Add(v, f)" }, { "sum = ReduceSum(v_out)", { keepdims = 0 } },
      { "going_out = Less(sum, limit)" } })
    local model = graphs.model("v -> y", { { "y = Loop(M, go, v)", { body = body } } },
      { M = trips(9), go = torch.tensor(true), limit = torch.tensor(6.5) })
    helper.near(graphs.both(model, { torch.tensor({ 0.25 }) }), { 10.25 }) -- 1 + 2 + 3 + 4
    local y, all = graphs.both(recurrence(1), { x, v })
    local want, stack = unrolled(1, torch.tensor({ 0.5, -0.8 }), x, v)
    helper.near(y, want)
    helper.near(all, stack)
  end)

  it("does nothing if the condition is false before", function()
    local body = graphs.graph("i, going, v -> going, v_out", { { "v_out = Add(v, v)" } })
    local model = graphs.model("go, v -> y", { { "y = Loop(M, go, v)", { body = body } } },
      { M = trips(3) })
    helper.near(graphs.both(model, { torch.tensor(false), v }), v)
    helper.near(graphs.both(model, { torch.tensor(true), v }), v * 8)
  end)

  it("is unrolled where its rounds decide shapes", function()
    local body = graphs.graph("i, going, v -> going, v_out, part", {
      { "next = Add(i, one)" }, { "at = Unsqueeze(i, zero)" }, { "stop = Unsqueeze(next, zero)" },
      { "part = Slice(x, at, stop)" }, { "v_out = Concat(v, part)", { axis = 0 } } })
    local model = graphs.model("x, v -> y, all", { { "y, all = Loop(M, , v)", { body = body } } },
      { M = trips(2), one = trips(1), zero = trips({ 0 }) })
    local y, all = graphs.both(model, { x, v })
    helper.near(y, { 0.25, -1.0, 1.0, 2.0 })
    helper.near(all, { { 1.0 }, { 2.0 } })
  end)

  it("is unrolled where constants end it", function()
    local body = graphs.graph("i, going, v -> going_out, v_out, s", {
      { "going_out = Less(i, two)" }, { "v_out = Add(v, v)" }, { "s = Identity(v)" } })
    local model = graphs.model("v -> y, all", { { "y, all = Loop(, go, v)", { body = body } } },
      { two = trips(2), go = torch.tensor(true) })
    local y, all = graphs.both(model, { v })
    helper.near(y, v * 8)
    assert.equal(3, all:size(0))
  end)

  it("of constants is a constant", function()
    local body = graphs.graph("i, going, s -> going, s_out", { { "s_out = Add(s, two)" } })
    local model = graphs.model("v -> y", { { "n = Loop(M, , one)", { body = body } },
      { "y = Expand(v, n)" } }, { M = trips(2), one = trips({ 1 }), two = trips({ 2 }) })
    assert.equal("torch.Size([2, 5])", tostring(graphs.both(model, { v:reshape({ 2, 1 }) }).shape))
  end)

  it("takes what only a run knows eagerly alone", function()
    local body = graphs.graph("i, going, v -> going_out, v_out, s", {
      { "v_out = Add(v, v)" }, { "s = Identity(v)" },
      { "sum = ReduceSum(v_out)", { keepdims = 0 } }, { "going_out = Less(sum, limit)" } })
    local limit = { limit = torch.tensor(10.0), go = torch.tensor(true) }
    local model = graphs.model("M, v -> y, all", { { "y, all = Loop(M, go, v)",
      { body = body } } }, limit)
    local y, all = model(trips(100), torch.ones({ 1 }))
    helper.near(y, { 16.0 })
    assert.equal(4, all:size(0))
    helper.raises("ValueError", "input 'M' %('M'%) must be a constant", function()
      compile(model, { trips(100), torch.ones({ 1 }) })
    end)
    limit.M = trips(100)
    model = graphs.model("v -> y, all", { { "y, all = Loop(M, go, v)", { body = body } } }, limit)
    helper.raises("ValueError", "scan outputs have as many elements as there are rounds", function()
      compile(model, { torch.ones({ 1 }) })
    end)
    limit.M = nil
    model = graphs.model("v -> y, all", { { "y, all = Loop(, go, v)", { body = body } } }, limit)
    assert.equal(4, select(2, model(torch.ones({ 1 }))):size(0))
    helper.raises("ValueError", "must have a constant trip count", function()
      compile(model, { torch.ones({ 1 }) })
    end)
  end)

  it("has no trip count if that is the greatest integer", function()
    local body = graphs.graph("i, going, v -> going_out, v_out", { { "v_out = Add(v, v)" },
      { "sum = ReduceSum(v_out)", { keepdims = 0 } }, { "going_out = Less(sum, limit)" } })
    local model = graphs.model("v -> y", { { "y = Loop(M, go, v)", { body = body } } },
      { M = trips(math.maxinteger), go = torch.tensor(true), limit = torch.tensor(20.0) })
    helper.near(model(torch.ones({ 1 })), { 32.0 })
    helper.raises("ValueError", "must have a constant trip count", function()
      compile(model, { torch.ones({ 1 }) })
    end)
  end)

  it("draws anew in each round", function()
    local body = graphs.graph("i, going, v -> going, v_out, s", {
      { "s = RandomUniformLike(v)" }, { "v_out = Identity(v)" } })
    local model = graphs.model("v -> y, all", { { "y, all = Loop(M, , v)", { body = body } } },
      { M = trips(3) })
    for _, run in ipairs({ model, compile(model, { v }) }) do
      local _, all = run(v)
      assert.equal(6, torch.unique(all):numel())
    end
  end)

  it("refuses a loop without an end", function()
    local body = graphs.graph("i, going, v -> going, v_out", { { "v_out = Add(v, v)" } })
    local model = graphs.model("v -> y", { { "y = Loop(, , v)", { body = body } } })
    helper.raises("ValueError", "condition is always true, and it has no trip count M", function()
      compile(model, { v })
    end)
  end)
end)

describe("If", function()
  local x = torch.tensor({ 1.0, -2.0 })
  local yes = graphs.graph(" -> a, b", { { "a = Mul(x, w)" }, { "b = Identity(x)" } })
  local no = graphs.graph(" -> a, b", { { "a = Sub(x, w)" }, { "b = Exp(w)" } })

  it("takes one side of two", function()
    local model = graphs.model("c, x, w -> y, z", {
      { "y, z = If(c)", { then_branch = yes, else_branch = no } } })
    local w = torch.tensor({ 3.0, 0.5 })
    helper.near(graphs.both(model, { torch.tensor(true), x, w }), { 3.0, -1.0 })
    helper.near(graphs.both(model, { torch.tensor({ false }), x, w }), { -2.0, -2.5 })
    for _, side in ipairs({ true, false }) do
      same_gradients(function(a, b)
        return model(torch.tensor(side), a, b)
      end, function(a, b)
        if side then
          return a * b, a
        end
        return a - b, b:exp()
      end, { x, w })
    end
  end)

  it("is decided when the program is made, by a constant", function()
    local small = graphs.graph(" -> a", { { "a = Squeeze(x, zero)" } })
    local all = graphs.graph(" -> a", { { "a = Identity(x)" } })
    local model = graphs.model("x -> y", {
      { "s = Shape(x)" }, { "first = Gather(s, zero)" }, { "is = Equal(first, one)" },
      { "y = If(is)", { then_branch = small, else_branch = all } },
    }, { zero = trips({ 0 }), one = trips({ 1 }) })
    helper.near(graphs.both(model, { x:reshape({ 1, 2 }) }), x)
    helper.near(graphs.both(model, { x:reshape({ 2, 1 }) }), x:reshape({ 2, 1 }))
    assert(not step_text(model, { x:reshape({ 2, 1 }) }):find("branch", 1, true))
  end)

  it("knows what a chosen side knows", function()
    local here = graphs.graph(" -> a", { { "a = Constant()", { value_ints = { 2, 1 } } } })
    local there = graphs.graph(" -> a", { { "a = Constant()", { value_ints = { 1, 2 } } } })
    local model = graphs.model("x -> y", { { "s = If(c)", { then_branch = here,
      else_branch = there } }, { "y = Reshape(x, s)" } }, { c = torch.tensor(false) })
    helper.near(graphs.both(model, { x }), { { 1.0, -2.0 } })
  end)

  it("needs sides of the same types where only a run decides", function()
    local short = graphs.graph(" -> a", { { "a = ReduceSum(x)", { keepdims = 0 } } })
    local long = graphs.graph(" -> a", { { "a = Identity(x)" } })
    local model = graphs.model("c, x -> y", {
      { "y = If(c)", { then_branch = short, else_branch = long } } })
    helper.near(model(torch.tensor(true), x), -1.0)
    helper.raises("ValueError", "If: result 0 of else_body is a torch.float32", function()
      compile(model, { torch.tensor(true), x })
    end)
    helper.raises("ValueError", "output 0 of then_branch is torch.float32", function()
      model(torch.tensor(true):to("meta"), x:to("meta"))
    end)
  end)
end)

describe("Scan", function()
  local body = graphs.graph("h, x -> h_out, y", { { "p = Mul(h, w)" }, { "h_out = Add(p, x)" },
    { "y = Tanh(h_out)" } })
  local h, x = torch.tensor({ 0.5, -0.25 }), torch.rand({ 2, 5, 2 })

  -- Rounds over the slices of axis 1, of the first dimension's element 0.
  local function by_hand(w, start, list, backwards)
    local out, first, last = {}, 0, list:size(0) - 1
    for i = backwards and last or first, backwards and first or last, backwards and -1 or 1 do
      start = start * w + list[i]
      out[#out + 1] = start:tanh()
    end
    return start, torch.stack(out)
  end

  local function model(attributes)
    attributes.body, attributes.num_scan_inputs = body, 1
    return graphs.model("w, h, x -> last, all", { { "last, all = Scan(h, x)", attributes } })
  end

  it("runs over slices, forwards and backwards, along any axis", function()
    local w = torch.tensor({ 0.5, 0.75 })
    for _, back in ipairs({ false, true }) do
      local way = { back and 1 or 0 }
      for axis = 0, 1 do
        local list = axis == 0 and x[0] or x[0]:t():contiguous()
        local scan = model({ scan_input_axes = { axis }, scan_output_axes = { axis - 2 },
          scan_input_directions = way, scan_output_directions = way })
        local last, all = graphs.both(scan, { w, h, list })
        local want, stack = by_hand(w, h, x[0], back)
        helper.near(last, want)
        stack = back and stack:flip({ 0 }) or stack
        helper.near(all, axis == 0 and stack or stack:t())
        same_gradients(scan, function(u, start, given)
          local final, outputs = by_hand(u, start, axis == 0 and given or given:t(), back)
          outputs = back and outputs:flip({ 0 }) or outputs
          return final, axis == 0 and outputs or outputs:t()
        end, { w, h, list })
      end
    end
  end)

  it("is one body of a compiled program", function()
    local long = { torch.tensor({ 0.5, 0.75 }), h, torch.rand({ 300, 2 }) }
    assert(select(2, step_text(model({}), long):gsub("tanh%(", "")) == 1)
  end)

  it("has no rounds for no slices", function()
    local last, all = graphs.both(model({}), { torch.ones({ 2 }), h, torch.zeros({ 0, 2 }) })
    helper.near(last, h)
    assert.equal("torch.Size([0, 2])", tostring(all.shape))
  end)

  it("of version 8 has batches and lengths", function()
    local attributes = { body = graphs.graph("h, x -> h_out, y", { { "h_out = Add(h, x)" },
      { "y = Identity(h_out)" } }, nil, 8), num_scan_inputs = 1 }
    local scan = graphs.model("h, x -> last, all", { { "last, all = Scan(lens, h, x)",
      attributes } }, { lens = trips({ 2, 5 }) }, 8)
    local start = torch.stack({ h, h })
    local last, all = graphs.both(scan, { start, x })
    local sums = x:cumsum(1) + h
    helper.near(last, torch.stack({ sums[0][1], sums[1][4] }))
    helper.near(all[1], sums[1])
    helper.near(all[0], torch.cat({ sums[0][{ torch.slice(0, 2) }], torch.zeros({ 3, 2 }) }, 0))
  end)
end)

describe("graphs that do not fit", function()
  local v = torch.ones({ 2 })
  local copy = { { "w = Identity(v)" } }

  local function loop(body, nodes, text)
    return graphs.model("v -> y", { { text or "y = Loop(M, , v)",
      { body = graphs.graph(body, nodes) } } }, { M = trips(3) })
  end

  local function scan(text, attributes, before)
    return graphs.model("v -> y", { before or { "u = Concat(v, v)", { axis = 0 } },
      { text, attributes } })
  end

  local CASES = {
    { loop("i, c, v -> ", copy), "its body has 0 outputs, the condition and 1 carried values" },
    { loop("i -> w", { { "w = Identity(i)" } }), "its body has 1 outputs" },
    { loop("i, c, v, u -> c, w, u", copy), "2 carried values, value 1 is not given" },
    { loop("i, c, v -> c, w", copy, "y, z = Loop(M, , v)"), "it gives no output 1" },
    { scan("y = Scan(v)", { num_scan_inputs = 0, body = graphs.graph("v -> w", copy) }),
      "num_scan_inputs is 0 of 1 inputs" },
    { scan("y = Scan(v, v)", { num_scan_inputs = 1, body = graphs.graph("h, v -> ", copy) }),
      "its body has 0 outputs, there are 1 states" },
    { scan("y = Scan(v, u)", { num_scan_inputs = 2, body = graphs.graph("a, v -> w", copy) }),
      "scan input 1 has 4 slices, input 0 has 2" },
    { scan("y = Scan(v, v)", { num_scan_inputs = 1, body = graphs.graph("h, v -> w", copy) }),
      "torch.Size%(%[2%]%)" },
    { scan("y = Scan(v)", { num_scan_inputs = 1, scan_input_axes = { 0, 1 },
      body = graphs.graph("v -> w", copy) }), "scan_input_axes has 2 elements, allowed are 1" },
    { graphs.model("v -> y", { { "y = If(v)", { then_branch = graphs.graph(" -> w", copy),
      else_branch = graphs.graph(" -> w", copy) } } }), "the condition has 2 elements" },
    { graphs.model("v -> y", { { "y = If(c)", { then_branch = graphs.graph("q -> q", {}),
      else_branch = graphs.graph(" -> w", copy) } } }, { c = torch.tensor(true) }),
      "the graph inside has 1 inputs %(q%), 0 are given" },
  }

  it("are refused eagerly, compiled and on shapes", function()
    for _, case in ipairs(CASES) do
      for _, run in ipairs({ case[1], function() return compile(case[1], { v }) end,
        function() return case[1](v:to("meta")) end }) do
        helper.raises("ValueError", case[2], function() run(v) end)
      end
    end
  end)
end)
