--- Image files as tensors: PNG and JPEG read, PNG written.
local check = require("lupine.check")
local core = require("lupine.core")
local errors = require("torch.errors")

local M = {}

--- What `read` makes of the channels: the file's own, gray, or red, green and
--- blue (names of torchvision's ImageReadMode).
M.MODES = { "unchanged", "gray", "rgb" }

--- An image: uint8 [channels, height, width], the file's own values (no gamma,
--- no colour profile; 16 bits a channel are scaled to 8).
--- errors: OSError, ValueError (neither PNG nor JPEG, or damaged)
---@param path string
---@param mode? "unchanged"|"gray"|"rgb" "unchanged" unless given
---@return torch.Tensor
function M.read(path, mode)
  check.string(path, "read: path")
  local known = mode == nil or mode == "unchanged" or mode == "gray" or mode == "rgb"
  errors.check(known, "ValueError", "read: mode: expected %s, got %s",
    table.concat(M.MODES, ", "), check.describe(mode))
  return core.read_image(path, mode)
end

--- Writes a PNG file, which is replaced as a whole.
--- errors: OSError, ValueError (another shape or type)
---@param input torch.Tensor uint8 [1 to 4, height, width]
---@param path string
function M.write_png(input, path)
  errors.check(core.is_tensor(input), "TypeError", "write_png: input: expected a Tensor, got %s",
    check.describe(input))
  core.write_png(check.string(path, "write_png: path"), input:detach():contiguous())
end

return M
