--- Layers that only rearrange: Flatten, Unflatten, PixelShuffle, …
local F = require("torch.nn.functional")
local layer = require("torch.nn.layer")
local text = require("torch.nn.text")

local M = {}

M.Flatten = layer("Flatten(start_dim=1, end_dim=-1)", {
  repr = "start_dim={start_dim}, end_dim={end_dim}",
  forward = function(self, input)
    return input:flatten(self.start_dim, self.end_dim)
  end,
})

M.Unflatten = layer("Unflatten(dim, unflattened_size)", {
  repr = function(self)
    return ("dim=%s, unflattened_size=%s"):format(text.repr(self.dim),
      text.repr(self.unflattened_size))
  end,
  forward = function(self, input)
    return input:unflatten(self.dim, self.unflattened_size)
  end,
})

M.PixelShuffle = layer("PixelShuffle(upscale_factor)", {
  repr = "upscale_factor={upscale_factor}",
  forward = function(self, input)
    return F.pixel_shuffle(input, self.upscale_factor)
  end,
})

M.PixelUnshuffle = layer("PixelUnshuffle(downscale_factor)", {
  repr = "downscale_factor={downscale_factor}",
  forward = function(self, input)
    return F.pixel_unshuffle(input, self.downscale_factor)
  end,
})

M.ChannelShuffle = layer("ChannelShuffle(groups)", {
  repr = "groups={groups}",
  forward = function(self, input)
    return F.channel_shuffle(input, self.groups)
  end,
})

return M
