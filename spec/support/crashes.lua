--- Trainings that are killed, or whose system calls fail, while they save: what is left
--- must be the old or the new checkpoint, and going on must give the bits of the training
--- that nobody disturbed. Specs try some of it, spec/stress/checkpoint.lua all.
local checkpoint = require("lupine.checkpoint")
local core = require("lupine.core")
local program = require("spec.support.program")
local resumable = require("spec.support.resumable")
local torch = require("torch")

local M = { BEGIN = "/lupine-save-begins", END = "/lupine-save-ends" }

function M.training()
  torch.manual_seed(7)
  math.randomseed(7)
  return resumable.kinds["eager adam"](0)
end

-- Losses of the undisturbed training, as many as were needed so far.
local reference
local losses = {}

local function loss_of(n)
  reference = reference or M.training()
  if n > #losses then
    local state = { torch.get_rng_state(), core.lua_random() }
    if reference.random then
      torch.set_rng_state(reference.random[1])
      core.lua_random(reference.random[2])
    end
    for k, loss in pairs(resumable.train(reference, n)) do
      losses[k] = loss
    end
    reference.n, reference.random = n, { torch.get_rng_state(), core.lua_random() }
    reference.objects.loader:load_state_dict(reference.objects.loader:state_dict())
    torch.set_rng_state(state[1])
    core.lua_random(state[2])
  end
  return losses[n]
end

--- The folder with checkpoints of the first `steps` steps, of which `keep` stay.
function M.fill(root, steps, keep)
  local r = M.training()
  local manager = checkpoint.Manager(root, { keep = keep })
  resumable.train(r, steps, function(n)
    r.objects.n = n
    manager:save(n, r.objects)
  end)
end

