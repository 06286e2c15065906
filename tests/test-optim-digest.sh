#!/usr/bin/env bash
# Runs each given build of optim-digest on 1 and on 8 threads; all must print the same.
set -euo pipefail
want=$("$1" 1)
for program in "$@"; do
    for threads in 1 8; do
        if ! diff <(echo "$want") <("$program" "$threads"); then
            echo "$program on $threads threads differs from $1 on one"
            exit 1
        fi
    done
done
echo "$# builds, $(wc -l <<< "$want") digests each: all equal"
