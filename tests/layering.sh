#!/usr/bin/env bash
# Fails on an include between subfolders that is not an arrow of the list below, on a production file
# that includes a test, and on a std::function in a header of the engine: data, optimizer and peers come
# in as interfaces and settings as plain data, not as closures filled by tools.
# usage: layering.sh [SOURCE_DIR]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# from -> to: a file in `from` may include headers of its own folder and those of `to`, a folder (its own
# files, not its subfolders) or one header. ggml-train/*.h without trainer.h are the engine's interfaces.
arrows='
ggml-train/base   ->
ggml-train/cpu    -> ggml-train/base
ggml-train/cuda   -> ggml-train/base ggml-train/cpu
ggml-train/gguf   -> ggml-train/base ggml-train/optimizer.h
ggml-train/device -> ggml-train/base ggml-train/cuda
ggml-train/graph  -> ggml-train/base ggml-train/cpu ggml-train/cuda ggml-train/device ggml-train/batch.h ggml-train/model.h
ggml-train/shard  -> ggml-train/base ggml-train/cuda ggml-train/device ggml-train/gguf ggml-train/graph
ggml-train/shard  -> ggml-train/local-group.h ggml-train/model.h ggml-train/optimizer.h
ggml-train/run    -> ggml-train/base ggml-train/gguf ggml-train/shard ggml-train/peers.h
ggml-train        -> ggml-train/base ggml-train/gguf ggml-train/graph ggml-train/run ggml-train/shard

models            -> ggml-train/base ggml-train/gguf ggml-train/graph ggml-train/shard ggml-train/model.h
models/text       -> ggml-train/base ggml-train/gguf ggml-train/batch.h ggml-train/data.h ggml-train/evaluator.h models
models/arch       -> models
models/vision     -> ggml-train/base
models/classifier -> ggml-train/base ggml-train/graph ggml-train/data.h ggml-train/evaluator.h models models/vision
models/convert    -> ggml-train/base ggml-train/gguf models

optim/math        -> ggml-train/base ggml-train/cuda/demo.h ggml-train/optimizer.h
optim/rules       -> ggml-train/base ggml-train/cuda ggml-train/optimizer.h optim/math
optim/wire        -> ggml-train/base ggml-train/optimizer.h optim/math
optim/device      -> ggml-train/base ggml-train/cuda ggml-train/device ggml-train/graph optim/math optim/rules optim/wire
optim             -> ggml-train/base ggml-train/cuda ggml-train/local-group.h ggml-train/optimizer.h ggml-train/shard/ranks.h
optim             -> optim/device optim/math optim/rules optim/wire

comm/local        -> ggml-train/base ggml-train/local-group.h
comm/wire         -> ggml-train/base
comm/http         -> ggml-train/base comm/wire
comm/store        -> ggml-train/base comm/wire comm/http
comm/sequencer    -> ggml-train/base comm/wire comm/store
comm/status       -> ggml-train/base
comm/rounds       -> ggml-train/base ggml-train/peers.h comm/wire comm/store comm/sequencer
comm/hub          -> ggml-train/base comm/wire comm/http comm/store comm/sequencer comm/status
comm/run          -> ggml-train/base comm/wire comm/store
comm              -> ggml-train/base ggml-train/peers.h comm/wire comm/store comm/sequencer comm/rounds comm/hub comm/run comm/local

tools/cli         -> ggml-train/base
tools/hf          -> ggml-train/base tools/cli
tools/selftest    -> ggml-train/base ggml-train/cuda ggml-train/device ggml-train/graph models optim optim/device optim/math optim/rules comm/local
tools/classify    -> ggml-train/base ggml-train/gguf models models/classifier
tools/inspect     -> ggml-train/base ggml-train/gguf ggml-train/run models models/text models/vision comm/run comm/wire
tools/train       -> * tools/cli tools/selftest
tools             -> * tools/classify tools/cli tools/hf tools/inspect tools/selftest tools/train
'
# `*` above: every folder of the libraries
libraries='ggml-train(/[a-z]+)?|models(/[a-z]+)?|optim(/[a-z]+)?|comm(/[a-z]+)?'
bad=0
report() { printf 'layering: %s\n' "$*" >&2; bad=1; }

# includes FOLDER...: "file header" of every include of ours
includes() {
    grep -rE --include='*.h' --include='*.cpp' --include='*.cuh' --include='*.cu' '^[[:space:]]*#[[:space:]]*include' "$@" |
        sed -nE 's/^([^:]+):[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]+)[>"].*/\1 \2/p'
}

declare -A allowed
while read -r from _ to; do
    [ -z "$from" ] || allowed[$from]="${allowed[$from]:- $from} $to "
done <<<"$arrows"
while read -r file header; do
    from=${file%/*} to=${header%/*}
    case $header in
        ../*) report "$file: write includes from the top folder: $header"; continue ;;
        tests/*) report "$file includes $header: production code must not include tests"; continue ;;
        ggml-train/* | models/* | optim/* | comm/* | tools/*) ;;
        ggml*.h | gguf*.h | llama*.h)  # ggml itself
            case $from in
                comm* | ggml-train/base | tools/cli) report "$file includes $header: $from builds without ggml" ;;
                optim*) [[ $file =~ ^optim/device/[a-z-]*graph[a-z-]*\. ]] || report "$file includes $header: optim works on arrays" ;;
            esac
            continue ;;
        *) continue ;;
    esac
    [ -n "${allowed[$from]:-}" ] || { report "$file: the folder $from has no line in tests/layering.sh"; continue; }
    [[ ${allowed[$from]} == *" $to "* || ${allowed[$from]} == *" $header "* ]] && continue
    [[ ${allowed[$from]} == *" * "* && $to =~ ^($libraries)$ ]] && continue
    report "$file includes $header: no arrow $from -> $to"
done < <(includes ggml-train models optim comm tools | sort -u)

while read -r file header; do
    [[ $header != ../* ]] || report "$file: write includes from the top folder: $header"
done < <(includes tests)

# The exceptions: bodies of loops inside the engine, and the clock that tests of the progress line set.
loops='ggml-train/(base/base|graph/autograd|shard/shared-state|shard/stream|run/progress)\.h'
while read -r found; do
    [[ $found =~ ^$loops: ]] || report "$found: no std::function in a header of the engine"
done < <(grep -rn --include='*.h' --include='*.cuh' 'std::function<' ggml-train || true)

[ $bad = 0 ] && echo "layering: every include follows an arrow"
exit $bad
