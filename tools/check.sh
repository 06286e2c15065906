#!/usr/bin/env bash
# tools/check.sh — installs packages, builds, and runs every test; ends with ctest's summary.
#
#   tools/check.sh         everything
#   tools/check.sh unit    unit tests of one build, for daily work
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/dev/setup.sh
what=${1:-all}
case $what in all | unit) ;; *) echo "usage: tools/check.sh [unit]" >&2; exit 2 ;; esac

gt_install $GT_PACKAGES
export CTEST_OUTPUT_ON_FAILURE=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1  # without it, UBSan only prints

if [ "$what" = unit ]; then
    [ -f build/build.ninja ] || gt_configure build -DGT_WERROR=ON -DGT_UNITY=OFF
    cmake --build build
    ctest --test-dir build -L unit -j 2
    exit
fi

gt_install $GT_TEST_PACKAGES $GT_VULKAN_PACKAGES
if ! command -v nvcc >/dev/null; then
    echo "!! nvcc not found: the CUDA kernels are not compiled in this check" >&2
    [ "${GT_REQUIRE_CUDA:-0}" = 0 ] || { echo "!! GT_REQUIRE_CUDA is set: install NVIDIA's toolkit" >&2; exit 1; }
fi

say "build"
gt_configure build -DGT_WERROR=ON -DGT_VULKAN=ON "-DGT_CUDA_ARCHS=75;80;120"  # the oldest, with tensor cores for bf16, the newest
cmake --build build

say "unit tests and fuzzers under address and undefined-behaviour sanitizers, compiled by clang"
gt_configure_sanitized build-asan -DGT_WERROR=ON "-DGT_THIRD_PARTY=$PWD/build"
cmake --build build-asan --target unit-tests fuzzers
ctest --test-dir build-asan -L "unit|fuzz" -j 2

say "all tests"  # four at a time on two cores: those of several hosts wait more than they compute
GT_REQUIRE_VULKAN=1 ctest --test-dir build -j 4
