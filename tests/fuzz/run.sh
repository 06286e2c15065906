#!/bin/bash
# run.sh [NAME...] — builds each fuzz-*.cpp (or those named) with clang and runs it for
# ${GT_FUZZ_SECONDS:-20} seconds. What a target needs stands in it: "// SOURCES: ..." and
# "// LIBS: ..."; a file that crashes it is left in ${GT_FUZZ_DIR:-/tmp/gt-fuzz}.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${GT_FUZZ_DIR:-/tmp/gt-fuzz}
clang=${CLANGXX:-clang++-14}
mkdir -p "$out"
cd "$root"
command -v "$clang" >/dev/null || { echo "fuzz: no $clang; sudo apt-get install clang-14" >&2; exit 1; }

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(tests/fuzz/fuzz-*.cpp)
failed=0
for target in "${targets[@]}"; do
    name=$(basename "$target" .cpp)
    file=tests/fuzz/$name.cpp
    sources=$(sed -n 's|^// SOURCES: *||p' "$file")
    libs=$(sed -n 's|^// LIBS: *||p' "$file")
    # shellcheck disable=SC2086
    "$clang" -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -I. -DGT_VERSION=\"fuzz\" -o "$out/$name" "$file" $sources $libs
    mkdir -p "$out/$name.corpus"
    if "$out/$name" -max_total_time="${GT_FUZZ_SECONDS:-20}" -rss_limit_mb=1024 -max_len=8192 \
        -artifact_prefix="$out/$name-" "$out/$name.corpus" >"$out/$name.log" 2>&1; then
        echo "$name: $(grep -o 'Done [0-9]* runs' "$out/$name.log"), nothing found"
    else
        tail -30 "$out/$name.log" >&2
        echo "$name: FAILED, see $out/$name.log" >&2
        failed=1
    fi
done
exit $failed
