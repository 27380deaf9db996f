#!/bin/sh
# One process of the suite: under the host or stock Lua, with a simulated machine
# of its own. Usage: specs.sh BUILD host|stock SPEC...; OUT/counts, OUT/failed and
# OUT/times (spec/tools/output.lua) are left in a folder of build/test of its own,
# and a run that ends without its counts has crashed, which is told.
set -u
build=$1
under=$2
shift 2
root=$(pwd)
out=$(mktemp -d "$build/test/$under.XXXXXX")
mkdir -m 700 "$out/devices"
program=$build/lupine
if [ "$under" = stock ]; then
    export LUA_PATH_5_4="$root/lua/?.lua;$root/lua/?/init.lua;;"
    export LUA_CPATH_5_4="$root/$build/?.so;;"
    program=lua5.4
fi
LUPINE_BUILD=$build LUPINE_TEST_OUT=$out LUPINE_DEVICES=$root/$out/devices \
    "$program" /usr/bin/busted --ignore-lua ${TASK-} "$@" </dev/null >"$out/log" 2>&1
code=$?
if [ ! -f "$out/counts" ]; then
    echo "0 1" >"$out/counts"
    {
        echo "the run under $under ended early, exit code $code, in:"
        cat "$out/current" 2>/dev/null || echo "$*"
    } >>"$out/failed"
elif [ "$code" != 0 ] && [ ! -f "$out/failed" ]; then
    echo "0 1" >"$out/counts"
    echo "exit code $code of the run under $under: $*" >"$out/failed"
fi
rm -rf "$out/devices"
echo "== $under: $*" | cat - "$out/log"
