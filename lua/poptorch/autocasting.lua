--- Policies of automatic casting (PopTorch 2.6): which functions and module
--- classes run in float16, in float32, in the wider or the narrower of their
--- operands' types.
---
--- Source: PopTorch user guide 2.6, "Automatic casting"; default policy as
--- listed there.
local check = require("lupine.base.check")
local class = require("lupine.base.class")

local M = {}

--- A casting policy. Entries are torch functions or module classes, or their
--- names ("matmul", "nn.Conv2d"), which are looked up when a model is traced.
---@class poptorch.autocasting.Policy
---@field fp16 any[]     run in float16
---@field fp32 any[]     run in float32
---@field promote any[]  mixed operands go to float32
---@field demote any[]   mixed operands go to float16
local Policy = class.new("Policy")
M.Policy = Policy

local NAMES = { "fp16", "fp32", "promote", "demote" }

--- Policy(fp16, fp32, promote, demote), each a list or nil; also by name.
--- error: TypeError for an entry that is neither a function nor a class nor the name
--- of one that is known
function Policy:init(...)
  local lists = check.arguments("Policy", NAMES, nil, ...)
  for i, name in ipairs(NAMES) do
    local list = check.plain_table(lists[i], "Policy: " .. name, { nullable = true })
    self[name] = list or {}
    for at, entry in ipairs(M.default and list or {}) do
      require("poptorch.casting").check_entry(entry, ("Policy: %s[%d]"):format(name, at))
    end
  end
end

function Policy:__tostring()
  local counts = {}
  for i, name in ipairs(NAMES) do
    counts[i] = ("%s=%d"):format(name, #self[name])
  end
  return "Policy(" .. table.concat(counts, ", ") .. ")"
end

--- Whether both have the same lists (options are copied with their policy).
---@param other poptorch.autocasting.Policy
---@return boolean
function Policy:same(other)
  for _, name in ipairs(NAMES) do
    for i = 1, math.max(#self[name], #other[name]) do
      if self[name][i] ~= other[name][i] then
        return false
      end
    end
  end
  return true
end

--- The policy that holds unless another is set.
M.default = Policy(
  { "addmm", "addbmm", "addmv", "addr", "baddbmm", "bmm", "mm", "mv", "matmul", "chain_matmul",
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "convolution", "nn.Conv2d" },
  {},
  { "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "equal", "index_put",
    "stack", "tensordot" },
  {})

--- Whether the default policy names it: also some of PyTorch's operators that there
--- are none of here.
---@param name string
---@return boolean
function M._names(name)
  for _, set in ipairs(NAMES) do
    for _, entry in ipairs(M.default[set]) do
      if entry == name then
        return true
      end
    end
  end
  return false
end

return M
