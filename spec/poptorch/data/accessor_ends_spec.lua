-- How an AsynchronousDataAccessor ends: errors and deaths reach the consumer,
-- and no process and no memory is left, however it ends.
local files = require("spec.support.files")
local helper = require("spec.helper")
local Numbers = require("spec.support.datasets").Numbers
local poptorch = require("poptorch")
local processes = require("spec.support.processes")
local program = require("spec.support.program")
local torch = require("torch")
local Accessor, Mode = poptorch.AsynchronousDataAccessor, poptorch.DataLoaderMode
local raises = helper.raises

local function exhaust(source)
  for _ in source do -- luacheck: ignore
  end
end

-- A loader of two workers; the fetching process is this one's child, the workers
-- are the child's.
local function loader(sample, extra)
  extra = extra or {}
  extra.num_workers, extra.batch_size, extra.mode = 2, 2, Mode.Async
  return poptorch.DataLoader(poptorch.Options(), Numbers(100, sample), extra)
end

local function bad_at(n)
  return function(i)
    if i == n then
      torch.errors.raise("ValueError", "sample %d is bad", i)
    end
    return torch.tensor(i)
  end
end

local named, open

before_each(function()
  assert.equal(0, processes.settled())
  named, open = processes.named(), processes.open()
end)

after_each(function()
  assert.equal(0, processes.settled())
  assert.equal(named, processes.named())
  assert.equal(open, processes.open())
  assert.equal(0, processes.mappings())
end)

describe("an error of the dataset is raised where elements are waited for", function()
  it("by the constructor, if there is no first element", function()
    local text = "failed to start: ValueError: sample 0 is bad\nraised in the process of an "
      .. "AsynchronousDataAccessor %(pid %d+%):.*accessor_ends_spec.lua:%d+"
    raises("Error", text, function() Accessor(Numbers(3, bad_at(0))) end)
    local ok, e = pcall(Accessor, Numbers(3, bad_at(0)))
    assert.is_false(ok)
    assert.equal("poptorch_py_error", e.type)
    raises("Error", "sample 0 is bad\nraised in DataLoader worker process 0", function()
      loader(bad_at(0))
    end)
  end)

  it("by the loop, after the elements before it, and again", function()
    local a = Accessor(Numbers(6, bad_at(4)))
    local n = 0
    local text = "error occurred in the data fetcher: ValueError: sample 4 is bad\nraised in "
      .. ".*accessor_ends_spec.lua"
    raises("AssertionError", text, function()
      for x in a do
        assert.equal(n, x:item())
        n = n + 1
      end
    end)
    assert.equal(4, n)
    assert.equal(0, processes.children())
    local e = raises("AssertionError", "sample 4 is bad", function() exhaust(a) end)
    local there, line = debug.getinfo(bad_at, "S"), tonumber(e.origin:match("_spec.lua:(%d+)$"))
    assert.is_true(there.linedefined < line and line < there.lastlinedefined)
    raises("AssertionError", "worker process 1.*accessor_ends_spec.lua", function()
      exhaust(loader(bad_at(7)))
    end)
    raises("AssertionError", "TypeError.*plain data", function()
      exhaust(loader(nil, { collate_fn = function(list)
        return list[1]:item() == 8 and { print } or torch.stack(list)
      end }))
    end)
  end)

  it("whatever is raised", function()
    raises("Error", "RuntimeError: {code = 7}", function()
      Accessor(Numbers(3, function() error({ code = 7 }) end))
    end)
    raises("AssertionError", "RuntimeError: attempt to index a nil value", function()
      exhaust(Accessor(Numbers(3, function(i)
        return i == 2 and ({}).x.y or torch.tensor(i)
      end)))
    end)
  end)
end)

describe("a death is told", function()
  it("of the process, with its cause", function()
    raises("AssertionError", "its process %(pid %d+%) was killed by signal 9", function()
      exhaust(Accessor(Numbers(5, function(i)
        if i == 3 then
          os.execute("kill -9 $PPID")
        end
        return torch.tensor(i)
      end)))
    end)
    raises("AssertionError", "ended: exit code 3", function()
      exhaust(Accessor(Numbers(5, function(i)
        return i == 3 and os.exit(3) or torch.tensor(i)
      end)))
    end)
    raises("Error", "failed to start: its process %(pid %d+%) ended: exit code 0", function()
      Accessor(Numbers(5, function() os.exit(0) end))
    end)
  end)

  it("when somebody else kills it between two elements", function()
    local a = Accessor(Numbers(50))
    local step = a:iter()
    step()
    os.execute("kill -9 " .. processes.list()[1])
    raises("AssertionError", "was killed by signal 9", function()
      for _ = 1, 5 do -- the ring may have held some
        step()
      end
    end)
  end)

  it("of one of its workers", function()
    raises("AssertionError", "RuntimeError: DataLoader worker process 1 %(pid %d+%) ended "
      .. "unexpectedly: killed by signal 9", function()
      exhaust(loader(function(i)
        if i == 7 then
          os.execute("kill -9 $PPID")
        end
        return torch.tensor(i)
      end))
    end)
  end)
end)

