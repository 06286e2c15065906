#!/usr/bin/env bash
# From text to a model that llama.cpp runs: export types, fine-tuning, --from, --help and --version.   usage: e2e-train.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-train "$1" "$2"

# number KEY FILE first|last: a value of a metrics file
number() { grep -o "\"$1\":[-0-9.e]*" "$2" | sed 's/.*://' | if [ "$3" = first ]; then head -1; else tail -1; fi; }
# near A B SHARE WHY
near() { awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { exit !(a - b <= s * b && b - a <= s * b) }' || fail "$4: $1 and $2"; }

if [ ! -x "$work/../venv-gguf/bin/gguf-dump" ]; then
    python3 -m venv "$work/../venv-gguf"
    "$work/../venv-gguf/bin/pip" install --quiet gguf
fi

# a token file beside the model needs no --data
for arch in gpt2 llama; do
    tiny $arch $arch.gguf
    "$bin/prepare-data" -m $arch.gguf text.txt -o $arch.tokens >/dev/null
    expect 0 "trained model: $arch-trained.gguf" train -m $arch.gguf --steps 120 --lr 0.01
    first=$(number val_loss $arch-run/metrics.jsonl first)
    learnt=$(number val_loss $arch-run/metrics.jsonl last)
    awk -v a="$first" -v b="$learnt" 'BEGIN { exit !(b < 0.85 * a) }' || fail "$arch learnt nothing: $first to $learnt"

    # training further from its export starts at the loss it had
    expect 0 "trained model: $arch-trained-2.gguf" \
        train -m $arch-trained.gguf --data $arch.tokens --steps 10 --lr 1e-6 --eval-every 1
    again=$(number val_loss $arch-trained-run/metrics.jsonl first)
    near "$again" "$learnt" 0.001 "$arch: fine-tuning does not begin where training stopped"
    echo "$arch: validation loss $first, trained $learnt, fine-tuned from $again"

    # exports of every type, from checkpoint or model, run in llama.cpp and can be trained further
    newest=$(ls $arch-run/checkpoint-*.gguf | tail -1)
    expect 0 "" "$bin/export" "$newest" -o $arch-f32.gguf
    cmp $arch-f32.gguf $arch-trained.gguf || fail "the checkpoint and the run export different models"
    for type in f16 bf16 q8_0; do
        expect 0 "" "$bin/export" $arch-trained.gguf --type $type -o $arch-$type.gguf
        expect 0 "" "$bin/generate" -m $arch-$type.gguf -p "the lord" -n 8 --threads 1
        expect 0 "trained model" train -m $arch-$type.gguf --data $arch.tokens --steps 3 --lr 1e-6 --eval-every 1
        near "$(number val_loss $arch-$type-run/metrics.jsonl first)" "$learnt" 0.02 "$arch: $type"
        "$work/../venv-gguf/bin/python" - $arch-$type.gguf $arch <<'PY'
import sys
from gguf import GGUFReader
reader = GGUFReader(sys.argv[1])
assert reader.fields["general.architecture"].contents() == sys.argv[2]
assert not any(key.startswith("gt.") for key in reader.fields), "keys of a checkpoint in an export"
assert len(reader.tensors) > 15
PY
    done
    expect 0 "trained model" train -m $arch.gguf --steps 3 --out q8-run --export q8.gguf --export-type q8_0 --fresh
    expect 0 "" "$bin/generate" -m q8.gguf -p "the lord" -n 8 --threads 1
done
# a trained model is trained on with a tenth of the rate, and validated before its first step
expect 0 "rate     4.00e-03, for new models" train -m gpt2.gguf --steps 2 --out new
expect 0 "rate     4.00e-04, a tenth of that for new models, because gpt2-trained.gguf is trained already" \
    train -m gpt2-trained.gguf --data gpt2.tokens --steps 2 --out tenth
grep -q "step 0: validation loss" out.txt || { cat out.txt; fail "no validation before the first step"; }
# the loss of a short run does not jump (without a warm-up: from 4.29 to 6.90 at step 4)
expect 0 "gpt2, 4 layers" "$bin/new-model" --preset gpt-tiny -o preset.gguf
expect 0 "trained model" train -m preset.gguf --data text.txt --batch 8 --steps 20 --val 0 --rule adamw --out calm
grep -o '"loss":[0-9.]*' calm/metrics.jsonl | cut -d: -f2 | awk 'NR > 1 && $1 > before + 0.3 { print before, $1; bad = 1 } { before = $1 } END { exit bad || NR != 20 }' ||
    fail "the loss of a short run jumps"

# a short run spends its time on training: one sample, few validations
expect 0 "trained model" train -m gpt2.gguf --steps 20 --out brief
[ "$(grep -c ": sample" out.txt)" = 1 ] && [ "$(grep -c "validation loss" out.txt)" -le 4 ] || { cat out.txt; fail "samples and validations of 20 steps"; }
expect 0 "q8_0 weights, unpacked to F32" "$bin/new-model" --from gpt2-q8_0.gguf -o from.gguf
expect 0 "trained model" train -m from.gguf --data text.txt --steps 2

# --tokens, --hours, and a run of one step
expect 0 "12 steps" train -m gpt2.gguf --tokens 1600 --out by-tokens --export x.gguf
expect 0 "hours: about" train -m gpt2.gguf --hours 0.0005 --out by-hours --export x.gguf
expect 0 "1/1 100%" train -m gpt2.gguf --steps 1 --out one --export x.gguf
# several forms of text in one run
mkdir books && cp text.txt books/1.txt && gzip -c text.txt >books/2.txt.gz
expect 0 "trained model" train -m gpt2.gguf --data books --steps 2 --out books-run --export x.gguf

# a tokenizer of one's own
expect 1 "this text is enough for 308 tokens" "$bin/new-model" --preset llama-tiny --train-vocab text.txt -o own.gguf
tiny llama own.gguf --train-vocab text.txt --vocab-size 300
expect 0 "trained model" train -m own.gguf text.txt --steps 2
expect 0 "Moses" "$bin/generate" -m own-trained.gguf -p "Moses" -n 4

# every program has --version and suggests the flag that was meant
n=0
for tool in new-model prepare-data train-gpt train-vit generate evaluate classify export hub plan selftest; do
    [ -x "$bin/$tool" ] || continue
    ((++n))
    expect 0 "usage: $tool" "$bin/$tool" --help
    expect 0 "$tool (ggml-train)" "$bin/$tool" --version
    expect 2 "$tool --help all lists all flags" "$bin/$tool" --no-such-flag
done
[ $n -ge 5 ] || fail "only $n programs are built"
echo "e2e-train: passed"
