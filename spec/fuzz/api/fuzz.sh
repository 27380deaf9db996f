#!/bin/sh
# Random calls of the public interface (calls.lua) in processes that are
# watched: a crash, a report of the sanitizers and a call that one Ctrl-C does
# not end are findings. What one of them ends goes on with the next call.
# Usage: fuzz.sh BUILD SEED CALLS. The last line is `N calls, N findings`;
# `make fuzz-api SEED=N CALLS=1` does call N again and prints it.
set -u
build=$1
seed=$2
calls=$3
slow=${FUZZ_API_SLOW:-10} # seconds that a call may take, then Ctrl-C
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
end=$((seed + calls))
next=$seed
findings=0

# One allocation has 256 MB, all of them 4 GB: what asks for more gets an error.
export ASAN_OPTIONS="allocator_may_return_null=1:max_allocation_size_mb=256:hard_rss_limit_mb=4000:detect_leaks=0:handle_abort=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
grep -q __asan_init "$build/lupine" || ulimit -v 4000000

while [ "$next" -lt "$end" ]; do
    : >"$out/at"
    "$build/lupine" spec/fuzz/api/calls.lua "$next" $((end - next)) "$out/at" \
        >"$out/log" 2>"$out/errors" </dev/null &
    child=$!
    last=
    since=0
    hung=
    while kill -0 $child 2>/dev/null; do
        sleep 0.2
        now=$(cat "$out/at" 2>/dev/null)
        if [ "$now" != "$last" ]; then
            last=$now
            since=0
        else
            since=$((since + 1))
        fi
        [ "$since" = $((slow * 5)) ] && kill -INT $child
        if [ "$since" = $((slow * 15)) ]; then
            hung=1
            kill -KILL $child
        fi
    done
    wait $child 2>/dev/null
    code=$?
    grep -A1 '^finding\|^call \|^raised\|^returned' "$out/log"
    findings=$((findings + $(grep -c '^finding' "$out/log")))
    if grep -q '^[0-9]* calls from' "$out/log"; then
        tail -n 1 "$out/log"
        break
    fi
    read -r at _ <"$out/at" || at=
    findings=$((findings + 1))
    if [ -n "$hung" ]; then
        echo "finding ${at:-$next}: goes on after Ctrl-C"
    else
        echo "finding ${at:-$next}: the process ended, exit code $code"
        grep -v '^\[lupine:warn\]\|^==[0-9]*==WARNING' "$out/errors" | head -n 20
    fi
    next=$((${at:-$next} + 1))
done
echo "$calls calls, $findings findings"
[ "$findings" = 0 ]
