-- Modules and functions as ONNX models: what they are read again as computes the
-- same results and gradients.
local files = require("spec.support.files")
local control = require("lupine.control")
local helper = require("spec.helper")
local layers = require("spec.lupine.onnx.layers")
local networks = require("spec.bench.networks")
local onnx = require("lupine.onnx")
local poptorch = require("poptorch")
local proto = require("lupine.onnx.proto")
local torch = require("torch")
local nn = torch.nn

local function tensors(value, into)
  if torch.is_tensor(value) then
    into[#into + 1] = value
  elseif type(value) == "table" then
    for i = 1, #value do
      tensors(value[i], into)
    end
  end
  return into
end

-- Results and gradients of inputs and parameters, of a sum with weights.
local function run(fn, args, parameters)
  local inputs, grads, loss = {}, {}, nil
  for i, a in ipairs(args) do
    inputs[i] = a:is_floating_point() and a:clone():requires_grad_() or a
  end
  local outputs = tensors({ fn(table.unpack(inputs)) }, {})
  for _, o in ipairs(outputs) do
    if o.requires_grad then
      local weights = torch.arange(1, o:numel() + 1):double():cos():reshape(o.shape)
      loss = (loss or 0) + (o:double() * weights):sum()
    end
  end
  if loss then
    loss:backward()
  end
  for i, x in ipairs(inputs) do
    grads["input " .. i] = x.grad
  end
  for name, p in pairs(parameters or {}) do
    grads[name], p.grad = p.grad, nil
  end
  return outputs, grads
end

local function parameters_of(module)
  local out = {}
  for name, p in module:named_parameters() do
    out[name] = p
  end
  return out
end

local function near(got, want, what)
  assert.equal(want.dtype, got.dtype, what)
  assert.equal(tostring(want.shape), tostring(got.shape), what)
  local difference = (got:double() - want:double()):abs() / (want:double():abs() + 1)
  assert(want:numel() == 0 or difference:max():item() < 1e-5, what .. " differs")
end

local function same(what, fn, args, options)
  local module = nn.Module:is(fn) and fn
  if module then
    module:eval()
  end
  local model = onnx.export(fn, args, nil, options)
  local again = onnx.load(model):eval()
  local want, grads = run(fn, args, module and parameters_of(module))
  local got, others = run(again, args, parameters_of(again))
  assert.equal(#want, #got, what)
  for i, w in ipairs(want) do
    near(got[i]:detach(), w:detach(), ("%s: result %d"):format(what, i))
  end
  for name, g in pairs(grads) do
    -- a parameter that no result depends on is not in the model
    near(others[name] or torch.zeros_like(g), g, ("%s: gradient of %s"):format(what, name))
  end
  return model, again
end

local function operators(model)
  local out = {}
  for _, node in ipairs(model.graph.node) do
    out[node.op_type] = (out[node.op_type] or 0) + 1
  end
  return out
end

describe("an exported module", function()
  for version = 13, 17 do
    it("computes the same with opset " .. version, function()
      for _, case in ipairs(layers()) do
        local adds = case[1] == "EmbeddingBag" or case[1] == "Fold"
        if version >= 16 or not adds then
          same(case[1], case[2], { table.unpack(case, 3) }, { opset_version = version })
        end
      end
    end)
  end

  it("is a whole network", function()
    torch.manual_seed(1)
    local ids = torch.randint(0, 65, { 2, 12 })
    same("mlp", networks.mlp(), { torch.randn({ 2, 784 }) })
    same("cnn", networks.cnn(), { torch.randn({ 2, 1, 28, 28 }) })
    same("demo", networks.demo(), { torch.randn({ 2, 1, 28, 28 }) })
    same("resnet18", networks.resnet18(), { torch.randn({ 2, 3, 32, 32 }) })
    same("lstm", networks.lstm(), { ids })
    same("gpt", networks.GPT(2, 16, 2, 12, 65), { ids })
  end)

  it("has one operator where ONNX has one", function()
    local model = same("resnet18", networks.resnet18():eval(), { torch.randn({ 1, 3, 32, 32 }) })
    local ops = operators(model)
    assert.same({ 20, 20, 17, 8, 1 }, { ops.Conv, ops.BatchNormalization, ops.Relu, ops.Add,
      ops.Gemm })
    assert.same({ Conv = 2, Relu = 3, MaxPool = 1, Constant = 1, Reshape = 1, Gemm = 2 },
      operators(onnx.export(networks.cnn(), { torch.randn({ 1, 1, 28, 28 }) })))
    assert.equal(1, operators(onnx.export(nn.LSTM(4, 5), { torch.randn({ 3, 2, 4 }) })).LSTM)
  end)

  it("keeps the names of its parameters, and of what it is asked for", function()
    local m = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout())
    local model, again = same("named", m, { torch.randn({ 4, 3 }) },
      { input_names = { "image" }, output_names = { "score" } })
    local names = {}
    for i, t in ipairs(model.graph.initializer) do
      names[i] = t.name
    end
    assert.same({ "0.bias", "0.weight", "1.bias", "1.running_mean", "1.running_var", "1.weight" },
      names)
    assert.same({ "image" }, again.input_names)
    assert.same({ "score" }, again.output_names)
    assert.equal("/0/Gemm", model.graph.node[1].name)
    assert.is_false(m[1].training)
    m:train()
    onnx.export(m, { torch.randn({ 4, 3 }) })
    assert.is_true(m[1].training and m[3].training)
  end)

  it("may have an input and a parameter of one name", function()
    local Scale = nn.Module:extend("Scale")
    function Scale:init()
      self.weight = nn.Parameter(torch.tensor({ 2.0, 3.0 }))
    end
    function Scale:forward(weight)
      return weight * self.weight
    end
    local model = same("scale", Scale(), { torch.tensor({ 1.0, 2.0 }) })
    assert.same({ "weight_1", "weight" }, model.graph.node[1].input)
  end)

  it("may be of other types", function()
    for _, dtype in ipairs({ "half", "double", "bfloat16" }) do
      local x = torch.randn({ 2, 4 })
      local m = nn.Sequential(nn.Linear(4, 3), nn.Hardtanh(), nn.ReLU())
      same(dtype, m[dtype](m), { x[dtype](x) })
    end
    same("double", nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.GRU(4, 3)):double(),
      { torch.randn({ 3, 2, 4 }):double() })
  end)

  it("has the blocks that its nodes are in", function()
    local m = nn.Sequential(nn.Linear(3, 4), poptorch.BeginBlock(nn.Linear(4, 4), "A",
      { ipu_id = 2 }), nn.ReLU(), poptorch.BeginBlock(nn.Linear(4, 2), "B"))
    local places = {}
    for i, node in ipairs(same("blocks", m, { torch.randn({ 2, 3 }) }).graph.node) do
      local ipu, stage = proto.find(node, "__ipu_number"), proto.find(node, "__pipeline_stage")
      places[i] = { ipu.i, stage.i }
    end
    assert.same({ { 0, 0 }, { 2, 1 }, { 2, 1 }, { 2, 2 } }, places)
    local model = onnx.export(function(a)
      local b
      do
        local _ <close> = poptorch.Block("A", { ipu_id = 1 })
        b = a:relu()
      end
      return b:tanh()
    end, { torch.ones({ 2 }) })
    assert.equal(1, proto.find(model.graph.node[1], "__ipu_number").i)
    assert.is_nil((proto.find(model.graph.node[2], "__ipu_number")))
    assert.is_nil((proto.find(onnx.export(torch.relu, { torch.ones({ 2 }) }).graph.node[1],
      "__ipu_number")))
  end)

  it("draws anew in every run, of the same distribution and type", function()
    local function f(x)
      return torch.rand({ 500 }), torch.randn({ 500 }), x:clone():uniform_(2, 4),
        x:clone():normal_(-3, 0.5), torch.bernoulli(x)
    end
    local x = torch.full({ 500 }, 0.75)
    local m = onnx.load(onnx.export(f, { x }, nil, { opset_version = 15 }))
    local first, second = { m(x) }, { m(x) }
    for i, want in ipairs({ { 0.5, 0.29 }, { 0, 1 }, { 3, 0.58 }, { -3, 0.5 }, { 0.75, 0.43 } }) do
      local y = first[i]
      assert.same({ "torch.Size([500])", torch.float32 }, { tostring(y.shape), y.dtype })
      assert.is_true(math.abs(y:mean():item() - want[1]) < 0.25 * want[2])
      assert.is_true(math.abs(y:std():item() - want[2]) < 0.15 * want[2])
      assert.is_false(torch.equal(y, second[i]))
    end
    helper.refuses("NotImplementedError", "bernoulli: needs opset 15", onnx.export, torch.bernoulli,
      { x }, nil, { opset_version = 14 })
  end)

  it("may be in training mode", function()
    local m = nn.Sequential(nn.BatchNorm1d(3, { momentum = 0.3 }), nn.Dropout(0.25))
    local x = torch.randn({ 8, 3 })
    local model = onnx.export(m, { x }, nil, { training = true })
    local norm, dropout = model.graph.node[3], model.graph.node[4]
    assert.same({ "BatchNormalization", "Dropout" }, { norm.op_type, dropout.op_type })
    assert.same({ "input", "0.weight", "0.bias", "0.running_mean", "0.running_var" }, norm.input)
    helper.refuses("NotImplementedError", "batch_norm_train: training needs opset 14",
      onnx.export, m, { x }, nil, { training = true, opset_version = 13 })
    m = nn.BatchNorm1d(3)
    local again = onnx.load(onnx.export(m, { x }, nil, { training = true })):train()
    near(again(x):detach(), m:train()(x):detach(), "batch normalisation")
  end)

  -- torch's own formulas: of the variance of a sample, shares of 0.1
  it("may give the running statistics that a batch leaves", function()
    local Told = nn.Module:extend("Told")
    function Told:init()
      nn.Module.init(self)
      self.norm = nn.BatchNorm2d(3)
    end
    function Told:forward(a)
      local y = self.norm(a)
      return y, self.norm.running_mean, self.norm.running_var
    end
    local x = torch.randn({ 2, 3, 4, 4 })
    local model = onnx.load(onnx.export(Told(), { x }, nil, { training = true }))
    local y, mean, var = model:eval()(x)
    near(y:detach(), nn.functional.batch_norm(x, torch.none, torch.none, { training = true }),
      "results")
    local plain = x:transpose(0, 1):reshape({ 3, -1 })
    near(mean:detach(), plain:mean(1) * 0.1, "running mean")
    near(var:detach(), plain:var(1) * 0.1 + 0.9, "running variance")
  end)

  it("is a file, with its data beside it", function()
    local folder = files.folder()
    local m, x = nn.Linear(64, 64):eval(), torch.randn({ 2, 64 })
    onnx.export(m, { x }, folder .. "/m.onnx", { external = "m.bin" })
    assert.equal(64 * 64 * 4, #io.open(folder .. "/m.bin", "rb"):read("a"))
    assert.is_true(torch.equal(m(x), onnx.load(folder .. "/m.onnx")(x)))
    files.remove(folder)
  end)
end)

describe("an exported function", function()
  local x, w = torch.randn({ 3, 3 }), torch.randn({ 3, 3 })

  it("has several results, constants and inputs", function()
    same("several", function(a, b)
      return a + b, a, w, a.shape[1] * b
    end, { x, torch.randn({ 3 }) })
    same("nested", function(a, b)
      return { a * 2, { b } }
    end, { x, w })
    local model = onnx.export(function(list)
      return list[1] + list[2]
    end, { { x, w } })
    assert.is_true(torch.equal(onnx.load(model)(x, w), x + w))
  end)

  it("has parts, places and sums of tensors", function()
    local index = torch.tensor({ 2, 0, -1 })
    local t = torch.randn({ 3, 4, 5 })
    same("parts", function(a)
      return a:flip({ 0, 2 }), a:tril(1), a:diagonal(1, 0, 2), a:unfold(2, 3, 2), a:cumsum(1),
        torch.cat({ a, a:roll(1, 0) }, 1), a:select(1, 2)
    end, { t })
    same("places", function(a)
      local b = a:clone()
      b[":, 1"] = 0
      return a[{ index, torch.slice(), index }], a[{ torch.slice(), index, index }],
        a:index_select(1, torch.tensor({ 1 })),
        b, a:gather(2, torch.zeros({ 3, 4, 1 }, { dtype = torch.int64 }))
    end, { t })
    same("put", function(a)
      return a:index_put({ torch.tensor({ 0, 2 }), torch.tensor({ 1, 1 }) }, torch.ones({ 2, 5 })),
        a:index_put({ torch.tensor({ 0, 0 }) }, torch.ones({ 4, 5 }), true),
        a:scatter_add(0, torch.zeros({ 1, 4, 5 }, { dtype = torch.int64 }), torch.ones({ 1, 4, 5 }))
    end, { t })
    same("sums", function(a)
      return a:sum(), a:mean({ 0, 2 }), a:amax(1, true), a:prod(2), a:logsumexp(1), a:norm(1),
        a:argmax(1), a:argmin(), a:gt(0):any(1), a:gt(0):all(), (a:max(1)), a:std(2)
    end, { t })
    same("order", function(a)
      return (a:topk(2, 1)), (a:sort(2, true)), a:argsort(0)
    end, { t })
  end)

  it("has determinants, shifts, angles and places of the greatest", function()
    local F, inf = nn.functional, math.huge
    assert.same({ Det = 1 }, operators(same("det", function(a)
      return torch.linalg.det(a)
    end, { torch.randn({ 2, 3, 3 }) })))
    local bytes = { dtype = torch.uint8 }
    assert.same({ BitShift = 2 }, operators(same("shifts", function(a, b)
      return a << b, a >> b
    end, { torch.tensor({ 1, 2, 4, 200 }, bytes), torch.tensor({ 1, 1, 2, 1 }, bytes) })))
    helper.refuses("NotImplementedError", "without a sign", onnx.export, function(a)
      return a << 1
    end, { torch.tensor({ 1 }) })
    same("atan2", torch.atan2, { torch.randn(20), torch.randn(20) })
    local ends = onnx.load(onnx.export(torch.atan2, { torch.ones(14), torch.ones(14) }))
    local ys = { 0.0, 0, -0.0, -0.0, 1, -1, 2, inf, inf, 1, -inf, -1, -1, 0 / 0 }
    local xs = { 1.0, -1, -1, -0.0, -0.0, 0, inf, inf, -inf, -inf, -inf, -inf, -0.0, 1 }
    local got = ends(torch.tensor(ys), torch.tensor(xs))
    for i = 1, #ys - 1 do
      assert.near(math.atan(ys[i], xs[i]), got[i - 1]:item(), 1e-6)
    end
    assert.is_true(got[13]:isnan():item())
    for _, shape in ipairs({ { 2, 3, 7, 7 }, { 3, 7, 7 } }) do
      same("max_pool2d", function(a)
        return F.max_pool2d(a, { kernel_size = 3, stride = 2, padding = 1, return_indices = true })
      end, { torch.randn(shape) })
    end
    same("max_pool1d", function(a)
      return (select(2, F.max_pool1d(a, 2, { return_indices = true })))
    end, { torch.randn({ 2, 3, 6 }) })
  end)

  it("has types of numbers", function()
    local i = torch.tensor({ -7, 3, 8 })
    same("integers", function(a)
      return a / 2, a:div(2, { rounding_mode = "floor" }), a:div(2, { rounding_mode = "trunc" }),
        a % 3, a:float():fmod(2), a:gt(2.5), a:eq(3), a:bool():logical_not(), a + 0.5, -a:abs()
    end, { i })
    same("rounding", function(a)
      return a:round(), a:trunc(), a:frac(), a:floor(), a:clamp(-0.5, nil), a:half():float(),
        torch.where(a:gt(0), a, 1), a:pow(2), a:double():lerp(torch.zeros({ 3 }):double(), 0.75)
    end, { torch.tensor({ -1.7, 0.5, 2.5 }) })
  end)

  it("has loops, branches and calls", function()
    local model = same("loop", function(a)
      return control.loop(5, function(y)
        return torch.tanh(y:matmul(w))
      end, { a })[1]
    end, { x })
    assert.equal(1, operators(model).Loop)
    same("scan", function(a)
      return table.unpack(control.scan(3, function(sum, row)
        return sum + row, sum * 2
      end, { torch.zeros({ 3 }) }, { a }))
    end, { x })
    for _, condition in ipairs({ true, false }) do
      model = same("branch", function(c, a)
        return control.branch(c, function(y)
          return y * 2
        end, { a }, function(y)
          return y + w
        end, { a })[1]
      end, { torch.tensor(condition), x })
      assert.equal(1, operators(model).If)
    end
    same("call", function(a)
      return control.call(function(y)
        return y * w
      end, { a })[1]
    end, { x })
  end)

  it("is refused for what ONNX has not, all at once", function()
    local function odd(a)
      return torch.lgamma(a) + torch.linalg.svdvals(a):sum(), a:erfinv()
    end
    local e = helper.refuses("NotImplementedError", "ONNX %(opset 17%) has no operator for",
      onnx.export, odd, { x })
    for _, name in ipairs({ "lgamma", "svdvals", "erfinv" }) do
      assert.truthy(e.message:find("\n  " .. name .. " %(.-export_spec.lua:%d+%)"), name)
    end
  end)
end)

describe("export", function()
  it("checks its arguments", function()
    local function refuses(class, pattern, ...)
      helper.refuses(class, pattern, onnx.export, ...)
    end
    local m, x = nn.Linear(2, 2), torch.ones({ 1, 2 })
    refuses("TypeError", "a torch.nn.Module or a function, got", 5, { x })
    refuses("TypeError", "args: expected a list", m, x)
    refuses("TypeError", "path: expected a str", m, { x }, 5)
    refuses("ValueError", "Allowed: 13 to 17", m, { x }, nil, { opset_version = 18 })
    refuses("TypeError", "training: expected a bool", m, { x }, nil, { training = 1 })
    refuses("NotImplementedError", "dynamic_axes", m, { x }, nil,
      { dynamic_axes = { input = { [0] = "batch" } } })
    refuses("ValueError", "input_names%[2%]", m, { x }, nil, { input_names = { "a", "a" } })
    refuses("TypeError", "unknown option 'opset'", m, { x }, nil, { opset = 17 })
  end)
end)
