#!/usr/bin/env bash
# tests/ptx-check.sh FILE.ptx... — refuses PTX whose float arithmetic another GPU, or the CPU, might
# round differently: without .rn (ptxas may contract it), fused, approximate, flushing subnormals, or
# atomic. For what hosts must agree on bit for bit.
set -euo pipefail
bad=0
for file in "$@"; do
    grep -q '\.entry' "$file" || { echo "$file: no kernel in it" >&2; bad=1; }
    while IFS= read -r line; do
        echo "$file: $line" >&2
        bad=1
    done < <(grep -nE \
        -e '^\s*(@!?%p[0-9]+ +)?(add|sub|mul|div|sqrt|rcp)\.f(32|64)' \
        -e '\b(fma|mad)\.[a-z.]*f(32|64)' \
        -e '\.(approx|ftz|full|sat|rm|rp|rz)\.[a-z.]*f(32|64)' \
        -e '\b(ex2|lg2|sin|cos|tanh|rsqrt)\.' \
        -e '\b(atom|red)\.[a-z0-9_.:]*f(16|32|64)' \
        "$file" || true)
done
[ $bad -eq 0 ] || echo "ptx-check: arithmetic that is not rounded operation by operation" >&2
exit $bad
