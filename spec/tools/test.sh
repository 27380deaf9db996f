#!/bin/sh
# Runs the specs under the host and, those that are not of the C core alone,
# under stock Lua, then the cheap checks of style. The last line is
# `N passed, N failed`, summed over all; a check of style counts as one.
# Usage: test.sh BUILD [sanitized | slow] (host only; slow: with the slow specs)
set -u
build=$1
mode=${2:-both}
export LUPINE_LOG_LEVEL="${LUPINE_LOG_LEVEL:-warn}"
# Two runs share the processors: threads that wait for others spin in vain, and
# took half of the suite's time.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-0}"
passed=0
failed=0

# A few specs a process: one process for all grows until each fork and each full
# collection takes seconds. The longest are first, so that the two lanes end together,
# and alone: they collect all at every turn. The manual's looks at what a program that
# has just begun has loaded.
alone='spec/hostile/shortage_spec.lua spec/ops/all_spec.lua spec/bind/shortage_spec.lua
    spec/manual_spec.lua'
each=8

host_specs() {
    find spec -name '*_spec.lua' | sort | grep -vxF "$(printf '%s\n' $alone)"
}

# The core and the Lua files are the same in both: what they compute is tested once, and so
# is what others' tests and rules say of them, what specs see of processes that they start,
# and what takes long (thousands of errors, trainings, sweeps of options). Stock Lua shows
# that the packages load and work without the host's program.
starters='spec.support.(crashes|custom_ops|graphs|probe|processes|program|resumable|runs|trainings)"'
elsewhere='/(original|conformance|onnx)/'
long='(wrong_calls|options?_(effects|act)|half_gpt|half_cnn|resume|plan/cuts|tokenizer|random)_spec'
stock_specs() {
    find spec/lupine spec/poptorch spec/torch spec/docs_spec.lua spec/hard_places_spec.lua \
        spec/torch_scatter_spec.lua -name '*_spec.lua' -exec grep -LE "$starters" {} + |
        grep -vE "$elsewhere|$long" | sort
}

# tasks UNDER [EACH] < SPECS: a line of arguments of specs.sh for each process.
tasks() {
    xargs -n "${2-$each}" echo "$build" "$1"
}

host_tasks() {
    printf '%s\n' $alone | tasks host 1
    host_specs | tasks host
}

run() {
    xargs -P "$1" -L 1 sh spec/tools/specs.sh
}

rm -rf "$build/test"
mkdir -p "$build/test"
case $mode in
sanitized)
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0
    export UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$(pwd)/spec/tools/leaks.supp
    host_tasks | run 1
    ;;
slow)
    export TASK=--run=all
    host_tasks | run 1
    ;;
*)
    {
        host_tasks
        stock_specs | tasks stock
    } | run 2
    echo "== style"
    if sh spec/tools/lint.sh fast "$build"; then
        passed=1
    else
        failed=1
        echo "a check of style" >"$build/test/failed"
    fi
    ;;
esac

# Once more, where the end of a long log still shows them.
cat "$build"/test/failed "$build"/test/*/failed 2>/dev/null
cat "$build"/test/*/counts | awk -v passed=$passed -v failed=$failed '
    { passed += $1; failed += $2 }
    END {
        print passed " passed, " failed " failed"
        exit failed != 0 || passed == 0
    }'
