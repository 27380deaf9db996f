--- Where a model that says nothing about IPUs can be cut into the stages of a pipeline,
--- and which cuts are best: each is tried on the completed step by the simulated system,
--- without another trace.
---
--- A cut stands where a module is called that is called once, as a block of a module
--- does (poptorch.BeginBlock). What stands before the first cut is on
--- IPU 0, what follows cut k on IPU k; backward operators are with the forward ones that
--- they come from, by module, line and what was called before. The figures are those of the
--- model with such blocks, but where rewriting joined operators over a place that is a cut
--- there (a max pool and the ReLU before it, products of a vector with one matrix after
--- another).
---
--- The search starts where the slowest stage by the operators' own cycles is as fast as
--- can be, and at an equal split, and moves cuts while that helps: each by itself, then from
--- the best of that several neighbours together. What counts, in order:
--- how much too large it is for the memory that there is, samples a second.
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local memory = require("lupine.report.memory")
local variants = require("lupine.plan.variants")

local M = {}

---@class lupine.plan.Cuts
---@field names string[] modules that a cut can stand before, in the order of their calls;
---  at 0 the one that forward begins with, if any
---@field step lupine.Step
---@field system table core.plan's options
local Cuts = class.new("Cuts")

-- No stage of the placement: such a backward operator goes where what it reads is.
local NOWHERE = 30000

-- ---- places of the model ------------------------------------------------------------

