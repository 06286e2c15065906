#!/usr/bin/env bash
# Fails if a C++ file is not formatted as .clang-format says (clang-format 14: other versions differ).
#   tests/format.sh          check
#   tests/format.sh --fix    format in place
set -euo pipefail
cd "$(dirname "$0")/.."

# version 14 is Debian 12's; elsewhere it comes from PyPI
format=clang-format-14
if ! command -v "$format" >/dev/null; then
    venv=build/venv-format
    [ -x $venv/bin/python ] || python3 -m venv $venv
    $venv/bin/pip install --quiet clang-format==14.0.6
    format=$venv/bin/clang-format
fi
options=(--dry-run -Werror)
[ "${1:-}" != --fix ] || options=(-i)
find ggml-train models optim comm tools tests -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' |
    xargs -P "$(nproc)" -n 20 "$format" --style=file "${options[@]}"
echo "format: every C++ file follows .clang-format"
