#!/usr/bin/env bash
# Builds the fuzzers with clang and runs them: the codec, which parses untrusted messages, for
# GT_FUZZ_SECONDS (default 60), each of the others for a twelfth of that. Exit 0: no findings.
#   tests/fuzz/run.sh [folder for binaries and corpora [NAME...]]      NAME: codec, commit, feed, frame, hosts, safetensors, sealed
# The head of a fuzzer lists its SOURCES (default: optim/) and LIBS.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$source_dir/build/fuzz}
shift || true
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(codec commit feed frame hosts safetensors sealed)
clang=${CLANGXX:-$(command -v clang++ || command -v clang++-14 || true)}
if [[ -z $clang ]]; then
    echo "no clang++: sudo apt-get install clang libclang-rt-14-dev"
    exit 77  # skipped
fi
mkdir -p "$out/objects"
llama_cpp=${GT_LLAMA_CPP_DIR:-$(ls -d "$source_dir"/build/llama-cpp-python/*/vendor/llama.cpp)}  # has nlohmann's JSON
flags="-std=c++20 -O1 -g1 -march=x86-64-v3 -fsanitize=fuzzer-no-link,address,undefined
       -fno-sanitize-recover=all -ffp-contract=off -Wno-psabi -DGT_VERSION=\"fuzz\" -I$source_dir -isystem $llama_cpp/vendor"
cd "$source_dir"

field() { sed -n "s|^// $1: ||p" "tests/fuzz/fuzz-$2.cpp"; }

sources_of() {
    local listed
    listed=$(field SOURCES "$1")
    if [[ -n $listed ]]; then
        tr ' ' '\n' <<<"$listed"
    else
        ls optim/*.cpp optim/*/*.cpp ggml-train/base/{base,device}.cpp | grep -v momentum-graph
    fi
    echo "tests/fuzz/fuzz-$1.cpp"
}

# one object per source, rebuilt if a source or header is newer
object_of() { echo "$out/objects/$(tr / - <<<"${1%.cpp}").o"; }
newest=$(ls -t optim/{,*/}*.* {comm,models}/{,*/}*.* ggml-train/base/* ggml-train/{local-group,peers,optimizer}.h | sed -n 1p)  # head would end ls with SIGPIPE
compile() {
    local object
    object=$(object_of "$1")
    if [[ ! $object -nt $newest || ! $object -nt $1 ]]; then
        # shellcheck disable=SC2086
        "$clang" $flags -c "$1" -o "$object"
    fi
}
export -f compile object_of
export out clang flags newest
for name in "${names[@]}"; do sources_of "$name"; done | sort -u | xargs -P "$(nproc)" -I{} bash -c 'compile {}'

for name in "${names[@]}"; do
    seconds=${GT_FUZZ_SECONDS:-60}
    [[ $name == codec ]] || seconds=$((seconds / 12))
    mapfile -t objects < <(for file in $(sources_of "$name"); do object_of "$file"; done)
    # shellcheck disable=SC2046
    "$clang" -fsanitize=fuzzer,address,undefined "${objects[@]}" -lpthread $(field LIBS "$name") -o "$out/fuzz-$name"
    mkdir -p "$out/corpus-$name"
    "$out/fuzz-$name" -max_total_time="$seconds" -max_len=4096 -timeout=25 -rss_limit_mb=2048 \
        -artifact_prefix="$out/" -print_final_stats=1 "$out/corpus-$name" >"$out/$name.log" 2>&1 ||
        { tail -40 "$out/$name.log"; echo "fuzz-$name: FAILED"; exit 1; }
    echo "fuzz-$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") inputs in $seconds s, no findings"
done
