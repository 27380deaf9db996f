--- A report as one page: all of it inside, nothing from outside, small for large models.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local lupine = require("lupine")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local path

before_each(function()
  path = files.unused()
end)
after_each(function()
  files.remove(path)
end)

local function page_of(report)
  report:html(path)
  return files.read(path)
end

-- Tags that are open at the end, or closed in another order.
local function unbalanced(html)
  local open = {}
  html = html:gsub("<script.->.-</script>", ""):gsub("<style>.-</style>", "")
  for slash, name, rest in html:gmatch("<(/?)(%a%w*)([^>]*)>") do
    if slash == "/" then
      if table.remove(open) ~= name then
        return name
      end
    elseif name ~= "meta" and not rest:find("/$") then
      open[#open + 1] = name
    end
  end
  return open[1]
end

-- The policy of the page has the browser refuse what a script might ask for.
local function stands_alone(html)
  assert.matches("^<!DOCTYPE html>", html)
  assert.matches("default-src 'none'", html, 1, true)
  local markup = html:gsub("<script.->.-</script>", "")
  for _, outside in ipairs({ "https?:", "src=", 'href="[^#]', "@import", "url%(" }) do
    assert.is_nil(markup:find(outside), outside)
  end
  assert.is_nil(unbalanced(html))
  assert.is_true(#html < 5e6, #html .. " bytes")
end

-- What the page's scripts read.
local function data_of(html)
  return core.json_decode(html:match('<script type="application/json" id="data">(.-)</script>'),
    "the page's data")
end

-- The entries of a list that is packed by columns.
local function unpacked(list)
  local text, out = {}, {}
  for _, key in ipairs(list.text) do
    text[key] = true
  end
  for c, key in ipairs(list.keys) do
    for i, value in ipairs(list.columns[c]) do
      out[i] = out[i] or {}
      out[i][key] = text[key] and list.strings[value + 1] or value
    end
  end
  return out
end

-- BERT-Large's encoder on eight IPUs, trained, from shapes alone.
local function bert_large()
  torch.set_default_device("meta")
  finally(function()
    torch.set_default_device("cpu")
  end)
  local Net = nn.Module:extend("Bert")
  function Net:init()
    self.bert = lupine.models.BertModel({ vocab_size = 30522, hidden_size = 1024,
      num_hidden_layers = 24, num_attention_heads = 16, intermediate_size = 4096,
      max_position_embeddings = 512 })
    for i = 1, 24 do
      local layer = self.bert.encoder.layer
      layer[i] = poptorch.BeginBlock(layer[i], "layer" .. i, { ipu_id = (i - 1) // 3 })
    end
  end
  function Net:forward(ids)
    local y = self.bert(ids).last_hidden_state
    return y, poptorch.identity_loss(y, "mean")
  end
  local net, options = Net():half(), poptorch.Options():useOfflineIpuTarget()
  options.Training:gradientAccumulation(16)
  options.Precision:setPartialsType(torch.half)
  options.TensorLocations:setOptimizerLocation(
    poptorch.TensorLocationSettings():useOnChipStorage(false))
  local model = poptorch.trainingModel(net, options, torch.optim.Adam(net:parameters()))
  model:compile(torch.zeros(16, 128, { dtype = torch.int32 }))
  return model:report()
end

describe("the page of a report", function()
  it("of a small model has its summary, memory, schedule and operators", function()
    local net = nn.Sequential({ { "first<b>", nn.Linear(4, 8) }, { "last", nn.Linear(8, 2) } })
    local model = poptorch.inferenceModel(net)
    model(torch.ones(3, 4))
    local report = model:report()
    local html = page_of(report)
    stands_alone(html)
    assert.matches("Tiles per IPU", html, 1, true)
    assert.is_nil(html:find("first<b>", 1, true))
    local data = data_of(html)
    local nodes, live = unpacked(data.nodes), report:liveness().ipus[0]
    for i, node in ipairs(report:nodes()) do
      for _, key in ipairs({ "operator", "scope", "file", "line", "cycles", "flops" }) do
        assert.equal(node[key], nodes[i][key])
      end
    end
    assert.matches("first<b>", nodes[1].scope, 1, true)
    assert.same(live.spans, unpacked(data.liveness["0"].spans))
    assert.equal(#live.bytes, data.liveness["0"].bytes.n)
    assert.equal(#report.schedule, data.report.schedule.n)
    assert.equal(report.cycles, data.report.cycles)
    assert.equal(64, data.report.memory["0"].tiles.n)
  end)

  it("of BERT-Large on eight IPUs is below 5 MB", function()
    local report = bert_large()
    assert.is_true(#report:nodes() > 2000)
    local html = page_of(report)
    stands_alone(html)
    local data = data_of(html)
    for ipu = 0, 7 do
      assert.equal(report.memory[ipu].max_tile, data.report.memory[tostring(ipu)].max_tile)
    end
    assert.equal(#report:nodes(), #unpacked(data.nodes))
  end)

  it("of any number of operators and rows is below 5 MB, and has the longest", function()
    local model = poptorch.inferenceModel(nn.Linear(2, 2))
    model(torch.ones(1, 2))
    local real = model:report()
    local many = setmetatable({}, { __index = real, __tostring = function() return "many" end })
    local figures = real:stored().figures
    figures.schedule, many.operators = {}, real.operators
    for i = 1, 200000 do
      figures.schedule[i] = real.schedule[1]
    end
    function many.stored()
      return { figures = figures }
    end
    function many.summary()
      return "summary"
    end
    function many.gains()
      return {}
    end
    many.remedies = many.gains
    function many.nodes()
      local list = {}
      for i = 1, 200000 do
        list[i] = { operator = ("x"):rep(60), scope = ("layer."):rep(20), ipu = 0, cycles = i,
          compute = 1, exchange = 1, flops = 1, node = i, update = false, backward = true }
      end
      return list
    end
    function many.liveness()
      local live = setmetatable({ spans = {} }, { __index = real:liveness().ipus[0] })
      for _, name in ipairs({ "node", "stage", "backward", "bytes", "temporary" }) do
        live[name] = {}
        for i = 1, 300000 do
          live[name][i] = i
        end
      end
      return { ipus = { [0] = live } }
    end
    local html = require("lupine.report.page").text(many)
    stands_alone(html)
    local data = data_of(html)
    local nodes = unpacked(data.nodes)
    assert.equal(200000, nodes[#nodes].cycles)
    assert.equal(200000 - #nodes, data.nodes.left_out)
    assert.equal(200000 - data.report.schedule.n, data.report.rows_left_out)
  end)

  it("is not written where that cannot be", function()
    local model = poptorch.inferenceModel(nn.Linear(2, 2))
    model(torch.ones(1, 2))
    helper.raises("TypeError", "html: path", function()
      model:report():html(3)
    end)
    helper.raises("OSError", nil, function()
      model:report():html("/nowhere/at/all.html")
    end)
  end)
end)
