--- Loaders that are stopped somewhere and go on elsewhere, for specs of resuming.
local torch = require("torch")

local M = {}

--- Pictures with noise that torch and Lua draw while a sample is read.
local Noisy = torch.utils.data.Dataset:extend("Noisy")
M.Noisy = Noisy

function Noisy:init(n)
  self.n, self.read = n, 0
end

function Noisy:__getitem__(i)
  self.read = self.read + 1
  return i + torch.rand({ 2 }) + math.random(), torch.tensor({ i })
end

function Noisy:__len__()
  return self.n
end

--- The same as a stream.
local Stream = torch.utils.data.IterableDataset:extend("Stream")
M.Stream = Stream

function Stream:init(n)
  self.n = n
end

function Stream:__iter__()
  local i = -1
  return function()
    i = i + 1
    if i < self.n then
      return { i + torch.rand({ 2 }) + math.random(), torch.tensor({ i }) }
    end
  end
end

--- A sampler that draws while it is asked, between whatever else draws.
local Lazy = torch.utils.data.Sampler:extend("Lazy")
M.Lazy = Lazy

function Lazy:init(n)
  self.n = n
end

function Lazy:__iter__()
  local i = 0
  return function()
    i = i + 1
    if i <= self.n then
      return torch.randint(0, self.n, { 1 }):item()
    end
  end
end

function Lazy:__len__()
  return self.n
end

--- A batch as text, with all bits.
function M.text(...)
  local out = {}
  for i, t in ipairs({ ... }) do
    out[i] = t:tobytes():gsub(".", function(c)
      return ("%02x"):format(c:byte())
    end)
  end
  return table.concat(out, " ")
end

--- Reads `epochs` epochs as texts, the ends of epochs among them; `visit(n)` is called
--- when n of them are there, and may end it by returning true.
function M.read(loader, epochs, visit)
  local out = {}
  local function note(text)
    out[#out + 1] = text
    torch.rand({ 3 }) -- a model draws, too
    math.random()
    return visit and visit(#out)
  end
  for _ = 1, epochs do
    local step, state, control, guard = loader:iter()
    local _ <close> = guard
    while true do
      local values = table.pack(step(state, control))
      if values[1] == nil then
        break
      end
      if note(M.text(table.unpack(values))) then
        return out
      end
    end
    if note("end") then
      return out
    end
  end
  return out
end

--- A state as another process would have it.
function M.through_a_file(state)
  local path = os.tmpname()
  torch.save(state, path)
  local again = torch.load(path)
  os.remove(path)
  return again
end

local function seed(n)
  torch.manual_seed(n)
  math.randomseed(n)
end

local function close(loader)
  if loader.terminate then
    loader:terminate()
  end
end

--- Whether a loader of `make(first)` that is stopped after each number of `stops` (of
--- batches and ends of epochs) is gone on with by one of `make(second)`: the list of
--- stops where it is not. The random numbers of the process that goes on are set to
--- where they were, as a checkpoint does it.
function M.wrong_stops(make, first, second, epochs, stops)
  local wrong = {}
  seed(7)
  local loader = make(first)
  local all = M.read(loader, epochs)
  close(loader)
  for _, stop in ipairs(stops) do
    seed(7)
    loader = make(first)
    local state = loader:state_dict()
    local global, lua = torch.get_rng_state(), require("lupine.core").lua_random()
    local before, ends = {}, 0
    if stop > 0 then
      before = M.read(loader, epochs, function(n)
        if n == stop then
          state = M.through_a_file(loader:state_dict())
          global, lua = torch.get_rng_state(), require("lupine.core").lua_random()
        end
        return n == stop
      end)
    end
    close(loader)
    for _, text in ipairs(before) do
      ends = ends + (text == "end" and 1 or 0)
    end
    seed(99)
    loader = make(second)
    loader:load_state_dict(state)
    torch.set_rng_state(global)
    require("lupine.core").lua_random(lua)
    local after = M.read(loader, epochs - ends)
    close(loader)
    table.move(after, 1, #after, #before + 1, before)
    if table.concat(before, "\n") ~= table.concat(all, "\n") then
      wrong[#wrong + 1] = stop
    end
  end
  return wrong, #all
end

return M
