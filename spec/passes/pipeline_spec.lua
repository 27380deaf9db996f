-- The common passes on what traces and the reverse sweep really make: the
-- steps of small models, all of whose graphs must be legal and readable.
local core = require("lupine.core")
local graphs = require("spec.support.graphs")
local lupine = require("lupine")
local program = require("spec.support.program")
local torch = require("torch")

local nn = core.forms.nn

local function filled(shape, from)
  local n = 1
  for _, s in ipairs(shape) do
    n = n * s
  end
  local list = {}
  for i = 1, n do
    list[i] = from + (i * 7 % 11) / 16
  end
  return torch.tensor(list):reshape(shape)
end

-- Traces loss = f(x, w) of a parameter w; returns the text of both graphs of
-- the step.
local function step_of(f, x_shape, w_shape)
  local trace = core.trace()
  local w = filled(w_shape, -0.3)
  local x = trace:declare("input", "x", nil, x_shape, torch.float32)
  local step, losses = trace:step({ trace:run(false, function()
    trace:declare("parameter", "w", w)
    return f(x, w)
  end) })
  local param
  for i, v in ipairs(step:vars()) do
    param = v.name == "w" and i or param
  end
  step:complete({ loss = losses[1], gradient_accumulation = 4, rules = {
    { op = "sub", param = param, inputs = { param, "grad" }, outputs = { param },
      attrs = { alpha = 0.5 } } } })
  return step:text("micro"), step:text("update")
end

local MODELS = {
  ["matrix product"] = { { 5, 4 }, { 3, 4 }, function(x, w)
    return torch.matmul(x, w:t()):relu()
  end },
  ["linear, dropout, softmax"] = { { 5, 4 }, { 3, 4 }, function(x, w)
    return torch.softmax(torch.dropout(nn.linear(x, w), 0.5, true), 1)
  end },
  ["convolution, pooling"] = { { 2, 3, 8, 8 }, { 4, 3, 3, 3 }, function(x, w)
    return nn.max_pool2d(nn.conv2d(x, w), 2)
  end },
  ["layer norm"] = { { 2, 6 }, { 6 }, function(x, w)
    return nn.layer_norm(x, { 6 }, w)
  end },
  ["views"] = { { 2, 6 }, { 6 }, function(x, w)
    return (x * w):reshape({ 3, 4 }):permute(1, 0):unsqueeze(0):squeeze():select(0, 1)
  end },
  ["a part that is detached"] = { { 2, 6 }, { 6 }, function(x, w)
    return x * w * w:detach()
  end },
}

describe("the common passes", function()
  for name, model in pairs(MODELS) do
    it("leave legal graphs of the step of a model: " .. name, function()
      local micro, update = step_of(function(x, w)
        return nn.mse_loss(model[3](x, w), torch.tensor(0.25))
      end, model[1], model[2])
      for _, text in ipairs({ micro, update }) do
        local g = core.graph_parse(text)
        assert.is_true(g:verify())
        assert.equal(text, g:print())
        assert.equal(text, graphs.run_pass(text))
      end
      assert.matches("backward", micro)
      assert.not_matches("detach", micro:gsub("differentiated", ""))
      assert.matches("update", update)
    end)
  end

  it("leave nothing to do of a loss that is a sum", function()
    for _, text in ipairs({ step_of(function(x, w)
      return nn.mse_loss(x * w, torch.zeros({ 2, 6 }), { reduction = "sum" })
    end, { 2, 6 }, { 6 }) }) do
      assert.equal(text, graphs.run_pass(text))
    end
  end)

  it("may be watched one by one", function()
    local script = program.temporary([[
      local torch, lupine = require("torch"), require("lupine")
      lupine.compile(function(x) return x:transpose(0, 1):transpose(0, 1) + 1 end,
        { torch.ones(2, 3) })
    ]])
    local function dump(names)
      local _, err = program.shell(("LUPINE_VERIFY=1 LUPINE_DUMP=%s %s %s"):format(names,
        program.host, script))
      return err
    end
    local before, after = dump("trace"):match("^# after trace\n(.*)$"), dump("dce")
    after = after:match("^# after dce\n(.*)$")
    assert.matches("permute", before)
    assert.not_matches("permute", after)
    for _, text in ipairs({ before, after }) do
      assert.is_true(core.graph_parse(text):verify())
    end
    local count = select(2, dump("all"):gsub("# after ", ""))
    local common, host = core.passes()
    assert.equal(1 + #common + #host, count) -- trace; there is no sweep
    local warned = dump("nope,dce,never")
    for _, name in ipairs({ "nope", "never" }) do
      local _, times = warned:gsub("LUPINE_DUMP=" .. name .. ": known are all, trace", "")
      assert.equal(1, times, name)
    end
    os.remove(script)
  end)

  it("may leave an input, a constant, or one value twice as results", function()
    local x = torch.tensor({ 1.5, -2.0, 3.0 })
    local f = lupine.compile(function(t)
      return t:clone(), torch.full({ 2 }, 3.0) * 2, t + 1, t + 1, t:reshape({ 3, 1 }):reshape({ 3 })
    end, { x })
    local a, b, c, d, e = f(x)
    assert.same({ 1.5, -2.0, 3.0 }, a:tolist())
    assert.same({ 6.0, 6.0 }, b:tolist())
    assert.same({ 2.5, -1.0, 4.0 }, c:tolist())
    assert.same({ 2.5, -1.0, 4.0 }, d:tolist())
    assert.same({ 1.5, -2.0, 3.0 }, e:tolist())
  end)
end)
