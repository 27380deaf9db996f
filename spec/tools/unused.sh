#!/bin/sh
# Finds functions and variables that nobody needs: every lp_ symbol that an
# object defines for others must be read by another object, of the program or
# of the tools that check what Lua cannot reach. Usage: unused.sh BUILD
set -u
obj=${1:-build}/obj
files=$(for c in $(find src runtime spec/tools spec/fuzz -name '*.c'); do
    ls "$obj/${c%.c}.o" "$obj/${c%.c}".*.o 2>/dev/null
done)
if [ -z "$files" ]; then
    echo "unused.sh: no objects below $obj: build first"
    exit 1
fi
# shellcheck disable=SC2086
nm -A $files | awk '
    { file = $1; sub(/:.*/, "", file) }
    $NF !~ /^lp_/ { next }
    $(NF - 1) ~ /^[TDBRCVW]$/ { home[$NF] = file }
    $(NF - 1) == "U" { used[$NF] = 1 }
    END {
        for (name in home)
            if (!(name in used)) {
                print home[name] ": " name " is used nowhere else: make it" \
                    " static or delete it"
                bad = 1
            }
        exit bad
    }'
