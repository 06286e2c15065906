#!/bin/sh
# compile.sh REPORT COMMAND... — runs a compiler, keeps what ptxas says of registers and shared memory
# in REPORT, and shows it only if the compiler fails.
report=$1
shift
if "$@" >"$report.new" 2>&1; then
    grep -v 'Compile time\|^$' "$report.new" >"$report" || true
    rm -f "$report.new"
else
    cat "$report.new" >&2
    rm -f "$report.new"
    exit 1
fi
