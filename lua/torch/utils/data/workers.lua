--- Worker processes of a DataLoader: forked, so that they have the dataset as it
--- is; each runs the tasks that the caller sends it, in order, and sends back
--- the batches in shared memory (src/io/worker.h).
---
--- Task k goes to worker k mod n and batches are taken in that order, so the
--- order never depends on how fast a worker is. Random numbers are seeded anew
--- for each batch: what a dataset draws (torch's and math.random's) depends on
--- the epoch and the batch's number alone. An iterable dataset is read by every
--- worker; get_worker_info tells it which part is its own.
--- Source: PyTorch 2.0 documentation, torch.utils.data.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local messages = require("torch.utils.data.messages")
local random = require("torch.utils.data.random")

local M = {}

local PREFETCH = 2 -- batches that a worker has ahead, unless asked otherwise
local MOST_WORKERS = 1024 -- each is a process

-- ---- arguments -------------------------------------------------------------

local function check_alone(a)
  for _, name in ipairs({ "prefetch_factor", "multiprocessing_context" }) do
    errors.check(check.is_none(a[name]), "ValueError",
      "DataLoader: %s: only allowed with num_workers > 0, got %s", name, check.describe(a[name]))
  end
  errors.check(not a.persistent_workers, "ValueError",
    "DataLoader: persistent_workers: needs num_workers > 0")
end

--- Checks the arguments that concern workers and sets the loader's fields.
---@param loader torch.utils.data.DataLoader
---@param a table<string, any> the loader's arguments
function M.setup(loader, a)
  loader.num_workers = check.int(a.num_workers or 0, "DataLoader: num_workers",
    { min = 0, max = MOST_WORKERS })
  loader.timeout = check.number(a.timeout or 0, "DataLoader: timeout", { min = 0 })
  loader.persistent_workers = check.bool(a.persistent_workers or false,
    "DataLoader: persistent_workers")
  if loader.num_workers == 0 then
    check_alone(a)
  end
  local context = a.multiprocessing_context
  errors.check(check.is_none(context) or context == "fork", "ValueError",
    "DataLoader: multiprocessing_context: expected \"fork\", got %s", check.describe(context))
  errors.check(check.is_none(a.worker_init_fn) or type(a.worker_init_fn) == "function",
    "TypeError", "DataLoader: worker_init_fn: expected a function, got %s",
    check.describe(a.worker_init_fn))
  loader.worker_init_fn = not check.is_none(a.worker_init_fn) and a.worker_init_fn or nil
  loader.prefetch_factor = check.int(a.prefetch_factor, "DataLoader: prefetch_factor",
    { nullable = true, min = 1, error = "ValueError" })
  if loader.num_workers > 0 then
    loader.prefetch_factor = loader.prefetch_factor or PREFETCH
  end
end

--- The seed of batch k of an epoch.
---@param seed integer of the epoch
---@param k integer from 0
---@return integer
function M.batch_seed(seed, k)
  return (seed + k) & math.maxinteger
end

-- ---- in a worker -----------------------------------------------------------

local info

--- In a worker process {id, num_workers, seed, dataset}; nil elsewhere.
---@return {id: integer, num_workers: integer, seed: integer, dataset: any}?
function M.get_worker_info()
  return info
end

local function main(loader, id, channel, seed)
  local stream
  local function work(task)
    if task.start then -- an epoch begins
      info.seed = (task.start + id) & math.maxinteger
      random.seed_all(info.seed)
      stream = loader._iterable and loader:_stream() or nil
      return nil
    elseif stream then
      return table.pack(stream())
    end
    random.seed_all(task.seed)
    return table.pack(loader:_run(task.samples))
  end
  info = { id = id, num_workers = loader.num_workers, seed = (seed + id) & math.maxinteger,
    dataset = loader.dataset }
  random.seed_all(info.seed)
  local ready, problem = true, nil
  if loader.worker_init_fn then
    ready, problem = xpcall(loader.worker_init_fn, messages.failure, id)
  end
  while true do
    local task = messages.receive(channel)
    if task == nil then
      return
    end
    local done, value = ready, problem
    if done then
      done, value = xpcall(work, messages.failure, task)
    end
    if not done then
      messages.send(channel, { error = value }, "DataLoader worker")
    elseif value then
      local sent, e = xpcall(messages.send, messages.failure, channel, { n = value.n,
        value = { table.unpack(value, 1, value.n) } }, "DataLoader: a batch of a worker")
      if not sent then
        messages.send(channel, { error = e }, "DataLoader worker")
      end
    end
  end
end

-- ---- in the caller ---------------------------------------------------------

---@class Pool
---@field channels table[]
---@field taken boolean an epoch is under way

local function close(pool, grace)
  for _, channel in ipairs(pool.channels) do
    channel:close(grace)
  end
  pool.channels = {}
