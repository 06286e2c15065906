#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each for GT_FUZZ_SECONDS (default 60). Finds nothing: exit 0.
#   tests/fuzz/run.sh [folder for binaries and corpora]
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$source_dir/build/fuzz}
clang=${CLANGXX:-$(command -v clang++ || command -v clang++-14 || true)}
if [[ -z $clang ]]; then
    echo "no clang++: sudo apt-get install clang libclang-rt-14-dev"
    exit 77  # skipped
fi
mkdir -p "$out/corpus-codec"
flags=(-std=c++20 -O1 -g -march=x86-64-v3 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
       -ffp-contract=off -Wno-psabi -DGT_VERSION='"fuzz"' -I"$source_dir")
sources=("$source_dir"/optim/*.cpp "$source_dir"/ggml-train/base.cpp)
sources=("${sources[@]/*demo-graph.cpp/}")
# shellcheck disable=SC2068
"$clang" "${flags[@]}" "$source_dir/tests/fuzz/fuzz-codec.cpp" ${sources[@]} -lpthread -o "$out/fuzz-codec"
"$out/fuzz-codec" -max_total_time="${GT_FUZZ_SECONDS:-60}" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$out/" -print_final_stats=1 "$out/corpus-codec" 2>&1 | tail -20
