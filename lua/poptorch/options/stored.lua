--- Options in files of executables: what was set, group by group, and which of it
--- still acts on a program that was compiled.
local autocasting = require("poptorch.autocasting")
local class = require("lupine.base.class")
local enums = require("poptorch.enums")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local logging = require("poptorch.logging")
local objects = require("torch.objects")
local options = require("poptorch.options")
local strategies = require("poptorch.strategies")

local M = {}

for name, enumeration in pairs(enums) do
  objects.note(name, enumeration)
end
for _, name in ipairs({ "Stage", "Phase", "PipelinedExecution", "ShardedExecution",
  "SerialPhasedExecution", "ParallelPhasedExecution" }) do
  objects.note("poptorch." .. name, strategies[name])
end
objects.note("poptorch.autocasting.Policy", autocasting.Policy)
objects.note("poptorch.TensorLocationSettings", options.TensorLocationSettings)

-- Which process this is, each tells for itself.
local NOT_STORED = { Distributed = true }

local function groups_of(opts)
  local list = { { name = "", group = opts } }
  for _, name in ipairs(options.GROUPS) do
    list[#list + 1] = { name = name, group = opts[name] }
  end
  return list
end

--- The options as data for objects.describe.
---@param opts poptorch.Options
---@return table
function M.data(opts)
  local out = { session = class.copy(opts._Popart._options), groups = {} }
  for _, g in ipairs(groups_of(opts)) do
    if not NOT_STORED[g.name] then
      out.groups[g.name] = class.copy(g.group._values)
    end
  end
  return out
end

local function restore_row(group, row, value, where)
  if row.kind then
    value = Group._checked(row, value, ("%s: option %s"):format(where, row.key))
  else
    errors.check(type(value) == type(row.default), "ValueError", "%s: option %s is a %s", where,
      row.key, type(value))
  end
  group._values[row.key] = value
end

local function restore_group(group, values, where)
  errors.check(type(values) == "table", "ValueError", "%s: the options are damaged", where)
  for _, row in ipairs(getmetatable(group)._rows) do
    if row.key and not row.popart then
      if values[row.key] ~= nil then
        restore_row(group, row, values[row.key], where)
      elseif row.nullable then
        group._values[row.key] = nil
      end
    end
  end
end

--- Options that may be changed, from their data.
--- error: ValueError, AssertionError or poptorch.Error for data that are none
---@param data table
---@param where string for messages
---@return poptorch.Options
function M.restore(data, where)
  errors.check(type(data) == "table" and type(data.session) == "table"
    and type(data.groups) == "table", "ValueError", "%s: the options are damaged", where)
  local opts = options.Options()
  for _, g in ipairs(groups_of(opts)) do
    if not NOT_STORED[g.name] then
      restore_group(g.group, data.groups[g.name], where)
    end
  end
  rawset(opts._Popart, "_options", class.copy(data.session))
  opts._Popart:validate()
  return opts
end

-- ---- what acts on a compiled program --------------------------------------------------

-- Session options that rows with `run_time` write.
local RUN_TIME = { cachePath = true, enableEngineCaching = true }

-- Rows whose values are compiled in, with their groups.
local function compiled_rows(opts)
  local out = {}
  for _, g in ipairs(groups_of(opts)) do
    for _, row in ipairs(getmetatable(g.group)._rows) do
      if row.key and not row.run_time and not row.popart and not NOT_STORED[g.name] then
        out[#out + 1] = { name = (g.name == "" and "" or g.name .. ".") .. row.key, row = row,
          group = g.group }
      end
    end
  end
  return out
end

-- Puts back the session options that are compiled in; adds those that differed.
local function put_back_session(out, compiled, ignored)
  local now, was = out._Popart._options, compiled._Popart._options
  local all = class.copy(was)
  for key, value in pairs(now) do
    all[key] = all[key] == nil and value or all[key]
  end
  local kept = {}
  for key in pairs(all) do
    kept[key] = (RUN_TIME[key] and now or was)[key]
    if Group.shown(kept[key]) ~= Group.shown(now[key]) then
      ignored[#ignored + 1] = ("_Popart.%s = %s (compiled with %s)"):format(key,
        Group.shown(now[key]), Group.shown(was[key]))
    end
  end
  rawset(out._Popart, "_options", class.copy(kept))
end

--- The options that a loaded program has: at run time what `edited` says, else
--- what `compiled` says. Warns of what differs there.
---@param compiled poptorch.Options
---@param edited poptorch.Options
---@param where string for messages
---@return poptorch.Options
function M.run_time(compiled, edited, where)
  local out, before, ignored = edited:clone(), compiled_rows(compiled), {}
  for i, now in ipairs(compiled_rows(out)) do
    local is, was = now.group:_read(now.row), before[i].group:_read(before[i].row)
    if Group.shown(is) ~= Group.shown(was) then
      ignored[#ignored + 1] = ("%s = %s (compiled with %s)"):format(now.name, Group.shown(is),
        Group.shown(was))
    end
    now.group._values[now.row.key] = class.copy(was)
  end
  put_back_session(out, compiled, ignored)
  table.sort(ignored)
  if #ignored > 0 then
    logging.warn("%s: these options are compiled in, so that they stay: %s", where,
      table.concat(ignored, ", "))
  end
  return out
end

return M
