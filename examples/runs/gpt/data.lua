-- Pieces of the King James Bible, character by character (the Debian package
-- bible-kjv-text).
local lupine = require("lupine")
local torch = require("torch")

local M = {}

--- The text as numbers, and the characters that they stand for.
---@return torch.Tensor ids
---@return string[] characters the one of id 0 is element 1
function M.text()
  local text, missing = lupine.datasets.KingJamesBible()
  return lupine.datasets.characters(assert(text, missing))
end

local Pieces = torch.utils.data.Dataset:extend("Pieces")

function Pieces:init(ids, count, length, seed)
  local g = torch.Generator()
  g:manual_seed(seed)
  self.ids, self.length = ids, length
  self.at = torch.randint(0, #ids - length, { count }, { generator = g }):tolist()
end

function Pieces:__len__()
  return #self.at
end

-- A piece, and the same a character on: what is to be said at each place.
function Pieces:__getitem__(i)
  local piece = self.ids:narrow(0, self.at[i + 1], self.length + 1)
  return piece:narrow(0, 0, self.length), piece:narrow(0, 1, self.length)
end

--- `count` pieces of the text at random; the last tenth of it is for validation.
---@param part string "train" or "validation"
---@param count integer
---@param length integer
---@return torch.utils.data.Dataset
function M.pieces(part, count, length)
  local ids = M.text()
  local border = #ids * 9 // 10
  if part == "train" then
    return Pieces(ids:narrow(0, 0, border), count, length, 1)
  end
  return Pieces(ids:narrow(0, border, #ids - border), count, length, 2)
end

return M
