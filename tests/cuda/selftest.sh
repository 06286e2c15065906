#!/usr/bin/env bash
# tests/cuda/selftest.sh SELFTEST — selftest --cuda passes on a machine with a GPU; without driver, GPU or
# NCCL it still starts, and reports that in one line.
set -euo pipefail
program=$1
if ldd "$program" | grep -E 'libcuda\.|libnccl'; then
    echo "$program needs the driver or NCCL to start" >&2
    exit 1
fi
said=$("$program" --cuda --small 2>&1) && { echo "$said"; exit 0; }
echo "$said"
[ "$(wc -l <<<"$said")" = 1 ] && grep -q '^selftest: no GPU to test: .' <<<"$said"
