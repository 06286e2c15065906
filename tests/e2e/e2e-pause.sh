#!/usr/bin/env bash
# A host that pauses leaves the run, misses at least 20 rounds, returns, and ends with the bits of the others; alone, a
# pause changes nothing.   usage: e2e-pause.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-pause "$1" "$2"
trap 'kill -9 ${anna:-} ${ben:-} 2>/dev/null || true' EXIT
tiny gpt2 small.gguf
rounds() { grep -c '"in":\['"$1"'\]' anna-run/metrics.jsonl || true; }  # of anna, with these hosts
shows() { until grep -q -- "$2" "$1"; do kill -0 $ben 2>/dev/null || { cat "$1"; fail "$1 does not say: $2"; }; sleep 0.05; done; }

for overlap in 0 1; do
    rm -rf *-run hub-store hosts.txt
    "$bin/hub" --new --address "127.0.0.1:$("$free_port")" --name anna >/dev/null
    echo "ben -" >>hosts.txt
    common="-m small.gguf text.txt --nodes hosts.txt --steps 90 --overlap $overlap --threads 1 --batch 4 --sample-tokens 8"
    GT_TEST_STEP_SECONDS=0.1 "$bin/train-gpt" $common --name anna --out anna-run --min-hosts 2 >anna.txt 2>&1 &
    anna=$!
    GT_TEST_STEP_SECONDS=0.1 "$bin/train-gpt" $common --name ben --out ben-run >ben.txt 2>&1 &
    ben=$!
    wait_for_lines ben-run 10 $ben
    touch ben-run/pause
    shows ben.txt "pausing after step [0-9]*: until .*pause is removed"
    with=$(rounds '"anna"')
    until [ "$(rounds '"anna"')" -ge $((with + 20)) ]; do kill -0 $anna || { cat anna.txt; fail "anna ended"; }; sleep 0.05; done
    rm ben-run/pause
    shows ben.txt "training again"
    wait $anna || { cat anna.txt; fail "anna failed"; }
    wait $ben || { cat ben.txt; fail "ben failed"; }
    cmp anna-trained.gguf ben-trained.gguf || fail "the host that paused has other weights (overlap $overlap)"
    [ "$(tail -1 anna-run/metrics.jsonl | grep -c '"in":\["anna","ben"\]\|val_loss')" = 1 ] || fail "ben did not return"
    mv anna-trained.gguf "anna-$overlap.gguf"
    mv ben-trained.gguf "ben-$overlap.gguf"
done

# alone: the same bits as without a pause
expect 0 "trained model" train -m small.gguf text.txt --steps 30 --out straight-run
GT_TEST_STEP_SECONDS=0.05 start -m small.gguf text.txt --steps 30 --out paused-run
ben=$pid
wait_for_step paused-run 5 $pid
touch paused-run/pause
shows out.txt "pausing"
rm paused-run/pause
wait $pid || fail "the paused run failed"
cmp straight-trained.gguf paused-trained.gguf || fail "a pause changed the run"
expect 1 "write the hours as 22:00-07:00" train -m small.gguf text.txt --steps 2 --out never-run --active-hours 9-5
echo "e2e-pause: passed"