describe("nothing is left", function()
  -- The processes below an accessor's: itself and its workers.
  local function family()
    local out = processes.list()
    for _, pid in ipairs(processes.list(out[1])) do
      out[#out + 1] = pid
    end
    return out
  end

  local function all_gone(pids)
    for _, pid in ipairs(pids) do
      assert.is_true(processes.gone(pid), pid .. " lives on")
    end
  end

  it("after terminate, which may be repeated", function()
    local l = loader()
    local step = l:iter()
    step()
    local pids = family()
    assert.equal(3, #pids)
    l:terminate()
    l:terminate()
    assert.equal(0, processes.children())
    all_gone(pids)
    raises("AssertionError", "it has been terminated", step)
    raises("AssertionError", "it has been terminated", function() exhaust(l) end)
    poptorch.DataLoader(poptorch.Options(), Numbers(3)):terminate() -- Sync: nothing
  end)

  it("after terminate while it reads, or is stuck", function()
    local a = Accessor(Numbers(9, function(i)
      while i > 0 do end -- luacheck: ignore
      return torch.tensor(i)
    end))
    a:iter()()
    local pid = processes.list()[1]
    a:terminate()
    assert.equal(0, processes.children())
    assert.is_true(processes.gone(pid))
  end)

  it("of one that is garbage, left in the middle", function()
    local pids
    do
      local l = loader()
      l()
      pids = family()
    end
    assert.equal(3, #pids)
    assert.equal(0, processes.settled())
    all_gone(pids)
  end)

  it("of its workers when it is killed", function()
    local l = loader()
    local step = l:iter()
    step()
    local pids = family()
    os.execute("kill -9 " .. pids[1])
    raises("AssertionError", "killed by signal 9", function()
      for _ = 1, 60 do
        step()
      end
    end)
    all_gone(pids)
  end)

  it("of the memory, once the tensors are gone", function()
    local a = Accessor(Numbers(4, function() return torch.ones({ 5000 }), torch.ones(1) end),
      { buffer_size = 5 })
    local x = a:iter()()
    assert.equal(10, processes.mappings())
    a:terminate()
    processes.settled()
    assert.equal(1, processes.mappings())
    assert.equal(5000, x:sum():item())
  end)

  -- Each script prints the numbers of its processes, then ends in its own way.
  local function ends(how)
    local path = program.temporary(([[
      local torch, poptorch = require("torch"), require("poptorch")
      local D = torch.utils.data
      local function children(of)
        return io.open(("/proc/%%d/task/%%d/children"):format(of, of)):read("a")
      end
      local l = poptorch.DataLoader(poptorch.Options(), D.TensorDataset(torch.arange(100)),
        { batch_size = 2, num_workers = 2, mode = poptorch.DataLoaderMode.Async })
      for x in l do
        local pid = io.open("/proc/self/stat"):read("n")
        local child = children(pid)
        print(child, children(math.tointeger(child)))
        io.stdout:flush()
        %s
      end
    ]]):format(how))
    local to = program.temporary()
    -- A process that lives on holds its standard output: a pipe would never end.
    local _, err = program.shell(("%s %s >%s"):format(program.host, path, to))
    local out = assert(io.open(to)):read("a")
    os.remove(path)
    os.remove(to)
    local pids = {}
    for pid in out:gmatch("%d+") do
      pids[#pids + 1] = math.tointeger(pid)
    end
    assert.equal(3, #pids, err)
    all_gone(pids)
    return err
  end

  it("of the workers of a loop that was left", function()
    local a = Accessor(torch.utils.data.DataLoader(Numbers(100), { num_workers = 1 }))
    local fetching = processes.list()[1]
    for _ = 1, 5 do
      assert.equal(0, a:iter()()[0]:item())
    end
    assert.equal(1, #processes.list(fetching))
    a:terminate()
  end)

  it("of a script that ends without terminate, or any other way", function()
    assert.equal("", ends("break"))
    assert.equal("", ends("os.exit(0)"))
    assert.matches("oops", ends("error('oops')"))
    ends("os.execute('kill -9 $PPID')")
    ends("os.execute('kill -TERM $PPID')")
  end)

  it("of a script that Ctrl-C ends, nor is anything said but that", function()
    local script = [[
      local torch, poptorch = require("torch"), require("poptorch")
      local Stuck = torch.utils.data.Dataset:extend("Stuck")
      function Stuck:__len__() return 3 end
      function Stuck:__getitem__(i)
        if i == 1 then print("running") io.stdout:flush() while true do end end
        return torch.tensor(i)
      end
      for x in poptorch.AsynchronousDataAccessor(Stuck()) do print(x:item()) end
    ]]
    local out, err = program.interrupted(script)
    assert.matches("running", out)
    assert.matches("KeyboardInterrupt", err)
    assert.not_matches("process", err)
  end)
end)

it("a first element that Ctrl-C came before leaves no process", function()
  local out, err = program.interrupted([[
    local torch, poptorch = require("torch"), require("poptorch")
    local processes = require("spec.support.processes")
    local Stuck = torch.utils.data.Dataset:extend("Stuck")
    function Stuck:__len__() return 3 end
    function Stuck:__getitem__() while true do end end
    collectgarbage("stop")
    print("running")
    io.stdout:flush()
    local ok, e = pcall(poptorch.AsynchronousDataAccessor, Stuck())
    print(ok, torch.errors.KeyboardInterrupt:is(e), processes.children())
  ]])
  assert.equal("running\nfalse\ttrue\t0\n", out, err)
end)

-- Neither side may wait for room in a channel that the other does not read.
it("many loops may be begun while many elements are announced", function()
  local out, err = program.run({ "-e", [[
    local torch, poptorch = require("torch"), require("poptorch")
    local a = poptorch.AsynchronousDataAccessor(torch.arange(600),
      { buffer_size = 500, early_preload = true })
    os.execute("sleep 0.3") -- in which the process fills the ring
    local step
    for _ = 1, 600 do
      step = a:iter()
    end
    print(step():item(), step():item())
    a:terminate()
  ]] })
  assert.equal("0\t1\n", out, err)
end)

-- The process reads sample 1 when the file is there, which the script makes after
-- Ctrl-C has ended its first loop.
it("a loop that Ctrl-C has ended may be followed by another", function()
  local flag = files.unused()
  local out, err, code = program.interrupted(([[
    local torch, poptorch = require("torch"), require("poptorch")
    local Slow = torch.utils.data.Dataset:extend("Slow")
    function Slow:__len__() return 3 end
    function Slow:__getitem__(i)
      while i == 1 and not io.open("%s") do os.execute("sleep 0.01") end
      return torch.tensor(i)
    end
    local a = poptorch.AsynchronousDataAccessor(Slow())
    print(pcall(function()
      for x in a do print("running") io.stdout:flush() end
    end))
    io.open("%s", "w"):close()
    for x in a do print("then", x:item()) end
  ]]):format(flag, flag))
  os.remove(flag)
  assert.same({ "", 0 }, { err, code })
  assert.matches("^running\nfalse\t[^\n]*KeyboardInterrupt.*\nthen\t0\nthen\t1\nthen\t2\n$", out)
end)

it("loaders with workers come and go, some of their processes killed", function()
  math.randomseed(5)
  for round = 1, 30 do
    local stop = math.random(0, 20)
    local l = loader(nil, { persistent_workers = round % 2 == 0 })
    local pids = processes.list()
    for _, pid in ipairs(processes.list(pids[1])) do
      pids[#pids + 1] = pid
    end
    local n = 0
    local ok, e = pcall(function()
      for x in l do
        assert.same({ 2 * n, 2 * n + 1 }, x:tolist())
        if n == stop then
          os.execute("kill -9 " .. pids[math.random(#pids)])
        end
        n = n + 1
      end
    end)
    assert.is_false(ok)
    assert.matches("killed by signal 9", tostring(e))
    assert.is_true(n > stop)
    for _, pid in ipairs(pids) do
      assert.is_true(processes.gone(pid))
    end
  end
end)

-- Made, read for a while, ended in one of several ways at some moment.
local function come_and_go(times)
  local words = { "terminate", "terminated in a loop", "garbage", "killed", "error", "read" }
  math.randomseed(11)
  local pids = {}
  for round = 1, times do
    local what = words[round % #words + 1]
    local stop = math.random(0, 8)
    local set = Numbers(8, what == "error" and bad_at(stop) or function(i)
      return torch.full({ 3, 5 }, i), torch.tensor(i)
    end)
    local made, a = pcall(Accessor, set, { buffer_size = math.random(1, 4),
      early_preload = round % 2 == 0, load_indefinitely = round % 3 == 0 })
    assert.equal(what ~= "error" or stop > 0, made)
    pids[#pids + 1] = processes.list()[1]
    local ok, e = pcall(function()
      local n = 0
      for x in made and a or {} do
        assert.equal(n, (x:dim() > 0 and x[0][0] or x):item())
        if n == stop and what == "killed" then
          os.execute("kill -9 " .. pids[#pids])
        elseif n == stop and what == "terminated in a loop" then
          a:terminate()
        elseif n == stop and what ~= "read" then
          break
        end
        n = n + 1
      end
    end)
    if not ok and made then
      assert.matches(({ error = "is bad", killed = "killed by signal 9",
        ["terminated in a loop"] = "has been terminated" })[what], tostring(e))
    end
    if made and (what == "terminate" or what == "read") then
      a:terminate()
    end
    a = nil -- luacheck: ignore
    assert.equal(0, processes.settled())
  end
end

it("forty accessors come and go, killed at any moment", function()
  come_and_go(40)
end)

it("five hundred accessors come and go, killed at any moment #slow", function()
  come_and_go(500)
end)
