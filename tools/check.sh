#!/usr/bin/env bash
# tools/check.sh — installs, builds, and runs every test; ends with ctest's own count.
#
#   tools/check.sh         everything
#   tools/check.sh unit    the quick form for daily work: unit tests of one build
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
what=${1:-all}
case $what in all | unit) ;; *) echo "usage: tools/check.sh [unit]" >&2; exit 2 ;; esac

gt_install $GT_PACKAGES
export CTEST_OUTPUT_ON_FAILURE=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1  # else it only prints

if [ "$what" = unit ]; then
    [ -f build/build.ninja ] || gt_configure build
    cmake --build build
    ctest --test-dir build -L unit -j 2
    exit
fi

gt_install python3-venv clang-14 libclang-rt-14-dev bible-kjv dataset-fashion-mnist iproute2 chromium
if ! command -v nvcc >/dev/null; then
    echo "!! nvcc not found: THE CUDA KERNELS ARE NOT COMPILED in this check" >&2
    [ "${GT_REQUIRE_CUDA:-0}" = 0 ] || { echo "!! and this check requires them" >&2; exit 1; }
fi

say "build"
gt_configure build
cmake --build build

say "unit tests under address and undefined-behaviour sanitizers"
gt_configure build-asan -DCMAKE_BUILD_TYPE=Release -DGT_SANITIZE=address,undefined \
    "-DGT_LLAMA_CPP_DIR=$(grep -m1 '^llama.cpp_SOURCE_DIR' build/CMakeCache.txt | cut -d= -f2)"
cmake --build build-asan --target unit-tests
ctest --test-dir build-asan -L unit -j 2

say "all tests"
ctest --test-dir build -j 2
