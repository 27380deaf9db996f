--- Activations: each calls the function of its name with its fields.
local errors = require("lupine.base.errors")
local F = require("torch.nn.functional")
local fill = require("torch.nn.fill")
local init = require("torch.nn.init")
local layer = require("torch.nn.layer")
local signature = require("torch.nn.signature")
local text = require("torch.nn.text")

local M = {}

-- signature, function, what it prints ("" nothing; fields by name)
local ROWS = {
  { "ReLU(inplace=False)", "relu", "inplace" },
  { "ReLU6(inplace=False)", "relu6", "inplace" },
  { "ELU(alpha=1.0, inplace=False)", "elu", "alpha, inplace" },
  { "SELU(inplace=False)", "selu", "inplace" },
  { "CELU(alpha=1.0, inplace=False)", "celu", "alpha, inplace" },
  { "SiLU(inplace=False)", "silu", "inplace" },
  { "Mish(inplace=False)", "mish", "inplace" },
  { "Hardswish(inplace=False)", "hardswish", "inplace" },
  { "Hardsigmoid(inplace=False)", "hardsigmoid", "inplace" },
  { "LeakyReLU(negative_slope=0.01, inplace=False)", "leaky_relu", "negative_slope, inplace" },
  { "Threshold(threshold, value, inplace=False)", "threshold", "threshold, value, inplace" },
  { "Sigmoid()", "sigmoid", "" },
  { "Tanh()", "tanh", "" },
  { "Tanhshrink()", "tanhshrink", "" },
  { "Softsign()", "softsign", "" },
  { "LogSigmoid()", "logsigmoid", "" },
  { "Softplus(beta=1.0, threshold=20.0)", "softplus", "beta, threshold" },
  { "Softshrink(lambd=0.5)", "softshrink", "=lambd" },
  { "Hardshrink(lambd=0.5)", "hardshrink", "=lambd" },
  { "GLU(dim=-1)", "glu", "dim" },
  { "Softmax(dim=None)", "softmax", "dim" },
  { "LogSoftmax(dim=None)", "log_softmax", "dim" },
  { "Softmin(dim=None)", "softmin", "dim" },
}

-- name=value for the fields of a comma list; inplace only if set; "=name" the
-- value alone.
local function describe(fields)
  return function(self)
    local parts = {}
    for bare, name in fields:gmatch("(=?)([%w_]+)") do
      local value = text.repr(self[name])
      if name ~= "inplace" or self.inplace then
        parts[#parts + 1] = bare == "=" and value or name .. "=" .. value
      end
    end
    return table.concat(parts, ", ")
  end
end

for _, row in ipairs(ROWS) do
  local sig, name, shown = table.unpack(row)
  local names = signature(sig).names
  local n = #names
  local inplace = names[n] == "inplace"
  M[sig:match("^%w+")] = layer(sig, {
    repr = describe(shown),
    forward = function(self, input)
      local args, given = {}, inplace and n - 1 or n
      for i = 1, given do
        args[i] = self[names[i]]
      end
      if inplace and self.inplace then
        given = given + 1
        args[given] = { inplace = true }
      end
      return F[name](input, table.unpack(args, 1, given))
    end,
  })
end

M.Hardtanh = layer(
  "Hardtanh(min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None)", {
    repr = describe("min_val, max_val, inplace"),
    drop = { "min_value", "max_value" },
    build = function(self, a)
      self.min_val = a.min_value or self.min_val
      self.max_val = a.max_value or self.max_val
      errors.check(self.max_val > self.min_val, "AssertionError",
        "Hardtanh: max_val must be larger than min_val, got %s and %s", self.max_val, self.min_val)
    end,
    forward = function(self, input)
      return F.hardtanh(input, self.min_val, self.max_val, { inplace = self.inplace })
    end,
  })

M.GELU = layer("GELU(approximate='none')", {
  repr = "approximate={approximate}",
  forward = function(self, input)
    return F.gelu(input, { approximate = self.approximate })
  end,
})

M.Softmax2d = layer("Softmax2d()", {
  forward = function(_, input)
    errors.check(input:dim() == 3 or input:dim() == 4, "ValueError",
      "Softmax2d: expected input to be 3D or 4D, got %dD instead", input:dim())
    return F.softmax(input, -3)
  end,
})

M.PReLU = layer("PReLU(num_parameters=1, init=0.25, device=None, dtype=None)", {
  repr = "num_parameters={num_parameters}",
  drop = { "init" },
  build = function(self, a)
    self._start = a.init
    fill.weight(self, { self.num_parameters }, a)
    self:reset_parameters()
  end,
  forward = function(self, input)
    return F.prelu(input, self.weight)
  end,
})
function M.PReLU:reset_parameters()
  init.constant_(self.weight, self._start)
end

return M
