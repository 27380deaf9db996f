--- Settings of multi-convolutions: convolutions that the device runs as one
--- operation, side by side or one after another.
local M = {}

local function list(values)
  local words = {}
  for i, value in ipairs(values or {}) do
    words[i] = value == true and 1 or value or 0
  end
  return values and table.concat(words, ",") or "-"
end

--- Settings as the core reads them from the origin of each convolution: see the
--- head of src/passes/multi_conv.h.
---@param number integer of the multi-convolution in its step; -1: it is in none
---@param s {plan: "parallel"|"serial"|"alone"|"convolutions", reserved: integer, back_off: number,
---  proportions: number[]?, partials: ("float"|"half")[]?, dithering: boolean[]?} lists of one
---  for all or one each
---@return string
function M.text(number, s)
  return ("%d %s %d %.15g %s %s %s"):format(number, s.plan, s.reserved, s.back_off,
    list(s.proportions), list(s.partials), list(s.dithering))
end

return M
