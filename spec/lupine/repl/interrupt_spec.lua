-- Ctrl-C on a terminal: what runs stops, the session goes on, no process of a
-- loader is left. The time between the key and the next prompt is bounded
-- generously, for machines that do other work too: half a second is wanted.
local core = require("lupine.core")
local files = require("spec.support.files")
local processes = require("spec.support.processes")
local program = require("spec.support.program")

local on_terminal = program.has_terminal() and it or pending
local MOST = 5 -- seconds

-- What is set up, what runs.
local LONG = {
  { "a loop of Lua", "", "while true do end" },
  { "a loop of operators", "x = torch.ones(300, 300)", "while true do x:matmul(x) end" },
  { "a product of 8192 x 8192", "x = torch.ones(8192, 8192)", "x:matmul(x):matmul(x)" },
  { "a sort", "x = torch.rand(50000000)", "x:sort()" },
  { "a compiled step", "x = torch.ones(1500, 1500) f = lupine.compile(function(x) "
    .. "for i = 1, 500 do x = x:matmul(x):tanh() end return x end, { x })", "f(x)" },
  { "compiling", "net = torch.nn.Sequential() for i = 1, 200 do "
    .. "net:append(torch.nn.Linear(8, 8)) end",
    "while true do lupine.compile(net, { torch.ones(1, 8) }) end" },
  { "a loader's wait", "Slow = torch.utils.data.Dataset:extend('Slow') "
    .. "function Slow:__len__() return 100 end "
    .. "function Slow:__getitem__(i) while true do end end "
    .. "loader = torch.utils.data.DataLoader(Slow(), { batch_size = 2, num_workers = 2 })",
    "for x in loader do print(x) end loader = nil" },
}

describe("Ctrl-C at the prompt stops", function()
  for _, case in ipairs(LONG) do
    on_terminal(case[1], function()
      local home = files.folder()
      local s = program.session(("HOME=%s XDG_STATE_HOME=%s"):format(home, home))
      finally(function()
        pcall(s.close, s)
        files.remove(home)
      end)
      s:type("torch = require('torch') lupine = require('lupine')\n")
      s:type(case[2] .. "\n")
      s:type("io.open('/proc/self/stat'):read('n') .. ' is it'\n")
      local pid = math.tointeger(s:expect(" is it\r"):match("(%d+) is it\r"))
      s:type("print('be' .. 'gin') " .. case[3] .. "\n")
      s:expect("begin")
      os.execute("sleep 0.4")
      local start = core.host.clock()
      s:send("\3")
      s:expect("interrupted")
      s:expect("> ")
      local took = core.host.clock() - start
      assert.is_true(took < MOST, ("it took %.2f s"):format(took))
      s:send("loader = nil collectgarbage() collectgarbage()\n")
      s:type("'al' .. 'ive'\n")
      s:expect("alive")
      for _, child in ipairs(processes.list(pid)) do
        assert.is_true(processes.gone(child))
      end
      if os.getenv("LUPINE_SHOW_TIMES") then
        print(("%-28s %.3f s"):format(case[1], took))
      end
    end)
  end
end)