--- What is wrong with what is left in a folder, nil for nothing: its latest checkpoint
--- must be of step `least` or later (0: there may be none), every one whole, and going on
--- must give the right loss.
function M.wrong(root, least)
  local manager = checkpoint.Manager(root)
  local entries = manager:list()
  local folders = core.is_folder(root) and #core.list_folder(root) or 0
  if #entries ~= folders then
    return ("%d folders, %d whole checkpoints"):format(folders, #entries)
  elseif #entries == 0 then
    return least > 0 and "no checkpoint" or nil
  end
  for _, entry in ipairs(entries) do
    checkpoint.load(entry.path)
  end
  local r = M.training()
  r.n = manager:restore_latest(r.objects).n
  if r.n < least then
    return ("step %d was saved, the latest is %d"):format(least, r.n)
  end
  local n = r.n + 1
  if resumable.train(r, n)[n] ~= loss_of(n) then
    return ("going on from step %d gives another loss"):format(r.n)
  end
end

--- Runs the saver behind a command; the last step that it told to be saved, what it
--- printed as errors, its exit code.
function M.save(command, root, steps, keep)
  local out, err, code = program.shell(("OMP_NUM_THREADS=1 %s %s spec/support/saver.lua %s %d %d")
    :format(command, program.host, root, steps, keep))
  local last = 0
  for n in out:gmatch("saved (%d+)\n") do
    last = math.tointeger(n)
  end
  return last, err, code
end

-- The search for leaks of sanitizers cannot work where another process looks on.
local STRACE = "strace -f -E ASAN_OPTIONS=detect_leaks=0 -o "

--- The system calls of a save as {name, number among those of its name}, in order.
function M.calls(root)
  local path = os.tmpname()
  M.save(STRACE .. path, root, 1, 2)
  local list, count, inside = {}, {}, false
  for line in io.lines(path) do
    local name = line:match("^%d+ +([%w_]+)%(")
    if line:find(M.END, 1, true) then
      break
    elseif name then
      count[name] = (count[name] or 0) + 1
      if inside then
        list[#list + 1] = { name, count[name] }
      end
      inside = inside or line:find(M.BEGIN, 1, true) ~= nil
    end
  end
  os.remove(path)
  return list
end

--- The renames of a save, in order: {from, to, before = from was synced since it was
--- written or filled, after = the folder around was synced before the next rename}.
function M.renames(root)
  local path = os.tmpname()
  M.save("strace -y -e trace=fsync,rename,openat" .. STRACE:match(" %-f.*$") .. path, root, 1, 2)
  local list, synced = {}, {}
  for line in io.lines(path) do
    local from, to = line:match('rename%("(.-)", "(.-)"%)')
    local name = line:match("fsync%(%d+<(.-)>%)")
    local written = line:match('openat%(.-, "(.-)", [%w_|]*O_CREAT')
    if from then
      list[#list + 1] = { from, to, before = synced[from] == true, after = false }
    elseif name then
      synced[name] = true
      local last = list[#list]
      if last then
        last.after = last.after or name == last[2]:match("^(.*)/")
      end
    elseif written then -- and so is the folder that it is made in
      synced[written], synced[written:match("^(.*)/") or "."] = nil, nil
    end
  end
  os.remove(path)
  return list
end

local function copy_of(root)
  local path = os.tmpname()
  os.remove(path)
  program.shell(("cp -a %s %s"):format(root, path))
  return path
end

-- Whether the next writer leaves anything of the one before.
local function left_over(root)
  core.new_folder(root):close()
  return program.shell("find " .. root .. " -name '*tmp*'") ~= ""
end

--- Kills a save of `root` (a copy of it) at a system call, or lets the call fail with
--- `failure`. Returns what is wrong afterwards, and whether the save noticed.
function M.strike(root, call, failure, before)
  local path = copy_of(root)
  local how = failure and "error=" .. failure or "signal=KILL"
  local last, err, code = M.save(("%s/dev/null -e trace=%s -e inject=%s:%s:when=%d"):format(STRACE,
    call[1], call[1], how, call[2]), path, 1, 2)
  local wrong = M.wrong(path, math.max(last, before))
  if not wrong and failure and code ~= 0 and not err:find("Error", 1, true) then
    wrong = "no clear error: " .. err
  elseif not wrong and left_over(path) then
    wrong = "something is left over"
  end
  program.shell("rm -rf " .. path)
  return wrong and ("%s %d %s: %s"):format(call[1], call[2], how, wrong), code ~= 0
end

-- Calls that give no such errors.
local CANNOT = { brk = true, getpid = true, gettid = true }

--- Strikes every `stride`-th system call of a save, the first one being number `first`, of
--- those that `only` has, if it is given. Returns what is wrong, a list, how many saves
--- noticed, and how many calls were struck.
function M.strike_all(stride, first, failure, only)
  local root = os.tmpname()
  os.remove(root)
  M.fill(root, 3, 2)
  local copy = copy_of(root)
  local wrong, noticed, struck = {}, 0, 0
  local calls = {}
  for _, call in ipairs(M.calls(copy)) do
    local name = call[1]
    if not (failure and CANNOT[name]) and (not only or only[name]) then
      calls[#calls + 1] = call
    end
  end
  for i = first, #calls, stride do
    local fault, was_noticed = M.strike(root, calls[i], failure, 3)
    wrong[#wrong + 1] = fault
    noticed, struck = noticed + (was_noticed and 1 or 0), struck + 1
  end
  program.shell(("rm -rf %s %s"):format(root, copy))
  return wrong, noticed, struck
end

--- Kills a training that saves all the time `count` times, at times drawn from `draw(0, 1)`.
--- Returns what is wrong, and the last step that was reached.
function M.kill_at_random(count, draw)
  local root = os.tmpname()
  os.remove(root)
  local started = core.host.clock()
  local reached = M.save("", root, 1, 2)
  local start_up = core.host.clock() - started
  local wrong = {}
  for k = 1, count do
    local last = M.save(("timeout -s KILL %.4f"):format(start_up * (0.7 + draw())), root, 1000, 2)
    reached = math.max(reached, last)
    local fault = M.wrong(root, reached)
    wrong[#wrong + 1] = fault and ("kill %d: %s"):format(k, fault)
  end
  program.shell("rm -rf " .. root)
  return wrong, reached
end

--- `count` processes save into one folder, each `steps` times, of which every third is
--- killed and started again. Returns what is wrong.
function M.together(count, steps)
  local root = os.tmpname()
  os.remove(root)
  local running, wrong = {}, {}
  for i = 1, count do
    local one = ("%s spec/support/saver.lua %s %d 3"):format(program.host, root, steps)
    local killed = i % 3 == 0 and ("timeout -s KILL 0.3 %s; "):format(one) or ""
    running[i] = io.popen(("export OMP_NUM_THREADS=1 LUPINE_LOG_LEVEL=warn; (%s%s) 2>&1; "
      .. "echo code $?"):format(killed, one))
  end
  for _, p in ipairs(running) do
    local out = p:read("a")
    p:close()
    local fine = out:find("code 0\n", 1, true) and not out:find("%[lupine:warn%]")
    wrong[#wrong + 1] = not fine and out:gsub("saved %d+\n", "") or nil
  end
  M.save("", root, 1, 3) -- alone: of several each keeps what it has just saved
  local entries = checkpoint.Manager(root):list()
  wrong[#wrong + 1] = #entries ~= 3 and ("%d checkpoints are left"):format(#entries) or nil
  wrong[#wrong + 1] = M.wrong(root, steps)
  program.shell("rm -rf " .. root)
  return wrong
end

return M
