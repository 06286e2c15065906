#!/usr/bin/env bash
# Builds with GT_CUDA=ON, ggml's CUDA backend included, for one architecture, and starts the programs: without a
# driver they say so in one line; with a GPU, one training step there equals the CPU's.
#   tests/cuda-build.sh [ARCH] [CMAKE_OPTION...]     86 by default; over an hour of one core
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-86}
shift || true
folder=build-cuda
source tools/dev/setup.sh
gt_configure "$folder" -DGT_CUDA=ON -DGT_TESTS=OFF "-DGT_CUDA_ARCHS=$arch" "-DCMAKE_CUDA_ARCHITECTURES=$arch" \
    -DGGML_CUDA_FA=OFF "$@"
grep -q '^GGML_CUDA_GRAPHS:BOOL=OFF' "$folder/CMakeCache.txt"  # see tools/dev/dependencies.cmake
SECONDS=0
cmake --build "$folder" --target programs
say "built in $((SECONDS / 60)) minutes"
"$folder/bin/train-gpt" --list-devices | tee "$folder/devices.txt"
if grep -q '^  cuda:0' "$folder/devices.txt"; then
    "$folder/bin/selftest" --cuda
    exec "$folder/bin/selftest" --device cuda:0
fi
grep -q '^  cuda  no device: no driver found' "$folder/devices.txt"
tests/cuda/selftest.sh "$folder/bin/selftest"
