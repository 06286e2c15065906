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
mkdir -p "$out/objects" "$out/corpus-codec"
flags="-std=c++20 -O1 -g1 -march=x86-64-v3 -fsanitize=fuzzer-no-link,address,undefined
       -fno-sanitize-recover=all -ffp-contract=off -Wno-psabi -DGT_VERSION=\"fuzz\" -I$source_dir"

# one object per source, again only if a source or header is newer
newest=$(ls -t "$source_dir"/optim/* "$source_dir"/ggml-train/{base,exchange,optimizer}* | head -1)
compile() {
    object=$out/objects/$(basename "$1" .cpp).o
    if [[ ! $object -nt $newest || ! $object -nt $1 ]]; then
        # shellcheck disable=SC2086
        "$clang" $flags -c "$1" -o "$object"
    fi
}
export -f compile
export out clang flags newest
ls "$source_dir"/optim/*.cpp "$source_dir"/ggml-train/base.cpp "$source_dir"/tests/fuzz/fuzz-codec.cpp |
    grep -v -e demo-graph -e demo-plan | xargs -P "$(nproc)" -I{} bash -c 'compile {}'
"$clang" -fsanitize=fuzzer,address,undefined "$out"/objects/*.o -lpthread -o "$out/fuzz-codec"

"$out/fuzz-codec" -max_total_time="${GT_FUZZ_SECONDS:-60}" -max_len=4096 -timeout=25 -rss_limit_mb=2048 \
    -artifact_prefix="$out/" -print_final_stats=1 "$out/corpus-codec" 2>&1 | tail -20
