--- Where a run comes from: versions, machine, command line, and what git knows of the
--- folder in which the command was typed.
local core = require("lupine.core")

local M = {}

local function first_line(path)
  local file = io.open(path, "rb")
  if not file then
    return nil
  end
  local line <close> = file
  return line:read("l")
end

--- A text in UTF-8: names of files, words and messages may have any bytes.
---@param text string?
---@return string?
function M.clean(text)
  return text and (utf8.len(text) and text or (text:gsub("[\x80-\xff]", "?")))
end

local clean = M.clean

-- What a command of git prints; nil if it fails, as where git is not.
local function git(words)
  local pipe = io.popen("GIT_OPTIONAL_LOCKS=0 git --no-pager " .. words .. " 2>/dev/null", "r")
  local text = pipe and pipe:read("a")
  return pipe and pipe:close() and text or nil
end

local MOST_NAMES = 1000

--- The commit that the working tree is at, and how the tree differs from it.
---@return {commit: string, dirty: boolean, untracked: string[]}? facts nil: no repository
---@return string? diff of the tracked files
function M.git()
  local commit = git("rev-parse HEAD")
  if not commit then
    return nil
  end
  local diff = git("diff --no-ext-diff --no-textconv --binary HEAD") or ""
  local untracked = {}
  for name in (git("ls-files -z --others --exclude-standard --directory") or "")
    :gmatch("[^\0]+") do
    untracked[#untracked + 1] = #untracked < MOST_NAMES and clean(name) or nil
  end
  return { commit = commit:match("%x+"), dirty = diff ~= "" or #untracked > 0,
    untracked = require("lupine.base.tables").array(untracked) }, diff
end

local function words_of(path)
  local file = io.open(path, "rb")
  local words = {}
  if file then
    for word in file:read("a"):gmatch("([^\0]*)\0") do
      words[#words + 1] = clean(word)
    end
    file:close()
  end
  return require("lupine.base.tables").array(words)
end

--- When a process began, in the machine's own count: tells it from another that has
--- its number later. Nil: there is none.
---@param pid integer
---@return integer?
function M.began(pid)
  local line = first_line(("/proc/%d/stat"):format(pid))
  local rest = line and line:match("^.*%) (.*)$") -- the name may have spaces
  local n = 2
  for field in (rest or ""):gmatch("%S+") do
    n = n + 1
    if n == 22 then
      return math.tointeger(tonumber(field))
    end
  end
  return nil
end

--- This process, its machine and its versions.
---@return table
function M.facts()
  local process, cpu = core.host.process(), core.host.cpu()
  return {
    command = words_of("/proc/self/cmdline"), folder = clean(process.folder),
    pid = process.pid, began = M.began(process.pid), host = process.host,
    started = core.host.time(), date = os.date("!%Y-%m-%dT%H:%M:%SZ"),
    cpu = { name = cpu.name, simd = cpu.simd, threads = cpu.threads },
    versions = { lupine = core.version, lua = _VERSION, libraries = core.host.libraries(),
      system = first_line("/proc/sys/kernel/osrelease") },
  }
end

return M
