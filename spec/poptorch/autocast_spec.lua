--- Automatic casting: which operators run in which type, by scopes, marks and
--- policies. Rules: PopTorch user guide 2.6, "Automatic mixed-precision casting".
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local F, Policy = nn.functional, poptorch.autocasting.Policy
local f16, f32 = torch.float16, torch.float32

-- Types of what forward returns for x, under a policy.
local function types(forward, policy, ...)
  local opts = poptorch.Options()
  if policy then
    opts.Precision:autocastPolicy(policy)
  end
  local got = table.pack(poptorch.inferenceModel(models.of(forward), opts)(...))
  for i = 1, got.n do
    got[i] = got[i].dtype
  end
  return table.unpack(got, 1, got.n)
end

-- The same with everything in a scope.
local function cast(f, policy, ...)
  return types(function(_, ...)
    local _ <close> = poptorch.autocast()
    return f(...)
  end, policy, ...)
end

local v, m, b = torch.randn(4), torch.randn(4, 4), torch.randn(2, 4, 4)

-- name, a call of it
local FP16 = {
  addmm = { torch.addmm, m, m, m }, addbmm = { torch.addbmm, m, b, b },
  addmv = { torch.addmv, v, m, v }, addr = { torch.addr, m, v, v },
  baddbmm = { torch.baddbmm, b, b, b }, bmm = { torch.bmm, b, b }, mm = { torch.mm, m, m },
  mv = { torch.mv, m, v }, matmul = { torch.matmul, m, m },
  chain_matmul = { torch.chain_matmul, m, m, m },
  conv1d = { torch.conv1d, b, torch.randn(3, 4, 2) },
  conv2d = { torch.conv2d, torch.randn(1, 2, 4, 4), torch.randn(3, 2, 2, 2) },
  conv3d = { torch.conv3d, torch.randn(1, 2, 3, 3, 3), torch.randn(3, 2, 2, 2, 2) },
  conv_transpose1d = { torch.conv_transpose1d, b, torch.randn(4, 3, 2) },
  conv_transpose2d = { torch.conv_transpose2d, torch.randn(1, 2, 4, 4), torch.randn(2, 3, 2, 2) },
  conv_transpose3d = { torch.conv_transpose3d, torch.randn(1, 2, 3, 3, 3),
    torch.randn(2, 3, 2, 2, 2) },
}

-- name, a call of two tensors
local PROMOTE = {
  addcdiv = function(x, y)
    return torch.addcdiv(x, y, y)
  end,
  addcmul = function(x, y)
    return torch.addcmul(x, y, y)
  end,
  atan2 = torch.atan2,
  bilinear = function(x, y)
    return F.bilinear(x, x, y:reshape(1, 2, 2):expand(3, 2, 2))
  end,
  cat = function(x, y)
    return torch.cat({ x, y:reshape(2, 2) })
  end,
  cross = function(x, y)
    return torch.cross(x:reshape(4):repeat_(3):reshape(4, 3), y:reshape(4):repeat_(3):reshape(4, 3))
  end,
  dot = function(x, y)
    return torch.dot(x:flatten(), y:flatten())
  end,
  index_put = function(x, y)
    return torch.index_put(x:flatten(), { torch.tensor({ 0, 1, 2, 3 }) }, y:flatten())
  end,
  stack = function(x, y)
    return torch.stack({ x, y })
  end,
  tensordot = function(x, y)
    return torch.tensordot(x, y, 1)
  end,
}