end

local function open(loader, seed)
  local pool = { channels = {} }
  for id = 0, loader.num_workers - 1 do
    pool.channels[id + 1] = core.start_worker(function(channel)
      main(loader, id, channel, seed)
    end)
  end
  return pool
end

-- Nothing goes on after an error.
local function abandon(pool, loader)
  close(pool, 0)
  loader._pool = nil
end

-- The next message of worker `id`.
local function take(pool, loader, id)
  local channel = pool.channels[id + 1]
  local pid = channel:pid()
  local message, why = messages.receive(channel, loader.timeout > 0 and loader.timeout or nil)
  if message == nil then
    local text = why == "timeout"
      and ("DataLoader timed out after %g seconds, waiting for worker process %d (pid %d)"):format(
        loader.timeout, id, pid)
      or ("DataLoader worker process %d (pid %d) ended unexpectedly: %s"):format(id, pid,
        channel:cause())
    abandon(pool, loader)
    errors.raise("RuntimeError", "%s", text)
  elseif message.error then
    abandon(pool, loader)
    error(messages.error(message.error, ("DataLoader worker process %d"):format(id)), 0)
  end
  return message
end

local function pool_of(loader, seed)
  local pool = loader._pool
  local first = pool and not pool.taken and pool.channels[1]
  if first and first:pid() ~= 0 then -- another process's workers have no number here
    return pool
  end
  pool = open(loader, seed)
  if loader.persistent_workers then
    loader._pool = pool
  end
  return pool
end

-- Sends what a worker is to do next; false when there is nothing more. The first
-- task has the number `first`.
local function feeder(pool, seed, next_task, first)
  local k = first - 1
  return function(id)
    if not next_task then
      messages.send(pool.channels[id + 1], { next = true }, "DataLoader")
      return true
    end
    local samples = next_task()
    if samples == nil then
      return false
    end
    k = k + 1
    messages.send(pool.channels[id + 1], { samples = samples, seed = M.batch_seed(seed, k) },
      "DataLoader")
    return true
  end
end

-- A function that gives the values of the batches in order, the first one of worker
-- `first`.
local function batches(pool, loader, feed, first)
  local n, id, under_way = loader.num_workers, first - 1, {}
  local ended, left = {}, n
  for i = 0, n - 1 do
    under_way[i] = 0
  end
  for _ = 1, math.min(loader.prefetch_factor, messages.MOST_UNREAD) do
    for i = first, first + n - 1 do
      under_way[i % n] = under_way[i % n] + (feed(i % n) and 1 or 0)
    end
  end
  return function()
    while left > 0 do
      repeat
        id = (id + 1) % n
      until not ended[id]
      local message = under_way[id] > 0 and take(pool, loader, id)
      if message then
        under_way[id] = under_way[id] - 1
      end
      if message and message.n > 0 and message.value[1] ~= nil then
        under_way[id] = under_way[id] + (feed(id) and 1 or 0)
        return table.unpack(message.value, 1, message.n)
      end
      while under_way[id] > 0 do -- what an iterable dataset was asked in vain
        take(pool, loader, id)
        under_way[id] = under_way[id] - 1
      end
      ended[id], left = true, left - 1
    end
  end
end

-- Leaves out what an iterable dataset gives first.
local function skip(next_batch, n)
  for _ = 1, n do
    next_batch()
  end
end

--- One epoch: a function that gives the batches, and what a generic for closes.
---@param loader torch.utils.data.DataLoader
---@param seed integer of the epoch
---@param next_task? fun(): any nil for an iterable dataset
---@param first integer the number of the first batch
---@return fun(): any
---@return nil
---@return nil
---@return table? to be closed
function M.iterate(loader, seed, next_task, first)
  local pool = pool_of(loader, seed)
  pool.taken = true
  local next_batch
  local function finish(grace)
    if next_batch == nil then
      return
    end
    next_batch = nil
    pool.taken = false
    if loader._pool ~= pool then
      close(pool, grace)
    end
  end
  for _, channel in ipairs(pool.channels) do
    messages.send(channel, { start = seed }, "DataLoader")
  end
  local from = next_task and first or 0
  next_batch = batches(pool, loader, feeder(pool, seed, next_task, from),
    from % loader.num_workers)
  skip(next_batch, first - from)
  local function given(value, ...)
    if value == nil then
      finish(messages.GRACE)
    end
    return value, ...
  end
  local function step()
    if next_batch then
      return given(next_batch())
    end
  end
  -- Left early, a worker may be in the middle of a batch: it is not waited for.
  local guard = setmetatable({}, { __close = function()
    if loader._pool == pool and next_batch then
      loader._pool = nil
    end
    finish(0)
  end })
  return step, nil, nil, guard
end

return M
