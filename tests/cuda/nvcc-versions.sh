#!/usr/bin/env bash
# tests/cuda/nvcc-versions.sh WORK_DIR — what ggml-train/cuda/CMakeLists.txt makes of other toolkits' nvcc, here scripts
# that answer as they do: too old for our kernels, without the newest GPUs, and one that knows only those.
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$1" && mkdir -p "$1" && cd "$1"
fail() { cat lines.txt; echo "nvcc-versions: $*" >&2; exit 1; }

# nvcc VERSION ARCH...
nvcc() {
    local version=$1
    shift
    printf '#!/bin/sh\ncase $1 in\n--version) echo "Cuda compilation tools, release %s, V%s.0" ;;\n--list-gpu-arch) echo "%s" ;;\nesac\n' \
        "$version" "$version" "$(printf 'compute_%s ' "$@")" >nvcc
    chmod +x nvcc
}

# configures; CMake breaks long messages into lines; out.txt is one.
configure() {
    local code=0
    rm -rf build
    cmake -G Ninja -S . -B build -DGT_NVCC="$PWD/nvcc" "$@" >lines.txt 2>&1 || code=$?
    tr -s ' \n' ' ' <lines.txt >out.txt
    return $code
}
cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(nvcc-versions LANGUAGES C CXX)
add_library(gt-base INTERFACE)
add_subdirectory($tree/ggml-train/cuda cuda)
message(STATUS "kernels: \${GT_HAS_CUDA_KERNELS}")
CMAKE
codes() { grep -hoE 'arch=compute_[0-9]+,code=(sm|compute)_[0-9]+' build/build.ninja | sort -u | tr '\n' ' '; }

nvcc 11.8 75 80 86
configure || fail "a build for the CPU does not configure beside an nvcc of CUDA 11"
if grep -q "not the CUDA runtime" out.txt; then
    echo "nvcc-versions: skipped, CUDA's runtime is not installed"
    exit 77
fi
grep -q "older than 12: our CUDA kernels are not" out.txt || fail "nothing says why there are no kernels"
grep -q "kernels: OFF" out.txt || fail "kernels of an nvcc that is too old"
! configure -DGT_CUDA=ON || fail "GT_CUDA with an nvcc of CUDA 11"
grep -q "GT_CUDA needs CUDA 12 or later" out.txt || fail "the error names no version"

nvcc 12.4 75 80 86 89 90
configure || fail "CUDA 12.4 does not configure"
grep -q "kernels: ON" out.txt || fail "no kernels with CUDA 12.4"
all=$(codes)
[[ $all == *"arch=compute_75,code=compute_75"* && $all == *"arch=compute_90,code=sm_90"* ]] || fail "CUDA 12.4: $all"
[[ $all != *120* ]] || fail "code for GPUs that nvcc does not know: $all"

nvcc 14.0 100 120
configure || fail "an nvcc without the oldest GPUs does not configure"
all=$(codes)
[[ $all == *"arch=compute_120,code=sm_120"* && $all == *"arch=compute_120,code=compute_120"* && $all != *75* ]] || fail "$all"
echo "nvcc-versions: passed"
