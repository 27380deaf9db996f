-- Worker processes of a DataLoader: order, random numbers, errors, deaths.
local helper = require("spec.helper")
local Numbers = require("spec.support.datasets").Numbers
local processes = require("spec.support.processes")
local torch = require("torch")
local D = torch.utils.data
local children, settled = processes.children, processes.settled

local function all(loader)
  local out = {}
  for x in loader do
    out[#out + 1] = x:tolist()
  end
  return out
end

-- The gradient of a convolution's weights: the library's sum of it has other
-- bits with another number of threads.
local function gradient(i)
  local x = (torch.arange(4 * 16 * 32 * 32) * (0.37 + i)):sin():reshape({ 4, 16, 32, 32 })
  local w = torch.ones({ 32, 16, 3, 3 }, { requires_grad = true })
  torch.nn.functional.conv2d(x, w):sin():sum():backward()
  return w.grad
end

describe("worker processes give", function()
  it("the bits that the caller computes with deterministic algorithms", function()
    local Stream = D.IterableDataset:extend("Stream")
    function Stream:__iter__()
      local first, i = gradient(7), -1 -- computed before the first sample is asked for
      return function()
        i = i + 1
        return i < 3 and gradient(i) + first or nil
      end
    end
    torch.use_deterministic_algorithms(true)
    local before = gradient(0)
    local function agree(set, o)
      local want = all(D.DataLoader(set, o))
      o.num_workers = 1
      assert.same(want, all(D.DataLoader(set, o)))
    end
    agree(Numbers(3, gradient), { batch_size = 2 })
    agree(Numbers(3, gradient), { batch_size = torch.none })
    agree(Stream(), { batch_size = 2 })
    agree(D.TensorDataset(torch.arange(4)), { batch_size = 2, collate_fn = function(list)
      return gradient(#list)
    end })
    local function failing() error("a sample") end
    assert.is_false(pcall(all, D.DataLoader(Numbers(3, failing))))
    assert.is_true(before:equal(gradient(0))) -- the caller has its own width again
    torch.use_deterministic_algorithms(false)
  end)

  it("what the caller would have read, in order, whatever their number", function()
    local set = Numbers(23, function(i) return torch.tensor({ i, i * i }) end)
    local want = all(D.DataLoader(set, { batch_size = 4 }))
    for n = 1, 3 do
      for _, ahead in ipairs({ 1, 5 }) do
        local loader = D.DataLoader(set, { batch_size = 4, num_workers = n,
          prefetch_factor = ahead })
        assert.same(want, all(loader))
        assert.equal(6, #loader)
      end
    end
    assert.equal(0, settled())
  end)

  it("every batch, however far they may be ahead", function()
    local set = Numbers(700, function(i) return torch.tensor({ i }) end)
    local n = 0
    for x in D.DataLoader(set, { num_workers = 1, prefetch_factor = 100000 }) do
      assert.equal(n, x:item())
      n = n + 1
    end
    assert.equal(700, n)
  end)

  it("rows of tensors, several parts, dictionaries, strings, large tensors", function()
    local x = torch.arange(60000):reshape({ 6, 10000 }):float()
    local loader = D.DataLoader(D.TensorDataset(x, torch.arange(6)),
      { batch_size = 4, num_workers = 2 })
    local sum, labels = 0.0, {}
    for rows, y in loader do
      sum = sum + rows:sum({ dtype = torch.float64 }):item()
      labels[#labels + 1] = y:tolist()
      rows:add_(1) -- what came may be changed
    end
    assert.equal(59999 * 60000 / 2, sum)
    assert.same({ { 0, 1, 2, 3 }, { 4, 5 } }, labels)
    local set = Numbers(2, function(i)
      return { name = "n" .. i, value = i + 0.5, flag = i == 0 }
    end)
    for batch in D.DataLoader(set, { batch_size = 2, num_workers = 1 }) do
      assert.same({ "n0", "n1" }, batch.name)
      assert.same({ 0.5, 1.5 }, batch.value:tolist())
      assert.same({ true, false }, batch.flag:tolist())
    end
    local single = D.DataLoader(set, { batch_size = torch.none, num_workers = 2 })
    local names = {}
    for sample in single do
      names[#names + 1] = sample.name
    end
    assert.same({ "n0", "n1" }, names)
  end)

  it("the same shuffling and the same augmentation for any number of them", function()
    local set = Numbers(20, function(i) return torch.rand({ 2 }) + i end)
    local runs = {}
    for n = 0, 3 do
      torch.manual_seed(7)
      local loader = D.DataLoader(set, { batch_size = 3, shuffle = true, num_workers = n })
      runs[n] = { all(loader), all(loader), torch.rand({ 3 }):tolist() }
    end
    for n = 1, 3 do
      assert.same(runs[0], runs[n])
    end
    assert.are_not.same(runs[0][1], runs[0][2]) -- epochs differ
    local seen = {}
    for _, batch in ipairs(runs[0][1]) do
      for _, row in ipairs(batch) do
        seen[row[1] % 1] = true
        assert.are_not.equal(row[1], row[2])
      end
    end
    local n = 0
    for _ in pairs(seen) do
      n = n + 1
    end
    assert.equal(20, n) -- and samples too
  end)

  it("math.random's numbers by the batch too", function()
    local set = Numbers(8, function() return math.random() end)
    local runs = {}
    for n = 1, 2 do
      torch.manual_seed(7)
      runs[n] = all(D.DataLoader(set, { batch_size = 2, num_workers = n }))
    end
    assert.same(runs[1], runs[2])
  end)

  it("parts of an iterable dataset by get_worker_info", function()
    local Stream = D.IterableDataset:extend("Stream")
    function Stream:init(n, split)
      self.n, self.split = n, split
    end
    function Stream:__iter__()
      local info = D.get_worker_info()
      local at, step = 0, 1
      if info and self.split then
        assert(info.dataset == self)
        at, step = info.id, info.num_workers
      end
      return function()
        local i = at
        at = at + step
        return i < self.n and i or nil
      end
    end
    assert.is_nil(D.get_worker_info())
    assert.same({ { 0, 2 }, { 1, 3 }, { 4, 6 }, { 5 } },
      all(D.DataLoader(Stream(7, true), { batch_size = 2, num_workers = 2 })))
    assert.same({ { 0, 1 }, { 0, 1 }, { 2 }, { 2 } },
      all(D.DataLoader(Stream(3), { batch_size = 2, num_workers = 2 })))
    assert.same({}, all(D.DataLoader(Stream(0, true), { batch_size = 2, num_workers = 3 })))
    assert.same({ { 0 }, { 1 } }, all(D.DataLoader(Stream(2, true), { num_workers = 3 })))
    assert.equal(0, settled())
  end)

  it("batches of workers that live on, and of worker_init_fn's state", function()
    local mark = 0
    local set = Numbers(4, function(i) return { mark, i } end)
    local loader = D.DataLoader(set, { batch_size = 2, num_workers = 2, persistent_workers = true,
      worker_init_fn = function(id) mark = 100 + id end })
    for _ = 1, 3 do
      local marks = {}
      for m in loader do
        marks[#marks + 1] = m[0]:item()
      end
      assert.same({ 100, 101 }, marks)
      assert.equal(2, settled())
    end
    assert.equal(0, mark)
    loader = nil -- luacheck: ignore
    assert.equal(0, settled())
  end)

  it("batches of a loop within another, also of workers that live on", function()
    local loader = D.DataLoader(Numbers(6, function(i) return i end), { batch_size = 2,
      num_workers = 2, persistent_workers = true })
    local outer = {}
    for a in loader do
      local inner = {}
      for b in loader do
        inner[#inner + 1] = b:tolist()
      end
      assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 } }, inner)
      outer[#outer + 1] = a:tolist()
    end
    assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 } }, outer)
    loader = nil -- luacheck: ignore
    assert.equal(0, settled())
  end)

  it("batches to a poptorch.DataLoader", function()
    local poptorch = require("poptorch")
    local opts = poptorch.Options():deviceIterations(2)
    local set = Numbers(8, function(i) return torch.tensor({ i }) end)
    local loader = poptorch.DataLoader(opts, set, { batch_size = 2, num_workers = 2 })
    local got = {}
    for x in loader do
      got[#got + 1] = x:flatten():tolist()
    end
    assert.same({ { 0, 1, 2, 3 }, { 4, 5, 6, 7 } }, got)
  end)
end)

describe("a loader whose worker fails", function()
  local function epoch(options, sample)
    options.batch_size, options.num_workers = 2, options.num_workers or 2
    local loader = D.DataLoader(Numbers(10, sample), options)
    for _ in loader:iter() do -- luacheck: ignore
    end
  end

  it("raises the worker's own error, with its class, message and place", function()
    local where = "sample 5 is bad\nraised in DataLoader worker process 0:.*workers_spec"
    helper.raises("ValueError", where, function()
      epoch({}, function(i)
        if i == 5 then
          torch.errors.raise("ValueError", "sample %d is bad", i)
        end
        return i
      end)
    end)
    helper.raises("RuntimeError", "attempt to index a nil value", function()
      epoch({}, function(i) return ({ i }).field.field end)
    end)
    helper.raises("RuntimeError", "code.*=.*7", function() -- an error that is a table
      epoch({}, function() error({ code = 7 }) end)
    end)
    helper.raises("TypeError", "only plain data can be saved", function()
      epoch({ collate_fn = function() return { print } end }, function(i) return i end)
    end)
    helper.raises("RuntimeError", "not today", function()
      epoch({ worker_init_fn = function() error("not today") end }, function(i) return i end)
    end)
    assert.equal(0, settled())
  end)

  it("tells how a worker was killed, or ended by itself", function()
    helper.raises("RuntimeError", "worker process 1 %(pid %d+%) ended unexpectedly: killed by "
      .. "signal 9", function()
      epoch({}, function(i)
        if i == 3 then
          os.execute("kill -9 $PPID")
        end
        return i
      end)
    end)
    helper.raises("RuntimeError", "ended unexpectedly: exit code 3", function()
      epoch({}, function() os.exit(3, false) end)
    end)
    assert.equal(0, settled())
  end)

  it("stops waiting after its timeout", function()
    helper.raises("RuntimeError", "timed out after 0.05 seconds", function()
      epoch({ timeout = 0.05 }, function() os.execute("sleep 2") end)
    end)
    assert.equal(0, settled())
  end)

  it("leaves no process when a loop is left early", function()
    local set = Numbers(100, function(i) return torch.tensor(i) end)
    local function leave(...)
      for x in ... do
        if x:item() == 1 then
          break
        end
      end
    end
    leave(D.DataLoader(set, { num_workers = 2 }):iter())
    assert.equal(0, children())
    leave(D.DataLoader(set, { num_workers = 2 }))
    assert.equal(0, settled())
    local loader = D.DataLoader(set, { num_workers = 2, persistent_workers = true })
    leave(loader:iter())
    assert.equal(0, children())
    assert.equal(100, #all(loader))
  end)

  it("has no threads, no workers and no compiled models in a worker", function()
    for _, c in ipairs({
      { function() torch.set_num_threads(2) end, "has 1 thread" },
      { function() all(D.DataLoader(Numbers(1, print), { num_workers = 1 })) end,
        "cannot start workers of its own" },
    }) do
      helper.raises("RuntimeError", c[2], function()
        epoch({}, c[1])
      end)
    end
    -- Operators and copies large enough for several threads run there, after
    -- their parent has started its own.
    local function large()
      local x = torch.ones({ 300, 300 })
      assert(x:matmul(x):sum():item() == 27e6)
      local wide = torch.zeros({ 1000, 2000 })
      wide:copy_(torch.ones({ 2000, 1000 }):t())
      assert(wide:sum():item() == 2e6)
      return 1
    end
    large()
    epoch({}, large)
  end)
end)

it("workers die with their parent", function()
  local script = os.tmpname()
  local f = assert(io.open(script, "w"))
  f:write([[
    local torch = require("torch")
    local D = torch.utils.data
    local Slow = D.Dataset:extend("Slow")
    function Slow:__len__() return 4 end
    function Slow:__getitem__(i)
      if i == 0 then return 0 end
      while true do end
    end
    for _ in D.DataLoader(Slow(), { num_workers = 2 }) do
      local pid = io.open("/proc/self/stat"):read("n")
      print(io.open(("/proc/self/task/%d/children"):format(pid)):read("a"))
      io.stdout:flush()
      os.execute("kill -9 $PPID")
    end
  ]])
  f:close()
  -- A worker that lives on holds its standard output: a pipe would never end.
  local program = require("spec.support.program")
  local path = program.temporary()
  program.shell(("%s %s >%s 2>&1"):format(program.host, script, path))
  local printed = assert(io.open(path))
  local out = printed:read("a")
  printed:close()
  os.remove(script)
  os.remove(path)
  local n, left = 0, 0
  for pid in out:gmatch("%d+") do
    n = n + 1
    left = left + (processes.gone(pid) and 0 or 1)
  end
  assert.equal(0, left)
  assert.equal(2, n)
end)

describe("a worker", function()
  it("has a seed of its own", function()
    local seeds = {}
    for x in D.DataLoader(Numbers(2, function()
      local info = D.get_worker_info()
      return torch.tensor({ info.id, info.seed })
    end), { num_workers = 2 }) do
      seeds[x[0][0]:item()] = x[0][1]:item()
    end
    assert.equal(seeds[0] + 1, seeds[1])
  end)

  it("holds no channel of the others", function()
    local counts = {}
    for x in D.DataLoader(Numbers(3, function()
      local n = 0
      local self = io.open("/proc/self/stat"):read("n")
      for line in io.popen("ls -l /proc/" .. self .. "/fd 2>/dev/null"):lines() do
        n = n + (line:find("socket:", 1, true) and 1 or 0)
      end
      return n
    end), { num_workers = 3 }) do
      counts[#counts + 1] = x:item()
    end
    assert.equal(3, #counts)
    assert.same({ counts[1], counts[1], counts[1] }, counts)
  end)

  it("works as many batches ahead as it is told", function()
    local path = os.tmpname()
    local function note(i)
      local f = assert(io.open(path, "a"))
      f:write("x")
      f:close()
      return i
    end
    local function made()
      local f = assert(io.open(path))
      local n = #f:read("a")
      f:close()
      return n
    end
    for _, ahead in ipairs({ 1, 5 }) do
      assert(io.open(path, "w")):close()
      local loader = D.DataLoader(Numbers(20, note),
        { num_workers = 1, prefetch_factor = ahead })
      local step, _, _, guard <close> = loader:__iter__()
      step()
      local tries = 0
      while made() < ahead + 1 and tries < 500 do
        os.execute("sleep 0.01")
        tries = tries + 1
      end
      os.execute("sleep 0.05")
      assert.equal(ahead + 1, made()) -- what was taken, and those ahead
      assert.truthy(guard)
    end
    os.remove(path)
  end)
end)
