#!/usr/bin/env bash
# clang-tidy (of Debian 12 or 13) with the checks of .clang-tidy; a finding is an error.
#   tests/tidy.sh BUILD_DIR           the files that parse input from outside: messages, commits, requests,
#                                     hosts.txt, model files, texts (about two minutes; part of the check)
#   tests/tidy.sh BUILD_DIR all       every source of the libraries and tools
#   tests/tidy.sh BUILD_DIR FILE...
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '3,6p' "$0" >&2; exit 2; }
build=$1
shift
command -v clang-tidy >/dev/null || { echo "tidy: sudo apt-get install clang-tidy" >&2; exit 1; }
[ -f "$build/third-party.cmake" ] || { echo "tidy: $build is not configured" >&2; exit 1; }
# compile commands of our sources, each by itself and once
cmake -G Ninja -S . -B "$build/tidy" -DGT_TESTS=OFF "-DGT_THIRD_PARTY=$(realpath "$build")" >/dev/null
case ${1:-parsers} in
    parsers) files=$(ls comm/wire/*.cpp comm/run/hosts.cpp comm/hub/hub-requests.cpp optim/wire/*.cpp ggml-train/gguf/*.cpp models/text/text-source.cpp) ;;
    all) files=$(find ggml-train models optim comm tools -name '*.cpp' ! -path '*-cuda*' ! -path '*/cuda/*') ;;
    *) files=$* ;;
esac
xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "$build/tidy" --extra-arg=-Wno-unknown-warning-option --extra-arg=-w <<<"$files" 2>/dev/null
echo "tidy: no finding in $(wc -w <<<"$files") files"
