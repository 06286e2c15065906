#!/usr/bin/env bash
# Every command of the README that is in a ```sh block, in order, in an empty folder with books/ in
# it; and every file that the README names is there.   usage: e2e-readme.sh BIN_DIR WORK_DIR
set -euo pipefail
readme=$(cd "$(dirname "$0")/.." && pwd)/README.md
source "$(dirname "$0")/e2e.inc.sh" e2e-readme "$1" "$2"
mkdir books build && cp text.txt books/ && ln -s "$bin" build/bin
export PATH="$bin:$PATH"
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$readme" | sed "s/:7077/:$("$free_port")/" >commands.sh
[ "$(wc -l <commands.sh)" -ge 5 ] || fail "found no commands in the README"
# five walks through 60,000 pictures take minutes: two steps show that the command is right
cat - commands.sh >short.sh <<<'train-vit() { command train-vit "$@" --steps 2; }'
bash -euxo pipefail short.sh >out.txt 2>&1 || { tail -20 out.txt; fail "a command of the README failed"; }
for made in small.gguf small-trained.gguf small-q8_0.gguf fashion-trained.gguf hosts.txt; do
    [ -s $made ] || fail "the README's commands did not make $made"
done
for program in $(grep -oE '^(new-model|train-gpt|train-vit|generate|classify|export|hub|plan)\b' "$readme" | sort -u); do
    "$program" --help >/dev/null || fail "$program --help"
done
for file in $(grep -oE '`(tools|tests|ggml-train|models|optim|comm)/[a-z0-9./_-]+\.[a-z]+`' "$readme" | tr -d '`' | sort -u); do
    [ -e "$(dirname "$readme")/$file" ] || fail "the README names $file, which is not there"
done
echo "e2e-readme: passed"
