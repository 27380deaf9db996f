--- Image files as tensors: PNG and JPEG read, PNG written.
local check = require("lupine.base.check")
local core = require("lupine.core")
local enum = require("lupine.base.enum")
local errors = require("lupine.base.errors")

local M = {}

--- What `read` makes of the channels: the file's own, gray, or red, green and
--- blue, without or with a last channel of opacity. Each can be given as it
--- stands here, or by its name in upper or lower case.
--- Source: torchvision documentation, io.ImageReadMode
M.ImageReadMode = enum("ImageReadMode",
  { "UNCHANGED", "GRAY", "GRAY_ALPHA", "RGB", "RGB_ALPHA" })

-- The same by the names that are given as text.
M.MODES = { "unchanged", "gray", "gray_alpha", "rgb", "rgb_alpha" }

local function mode_of(mode)
  if check.is_none(mode) then
    return "unchanged"
  elseif M.ImageReadMode:is(mode) then
    return mode.name:lower()
  end
  for _, name in ipairs(M.MODES) do
    if type(mode) == "string" and mode:lower() == name then
      return name
    end
  end
  return errors.raise("ValueError", "read: mode: expected a member of ImageReadMode or %s, got %s",
    table.concat(M.MODES, ", "), check.describe(mode))
end

-- With the file's opacity behind, or full opacity if it has none.
local function with_alpha(path, colours)
  local x, own = core.read_image(path, colours), core.read_image(path, "unchanged")
  local torch = require("torch")
  local alpha = own:size(0) % 2 == 0 and own:narrow(0, own:size(0) - 1, 1)
    or torch.full({ 1, x:size(1), x:size(2) }, 255, { dtype = torch.uint8 })
  return torch.cat({ x, alpha }, 0)
end

--- An image: the file's own values (no gamma, no colour profile; 16 bits a
--- channel are scaled to 8).
--- errors: OSError, ValueError (neither PNG nor JPEG, or damaged; the mode)
--- Source: torchvision documentation, io.read_image
---@param path string
---@param mode? string|table a member of ImageReadMode or its name; UNCHANGED unless given
---@return torch.Tensor uint8 [channels, height, width]
function M.read(path, mode)
  check.string(path, "read: path")
  local name = mode_of(mode)
  local colours = name:match("^(%a+)_alpha$")
  if colours then
    return with_alpha(path, colours)
  end
  return core.read_image(path, name)
end

--- torchvision's name of `read`.
M.read_image = M.read

--- Writes a PNG file, which is replaced as a whole.
--- errors: OSError, ValueError (another shape or type)
---@param input torch.Tensor uint8 [1 to 4, height, width]
---@param path string
function M.write_png(input, path)
  errors.check(core.is_tensor(input), "TypeError", "write_png: input: expected a Tensor, got %s",
    check.describe(input))
  core.write_png(check.string(path, "write_png: path"), input:detach():contiguous())
end

return require("lupine.base.namespace").close(M, "lupine.images")
