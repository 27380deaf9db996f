#!/bin/sh
# Checks of style. Usage: lint.sh fast|full [BUILD]. Fast needs only what the
# suite needs too, the objects of BUILD among them; full adds the formatting
# of C.
set -u
result=0
echo '  LUACHECK'
luacheck -q --no-color --no-cache lua spec .busted || result=1
lua5.4 spec/tools/lint.lua "${1:-fast}" || result=1
echo '  UNUSED'
sh spec/tools/unused.sh "${2:-build}" || result=1
if [ "${1:-fast}" = full ]; then
    echo '  CLANG-FORMAT'
    git ls-files '*.c' '*.h' |
        xargs clang-format --dry-run -Werror || result=1
fi
exit $result
