#!/bin/sh
# Runs libFuzzer targets one after another. New inputs go to BUILD/corpus/NAME,
# never into the tree. Ends at the first fault, which libFuzzer writes to
# BUILD/corpus/. A line per target: executions, edges of C met, inputs kept; the
# coverage of the reader's own files stands in BUILD/corpus/NAME.coverage.
# Usage: fuzz.sh BUILD SECONDS TARGET...
set -eu
build=$1
seconds=$2
shift 2
for t in "$@"; do
    new=$build/corpus/$t
    seeds=spec/fuzz/corpus/$t
    mkdir -p "$new"
    dict=
    [ -f "spec/fuzz/dict/$t.dict" ] && dict=-dict=spec/fuzz/dict/$t.dict
    # Lua's garbage is no leak; the replay of the corpus collects and counts
    leaks=1
    grep -q LP_FUZZ_LUA "spec/fuzz/$t.c" && leaks=0
    log=$build/corpus/$t.log
    echo "  FUZZ    $t, $seconds s"
    # shellcheck disable=SC2086
    nice -n 19 "$build/libfuzzer/$t" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=1024 -max_len=4096 -print_final_stats=1 \
        -detect_leaks=$leaks \
        -artifact_prefix="$new." $dict "$new" "$seeds" >"$log" 2>&1 || {
        tail -40 "$log"
        exit 1
    }
    # files and functions of the reader, one run over all that was found
    nice -n 19 "$build/libfuzzer/$t" -runs=0 -print_coverage=1 \
        -detect_leaks=0 \
        "$new" "$seeds" 2>"$build/corpus/$t.coverage" || :
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    edges=$(sed -n 's/.*cov: \([0-9]*\) ft: \([0-9]*\).*/\1 edges, \2 features/p' "$log" | tail -1)
    echo "          $runs executions, $edges, $(ls "$new" | wc -l) inputs"
done
