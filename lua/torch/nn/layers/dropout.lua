--- Dropout layers.
local F = require("torch.nn.functional")
local errors = require("lupine.base.errors")
local layer = require("torch.nn.layer")

local M = {}

local FUNCTIONS = {
  Dropout = "dropout", Dropout1d = "dropout1d", Dropout2d = "dropout2d", Dropout3d = "dropout3d",
  AlphaDropout = "alpha_dropout", FeatureAlphaDropout = "feature_alpha_dropout",
}

for class, name in pairs(FUNCTIONS) do
  M[class] = layer(class .. "(p=0.5, inplace=False)", {
    repr = "p={p}, inplace={inplace}",
    build = function(self)
      errors.check(type(self.p) == "number" and self.p >= 0 and self.p <= 1, "ValueError",
        "dropout probability has to be between 0 and 1, but got %s", tostring(self.p))
    end,
    forward = function(self, input)
      local out = F[name](input, self.p, self.training)
      return self.inplace and self.training and input:copy_(out) or out
    end,
  })
end

M.RReLU = layer("RReLU(lower=0.125, upper=0.3333333333333333, inplace=False)", {
  repr = function(self)
    local text = require("torch.nn.text")
    return ("lower=%s, upper=%s%s"):format(text.repr(self.lower), text.repr(self.upper),
      self.inplace and ", inplace=True" or "")
  end,
  forward = function(self, input)
    return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)
  end,
})

return M
