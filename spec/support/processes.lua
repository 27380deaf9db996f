--- Processes of specs: which there are, what memory of theirs is left.
local M = {}

local function read(path)
  local f = io.open(path)
  local text = f and f:read("a")
  if f then
    f:close()
  end
  return text
end

--- This process's number.
M.pid = math.tointeger(assert(io.open("/proc/self/stat")):read("n"))

--- Children of this process that are there, living or not yet waited for.
function M.list(of)
  of = of or M.pid
  local out = {}
  local text = read(("/proc/%d/task/%d/children"):format(of, of)) or ""
  for pid in text:gmatch("%d+") do
    out[#out + 1] = math.tointeger(pid)
  end
  return out
end

function M.children()
  return #M.list()
end

--- The same after what is garbage has been collected.
function M.settled()
  collectgarbage()
  collectgarbage()
  return M.children()
end

--- Whether a process ends, by and by; one that does not is killed.
function M.gone(pid)
  for _ = 1, 2000 do
    local stat = read("/proc/" .. pid .. "/stat")
    if not stat or stat:find(") Z", 1, true) then
      return true
    end
    os.execute("sleep 0.01")
  end
  os.execute("kill -9 " .. pid)
  return false
end

--- Mappings of memory that this process shares with loaders' processes.
function M.mappings()
  local n = 0
  for _ in read("/proc/self/maps"):gmatch("/memfd:lupine") do
    n = n + 1
  end
  return n
end

--- Channels and files of memory that this process has open.
function M.open()
  local p = io.popen(("ls -l /proc/%d/fd | grep -c 'socket:\\|memfd:\\|pidfd'"):format(M.pid))
  local n = p:read("n")
  p:close()
  return n
end

--- All files but pipes (popen's own come and go) that the process which calls this
--- has open; those of garbage are closed before. What popen closes while ls looks has no
--- target there.
function M.count_files()
  collectgarbage()
  collectgarbage()
  local p = io.popen("ls -l /proc/$PPID/fd 2>/dev/null | grep -e '->' | grep -vc pipe:")
  local n = p:read("n")
  p:close()
  return n
end

--- The names in /dev/shm.
function M.named()
  local p = io.popen("ls -A /dev/shm 2>/dev/null")
  local names = p:read("a")
  p:close()
  return names
end

return M
