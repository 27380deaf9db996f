--- Sequences of rows that lie one behind the other in a tensor: their offsets and
--- lengths are tensors, which only a run of the program needs to know.
local torch = require("torch")

local M = {}

local function column(t)
  return t:to(torch.int64):reshape({ -1 })
end

local function rows_alike(mask, t)
  local shape = { -1 }
  for i = 2, t:dim() do
    shape[i] = 1
  end
  return mask:reshape(shape)
end

--- `to` with rows of `source` in place of its own: count[i] of them from row from[i] on go
--- to rows at[i] on. Where several go to one row, the last stays.
---@param source torch.Tensor
---@param to torch.Tensor
---@param count torch.Tensor
---@param from torch.Tensor
---@param at torch.Tensor
---@return torch.Tensor
function M.copy(source, to, count, from, at)
  count, from, at = column(count), column(from), column(at)
  local row = torch.arange(to:size(0)):reshape({ -1, 1 })
  local inside = row:ge(at):logical_and(row:lt(at + count)) -- [rows, sequences]
  local number = (inside:to(torch.int64) * torch.arange(1, count:size(0) + 1)):amax(1)
  local which = (number - 1):clamp(0)
  local place = torch.arange(to:size(0)) - at:index_select(0, which)
    + from:index_select(0, which)
  local rows = source:index_select(0, place:clamp(0, source:size(0) - 1))
  return torch.where(rows_alike(number:gt(0), to), rows, to)
end

--- Each sequence on its own: [sequences, most, …], zeros behind their ends.
---@param data torch.Tensor
---@param offsets torch.Tensor
---@param lengths torch.Tensor
---@param most integer
---@return torch.Tensor
function M.unpack(data, offsets, lengths, most)
  offsets, lengths = column(offsets), column(lengths)
  local step = torch.arange(most)
  local place = offsets:reshape({ -1, 1 }) + step
  local used = step:lt(lengths:reshape({ -1, 1 })):reshape({ -1 })
  local rows = data:index_select(0, place:reshape({ -1 }):clamp(0, data:size(0) - 1))
  rows = torch.where(rows_alike(used, rows), rows, torch.zeros_like(rows))
  return rows:reshape({ offsets:size(0), most, table.unpack(data.shape, 2) })
end

--- The rows of sequences [sequences, most, …] one behind the other, in zeros.
---@param data torch.Tensor
---@param offsets torch.Tensor
---@param lengths torch.Tensor
---@param rows integer
---@return torch.Tensor
function M.pack(data, offsets, lengths, rows)
  local most = data:size(1)
  local to = torch.zeros({ rows, table.unpack(data.shape, 3) }, { dtype = data.dtype })
  return M.copy(data:flatten(0, 1), to, lengths, torch.arange(data:size(0)) * most, offsets)
end

return M
