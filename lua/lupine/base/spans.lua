--- Named spans of host time for lupine.profile. Code that a profile should
--- show brackets itself:
---
---     local _ <close> = spans.active and spans.open("data loading")
---
--- While no profile is taken that is one test.
local core = require("lupine.core")

local MOST = 50000 -- spans kept for the trace

local M = { active = false }

local Span = {}
Span.__index = Span

-- A span's own time is without what ran inside it: other spans, executors.
function Span:__close()
  local stop, run = core.profile_clock()
  local all = stop - self.start
  local ran = run - self.run
  local totals = M.totals[self.name]
  totals.calls = totals.calls + 1
  if not self.nested then
    totals.ns = totals.ns + all
  end
  totals.own_ns = totals.own_ns + all - ran - self.inside
  M.depth[self.name] = M.depth[self.name] - 1
  M.top = self.outer
  if self.outer then
    -- what executors did in here is in the outer span's `ran` as well
    self.outer.inside = self.outer.inside + all - ran
  end
  if #M.list < MOST then
    M.list[#M.list + 1] = { name = self.name, start = self.start, ns = all }
  end
end

--- Begins a span; closing the value ends it.
---@param name string
---@return table span to be closed
function M.open(name)
  local start, run = core.profile_clock()
  M.totals[name] = M.totals[name] or { calls = 0, ns = 0, own_ns = 0 }
  local depth = M.depth[name] or 0
  M.depth[name] = depth + 1
  M.top = setmetatable({ name = name, start = start, run = run, inside = 0, outer = M.top,
    nested = depth > 0 }, Span)
  return M.top
end

--- Forgets what was measured and begins.
function M.begin()
  M.active, M.totals, M.depth, M.list, M.top = true, {}, {}, {}, nil
end

--- Ends; returns totals by name ({calls, ns, own_ns}) and the spans ({name,
--- start, ns}) in the order in which they ended.
---@return table<string, {calls: integer, ns: integer, own_ns: integer}> totals
---@return {name: string, start: integer, ns: integer}[] spans
function M.finish()
  M.active = false
  return M.totals, M.list
end

return M
