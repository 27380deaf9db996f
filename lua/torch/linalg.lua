--- torch.linalg: the operators of that name, and what is refused.
---
--- Eigenvalues of matrices that are not symmetric are complex numbers, which
--- no tensor holds here: eig and eigvals say so.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = core.forms.linalg

M.LinAlgError = errors.LinAlgError

for name, symmetric in pairs({ eig = "eigh", eigvals = "eigvalsh" }) do
  M[name] = function()
    errors.raise("NotImplementedError", "linalg.%s: the eigenvalues of a general matrix are "
      .. "complex, and complex dtypes are not supported; linalg.%s takes symmetric matrices",
      name, symmetric)
  end
end

return require("lupine.base.namespace").close(M, "torch.linalg")
