--- What a report's schedule runs: rows with how often, and the operators of each entry.
local M = {}

--- Rows in order, with how often each runs in a call.
---@param report lupine.Report
---@return fun(): table?, integer?, table? row, times, loop
function M.rows(report)
  local l, i = 1, 0
  return function()
    local loop = report.sequence[l]
    while loop and i >= loop.rows do
      l, i = l + 1, 0
      loop = report.sequence[l]
    end
    if not loop then
      return nil
    end
    i = i + 1
    return report.schedule[loop.first_row + i - 1], loop.count * (loop.once and 1 or report.loops),
      loop
  end
end

--- What runs: "stage 0 forward", "weight update"; nil of an entry that moves data.
---@param entry table
---@param report? lupine.Report for the name of the stage's block: "stage 0 (encoder) forward"
---@return string?
function M.name(entry, report)
  local stage = report and report.stages[(entry.stage or -1) + 1]
  local block = stage and stage.block ~= "" and (" (%s)"):format(stage.block) or ""
  return entry.kind == "update" and "weight update" or entry.kind == "compute"
    and ("stage %d%s %s"):format(entry.stage, block, entry.backward and "backward" or "forward")
    or nil
end

-- Poplar's types of programs that move data, and what each moves.
local MOVES = {
  copy = { "GlobalExchange", "copy to IPU %d" }, host_in = { "StreamCopy", "from the host" },
  host_out = { "StreamCopy", "to the host" }, load = { "RemoteCopy", "from streaming memory" },
  store = { "RemoteCopy", "to streaming memory" },
  collective = { "GlobalExchange", "sums over replicas" },
}

--- What an entry moves: "StreamCopy", "from the host"; nil of one that computes.
---@param entry table
---@return string? type
---@return string? what
function M.move(entry)
  local move = MOVES[entry.kind]
  if move then
    return move[1], move[2]:format(entry.to or 0)
  end
  return nil
end

--- The name of an operator or value with its module's.
---@param scope string
---@param name string
---@return string
function M.title(scope, name)
  return scope ~= "" and scope .. "/" .. name or name
end

local function key_of(stage, backward)
  return ("%d %s"):format(stage, backward)
end

--- The operators of an entry, in order: a backward run that starts from the stage's inputs
--- has the forward ones again.
---@param report lupine.Report
---@return fun(entry: table): table[]
function M.operators(report)
  local of = {}
  for _, node in ipairs(report:nodes()) do
    local key = node.update and "update " .. node.ipu or key_of(node.stage, node.backward)
    of[key] = of[key] or {}
    table.insert(of[key], node)
  end
  local again = {}
  for _, stage in ipairs(report.stages) do
    local forward, own = of[key_of(stage.stage, false)] or {}, of[key_of(stage.stage, true)] or {}
    local all = table.move(forward, 1, #forward, 1, {})
    again[stage.stage] = stage.recomputed and table.move(own, 1, #own, #all + 1, all) or own
  end
  return function(entry)
    if entry.kind == "update" then
      return of["update " .. entry.ipu] or {}
    elseif entry.kind ~= "compute" then
      return {}
    end
    return entry.backward and again[entry.stage] or of[key_of(entry.stage, false)] or {}
  end
end

return M