-- "a/b/c" -> "a", "a/b", "a/b/c".
local function prefixes(scope)
  local out = {}
  for at in (scope .. "/"):gmatch("()/") do
    out[#out + 1] = scope:sub(1, at - 1)
  end
  return out
end

local function has_prefix(scope, prefix)
  return scope == prefix or scope:sub(1, #prefix + 1) == prefix .. "/"
end

-- How often each module is called: runs of operators inside of it.
local function calls_of(forward)
  local calls, last = {}, ""
  for _, node in ipairs(forward) do
    for _, prefix in ipairs(node.scope ~= "" and prefixes(node.scope) or {}) do
      if not has_prefix(last, prefix) then
        calls[prefix] = (calls[prefix] or 0) + 1
      end
    end
    last = node.scope
  end
  return calls
end

-- The module that a cut at this operator would stand before: the outermost one that
-- begins there and is called once. A list of modules need not be called itself, but what
-- it numbers is ("layers" -> "layers/0").
local function beginning(node, last, calls)
  local all = node.scope ~= "" and prefixes(node.scope) or {}
  for k, prefix in ipairs(all) do
    if not has_prefix(last, prefix) and calls[prefix] == 1 then
      local numbered = all[k + 1] and all[k + 1]:find("/%d+$") and calls[all[k + 1]] == 1
      return numbered and all[k + 1] or prefix
    end
  end
  return nil
end

local function find_boundaries(self, forward)
  local calls, last = calls_of(forward), ""
  for i, node in ipairs(forward) do
    local name = beginning(node, last, calls)
    if i == 1 then
      self.names[0] = name
    elseif name then
      self.names[#self.names + 1], self._at[#self._at + 1] = name, i
    end
    last = node.scope
  end
end

-- What an operator has in common with the backward ones that come from it, and with no
-- operator before or behind a place where a cut can be.
local function key_of(self, node)
  return ("%s\0%s\0%d\0%d"):format(node.scope, node.file, node.line,
    self._entered[node.node + 1])
end

-- Cycles of the units: what stands between two places where a cut can be, forward and
-- with all that comes of it backward.
local function find_costs(self, nodes, forward)
  local unit, first = 0, {}
  for i, node in ipairs(forward) do
    while self._at[unit + 1] and self._at[unit + 1] <= i do
      unit = unit + 1
    end
    self._unit[node.node] = unit
    self._forward[unit] = (self._forward[unit] or 0) + node.cycles
    local key = key_of(self, node)
    self._units_of[key] = self._units_of[key] or {}
    self._units_of[key][unit] = true
    first[key] = first[key] or unit
  end
  for _, node in ipairs(nodes) do
    if node.backward then
      local at = first[key_of(self, node)] or 0
      self._backward[at] = (self._backward[at] or 0) + node.cycles
    end
  end
end

---@param step lupine.Step a complete one
---@param system? table core.plan's options
function Cuts:init(step, system)
  self.step, self.system = step, class.copy(system or {})
  self.system.allow_out_of_memory = true
  variants.pipeline(self.system)
  self.names, self._at, self._unit, self._units_of = {}, {}, {}, {}
  self._forward, self._backward, self._seen, self.tried = {}, {}, {}, 0
  self._entered = step:entered()
  local nodes, forward = {}, {}
  for _, node in ipairs(core.plan(step, self.system, { places = self:_alone() }):nodes()) do
    if not node.update then
      nodes[#nodes + 1] = node
      forward[#forward + 1] = not node.backward and node or nil
    end
  end
  self._nodes = nodes
  find_boundaries(self, forward)
  find_costs(self, nodes, forward)
end

-- All on one IPU.
function Cuts:_alone()
  local out = {}
  for i = 1, #self.step:places() do
    out[i] = { ipu = 0, stage = 0, phase = 0 }
  end
  return out
end

-- The stage of each unit, from 0 on.
local function stages_of(self, cuts)
  local out, k = {}, 0
  for unit = 0, #self._at do
    if cuts[k + 1] and cuts[k + 1] <= unit then
      k = k + 1
    end
    out[unit] = k
  end
  return out
end

--- The placement of core.plan for cuts before the boundaries of these numbers, which
--- ascend.
---@param cuts integer[]
---@return table
function Cuts:placement(cuts)
  local stage_of, places, list = stages_of(self, cuts), {}, {}
  for k = 0, #cuts do
    places[k] = { ipu = k, stage = k, phase = 0 }
  end
  local nowhere, by_key = { ipu = 0, stage = NOWHERE, phase = 0 }, {}
  for key, units in pairs(self._units_of) do
    for unit in pairs(units) do
      local place = places[stage_of[unit]]
      by_key[key] = (by_key[key] or place) == place and place or nowhere
    end
  end
  for i, node in ipairs(self._nodes) do
    list[i] = node.backward and (by_key[key_of(self, node)] or nowhere)
      or places[stage_of[self._unit[node.node]]]
  end
  return { nodes = list }
end

-- ---- trying ---------------------------------------------------------------------------

--- Is one variant better than the other? Figures of Cuts:figures.
---@param a table
---@param b? table
---@return boolean
function M.better(a, b)
  if not b or a.overflow ~= b.overflow then
    return not b or a.overflow < b.overflow
  end
  return a.samples_per_second > b.samples_per_second
end

--- The plan of a variant: cuts, and options of core.plan in place of the step's; nil and
--- why not, if the strategy refuses it.
---@param cuts integer[]
---@param changes? table
---@return userdata? plan
---@return any error
function Cuts:plan(cuts, changes)
  local system = class.copy(self.system)
  for key, value in pairs(changes or {}) do
    system[key] = value
  end
  self.tried = self.tried + 1
  local ok, got = errors.try(core.plan, self.step, system, self:placement(cuts))
  return ok and got or nil, not ok and got or nil
end

--- The figures of a variant, once each: those of the report, `overflow`, `cuts`.
---@param cuts integer[]
---@param changes? table with a name of its own as `key`
---@return table? figures
---@return any error
function Cuts:figures(cuts, changes)
  local key = ("%s %s"):format(table.concat(cuts, " "), changes and changes.key or "")
  local seen = self._seen[key]
  if not seen then
    local options = changes and class.copy(changes) or {}
    options.key = nil
    local plan, e = self:plan(cuts, options)
    seen = { figures = plan and plan:report(), error = e }
    if plan then
      seen.figures.overflow = memory.fits(seen.figures) and 0 or memory.most(seen.figures)
      seen.figures.cuts = cuts
    end
    self._seen[key] = seen
  end
  return seen.figures, seen.error
end

-- ---- searching --------------------------------------------------------------------------

-- Cuts into at most n stretches of at most `limit` cycles each; nil if they need more.
local function cut_by(costs, last, n, limit)
  local cuts, sum = {}, 0
  for unit = 0, last do
    local cost = costs(unit)
    if sum + cost > limit and sum > 0 then
      cuts[#cuts + 1], sum = unit, 0
    end
    sum = sum + cost
    if sum > limit or #cuts >= n then
      return nil
    end
  end
  return cuts
end

-- Where there are fewer cuts than wanted, others where there is none yet.
local function filled(cuts, n, last)
  local has = {}
  for _, at in ipairs(cuts) do
    has[at] = true
  end
  for unit = last, 1, -1 do
    if #cuts < n - 1 and not has[unit] then
      cuts[#cuts + 1] = unit
    end
  end
  table.sort(cuts)
  return cuts
end

-- The slowest stretch as fast as can be.
local function balanced(costs, last, n)
  local low, high = 0, 0
  for unit = 0, last do
    low, high = math.max(low, costs(unit)), high + costs(unit)
  end
  while high - low > 1 do
    local middle = (low + high) // 2
    if cut_by(costs, last, n, middle) then
      high = middle
    else
      low = middle
    end
  end
  return filled(cut_by(costs, last, n, high), n, last)
end

-- Numbers of the longest row of modules that differ in their number alone ("layers/0",
-- "layers/1", …).
local function longest_row(names)
  local rows, longest = {}, {}
  for i = 0, #names do
    local of = names[i] and names[i]:match("^(.-)%d+$")
    if of then
      rows[of] = rows[of] or {}
      table.insert(rows[of], i)
      longest = #rows[of] > #longest and rows[of] or longest
    end
  end
  return longest
end

--- An equal split by layers, or where the model has no row of so many, of all places where
--- a cut can be.
---@param n integer stages
---@return integer[] cuts
function Cuts:equal(n)
  local row, cuts = longest_row(self.names), {}
  for k = 1, n - 1 do
    cuts[k] = #row >= n and row[#row * k // n + 1] or (#self.names + 1) * k // n
  end
  return cuts
end

local STEPS = { 1, -1, 2, -2, 4, -4, 8, -8 }

-- The cuts with those from the first to the last of some neighbours moved; nil if that
-- passes another.
local function moved(cuts, first, last, by, places)
  if cuts[first] + by <= (cuts[first - 1] or 0)
      or cuts[last] + by >= (cuts[last + 1] or places + 1) then
    return nil
  end
  local out = table.move(cuts, 1, #cuts, 1, {})
  for k = first, last do
    out[k] = out[k] + by
  end
  return out
end

-- Moves so many neighbours after others, each of them once by each step.
local function move_all(self, cuts, best, changes, stop, together)
  local improved = false
  for first = 1, #cuts - together + 1 do
    for _, by in ipairs(STEPS) do
      local other = self.tried < stop and moved(best and best.cuts or cuts, first,
        first + together - 1, by, #self.names)
      local figures = other and self:figures(other, changes)
      if figures and M.better(figures, best) then
        best, improved = figures, true
      end
    end
  end
  return best, improved
end

-- Moves cuts, up to `most` neighbours together, as long as that helps and tries are left.
local function climb(self, cuts, changes, tries, most)
  local best, e = self:figures(cuts, changes)
  local together, stop = 1, self.tried + tries
  while together <= most and self.tried < stop do
    local found, improved = move_all(self, cuts, best, changes, stop, together)
    best, together = found, improved and 1 or together + 1
  end
  return best, e
end

--- The best cuts into n stages that are found.
--- error: poptorch.Error if the model has fewer places to cut, or none of the cuts tried is
--- one that the pipeline can run; then with the reason of the last
---@param n integer stages
---@param changes? table as for figures
---@param tries? integer of simulations (200)
---@return table figures
function Cuts:search(n, changes, tries)
  errors.check(n >= 1, "Error", "expected 1 or more IPUs, got %d", n)
  errors.check(#self.names >= n - 1, "Error",
    "the model cannot be cut into %d stages: it has %d places where a module begins that is "
    .. "called once", n, #self.names)
  local function whole(unit)
    return (self._forward[unit] or 0) * 2 + (self._backward[unit] or 0)
  end
  local function once(unit)
    return (self._forward[unit] or 0) + (self._backward[unit] or 0)
  end
  local starts, best, reason = n > 1 and { balanced(whole, #self.names, n),
    balanced(once, #self.names, n), self:equal(n) } or { {} }, nil, nil
  tries = tries or 200
  local stop = self.tried + tries
  for _, cuts in ipairs(starts) do
    local found, e = climb(self, cuts, changes, tries // #starts, 1)
    reason = e or reason
    if found and M.better(found, best) then
      best = found
    end
  end
  return best and climb(self, best.cuts, changes, stop - self.tried, n - 1) or error(reason, 0)
end

M.Cuts = Cuts

return M
