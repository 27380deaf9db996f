#!/bin/sh
# Runs the specs under the host and, those that are not of the C core alone,
# under stock Lua beside it, then the cheap checks of style. The last line is
# `N passed, N failed`, summed over both runs; a check of style counts as one.
# Usage: test.sh BUILD [sanitized | slow] (host only; slow: with the slow specs)
set -u
build=$1
mode=${2:-both}
root=$(pwd)
export LUPINE_LOG_LEVEL="${LUPINE_LOG_LEVEL:-warn}"
# Two runs share the processors: threads that wait for others spin in vain, and
# took half of the suite's time.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-0}"
passed=0
failed=0
task=

# The core is the same objects in both: what it computes is tested once; so is what
# specs see of processes that they start.
starters='spec.support.(crashes|custom_ops|graphs|probe|processes|program|resumable|runs|trainings)"'
lua_specs() {
    find spec/lupine spec/poptorch spec/torch spec/docs_spec.lua spec/hard_places_spec.lua \
        spec/torch_scatter_spec.lua -name '*_spec.lua' -exec grep -LE "$starters" {} +
}

# Two lanes run at once: this share of the host's specs follows those under stock
# Lua, which makes the two about as long.
second='spec/bind spec/examples spec/hostile spec/ops spec/passes spec/popart'

first() {
    for path in spec/*_spec.lua spec/*/; do
        case " $second " in
        *" ${path%/} "*) ;;
        *) printf '%s ' "${path%/}" ;;
        esac
    done
}

# specs NAME PATHS COMMAND...: one run of the suite. spec/tools/output.lua leaves
# the counts; a run that ends without them has crashed. Its simulated machine is
# its own.
specs() {
    out=$build/test/$1
    paths=$2
    shift 2
    rm -rf "$out"
    mkdir -p "$out"
    mkdir -m 700 "$out/devices"
    LUPINE_BUILD=$build LUPINE_TEST_OUT=$out LUPINE_DEVICES=$root/$out/devices \
        "$@" /usr/bin/busted --ignore-lua $task $paths </dev/null
    echo $? >"$out/code"
}

# count NAME: adds what a run counted.
count() {
    out=$build/test/$1
    code=$(cat "$out/code")
    if [ -f "$out/counts" ]; then
        read -r p f <"$out/counts"
        [ "$code" != 0 ] && [ "$f" = 0 ] && f=1
    else
        p=0 f=1
        echo "the run under $1 ended early, exit code $code, in:"
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
    specs host "" "$build/lupine"
    count host
    ;;
slow)
    task=--run=all
    specs host "" "$build/lupine"
    count host
    ;;
*)
    mkdir -p "$build/test"
    (
        export LUA_PATH_5_4="$root/lua/?.lua;$root/lua/?/init.lua;;"
        export LUA_CPATH_5_4="$root/$build/?.so;;"
        specs stock "$(lua_specs)" lua5.4 >"$build/test/stock.log" 2>&1
        unset LUA_PATH_5_4 LUA_CPATH_5_4
        specs second "$second" "$build/lupine" >"$build/test/second.log" 2>&1
    ) &
    echo "== specs under the host"
    specs host "$(first)" "$build/lupine"
    wait
    cat "$build/test/second.log"
    echo "== specs under stock lua5.4"
    cat "$build/test/stock.log"
    count host
    count second
    count stock
    echo "== style"
    if sh spec/tools/lint.sh fast "$build"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    ;;
esac

# Once more, where the end of a long log still shows them.
cat "$build"/test/*/failed 2>/dev/null
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
