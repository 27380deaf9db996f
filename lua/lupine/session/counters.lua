--- When the tensors of a run go to and from the simulated IPU: performance
--- counters and latencies.
---
--- The report of the compiled program (lupine.report) says in which row of its
--- schedule each stage works on each micro-batch, and how long rows and
--- transfers take. A row begins with the inputs of its stages and ends with
--- their outputs; tensors of one IPU follow one another. What I/O tiles run ahead
--- with goes at the beginning of the row before, or after, its own. With an output
--- mode other than All the outputs go after the last row. Times are seconds of
--- simulated time since the run began, the same in every replica.
---
--- Source: PopTorch API reference, PoplarExecutor.getPerfCounters.
local M = {}

local ALL = "all"

-- Rows of a run, one entry an execution: the row, when it starts, in which
-- weight update, the number of its turn, whether it is there once in a run.
local function unroll(r)
  local list, now, loops = {}, 0, r.sequence
  local function add(row, update, at, once)
    list[#list + 1] = { row = row, start = now, loop = update, at = at, once = once }
    now = now + row.cycles
  end
  local function run(first, last, update)
    for l = first, last do
      for k = 0, loops[l].count - 1 do
        for i = loops[l].first_row, loops[l].first_row + loops[l].rows - 1 do
          add(r.schedule[i], update, r.schedule[i].first + k * loops[l].step, loops[l].once)
        end
      end
    end
  end
  local first, last = 1, #loops
  while loops[first].once do
    first = first + 1
  end
  while loops[last].once do
    last = last - 1
  end
  run(1, first - 1, 0)
  for update = 0, r.loops - 1 do
    run(first, last, update)
  end
  run(last + 1, #loops, r.loops - 1)
  return list
end

-- Cycles of the row's transfers of a kind at an IPU.
local function transfer_cycles(row, kind, ipu)
  local cycles = 0
  for _, e in ipairs(row.entries) do
    if e.kind == kind and e.ipu == ipu then
      cycles = cycles + e.cycles
    end
  end
  return cycles
end

-- {stream = {begin, end}} in cycles since the first transfer of the row began.
local function shares(streams, row, kind)
  local total, before, out = {}, {}, {}
  for _, s in ipairs(streams) do
    total[s.ipu] = (total[s.ipu] or 0) + s.bytes
  end
  for _, s in ipairs(streams) do
    local all = transfer_cycles(row, kind, s.ipu)
    local from = before[s.ipu] or 0
    local to = from + s.bytes
    before[s.ipu] = to
    local scale = total[s.ipu] > 0 and all / total[s.ipu] or 0
    out[s] = { from * scale, to * scale, all }
  end
  return out
end

-- The micro-batch that a stream's stage works on in a row, if any.
local function micro_batch_of(stream, execution)
  for _, e in ipairs(execution.row.entries) do
    if e.kind == "compute" and e.stage == stream.stage and e.backward == stream.backward then
      return execution.at - e.offset
    end
  end
  return nil
end

-- The number, in the run and from 1, of the micro-batch whose tensor a row
-- moves; nil: none.
local function moved(r, s, x, input)
  local before, m = x.loop * r.micro_batches, micro_batch_of(s, x)
  if not m then -- a row of transfers alone, of the first input or the last output
    local own = x.row.kind == (input and "fill" or "flush") and #x.row.entries > 0
      and x.row.entries[1].kind ~= "compute" and s.ahead == (x.once and "update" or "micro_batch")
    return own and before + (input and 1 or r.micro_batches) or nil
  end
  local n = before + m + 1
  if s.ahead == "none" then
    return n
  end
  n = n + (input and 1 or -1)
  local first, last = 1, r.loops * r.micro_batches
  if s.ahead == "micro_batch" then
    first, last = before + 1, before + r.micro_batches
  end
  return n >= first and n <= last and n or nil
end

-- Sets [tensor][number of the micro-batch in the run] for a kind of transfer.
local function micro_batches(r, executions, streams, kind, starts, ends)
  local input = kind == "host_in"
  for _, x in ipairs(executions) do
    local list, at = {}, {}
    for _, s in ipairs(streams) do
      at[s] = moved(r, s, x, input)
      list[#list + 1] = at[s] and s
    end
    local share = shares(list, x.row, kind)
    for _, s in ipairs(list) do
      local late = not input and s.ahead == "none"
      local origin = x.start + (late and x.row.cycles - share[s][3] or 0)
      starts[s.tensor][at[s]] = (origin + share[s][1]) / r.clock_hz
      ends[s.tensor][at[s]] = (origin + share[s][2]) / r.clock_hz
    end
  end
end

local function at_the_end(r, executions, streams, starts, ends)
  for _, x in ipairs(executions) do
    if x.row.kind == "output" then
      local share = shares(streams, x.row, "host_out")
      for _, s in ipairs(streams) do
        starts[s.tensor][x.at + 1] = (x.start + share[s][1]) / r.clock_hz
        ends[s.tensor][x.at + 1] = (x.start + share[s][2]) / r.clock_hz
      end
    end
  end
end

-- One that no micro-batch reads or makes takes no time at the first stage.
local IDLE = { bytes = 0, ipu = 0, stage = 0, backward = false, ahead = "none" }

-- Streams of the variables, each with its tensor's number in the list.
local function of_variables(r, variables)
  local of, list = {}, {}
  for _, s in ipairs(r.streams) do
    of[s.variable] = s
  end
  for i, v in ipairs(variables) do
    local s = of[v.index] or IDLE
    list[i] = { tensor = i, bytes = s.bytes, ipu = s.ipu, stage = s.stage,
      backward = s.backward, ahead = s.ahead }
  end
  return list
end

local function lists(n)
  local out = {}
  for i = 1, n do
    out[i] = {}
  end
  return out
end

-- Each event once a replica.
local function replicated(events, replicas)
  for i, list in ipairs(events) do
    local out = {}
    for _, time in ipairs(list) do
      for _ = 1, replicas do
        out[#out + 1] = time
      end
    end
    events[i] = out
  end
end

--- The counters of a session's last run: seconds by event, tensor and number of
--- the event. Without a run, or with synthetic data, there are no events.
---@param session lupine.Session? nil: none yet
---@return {input: number[][], input_complete: number[][], output: number[][],
---  output_complete: number[][]}
function M.events(session)
  local inputs = session and session.streams.inputs or {}
  local outputs = session and session.streams.outputs or {}
  local out = { input = lists(#inputs), input_complete = lists(#inputs),
    output = lists(#outputs), output_complete = lists(#outputs) }
  if not session or not session.has_run or session.synthetic then
    return out
  end
  local r = session.report
  local executions = unroll(r)
  micro_batches(r, executions, of_variables(r, inputs), "host_in", out.input, out.input_complete)
  local streams = of_variables(r, outputs)
  local first = outputs[1]
  if first and session.streams.modes[first.index].mode == ALL then
    micro_batches(r, executions, streams, "host_out", out.output, out.output_complete)
  else
    at_the_end(r, executions, streams, out.output, out.output_complete)
  end
  for _, events in pairs(out) do
    replicated(events, r.replicas)
  end
  return out
end

-- Over the tensors, the event that `pick` chooses: one time an event.
local function reduce(events, pick)
  local out = {}
  for n = 1, #events[1] do
    out[n] = events[1][n]
    for i = 2, #events do
      out[n] = pick(out[n], events[i][n])
    end
  end
  return out
end

--- Minimum, maximum and mean of the seconds from one event to another. Where
--- one output tick stands for several micro-batches it is measured from the
--- earliest of them. All 0 without events.
---@param session lupine.Session?
---@param from string an event of `events`
---@param to string
---@param from_pick fun(a: number, b: number): number which tensor's event
---@param to_pick fun(a: number, b: number): number
---@return number min, number max, number avg
function M.latency(session, from, to, from_pick, to_pick)
  local events = M.events(session)
  if #events[from] == 0 or #events[to] == 0 or #events[from][1] == 0 or #events[to][1] == 0 then
    return 0, 0, 0
  end
  local starts, ends = reduce(events[from], from_pick), reduce(events[to], to_pick)
  local group = #starts // #ends
  local least, most, sum = math.huge, 0, 0
  for i, finished in ipairs(ends) do
    local start = math.huge
    for k = (i - 1) * group + 1, i * group do
      start = math.min(start, starts[k])
    end
    local seconds = finished - start
    least, most, sum = math.min(least, seconds), math.max(most, seconds), sum + seconds
  end
  return least, most, sum / #ends
end

return M
