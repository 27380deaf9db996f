-- Compiles libraries of custom operators into a temporary folder and loads
-- them. One that is loaded stays so for the whole process, whatever spec asked.
local files = require("spec.support.files")
local core = require("lupine.core")
local program = require("spec.support.program")
local torch = require("torch")

local M = {}

M.flags = "-std=c99 -pedantic -Wall -Wextra -Werror -O1 -shared -fPIC -I include"

--- Compiles a C file; returns the library and its folder, which the caller
--- removes. `more`: further options of the compiler.
function M.compile(source, more)
  local folder = files.folder()
  local name = source:match("([^/]+)%.c$")
  local library = ("%s/lib%s.so"):format(folder, name)
  local out, err, code = program.shell(("cc %s %s -o %s %s"):format(M.flags, more or "", library,
    source))
  assert(code == 0, out .. err)
  return library, folder
end

function M.remove(folder)
  files.remove(folder)
end

--- Loads the library of examples/custom_op/NAME.c or, of this folder,
--- custom_ops/NAME.c.
function M.load(name)
  for _, op in ipairs(core.custom_ops()) do
    if op.library == "lib" .. name .. ".so" then
      return
    end
  end
  local source = "examples/custom_op/" .. name .. ".c"
  if not io.open(source) then
    source = "spec/support/custom_ops/" .. name .. ".c"
  end
  local library, folder = M.compile(source)
  torch.ops.load_library(library)
  M.remove(folder)
end

return M
