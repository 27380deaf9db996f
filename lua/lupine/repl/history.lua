--- The history of entries: a text file with an entry a line; the further lines
--- of an entry start with a tab. Each entry is appended at once, so several
--- sessions share the file and a killed one loses nothing.
local M = {}

local History = {}
History.__index = History

local function path_of(terminal)
  local state = os.getenv("XDG_STATE_HOME")
  if state and state:sub(1, 1) == "/" then
    return state .. "/lupine/history"
  end
  local home = os.getenv("HOME")
  if not home or home == "" then
    return nil, "HOME is not set"
  elseif #terminal.files(home .. "/.local/state") > 0 then
    return home .. "/.local/state/lupine/history"
  end
  return home .. "/.lupine_history"
end

-- From now on entries are remembered for this session alone.
local function give_up(history, message)
  io.stderr:write("lupine: history is not kept: ", message, "\n")
  history.path = nil
end

local function read(history)
  local entry
  for line in io.lines(history.path) do
    if line:sub(1, 1) == "\t" and entry then
      entry = entry .. "\n" .. line:sub(2)
    else
      if entry then
        history.terminal.remember(entry)
      end
      entry = line
    end
  end
  if entry then
    history.terminal.remember(entry)
  end
end

--- Offers what the file holds to the editor.
---@param terminal table the host's
---@return table history with add(text)
function M.open(terminal)
  local history = setmetatable({ terminal = terminal }, History)
  local path, message = path_of(terminal)
  local ok = path and true
  if path then
    ok, message = terminal.private_file(path)
  end
  if ok then
    history.path = path
    ok, message = pcall(read, history)
  end
  if not ok then
    give_up(history, message)
  end
  return history
end

-- One write: sessions do not mix within an entry.
local function append(path, text)
  local f, message = io.open(path, "a")
  if not f then
    return nil, message
  end
  f:setvbuf("full", #text + 1)
  local ok
  ok, message = f:write(text)
  if ok then
    return f:close()
  end
  f:close()
  return nil, message
end

--- Adds an entry, for this session and later ones.
---@param text string
function History:add(text)
  text = text:gsub("^%s+", ""):gsub("%s+$", "")
  if text == "" then
    return
  end
  self.terminal.remember(text)
  if self.path then
    local ok, message = append(self.path, text:gsub("\n", "\n\t") .. "\n")
    if not ok then
      give_up(self, message)
    end
  end
end

return M
