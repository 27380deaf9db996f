--- What a script does to its globals is nothing to the library.
local program = require("spec.support.program")

-- Every standard name but what the script itself goes on to use.
local BREAK = [[
  table = {} string = nil math = 3 io = false os = nil coroutine = nil utf8 = {}
]]
local BREAK_FUNCTIONS = [[
  type = "cnn" next = 4 pairs = nil ipairs = {} select = nil tostring = 0 tonumber = 0
  setmetatable = nil getmetatable = nil error = nil pcall = nil xpcall = nil assert = nil
  rawget = nil rawset = nil rawequal = nil rawlen = nil load = nil loadfile = nil warn = nil
]]

local TRAIN = [[
  local nn = torch.nn
  local Net = nn.Module:extend("Net")
  function Net:init()
    self.body, self.loss = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), nn.MSELoss()
  end
  function Net:forward(x, y)
    local out = self.body(x)
    return out, self.loss(out, y)
  end
  torch.manual_seed(0)
  local net, D = Net(), torch.utils.data
  local opts = poptorch.Options():deviceIterations(2)
  local model = poptorch.trainingModel(net, opts, torch.optim.SGD(net:parameters(), 0.1))
  local loader = poptorch.DataLoader(opts,
    D.TensorDataset(torch.randn(16, 4), torch.randn(16, 2)),
    { batch_size = 4, shuffle = true, num_workers = 1 })
  for _ = 1, 2 do
    for x, y in loader do
      model(x, y)
    end
  end
  local adam = torch.optim.Adam(net:parameters())
  local _, loss = net(torch.ones(2, 4), torch.ones(2, 2))
  loss:backward()
  adam:step()
  local ok, e = guarded(net, torch.ones(2, 3))
  print(net.body[1].weight:abs():sum():item(), ok, e.message, e.location, net)
]]

local function run(before, after)
  local out, err = program.run({ "-e", "local guarded = pcall\n" .. before
    .. ' local torch, poptorch = require("torch"), require("poptorch")\n' .. after .. TRAIN })
  assert.equal("", err)
  return out
end

describe("globals of a script", function()
  it("may be anything, before the library is loaded and after", function()
    local want = run("", "")
    assert.matches("in module 'body.0' %(Linear%) of Net", want)
    assert.equal(want, run(BREAK, ""))
    assert.equal(want, run("", BREAK .. BREAK_FUNCTIONS))
    assert.equal(want, run(BREAK, BREAK_FUNCTIONS))
  end)

  it("are the script's", function()
    local out = program.run({ "-e", [[
      table, arg = "mine", "too"
      local torch = require("torch")
      print(table, arg, torch.ones(1):item(), require("table") == package.loaded.table)
    ]] })
    assert.equal("mine\ttoo\t1.0\ttrue\n", out)
  end)

  -- Which environment a file's functions have shows in any one of them.
  it("are read by no file of the library", function()
    local out, err = program.run({ "-e", [[
      for _, name in ipairs({ "torch", "poptorch", "lupine", "torch.distributions",
        "torch_scatter" }) do
        require(name)
      end
      local lua, seen, n = debug.getinfo(require("lupine.base.check").describe, "S").source:match(
        "^(.*)lupine[/\\]base[/\\]check%.lua$"), {}, 0
      local function scan(v)
        if v == nil or v ~= v or seen[v] then
          return
        end
        seen[v] = true
        if type(v) == "table" and v ~= _G then
          for _, x in next, v do
            scan(x)
          end
          scan(debug.getmetatable(v))
        elseif type(v) == "function" then
          local source = debug.getinfo(v, "S").source
          for i = 1, 255 do
            local name, x = debug.getupvalue(v, i)
            if not name then
              break
            elseif name ~= "_ENV" then
              scan(x)
            elseif source:sub(1, #lua) == lua then
              n = n + 1
              assert(x ~= _G, source)
            end
          end
        end
      end
      for name, module in pairs(package.loaded) do
        if name ~= "_G" then
          scan(module)
        end
      end
      print(n > 1000)
    ]] })
    assert.equal("true\n", out, err)
  end)
end)
