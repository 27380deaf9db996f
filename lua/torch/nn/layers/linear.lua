--- Linear, Bilinear, Identity.
local F = require("torch.nn.functional")
local fill = require("torch.nn.fill")
local layer = require("torch.nn.layer")

local M = {}

M.Linear = layer("Linear(in_features, out_features, bias=True, device=None, dtype=None)", {
  repr = "in_features={in_features}, out_features={out_features}, bias={bias?}",
  drop = { "bias" },
  build = function(self, a)
    fill.weight(self, { self.out_features, self.in_features }, a)
    fill.bias(self, { self.out_features }, a)
    self:reset_parameters()
  end,
  forward = function(self, input)
    return F.linear(input, self.weight, self.bias)
  end,
})
M.Linear.reset_parameters = fill.reset

M.Bilinear = layer(
  "Bilinear(in1_features, in2_features, out_features, bias=True, device=None, dtype=None)", {
    repr = "in1_features={in1_features}, in2_features={in2_features}, "
      .. "out_features={out_features}, bias={bias?}",
    drop = { "bias" },
    build = function(self, a)
      fill.weight(self, { self.out_features, self.in1_features, self.in2_features }, a)
      fill.bias(self, { self.out_features }, a)
      self:reset_parameters()
    end,
    forward = function(self, input1, input2)
      return F.bilinear(input1, input2, self.weight, self.bias)
    end,
  })

function M.Bilinear:reset_parameters()
  fill.uniform(1 / math.sqrt(self.in1_features), self.weight, self.bias)
end

-- Identity takes any arguments and ignores them.
M.Identity = layer("Identity()", {
  forward = function(_, input)
    return input
  end,
})
function M.Identity.init() end

return M
