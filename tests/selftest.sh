#!/usr/bin/env bash
# tests/selftest.sh SELFTEST — it starts on a machine without driver, GPU or NCCL, and explains itself
# in one line; where there is a GPU, it passes.
set -euo pipefail
program=$1
if ldd "$program" | grep -E 'libcuda\.|libnccl'; then
    echo "$program needs the driver or NCCL to start" >&2
    exit 1
fi
said=$("$program" --cuda --small 2>&1) && { echo "$said"; exit 0; }
echo "$said"
[ "$(wc -l <<<"$said")" = 1 ] && grep -q '^selftest: no GPU to test: .' <<<"$said"
