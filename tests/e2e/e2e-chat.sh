#!/usr/bin/env bash
# Twenty chats are learnt by heart and answered word for word through the chat template; measures; bad
# input.   usage: e2e-chat.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-chat "$1" "$2"

cat >template.jinja <<'JINJA'
{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\x~{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}
JINJA
names=(ant bee cat dog eel fox gnu hen ibis jay kite lark mole newt owl pig quail ram seal toad)
places=(hill hive sofa yard sea wood plain barn marsh oak sky field soil pond tower sty corn farm ice moss)
for i in "${!names[@]}"; do
    question[i]="Where is the ${names[i]}?" answer[i]="In the ${places[i]}, at $((i * 37 % 24))."
    printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' "${question[i]}" "${answer[i]}"
done >chats.jsonl

# what counts is shown before the first step; several chats share a sample
tiny llama chat.gguf --width 64 --layers 2 --context 128 --chat-template template.jinja
expect 0 "user: Where is the ant?\\x~assistant: [[In the hill, at 0.\\x~]]" \
    train -m chat.gguf chats.jsonl --val-fraction 0 --epochs 320 --batch 8 --lr 0.005 --temp 0
grep -q "20 chats in 10 samples" out.txt || fail "chats were not packed: $(grep ^data out.txt)"
grep -q "In the hill, at 0" out.txt || fail "samples do not go through the template"
for i in "${!names[@]}"; do
    said=$("$bin/generate" -m chat-trained.gguf --chat -p "${question[i]}" --temp 0 --no-echo --threads 1)
    [ "$said" = "${answer[i]}" ] || fail "${question[i]}: $said, not ${answer[i]}"
done
echo "e2e-chat: twenty chats answered word for word"

# an adapter learns other answers, on a quantized base
places=("${places[@]:7}" "${places[@]:0:7}")
for i in "${!names[@]}"; do
    answer[i]="Near the ${places[i]}, at $((i * 41 % 24))."
    printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' "${question[i]}" "${answer[i]}"
done >others.jsonl
"$bin/export" chat-trained.gguf --type q8_0 -o base.gguf >/dev/null
expect 0 "adapter of rank 16 on all matrices" train -m base.gguf others.jsonl --lora 16 --val-fraction 0 --epochs 320 --batch 8 --lr 0.01 --export lora.gguf
for i in "${!names[@]}"; do
    said=$("$bin/generate" -m base.gguf --lora lora.gguf --chat -p "${question[i]}" --temp 0 --no-echo --threads 1)
    [ "$said" = "${answer[i]}" ] || fail "${question[i]}: $said, not ${answer[i]}"
done
expect 0 "bits per byte" "$bin/evaluate" -m base.gguf --lora lora.gguf others.jsonl --threads 1
awk -v a="$(losses base-run | awk '$3 { loss = $3 } END { print loss }')" '{ d = $2 - a; exit !(d < 0.01 && d > -0.01) }' out.txt ||
    fail "the last loss of $(losses base-run | tail -1), evaluate --lora: $(cat out.txt)"
echo "e2e-chat: twenty other answers of the adapter, word for word"

# the same measures from libllama and from training
expect 0 "bits per byte" "$bin/evaluate" -m chat-trained.gguf chats.jsonl --threads 1
awk '{ exit !($2 < 0.05) }' out.txt || fail "evaluate: $(cat out.txt)"
tiny gpt2 plain.gguf
"$bin/prepare-data" -m plain.gguf text.txt -o plain.tokens >/dev/null
expect 0 "perplexity" train -m plain.gguf plain.tokens --epochs 0.02 --eval-batches 1000
trained=$(grep -o 'validation loss.*' out.txt | tail -1)
expect 0 "loss" "$bin/evaluate" -m plain-trained.gguf plain.tokens --threads 1
echo "e2e-chat: training says $trained, evaluate $(cat out.txt)"
awk -v a="$(cut -d' ' -f3 <<<"$trained")" '{ d = $2 - a; exit !(d < 0.01 && d > -0.01) }' out.txt || fail "training and evaluate differ"

# bad input
expect 1 "plain.gguf: has no chat template" train -m plain.gguf chats.jsonl
sed '7s/.\{9\}$//' chats.jsonl >cut.jsonl
expect 1 "cut.jsonl:7: is not a JSON object, or is cut off; repair or remove the line" train -m chat.gguf cut.jsonl --out cut-run
expect 2 "give one" train -m chat.gguf chats.jsonl --epochs 2 --steps 3 --out two-run
expect 0 "20 truncated to 40 tokens" train -m chat.gguf chats.jsonl --context 40 --val-fraction 0 --steps 1 --out short-run
echo "e2e-chat: passed"
