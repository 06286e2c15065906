#!/usr/bin/env bash
# tests/cuda/ptx-check.sh [--fma KERNEL] FILE.ptx... — refuses PTX whose float arithmetic another GPU, or the
# CPU, might round differently: without .rn (ptxas may contract it), fused, approximate, flushing
# subnormals, or atomic. For kernels on whose bits hosts must agree. --fma: kernels of this name, and only
# these, may use fma.rn.f32 (__fmaf_rn).
set -euo pipefail
fma='^$'
if [ "$1" = --fma ]; then
    fma=$2
    shift 2
fi
bad=0
for file in "$@"; do
    grep -q '\.entry' "$file" || { echo "$file: no kernel in it" >&2; bad=1; }
    while IFS= read -r line; do
        echo "$file: $line" >&2
        bad=1
    done < <(awk -v fma="$fma" '
        /\.entry/ { asks = $0 ~ fma }
        { print FNR ":" (asks && /^[ \t]*fma\.rn\.f32[ \t]/ ? "" : $0) }' "$file" | grep -E \
        -e '^[0-9]+:\s*(@!?%p[0-9]+ +)?(add|sub|mul|div|sqrt|rcp)\.f(32|64)' \
        -e '\b(fma|mad)\.[a-z.]*f(32|64)' \
        -e '\.(approx|ftz|full|sat|rm|rp|rz)\.[a-z.]*f(32|64)' \
        -e '\b(ex2|lg2|sin|cos|tanh|rsqrt)\.' \
        -e '\b(atom|red)\.[a-z0-9_.:]*f(16|32|64)' || true)
done
[ $bad -eq 0 ] || echo "ptx-check: arithmetic that is not rounded operation by operation" >&2
exit $bad
