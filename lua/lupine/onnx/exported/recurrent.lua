--- What recurrent layers, loops and branches are in ONNX.
local torch = require("torch")
local emitter = require("lupine.onnx.emitter")

-- The order of gates, in places of PyTorch's: i f g o -> i o f g, r z n -> z r n.
local ORDER = { LSTM = { 1, 4, 2, 3 }, GRU = { 2, 1, 3 } }

-- A weight with its gates in ONNX's order.
local function gates(e, name, op)
  local order = ORDER[op]
  if not order then
    return name
  end
  local parts, sorted = table.pack(e:emit("Split", { name }, { axis = 0 }, #order)), {}
  for i, at in ipairs(order) do
    sorted[i] = parts[at]
  end
  return e:emit("Concat", sorted, { axis = 0 })
end

local function stacked(e, name)
  return name == "" and "" or e:emit("Unsqueeze", { name, e:constant({ 0 }) })
end

local function biases(e, n, op, at, hidden)
  if not e:has(n, at) and not e:has(n, at + 1) then
    return ""
  end
  local both = {}
  for i = 0, 1 do
    local none = torch.zeros({ hidden * (ORDER[op] and #ORDER[op] or 1) },
      { dtype = torch[n.results[1].dtype] })
    both[i + 1] = e:has(n, at + i) and gates(e, e:input(n, at + i), op) or e:constant(none)
  end
  return stacked(e, e:emit("Concat", both, { axis = 0 }))
end

-- One direction over a sequence. `at` is the operand that is weight_ih.
local function layer(e, n, op, at, attributes)
  local hidden = e:type(n, at + 1).shape[2]
  local inputs = { e:input(n, 1), stacked(e, gates(e, e:input(n, at), op)),
    stacked(e, gates(e, e:input(n, at + 1), op)), biases(e, n, op, at + 2, hidden), "",
    stacked(e, e:input(n, 2)), op == "LSTM" and stacked(e, e:input(n, 3)) or "" }
  attributes.hidden_size = hidden
  attributes.direction = n.attributes.reverse and "reverse" or "forward"
  local y = table.pack(e:emit(op, inputs, attributes, op == "LSTM" and 3 or 2))
  y[1] = e:emit("Squeeze", { y[1], e:constant({ 1 }) })
  for i = 2, y.n do
    y[i] = e:emit("Squeeze", { y[i], e:constant({ 0 }) })
  end
  return table.unpack(y, 1, y.n)
end

local function layers(rules)
  function rules.lstm(e, n)
    if e:has(n, 8) then
      e:fail("a projection")
    end
    return layer(e, n, "LSTM", 4, {})
  end
  function rules.gru(e, n)
    return layer(e, n, "GRU", 3, { linear_before_reset = 1 })
  end
  function rules.rnn(e, n)
    return layer(e, n, "RNN", 3, { activations = { n.attributes.relu and "Relu" or "Tanh" } })
  end
end

-- ---- bodies ------------------------------------------------------------------------

local function operands(e, n, from, to)
  local out = {}
  for i = from, to do
    out[#out + 1] = e:input(n, i)
  end
  return out
end

-- The graph of a branch, or of a loop's round.
local function graph(e, names, infos, types)
  local out = { name = e.names:fresh("body"), node = e.nodes, input = infos, output = {} }
  for i, name in ipairs(names) do
    -- an output is made by a node of its own graph
    local own = e:emit("Identity", { name })
    out.output[i] = emitter.info(own, types[i])
  end
  return out
end

local function results_of(body)
  local types, at = {}, {}
  for _, x in ipairs(body:inputs()) do
    at[x.value] = x
  end
  for _, n in ipairs(body:nodes()) do
    for _, x in ipairs(n.results) do
      at[x.value] = x
    end
  end
  for i, v in ipairs(body:outputs()) do
    types[i] = at[v]
  end
  return types
end

local function branch(e, n)
  local a = n.attributes
  local split = a.split
  local function side(body, from, to)
    local inner, names = e:body(body, operands(e, n, from, to))
    return graph(inner, names, {}, results_of(body))
  end
  local condition = e:reshape(e:input(n, 1, "bool"), {})
  return e:emit("If", { condition }, { then_branch = side(a["then"], 2, 1 + split),
    else_branch = side(a.otherwise, 2 + split, #n.operands) }, #n.results)
end

-- What a round reads beside what is captured: the carried values and slices.
local function round_inputs(e, n, round)
  local a, given, infos = n.attributes, {}, {}
  local types = a.body:inputs()
  for i = 1, #n.operands do
    if i <= a.carried then
      given[i] = e.names:fresh("carried")
      infos[#infos + 1] = emitter.info(given[i], types[i])
    elseif i > a.carried + a.scanned then
      given[i] = e:input(n, i)
    else
      given[i] = { scanned = e:input(n, i), at = round }
    end
  end
  return given, infos
end

-- The first round is the last slice if it goes backwards.
local function scans(a, given, round)
  return function(to, values)
    local at = a.reverse and to:emit("Sub", { to:constant(a.count - 1), round }) or round
    for i, v in ipairs(values) do
      local x = given[i]
      if type(x) == "table" then
        to.value_name[v] = to:emit("Gather", { x.scanned, at }, { axis = 0 })
      end
    end
  end
end

local function loop(e, n)
  local a = n.attributes
  local round, going = e.names:fresh("round"), e.names:fresh("going")
  local given, infos = round_inputs(e, n, round)
  table.insert(infos, 1, emitter.info(round, { dtype = "int64", shape = {} }))
  table.insert(infos, 2, emitter.info(going, { dtype = "bool", shape = {} }))
  local inner, made = e:body(a.body, given, scans(a, given, round))
  local all, names, types, kept = results_of(a.body), { going }, {}, {}
  types[1] = { dtype = "bool", shape = {} }
  for i, x in ipairs(n.results) do -- what is collected for nobody is left out
    if i <= a.carried or e.needed[x.value] then
      kept[#kept + 1], names[#names + 1], types[#types + 1] = i, made[i], all[i]
    end
  end
  if a.reverse and #kept > a.carried then
    e:fail("a loop backwards that collects values")
  end
  local inputs = operands(e, n, 1, a.carried)
  table.insert(inputs, 1, e:constant(a.count))
  table.insert(inputs, 2, "")
  local body = graph(inner, names, infos, types)
  local outputs = table.pack(e:emit("Loop", inputs, { body = body }, #kept))
  local results = {}
  for at, i in ipairs(kept) do
    results[i] = outputs[at]
  end
  return table.unpack(results, 1, #n.results)
end

local function bodies(rules)
  rules.branch, rules.loop = branch, loop
  function rules.call(e, n)
    local inner, names = e:body(n.attributes.body, operands(e, n, 1, #n.operands))
    table.move(inner.nodes, 1, #inner.nodes, #e.nodes + 1, e.nodes)
    return table.unpack(names)
  end
  -- torch.autograd.Function: its forward is written, its backward is not ONNX's
  function rules.custom_function(e, n)
    return table.unpack(operands(e, n, 1, n.attributes.results))
  end
end

return function(rules)
  layers(rules)
  bodies(rules)
end
