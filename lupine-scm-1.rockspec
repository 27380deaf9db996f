-- The modules for a stock interpreter: `luarocks make` in this folder. (The program
-- lupine is installed by `make install` or the package of `make deb`.) The libraries
-- that it is linked to: spec/tools/setup.sh.
rockspec_format = "3.0"
package = "lupine"
version = "scm-1"
source = {
  url = "git+file://lupine",
}
description = {
  summary = "A training environment scripted in Lua over a C core",
  detailed = "Tensors and autograd with PyTorch's names, a graph compiler, and a simulated "
    .. "system of IPUs with PopTorch's and PopART's interfaces.",
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = {
  "lua >= 5.4, < 5.5",
}
build = {
  type = "make",
  build_target = "all",
  install_target = "install-rock",
  install_variables = {
    LUADIR = "$(LUADIR)",
    LIBDIR = "$(LIBDIR)",
  },
}
