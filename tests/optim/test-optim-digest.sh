#!/usr/bin/env bash
# Runs each build of optim-digest with 1 and 8 threads; all must print the same digests.
set -euo pipefail
want=$("$1" 1)
for program in "$@"; do
    for threads in 1 8; do
        if ! diff <(echo "$want") <("$program" "$threads"); then
            echo "$program on $threads threads differs from $1 on one thread"
            exit 1
        fi
    done
done
echo "$# builds, $(wc -l <<< "$want") digests each: all equal"
