-- PopTorch's own tests of its data loader, by name. Figures are theirs: 101
-- elements over seven workers, batches of four or six.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local increments = require("spec.support.increments")
local program = require("spec.support.program")
local torch = require("torch")
local Mode = poptorch.DataLoaderMode
local Increment, Labelled = increments.Increment, increments.Labelled
local Unsized, Sized = increments.Unsized, increments.Sized

local function options(iterations, replicas)
  return poptorch.Options():deviceIterations(iterations or 1):replicationFactor(replicas or 1)
end

local function count(source)
  local n = 0
  for _ in source do
    n = n + 1
  end
  return n
end

local function module_of(forward)
  local M = torch.nn.Module:extend("M")
  M.forward = forward
  return M()
end

local SHAPE = { 2, 3 }

local function check_order(o)
  local opts = options(o.iterations, o.replicas)
  local loader = poptorch.DataLoader(opts, Increment(SHAPE, 100), { batch_size = o.batch or 1,
    num_workers = o.workers or 0, mode = o.mode })
  assert.equal(100 // loader.combinedBatchSize, #loader)
  assert.equal((o.batch or 1) * (o.iterations or 1) * (o.replicas or 1), loader.combinedBatchSize)
  local model = poptorch.inferenceModel(module_of(function(_, x, want)
    return (x - want):abs():sum(), x * 2
  end), opts)
  local n = loader.combinedBatchSize
  local it = 0
  for x in loader do
    local want = torch.arange(it * n, it * n + n):float():reshape({ n, 1, 1 }):expand(n, 2, 3)
    local off, twice = model(x, want:contiguous())
    assert.equal(0, off:abs():sum():item())
    assert.is_true(torch.equal(want * 2, twice))
    it = it + 1
  end
  assert.equal(#loader, it)
  loader:terminate()
end

describe("poptorch.DataLoader as the original", function()
  it("test_simple", function() check_order({}) end)
  it("test_batch", function() check_order({ batch = 4 }) end)
  it("test_workers", function() check_order({ workers = 8 }) end)
  it("test_device_iterations", function() check_order({ iterations = 4 }) end)
  it("test_replica", function() check_order({ replicas = 4 }) end)
  it("test_combined", function()
    check_order({ batch = 2, iterations = 5, replicas = 2, workers = 4 })
  end)
  it("test_multithreaded1", function() check_order({ batch = 2, mode = Mode.Async }) end)
  it("test_multithreaded2", function()
    check_order({ batch = 2, iterations = 10, mode = Mode.Async })
  end)
  it("test_multithreaded3", function()
    check_order({ batch = 2, replicas = 4, mode = Mode.Async })
  end)

  it("test_multithreaded4", function()
    local opts = options(10)
    local loader = poptorch.DataLoader(opts, Labelled(SHAPE, 60), { batch_size = 2,
      mode = Mode.Async })
    assert.equal(3, #loader)
    local twice_both = module_of(function(_, x, y) return x * 2, y * 2 end)
    local model = poptorch.inferenceModel(twice_both, opts)
    local total, labels = torch.zeros(SHAPE), torch.zeros({ 1 }, { dtype = torch.int64 })
    for data, label in loader do
      local out, twice = model(data, label)
      total:add_(out:sum(0))
      labels:add_(twice:sum(0))
    end
    assert.equal(60 * 59, total[0][0]:item())
    assert.equal(60 * 59, labels:item())
  end)
end)

describe("several processes as the original", function()
  local function seen(loader, note)
    for x in loader do
      for i = 0, x:size(0) - 1 do
        note(math.tointeger(x[i][0][0]:item()))
      end
    end
  end

  local function subdatasets(batch, hosts, workers)
    local next_one = 0
    for host = 0, hosts - 1 do
      local opts = options()
      opts.Distributed:configureProcessId(host, hosts)
      local loader = poptorch.DataLoader(opts, Increment(SHAPE, 100), { batch_size = batch,
        num_workers = workers, mode = Mode.Async })
      assert.equal(100 // (batch * hosts), #loader)
      seen(loader, function(i)
        assert.equal(next_one, i)
        next_one = next_one + 1
      end)
    end
    assert.equal(hosts * batch * (100 // (batch * hosts)), next_one)
  end

  it("test_subdataset", function() subdatasets(4, 3, 0) end)
  it("test_subdataset2", function() subdatasets(2, 2, 3) end)

  local function shuffled(batch, hosts, workers)
    local total = {}
    for host = 0, hosts - 1 do
      local opts = options():randomSeed(42)
      opts.Distributed:configureProcessId(host, hosts)
      local loader = poptorch.DataLoader(opts, Increment(SHAPE, 100), { batch_size = batch,
        shuffle = true, num_workers = workers, mode = Mode.Async })
      local own, n = {}, 0
      seen(loader, function(i)
        assert.is_nil(own[i])
        own[i], total[i], n = true, true, n + 1
      end)
      assert.equal(batch * (100 // (batch * hosts)), n)
      for _ = 1, 5 do -- what was left over comes, too; the original's seed needs one
        seen(loader, function(i) total[i] = true end)
      end
    end
    for i = 0, 99 do
      assert.is_true(total[i])
    end
  end

  it("test_shuffle_subdataset", function() shuffled(4, 3, 0) end)
  it("test_shuffle_subdataset2", function() shuffled(2, 2, 3) end)

  it("test_global_shuffle_each_epoch", function()
    for processes = 2, 5 do
      for _, workers in ipairs({ 0, 1, 3 }) do
        for id = 0, processes - 1 do
          local opts = options():randomSeed(0)
          opts.Distributed:configureProcessId(id, processes)
          local loader = poptorch.DataLoader(opts, Increment({}, 100), { batch_size = 16,
            shuffle = true, num_workers = workers })
          local epochs = {}
          for _ = 1, 5 do
            local epoch = {}
            for x in loader do
              table.move(x:tolist(), 1, x:size(0), #epoch + 1, epoch)
            end
            table.sort(epoch)
            local key = table.concat(epoch, " ")
            assert.is_nil(epochs[key])
            epochs[key] = true
          end
        end
      end
    end
  end)
end)

describe("loops as the original", function()
  it("test_interrupt_async_loader", function()
    local loader = poptorch.DataLoader(options(), Increment(SHAPE, 100), { num_workers = 1,
      mode = Mode.Async })
    assert.equal(100, #loader)
    assert.is_truthy(loader())
  end)

  it("test_single_epoch", function()
    local loader = poptorch.DataLoader(options(), Increment(SHAPE, 100), { num_workers = 32,
      mode = Mode.Async })
    assert.same({ 100, 100 }, { #loader, count(loader) })
    loader:terminate()
  end)

  it("test_iterable_dataset", function()
    local a = poptorch.AsynchronousDataAccessor(Unsized(SHAPE, 100))
    assert.same({ 100, 100 }, { count(a), count(a) })
  end)

  it("test_iterable_dataloader", function()
    local loader = poptorch.DataLoader(options(), Unsized(SHAPE, 100), { num_workers = 1,
      mode = Mode.Async })
    assert.same({ 1, 2, 3 }, { table.unpack(loader().shape) })
    assert.same({ 100, 100 }, { count(loader), count(loader) })
  end)

  it("test_iterable_dataloader_reset", function()
    for _, persistent in ipairs({ true, false }) do
      local loader = poptorch.DataLoader(options(), Increment(SHAPE, 10), { num_workers = 1,
        persistent_workers = persistent, mode = Mode.Async })
      for _, last in ipairs({ 4, 9 }) do
        local n = 0
        for x in loader do
          assert.equal(n, x[0][0][0]:item())
          if n == last then
            break
          end
          n = n + 1
        end
        assert.equal(last, n)
      end
    end
  end)

  -- The original counts the buffers that are full; here the samples that were
  -- read tell them, one of which is ahead of the ring.
  it("test_early_preload", function()
    for _, early in ipairs({ true, false }) do
      local path = os.tmpname()
      local set = Increment(SHAPE, 10)
      local function get(self, i)
        local f = assert(io.open(path, "a"))
        f:write("x")
        f:close()
        return Increment.__getitem__(self, i)
      end
      rawset(set, "__getitem__", get)
      local loader = poptorch.DataLoader(options(), set, { mode = Mode.Async,
        async_options = { early_preload = early, buffer_size = 5 } })
      local want, size = early and 6 or 1, 0
      for _ = 1, 3000 do
        local f = assert(io.open(path))
        size = #f:read("a")
        f:close()
        if size >= want then
          break
        end
        os.execute("sleep 0.01")
      end
      assert.equal(want, size)
      loader:terminate()
      os.remove(path)
    end
  end)

  it("test_batch_size_None", function()
    local loader = poptorch.DataLoader(options(), Unsized(SHAPE, 10), { batch_size = torch.none,
      drop_last = false, num_workers = 1, mode = Mode.Async })
    assert.same(SHAPE, { table.unpack(loader().shape) })
    assert.same({ 10, 10 }, { count(loader), count(loader) })
  end)

  it("test_iterable_dataset_len", function()
    local extra = { batch_size = torch.none, drop_last = false, num_workers = 1, mode = Mode.Async }
    helper.raises("TypeError", "'Unsized' has no __len__", function()
      return #poptorch.DataLoader(options(), Unsized(SHAPE, 10), extra)
    end)
    assert.equal(10, #poptorch.DataLoader(options(), Sized(SHAPE, 10), extra))
  end)

  it("test_reuse_workers", function()
    for _, Set in ipairs({ Increment, Unsized }) do
      for _, dtype in ipairs({ torch.float32, torch.float16 }) do
        local want = Set == Increment and 10 or 20 -- each worker reads all
        for _, reuse in ipairs({ true, false }) do
          local loader = poptorch.DataLoader(options(), Set(SHAPE, 10, dtype), { num_workers = 2,
            mode = Mode.Async, persistent_workers = reuse })
          for _ = 1, 4 do
            assert.equal(want, count(loader))
          end
        end
      end
    end
  end)
end)

describe("failures as the original", function()
  local Broken = Increment:extend("Broken")

  function Broken.__getitem__()
    error("Broken dataset")
  end

  it("test_broken_dataset", function()
    local loader = poptorch.DataLoader(options(), Broken(SHAPE, 100), { num_workers = 32 })
    helper.raises("Error", "worker failed to start.*Broken dataset", function()
      poptorch.AsynchronousDataAccessor(loader)
    end)
  end)

  -- The original runs the two tests above in a process of their own.
  local function script(lines)
    local path = program.temporary(([[
      local torch, poptorch = require("torch"), require("poptorch")
      local D = torch.utils.data
      local Set = D.Dataset:extend("Set")
      function Set:__len__() return 100 end
      %s
    ]]):format(lines))
    local out, err, code = program.run({ path })
    os.remove(path)
    return out, err, code
  end

  it("test_subprocess_async_loader", function()
    local out, err, code = script([[
      function Set:__getitem__(i) return torch.full({ 2, 3 }, i) end
      local n = 0
      for _ in poptorch.DataLoader(poptorch.Options(), Set(), { num_workers = 32,
          mode = poptorch.DataLoaderMode.Async }) do n = n + 1 end
      print(n)]])
    assert.same({ "100\n", "", 0 }, { out, err, code })
  end)

  it("test_subprocess_broken_dataset", function()
    local _, err, code = script([[
      function Set.__getitem__() assert(false, "Broken dataset") end
      poptorch.AsynchronousDataAccessor(poptorch.DataLoader(poptorch.Options(), Set(),
        { num_workers = 32 }))]])
    assert.matches("Broken dataset", err)
    assert.equal(1, code)
  end)

  it("test_KeyboardInterrupt_in_async_data_accessor", function()
    for _, iterate in ipairs({ "true", "false" }) do
      local path = program.temporary(([[
        local torch, poptorch = require("torch"), require("poptorch")
        local set = torch.utils.data.TensorDataset(torch.randn({ 100, 1, 128, 128 }),
          torch.zeros({ 100 }))
        local loader = poptorch.DataLoader(poptorch.Options():deviceIterations(2), set, {
          batch_size = 16, shuffle = true, num_workers = 2, mode = poptorch.DataLoaderMode.Async })
        if %s then for _ in loader do end end
        print("[control] waits")
        io.stdout:flush()
        print("[control] ended:", pcall(function() while true do end end))
      ]]):format(iterate))
      local log = program.temporary()
      local out = program.shell(([[
        POPTORCH_LOG_LEVEL=DEBUG %s %s >%s 2>&1 & pid=$!
        until grep -q waits %s; do sleep 0.01; done
        kill -INT $(sed -n 's/.*Accessor worker process: \([0-9]*\).*/\1/p' %s)
        kill -INT $pid
        wait $pid
        cat %s]]):format(program.host, path, log, log, log, log))
      os.remove(path)
      os.remove(log)
      assert.matches("%[control%] ended:%s+false%s+[^\n]*KeyboardInterrupt", out)
      for line in out:gmatch("[^\n]+") do
        assert.is_truthy(line:find("debug", 1, true) or line:find("[control]", 1, true), line)
      end
    end
  end)
end)
