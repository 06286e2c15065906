#!/usr/bin/env bash
# Adapters as a person trains them: alone, resumed, merged, and on three hosts.   usage: e2e-lora.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-lora "$1" "$2"
tiny llama s.gguf --heads 2 --kv-heads 1
"$bin/export" s.gguf --type q8_0 -o base.gguf >/dev/null
before=$(sha256sum <base.gguf)

# stopped and resumed, it has the same bits; only A and B are saved
mkdir a b
command=(-m ../base.gguf --lora 4 --lora-alpha 4 --data ../text.txt --out run --export x.gguf --steps 24 --save-every 6 --lr 1e-2)
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
expect 1 "is an adapter; --lora needs the model" train -m a/x.gguf --lora 4 --data text.txt --out c
expect 1 "no matrix \"mlp\"; it has attn_k" train -m base.gguf --lora 4 --lora-on mlp --data text.txt --out c
expect 1 "--lora-alpha 4" train -m base.gguf --lora 4 --data text.txt --out a/run --export a/x2.gguf

# another base is refused on resume
"$bin/export" s.gguf --type f16 -o other.gguf >/dev/null
cp -r a/run d
expect 1 "checkpoint" train -m other.gguf --lora 4 --lora-alpha 4 --data text.txt --out d --export d.gguf

# three hosts with different texts: the same adapter, bit for bit
port=$("$free_port")
"$bin/hub" --new --address "127.0.0.1:$port" --name anna --nodes hosts.txt >/dev/null
printf 'ben -\ncleo -\n' >>hosts.txt
pids=()
for host in anna ben cleo; do
    head -c $((6000 + 100 * ${#host})) text.txt | tail -c 5000 >"$host.txt"
    train -m base.gguf --lora 4 --data "$host.txt" --nodes hosts.txt --name "$host" --min-hosts 3 --steps 12 --hub-path hub \
        --lr 1e-2 --out "$host" --export "$host.gguf" >"$host.log" 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || { tail -5 ./*.log; fail "a host failed"; }
done
cmp anna.gguf ben.gguf && cmp anna.gguf cleo.gguf || fail "the hosts have different adapters"
cmp -s anna.gguf a/x.gguf && fail "the hosts have not trained together"
echo "adapters: ok"
