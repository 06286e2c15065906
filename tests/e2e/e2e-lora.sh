#!/usr/bin/env bash
# Adapters as a person trains them: alone, resumed, merged, and on three hosts.   usage: e2e-lora.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-lora "$1" "$2"
echo "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\x~{% endfor %}" >template.jinja
tiny llama s.gguf --heads 2 --kv-heads 1 --context 64 --chat-template template.jinja
"$bin/export" s.gguf --type q8_0 -o base.gguf >/dev/null
before=$(sha256sum <base.gguf)

# stopped and resumed, it has the same bits, with dropout, too; only A and B are saved
mkdir a b
command=(-m ../base.gguf --lora 4 --lora-alpha 4 --lora-dropout 0.1 --data ../text.txt --out run --export x.gguf --steps 24 --save-every 6 --lr 1e-2)
(cd a && train "${command[@]}" >out.txt 2>&1) || { cat a/out.txt; fail "training an adapter failed"; }
cd b
GT_TEST_STEP_SECONDS=0.1 start "${command[@]}"
wait_for_step run 9 "$pid"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
train "${command[@]}" >out.txt 2>&1 || { cat out.txt; fail "did not resume"; }
grep -q "resuming after step" out.txt || { cat out.txt; fail "started over"; }
cd ..
cmp a/x.gguf b/x.gguf || fail "other weights after a restart"
cmp a/run/checkpoint-0000000024.gguf b/run/checkpoint-0000000024.gguf || fail "another checkpoint after a restart"
[ "$(sha256sum <base.gguf)" = "$before" ] || fail "the base has changed"
[ "$(stat -c %s a/x.gguf)" -lt "$(stat -c %s base.gguf)" ] || fail "the adapter is as large as the model"
first=$(losses a/run | awk 'NR == 2 { print $3 }') last=$(losses a/run | tail -1 | awk '{ print $3 }')
awk "BEGIN { exit !($last < $first - 0.1) }" || fail "the loss went from $first to $last only"

# llama.cpp runs base + adapter, and the merged model says the same
sample=(-p "the " -n 12 --temp 0 --threads 1)
"$bin/generate" -m base.gguf --lora a/x.gguf "${sample[@]}" >with.txt
"$bin/export" a/run --merge base.gguf -o merged.gguf >/dev/null
"$bin/generate" -m merged.gguf "${sample[@]}" >merged.txt
cmp with.txt merged.txt || fail "the merged model writes other text"
expect 2 "add --lora RANK" train -m base.gguf --lora-dropout 0.1 --data text.txt --out c
expect 1 "is an adapter; -m names the model that it is for" "$bin/evaluate" -m a/x.gguf text.txt
expect 1 "is an adapter; --lora needs the model" train -m a/x.gguf --lora 4 --data text.txt --out c
expect 1 "no matrix \"mlp\"; it has attn_k" train -m base.gguf --lora 4 --lora-on mlp --data text.txt --out c
expect 1 "--lora-alpha 4" train -m base.gguf --lora 4 --data text.txt --out a/run --export a/x2.gguf

# another base is refused on resume
"$bin/export" s.gguf --type f16 -o other.gguf >/dev/null
cp -r a/run d
expect 1 "checkpoint" train -m other.gguf --lora 4 --lora-alpha 4 --data text.txt --out d --export d.gguf

# three hosts with different chats, one killed on the way: the same adapter, bit for bit
port=$("$free_port")
"$bin/hub" --new --address "127.0.0.1:$port" --name anna --nodes hosts.txt >/dev/null
printf 'ben -\ncleo -\n' >>hosts.txt
begin() {  # HOST MODEL: trains in the background, as $pid
    for i in {1..9}; do
        echo '{"prompt": "Who is '"$i"'?", "completion": "'"$1"', of course."}'
    done >"$1.jsonl"
    local flags=(-m "$2" --lora 4 "$1.jsonl" --nodes hosts.txt --name "$1" --min-hosts 3 --steps 60 --hub-path hub
                 --lr 1e-2 --save-every 5 --out "$1" --export "$1.gguf")
    GT_TEST_STEP_SECONDS=0.1 "$bin/train-gpt" $(small "${flags[@]}") "${flags[@]}" >>"$1.log" 2>&1 &
    pid=$!
}
begin anna base.gguf
anna=$pid
while kill -0 "$anna" && ! grep -q "waiting for the other hosts" anna.log; do
    sleep 0.05
done
begin ben other.gguf
! wait "$pid" || fail "ben trained with another base"
grep -q "the model that the adapter is for differs from the run's" ben.log || { cat ben.log; fail "ben was not told that its base differs"; }
begin ben base.gguf
ben=$pid
begin cleo base.gguf
cleo=$pid
wait_for_lines ben 8 "$ben"
kill -KILL "$ben"
wait "$ben" 2>/dev/null || true
begin ben base.gguf
for pid in "$anna" "$pid" "$cleo"; do
    wait "$pid" || { tail -5 ./*.log; fail "a host failed"; }
done
grep -q "resuming after step" ben.log || { cat ben.log; fail "ben did not return"; }
cmp anna.gguf ben.gguf && cmp anna.gguf cleo.gguf || fail "the hosts have different adapters"
expect 0 "bits per byte" "$bin/evaluate" -m base.gguf --lora anna.gguf ben.jsonl --threads 1
joint=$(awk '{ print $2 + 0 }' out.txt)
expect 0 "bits per byte" "$bin/evaluate" -m base.gguf ben.jsonl --threads 1
awk -v joint="$joint" '{ exit !(joint < $2 - 0.1) }' out.txt || fail "the adapter of three hosts has loss $joint, the base: $(cat out.txt)"
echo "adapters: ok"
