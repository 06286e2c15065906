#!/usr/bin/env bash
# Ranks: hosts with different numbers of ranks train together, a run resumes with another number, errors are
# one line.   usage: e2e-ranks.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-ranks "$1" "$2"
tiny gpt2 s.gguf --layers 3
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# two hosts, one of them with three ranks, whole or streamed: the same bits
for shard in optimizer full; do
    mkdir -p $shard/anna $shard/ben
    "$bin/hub" --new --nodes $shard/hosts.txt --name anna --address "127.0.0.1:$("$free_port")" >/dev/null
    echo "ben -" >>$shard/hosts.txt
    for host in "anna --ranks 1 --batch 6 --steps 12 --min-hosts 2" "ben --ranks 3 --shard $shard"; do
        set -- $host
        me=$1
        shift
        (cd $shard/$me && exec "$bin/train-gpt" -m ../../s.gguf --data ../../text.txt --nodes ../hosts.txt --name "$me" \
            --threads 1 --sample-tokens 8 --out run --export x.gguf "$@" >out.txt 2>&1) &
        until grep -q "^run " $shard/$me/out.txt 2>/dev/null || ! kill -0 $! 2>/dev/null; do
            sleep 0.02
        done
    done
    wait %1 && wait %2 || { tail -n 5 $shard/*/out.txt; fail "$shard: a host failed"; }
    cmp $shard/anna/x.gguf $shard/ben/x.gguf || fail "$shard: one rank and three differ"
    echo "1 and 3 ranks, $shard: same bits"
done

# a run resumes with another number of ranks, from any checkpoint; with batch 1 a single rank computes, so
# the whole run must have the same bits
run() { train -m s.gguf --data text.txt --batch 1 --steps 12 --save-every 6 "$@"; }
expect 0 "trained model" run --out a --export a.gguf
expect 0 "memory   per rank: weights and gradients" run --out b --export b.gguf --ranks 3 --shard full
grep -q "streamed blocks" out.txt || fail "the memory of streamed mode is not printed"
cmp a.gguf b.gguf || fail "three ranks end with other weights"
for go in "a --ranks 2 --shard full" "a --ranks 3 --shard optimizer" "b --ranks 1" "b --ranks 2 --shard none"; do
    set -- $go
    rm -rf c && mkdir c && cp $1/checkpoint-0000000006.gguf c/
    shift
    expect 0 "resuming after step 6" run --out c --export c.gguf "$@"
    cmp a.gguf c.gguf || fail "from $go: resumed with other weights"
done
expect 0 "trained model" run --out o --export o.gguf --overlap 1
for go in "--ranks 3 --shard optimizer" "--ranks 1"; do  # each time with a message on its way
    rm o/checkpoint-0000000012.gguf
    expect 0 "resuming after step 6" run --out o --export p.gguf --overlap 1 $go
    cmp o.gguf p.gguf || fail "overlapped rounds: $go resumed with other weights"
done
echo "checkpoints resume with any number of ranks"

# errors: one line, at once
expect 2 "--ranks 0: expected a number from 1" run --out d --ranks 0
expect 0 "trained model" timeout 60 "$bin/train-gpt" -m s.gguf --data text.txt --out e --steps 2 --threads 1 --batch 64 --ranks 2 --device fake:0:1  # chooses what fits
expect 1 "--micro" timeout 20 "$bin/train-gpt" -m s.gguf --data text.txt --out d --steps 2 --threads 1 --batch 64 --micro 32 --ranks 2 --device fake:0:1
[ "$(grep -c "out of memory" out.txt)" = 1 ] || { cat out.txt; fail "out of memory: not one message"; }
echo "e2e-ranks: passed"
