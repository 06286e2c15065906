#!/usr/bin/env bash
# Fails if a C++ file is not formatted as .clang-format says (clang-format 14: other versions differ).
#   tests/format.sh          check
#   tests/format.sh --fix    format in place
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/dev/llvm14.sh
format=$(gt_llvm14 clang-format)
options=(--dry-run -Werror)
[ "${1:-}" != --fix ] || options=(-i)
find ggml-train models optim comm tools tests -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' |
    xargs -P "$(nproc)" -n 20 "$format" --style=file "${options[@]}"
echo "format: every C++ file follows .clang-format"