describe("the default policy", function()
  it("has the documented sets", function()
    local policy = poptorch.Options().Precision.autocast_policy
    local names = {}
    for _, name in ipairs(policy.fp16) do
      names[#names + 1] = name
      assert.is_true(FP16[name] ~= nil or name == "nn.Conv2d" or name == "conv_tbc"
        or name == "convolution", name)
    end
    assert.equal(19, #names)
    assert.same({ 0, 11, 0 }, { #policy.fp32, #policy.promote, #policy.demote })
  end)

  it("gives its lists to others, with names that there is no operator of", function()
    local default = poptorch.autocasting.default
    local lists = { fp16 = { table.unpack(default.fp16) }, promote = default.promote }
    lists.fp16[#lists.fp16 + 1] = torch.exp
    local policy = poptorch.autocasting.Policy(lists)
    assert.equal(f16, (cast(torch.exp, policy, m)))
    assert.equal(f16, (cast(torch.mm, policy, m, m)))
    assert.equal(f32, (cast(torch.tan, policy, m)))
  end)

  it("runs products and convolutions in float16", function()
    for name, call in pairs(FP16) do
      assert.equal(f16, (cast(call[1], nil, table.unpack(call, 2))), name)
      assert.equal(f32, (types(function(_, ...)
        return call[1](...)
      end, nil, table.unpack(call, 2))), name)
    end
  end)

  it("promotes operands of both types to float32", function()
    local x, y = torch.rand(2, 2), torch.rand(2, 2) + 1
    for name, f in pairs(PROMOTE) do
      assert.equal(f32, (cast(f, nil, x, y:half())), name .. " of float32 and float16")
      assert.equal(f32, (cast(f, nil, x:half(), y)), name .. " of float16 and float32")
      assert.equal(f16, (cast(f, nil, x:half(), y:half())), name .. " of float16")
      -- not mixed: a product goes the way of products
      assert.equal(name == "tensordot" and f16 or f32, (cast(f, nil, x, y)), name)
    end
  end)

  it("leaves what it does not name in the types of its operands", function()
    local got = table.pack(cast(function(x, y)
      return x + x, y + y, x:softmax(1), y:exp(), x:sum(), F.mse_loss(x, x), x:reshape(16), x:t()
    end, nil, m, m:half()))
    assert.same({ f32, f16, f32, f16, f32, f32, f32, f32, n = 8 }, got)
    assert.equal(f16, (cast(F.linear, nil, m, m))) -- a product all the same
  end)
end)

describe("a policy", function()
  it("takes operators by their functions, methods and names, and what stands for them", function()
    for _, entry in ipairs({ torch.relu, F.relu, torch.Tensor and core.methods.relu, "relu" }) do
      assert.equal(f16, (cast(torch.relu, Policy({ entry }), m)))
      assert.equal(f16, (cast(m.relu, Policy({ entry }), m)))
      assert.equal(f16, (cast(F.relu, Policy({ entry }), m)))
      assert.equal(f32, (cast(torch.relu, Policy({}, { entry }), m:half())))
    end
    local policy = Policy({ torch.add, torch.sub })
    assert.same({ f16, f16, f16, n = 3 }, table.pack(cast(function(x)
      return x + x, 1 - x, x:add(2)
    end, policy, m)))
  end)

  it("takes linalg's and special's functions apart from torch's of that name", function()
    assert.equal(f32, (cast(torch.linalg.norm, Policy({ torch.sqrt }), m)))
    assert.equal(f16, (cast(torch.special.erf, Policy({ torch.special.erf }), m)))
  end)

  it("takes functions that are made of operators of their own", function()
    local policy = Policy({}, { F.batch_norm })
    assert.equal(f32, (cast(function(x)
      return F.batch_norm(x, torch.zeros(4), torch.ones(4))
    end, policy, m:half())))
  end)

  it("casts functions that are made of operators as a whole", function()
    local function each_of(policy, x)
      return table.pack(cast(function(y)
        return F.glu(y), F.cosine_similarity(y, y), torch.logsumexp(y, 1),
          F.triplet_margin_loss(y, y, y * 2), (torch.cov(y))
      end, policy, x))
    end
    local all = { F.glu, F.cosine_similarity, torch.logsumexp, F.triplet_margin_loss, torch.cov }
    assert.same({ f16, f16, f16, f16, f16, n = 5 }, each_of(Policy(all), m))
    assert.same({ f32, f32, f32, f32, f32, n = 5 }, each_of(Policy({}, all), m:half()))
    assert.same({ f16, f16, f16, f16, f16, n = 5 }, each_of(Policy(), m:half()))
    -- inside, nothing is cast: its products are of the function's type
    assert.equal(f32, (cast(torch.cov, Policy({ torch.mm }, { torch.cov }), m)))
    local mixed = Policy({}, {}, { F.cosine_similarity })
    assert.equal(f32, (cast(F.cosine_similarity, mixed, m, m:half())))
    assert.equal(f16, (cast(F.cosine_similarity, mixed, m:half(), m:half())))
    assert.is_nil(require("torch.casts").composed)
  end)

  it("demotes and promotes mixed operands alone, before anything else", function()
    local demote, both = Policy({}, {}, {}, { torch.add }), Policy({ torch.add }, {}, { torch.add })
    local function add(x, y)
      return x + y
    end
    assert.equal(f16, (cast(add, demote, m, m:half())))
    assert.equal(f32, (cast(add, demote, m, m)))
    assert.equal(f32, (cast(add, Policy(), m, m:half()))) -- PyTorch's promotion
    assert.equal(f32, (cast(add, both, m, m:half())))
    assert.equal(f16, (cast(add, both, m, m)))
  end)

  it("casts operands, so that values are of the narrower type", function()
    local x, y = torch.randn(3, 5), torch.randn(5, 2)
    local model = models.infer(function(_, p, q)
      local _ <close> = poptorch.autocast()
      return p:mm(q)
    end)
    near(model(x, y):float(), x:half():float():mm(y:half():float()), { 2e-3, 2e-3 })
  end)

  it("reaches the core as rules of all operators", function()
    raises("TypeError", "rules that cast_rules%(%) made", function()
      core.set_autocast(f16, "rules")
    end)
    raises("TypeError", nil, function()
      core.set_autocast(f32, core.cast_rules({}, {}))
    end)
    assert.is_nil((core.autocast()))
    core.set_autocast(f16, core.cast_rules({ add = "wide" }, {}))
    local sum, product = m:half() + m:half(), m:mm(m)
    core.set_autocast(nil)
    assert.same({ f32, f16 }, { sum.dtype, product.dtype })
  end)

  it("is checked", function()
    local o = poptorch.Options()
    raises("ValueError", nil, function()
      o.Precision:autocastPolicy("default")
    end)
    raises("ValueError", nil, function()
      o.Precision:autocastEnabled(1)
    end)
    for _, entry in ipairs({ print, F.relu_, nn.Module }) do
      local policy = Policy({ torch.mm, entry })
      local function wrap()
        local opts = poptorch.Options()
        opts.Precision:autocastPolicy(policy)
        poptorch.inferenceModel(nn.ReLU(), opts)
      end
      if entry ~= nn.Module then
        raises("ValueError", "fp16%[2%]: expected a function of torch", wrap)
      else
        wrap()
      end
    end
  end)

  it("is checked when it is made", function()
    for i, set in ipairs({ "fp16", "fp32", "promote", "demote" }) do
      for _, entry in ipairs({ 3, "no_such_function", "nn.NoSuch", true, {}, torch.ones(1) }) do
        local lists = { {}, {}, {}, {} }
        lists[i] = { "mm", entry }
        raises("TypeError", "^Policy: " .. set .. "%[2%]: expected a function of torch", function()
          Policy(table.unpack(lists))
        end)
      end
    end
    raises("TypeError", "got string \"matmull\".*nearest: .*'matmul'", function()
      Policy({ "matmull" })
    end)
    raises("TypeError", "nearest: .*'nn.Conv2d'", function()
      Policy({ "nn.Conv2D" })
    end)
    local default = poptorch.autocasting.default
    assert.is_true(default:same(Policy(default.fp16, default.fp32, default.promote,
      default.demote)))
  end)
end)

describe("scopes", function()
  local function type_of(x)
    return x:mm(x)
  end

  it("nest, end, and may be functions and decorators", function()
    local inner = poptorch.autocast(false)(type_of)
    assert.same({ f32, f16, f32, f16, f16, f32, n = 6 }, table.pack(types(function(_, x)
      local got = { type_of(x) }
      do
        local _ <close> = poptorch.autocast()
        got[2] = type_of(x)
        do
          local off <close> = poptorch.autocast({ enabled = false }) -- luacheck: ignore 211
          got[3] = type_of(x)
        end
        got[4] = type_of(x)
      end
      got[5] = poptorch.autocast(true, function()
        return type_of(x)
      end)
      return got[1], got[2], got[3], got[4], got[5], poptorch.autocast(function()
        return inner(x)
      end)
    end, nil, m)))
  end)

  it("do nothing on the host, and end with a trace that fails", function()
    do
      local _ <close> = poptorch.autocast()
      assert.equal(f32, m:mm(m).dtype)
    end
    raises("RuntimeError", nil, function()
      models.infer(function(_, x)
        local _ <close> = poptorch.autocast()
        return x:mm(torch.ones(7, 7))
      end)(m)
    end)
    assert.is_nil((core.autocast()))
    assert.equal(f32, m:mm(m).dtype)
  end)

  it("of modules end with a forward that fails, and with it those around", function()
    local inner = models.of(function(_, x) return x:mm(torch.ones(7, 7)) end):autocast(false)
    local outer = models.of(function(self, x)
      poptorch.autocast()
      return self.inner(x:mm(x))
    end)
    outer.inner = inner
    raises("RuntimeError", nil, function()
      poptorch.inferenceModel(outer:autocast())(m)
    end)
    assert.is_nil((core.autocast()))
    assert.is_nil(require("torch.casts").composed)
    assert.equal(f32, m:mm(m).dtype)
    assert.equal(f32, types(function(_, x) return x:mm(x) end, nil, m))
  end)

  it("are no scopes of torch.autocast, which goes on around them", function()
    local seen
    local y = torch.autocast("cpu", function()
      return models.infer(function(_, x)
        poptorch.autocast(function()
          seen = torch.is_autocast_enabled()
        end)
        return x:mm(x)
      end)(m), torch.is_autocast_enabled()
    end)
    assert.is_false(seen)
    assert.equal(f32, y.dtype) -- bfloat16, which comes back as float32
  end)

  it("cast in a training model; weights and their gradients stay float32", function()
    local net, host = nn.Linear(3, 2), nn.Linear(3, 2)
    host:load_state_dict(net:state_dict())
    local model = models.of(function(self, x, t)
      local y = poptorch.autocast(function()
        return self.fc(x)
      end)
      return y, F.mse_loss(y:float(), t)
    end)
    model.fc = net
    local x, t = torch.randn(8, 3), torch.randn(8, 2)
    local trainer = poptorch.trainingModel(model, nil,
      poptorch.optim.SGD(model:parameters(), { lr = 0.5 }))
    assert.equal(f16, trainer(x, t).dtype)
    assert.equal(f32, net.weight.dtype)
    local y = F.linear(x:half(), host.weight:half(), host.bias:half())
    F.mse_loss(y:float(), t):backward()
    near(net.weight, host.weight:detach() - 0.5 * host.weight.grad, { 2e-3, 2e-3 })
    near(net.bias, host.bias:detach() - 0.5 * host.bias.grad, { 2e-3, 2e-3 })
  end)
end)

describe("marks of modules", function()
  -- The guide's second listing.
  local function layers()
    local model = nn.Sequential()
    model:add_module("conv1", nn.Conv2d(1, 20, 5))
    model:add_module("relu1", nn.ReLU())
    model:add_module("conv2", nn.Conv2d(20, 6, 5))
    model:add_module("relu2", nn.ReLU())
    return model
  end

  it("hold for what is in the module, but where a layer has its own", function()
    local model, seen = layers(), {}
    for name, layer in model:named_children() do
      layer:register_forward_hook(function(_, _, y)
        seen[name] = y.dtype
      end)
    end
    model:autocast()
    model.relu1:autocast(false)
    model.conv2:autocast(false)
    poptorch.inferenceModel(model, poptorch.Options())(torch.randn(1, 1, 12, 12))
    -- conv2 is not cast; its input is of float16 and its weights follow
    assert.same({ f16, f16, f16, f16 }, { seen.conv1, seen.relu1, seen.conv2, seen.relu2 })
    assert.equal(f16, model.conv1.weight.dtype)
    assert.equal(f32, model.conv2.weight.dtype)
  end)

  it("of a child switch off what its parent has, and on what it has not", function()
    local function products(parent, child)
      local Inner = nn.Module:extend("Inner")
      function Inner:forward(x)
        return x:mm(x)
      end
      local model = models.of(function(self, x)
        return x:mm(x), self.inner(x), x:mm(x)
      end)
      model.inner = Inner()
      if parent ~= nil then
        model:autocast(parent)
      end
      if child ~= nil then
        model.inner:autocast(child)
      end
      local got = table.pack(poptorch.inferenceModel(model)(m))
      return { got[1].dtype, got[2].dtype, got[3].dtype }
    end
    assert.same({ f16, f16, f16 }, products(true))
    assert.same({ f16, f32, f16 }, products(true, false))
    assert.same({ f32, f16, f32 }, products(nil, true))
    assert.same({ f32, f32, f32 }, products(false))
  end)

  it("leave what is no floating point number", function()
    local model = nn.Sequential(nn.BatchNorm1d(2))
    model:autocast()
    local opts = poptorch.Options()
    opts.Precision:autocastPolicy(poptorch.autocasting.Policy({ nn.BatchNorm1d }, {}, {}, {}))
    poptorch.inferenceModel(model, opts)
    assert.equal(f16, model[1].weight.dtype)
    assert.equal(f16, model[1].running_mean.dtype)
    assert.equal(torch.int64, model[1].num_batches_tracked.dtype)
  end)

  it("convert the parameters of the policy's classes", function()
    local function after(policy, prepare)
      local model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU())
      if prepare then
        prepare(model)
      end
      model:autocast()
      local opts = poptorch.Options()
      opts.Precision:autocastPolicy(policy)
      poptorch.inferenceModel(model, opts)
      return { model[1].weight.dtype, model[2].weight.dtype }
    end
    local function mixed(model)
      model[1].weight.data = model[1].weight.data:half()
    end
    assert.same({ f16, f16 }, after(Policy({ nn.Linear })))
    assert.same({ f16, f16 }, after(Policy({ nn.Sequential })))
    assert.same({ f32, f32 }, after(Policy({ nn.ReLU })))
    assert.same({ f32, f32 }, after(Policy({}, { nn.Linear }), mixed))
    assert.same({ f32, f32 }, after(Policy({}, {}, { nn.Linear }), mixed))
    assert.same({ f16, f32 }, after(Policy({}, {}, {}, { nn.Linear }), mixed))
    assert.same({ f16, f32 }, after(Policy({ nn.Linear }), function(model)
      model[2]:autocast(false)
    end))
  end)

  it("train with converted parameters", function()
    local model = models.of(function(self, x, t)
      local y = self.conv(x):float():mean({ 2, 3 })
      return y, F.mse_loss(y, t)
    end)
    model.conv = nn.Conv2d(1, 2, 3)
    model:autocast()
    local optimizer = poptorch.optim.SGD(model:parameters(), { lr = 0.1 })
    local trainer = poptorch.trainingModel(model, nil, optimizer)
    assert.equal(f16, model.conv.weight.dtype)
    local x, t = torch.randn(4, 1, 5, 5), torch.ones(4, 2)
    local first, last
    for i = 1, 30 do
      local _, loss = trainer(x, t)
      first = first or loss:item()
      last = i and loss:item()
    end
    assert.is_true(last < first / 2)
    assert.equal(f16, model.conv.weight.dtype)
  end)

  it("are no part of a state dict, take bools, and are copied with a module", function()
    local layer = nn.Linear(1, 1)
    assert.equal(layer, layer:autocast({ enabled = true }))
    assert.same({ "weight", "bias" }, helper.state_keys(layer))
    raises("TypeError", "autocast%(enabled%): expected bool", function()
      layer:autocast(1)
    end)
    local copy = nn.Sequential(layer:deepcopy())
    assert.equal(f16, poptorch.inferenceModel(copy)(torch.ones(1, 1)).dtype)
  end)
end)

describe("autocastEnabled(false)", function()
  it("switches scopes, marks and conversions off", function()
    local opts = poptorch.Options()
    opts.Precision:autocastEnabled(false)
    local model = models.of(function(self, x)
      return self.conv(x), poptorch.autocast(function()
        return x:flatten():dot(x:flatten()), x["0, 0"]:mm(x["0, 0"])
      end)
    end)
    model.conv = nn.Conv2d(1, 1, 2)
    model:autocast()
    local wrapped = poptorch.inferenceModel(model, opts)
    for _, y in ipairs({ wrapped(torch.randn(1, 1, 3, 3)) }) do
      assert.equal(f32, y.dtype)
    end
    assert.equal(f32, model.conv.weight.dtype)
  end)

  it("and a policy are noted where nothing asks for casting", function()
    local function notes(set, forward)
      local opts = poptorch.Options()
      set(opts.Precision)
      local model = poptorch.inferenceModel(models.of(forward), opts)
      model(m)
      return table.concat(model:report().no_effect, "\n")
    end
    local function off(precision)
      precision:autocastEnabled(false)
    end
    local function policy(precision)
      precision:autocastPolicy(Policy({ torch.add }))
    end
    local function plain(_, x)
      return x:mm(x)
    end
    local scoped = poptorch.autocast()(plain)
    local why = "no module is marked by autocast() and no poptorch.autocast scope opens"
    assert.matches("Precision.autocastEnabled: " .. why, notes(off, plain), 1, true)
    assert.matches("Precision.autocastPolicy: " .. why, notes(policy, plain), 1, true)
    assert.is_nil(notes(off, scoped):find("autocast"))
    assert.is_nil(notes(policy, scoped):find("autocast"))
    assert.matches("autocastPolicy: autocastEnabled is false", notes(function(precision)
      off(precision)
      policy(precision)
    end, scoped), 1, true)
  end)
end)
