#!/usr/bin/env bash
# Runs the fuzzers: the codec, which parses messages of other hosts, for GT_FUZZ_SECONDS (default 60), each of the
# others for a twelfth of that. Exit 0: no findings. Corpora and findings stay in BUILD_DIR/fuzz. The inputs are
# those of GT_FUZZ_SEED (default 1), so that the check has no findings by chance; campaigns take other seeds.
#   tests/fuzz/run.sh [BUILD_DIR [NAME...]]     default: build-asan, which is built if needed; all of them
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-asan}
shift || true
source tools/dev/setup.sh
[ -f "$build/build.ninja" ] || gt_configure_sanitized "$build"
cmake --build "$build" --target fuzzers
out=$build/fuzz
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
[ $# -gt 0 ] || set -- codec commit feed frame hosts pictures records safetensors sealed
for name; do
    seconds=${GT_FUZZ_SECONDS:-60}
    [ "$name" = codec ] || seconds=$((seconds / 12))
    mkdir -p "$out/corpus-$name"
    long=
    [ "$name" != records ] || long=-len_control=0  # short inputs write nothing
    "$build/bin/fuzz-$name" $long -seed="${GT_FUZZ_SEED:-1}" -max_total_time="$seconds" -max_len=4096 -timeout=25 -rss_limit_mb=2048 \
        -artifact_prefix="$out/" -print_final_stats=1 "$out/corpus-$name" >"$out/$name.log" 2>&1 ||
        { tail -40 "$out/$name.log"; echo "fuzz-$name: FAILED"; exit 1; }
    echo "fuzz-$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") inputs in $seconds s, no findings"
done
