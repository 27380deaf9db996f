#!/bin/sh
# Runs the specs under the host and under stock Lua, then the cheap checks of
# style. The last line is `N passed, N failed`, summed over both runs; a check
# of style counts as one. Usage: test.sh BUILD [sanitized | slow] (host only;
# slow: with the slow specs)
set -u
build=$1
mode=${2:-both}
root=$(pwd)
out=$build/test
mkdir -p "$out"
passed=0
failed=0
task=

# specs NAME COMMAND...: one run of the suite. spec/tools/output.lua leaves
# the counts; a run that ends without them has crashed.
specs() {
    name=$1
    shift
    rm -f "$out/counts" "$out/current"
    echo "== specs under $name"
    LUPINE_BUILD=$build LUPINE_TEST_OUT=$out "$@" /usr/bin/busted --ignore-lua $task </dev/null
    code=$?
    if [ -f "$out/counts" ]; then
        read -r p f <"$out/counts"
        [ "$code" != 0 ] && [ "$f" = 0 ] && f=1
    else
        p=0 f=1
        echo "the run ended early, exit code $code, in:"
        cat "$out/current" 2>/dev/null
    fi
    passed=$((passed + p))
    failed=$((failed + f))
}

case $mode in
sanitized)
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0
    export UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$root/spec/tools/leaks.supp
    specs "the host, sanitized" "$build/lupine"
    ;;
slow)
    task=--run=all
    specs "the host, slow ones too" "$build/lupine"
    ;;
*)
    specs "the host" "$build/lupine"
    export LUA_PATH_5_4="$root/lua/?.lua;$root/lua/?/init.lua;;"
    export LUA_CPATH_5_4="$root/$build/?.so;;"
    specs "stock lua5.4" lua5.4
    unset LUA_PATH_5_4 LUA_CPATH_5_4
    echo "== style"
    if sh spec/tools/lint.sh fast "$build"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    ;;
esac

echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
