#!/usr/bin/env bash
# A standalone hub and its hosts: the link check before training, --join instead of hosts.txt, fetching the
# trained model from the store, a slow host, a hub whose disk is full.
# usage: e2e-hub.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-hub "$1" "$2"
tiny gpt2 s.gguf
trap 'kill $(jobs -p) 2>/dev/null || true; umount "$work/full/hub" 2>/dev/null || true' EXIT

# invite FOLDER: hosts.txt with a hub that is not a host
invite() {
    mkdir -p "$1"/{hub,anna,ben}
    port=$("$free_port")
    "$bin/hub" --new --nodes "$1/hosts.txt" --name box --address "127.0.0.1:$port" >/dev/null
    printf 'anna - up=10 down=50\nben -\n' >>"$1/hosts.txt"
}
# serve FOLDER OPTION...: starts the hub; sets $hub
serve() {
    local folder=$1
    shift
    "$bin/hub" --nodes "$folder/hosts.txt" --path "$folder/hub" "$@" >>"$folder/hub.txt" 2>&1 &
    hub=$!
}
# host FOLDER NAME OPTION...: starts a host; sets $pid
host() {
    local folder=$1 me=$2
    shift 2
    (cd "$folder/$me" && exec "$bin/train-gpt" -m "$work/s.gguf" --threads 1 --sample-tokens 8 --out run --export x.gguf \
        --data "$work/text.txt" --name "$me" "$@" >>out.txt 2>&1) &
    pid=$!
}
ended() { wait "$1" || { tail -n 8 "$2"/*/out.txt "$2/hub.txt"; fail "$2: a host failed"; }; }
# until_logged TEXT FILE: waits up to 30 s
until_logged() {
    for ((i = 0; i < 600; ++i)); do
        ! grep -qF -- "$1" "$2" 2>/dev/null || return 0
        sleep 0.05
    done
    cat "$2"
    fail "not logged in time: $1"
}
# values FOLDER KEY: the values of KEY in a host's metrics
values() { sed -n "s/.*\"$2\":\\([^,}]*\\)[,}].*/\\1/p" "$1/run/metrics.jsonl"; }

# both FOLDER: the number of rounds with anna and ben
both() { grep -c '"in":\["anna","ben"\]' "$1/run/metrics.jsonl" || true; }

# anna starts before the hub; ben has --join and no hosts.txt
invite run
line=$("$bin/hub" --nodes run/hosts.txt --invite)
export GT_TEST_STEP_SECONDS=0.1  # else the estimate's links, 10 Mbit/s for anna, would decide
host run anna --nodes ../hosts.txt --batch 4 --steps 60 --min-hosts 2 --checkpoint-every 8
a=$pid
until_logged "link     not yet: hub 127.0.0.1:$port" run/anna/out.txt
grep -q "check that the hub runs, that its port is open" run/anna/out.txt || fail "no advice without a hub"
serve run
until_logged "run      run" run/anna/out.txt
host run ben --join "$line"
until_logged "run      run" run/ben/out.txt
grep -aq "gt1\." "/proc/$pid/cmdline" && fail "the invitation is in the list of processes"
ended "$pid" run
ended "$a" run
cmp run/anna/x.gguf run/ben/x.gguf || fail "anna and ben differ"
grep -aqE "gt1\.|$(sed -n 's/^key //p' run/hosts.txt)" -r run/ben/run && fail "the run's key is in ben's run folder"
[ "$(stat -c %a run/ben/run)" = 700 ] || fail "others can read ben's run folder"
for text in "link     the hub answers in" "clocks agree within" "agreed   weights, tokenizer, settings and arithmetic" \
    "cost     .* per step; with 2 hosts .* GB up and .* GB down per day"; do
    grep -q "$text" run/ben/out.txt || { cat run/ben/out.txt; fail "ben's link check did not print: $text"; }
done
grep -q "waits [0-9]*% for hosts | round [0-9]*: anna, ben | up .* down " run/anna/out.txt || { cat run/anna/out.txt; fail "no progress of rounds"; }
[ "$(both run/ben)" -ge 25 ] && [ "$(values run/ben up_bytes | tail -1)" -gt 10000 ] || fail "no rounds in the metrics"
# the estimated cost, the one told after 50 steps, and the metrics agree
python3 - run/ben <<'PY' || { cat run/ben/out.txt; fail "the costs are not true"; }
import json, re, sys
log = open(sys.argv[1] + "/out.txt").read()
steps = [m for m in map(json.loads, open(sys.argv[1] + "/run/metrics.jsonl")) if "up_bytes" in m]
told = [[float(x) for x in m] for m in re.findall(r"cost .*?([0-9.]+) GB up and ([0-9.]+) GB down per day", log)]
assert len(told) == 2, told
first, last = steps[0], steps[49]
days = (last["seconds"] - first["seconds"]) / 86400
for i, name in enumerate(["up_bytes", "down_bytes"]):
    true = 1e-9 * (last[name] - first[name]) / days
    assert abs(told[1][i] - true) < 0.05 * true + 0.1, f"{name}: measured {told[1][i]}, the metrics say {true:.2f}"
    each = (last[name] - first[name]) / (last["step"] - first["step"])
    most = 1e-9 * each * 86400 / 0.1  # without any load: a step takes a tenth of a second
    assert 0.6 * true - 0.1 < told[0][i] < 1.1 * most + 0.1, f"{name}: estimated {told[0][i]}, the metrics say {true:.2f} to {most:.2f}"
PY
for me in anna ben; do
    grep -q " $me step=[0-9]* loss=.* samples=4 up_bytes=[0-9]* down_bytes=[0-9]*" run/hub/=hub/metrics.txt || fail "no metrics of $me at the hub"
done

unset GT_TEST_STEP_SECONDS

# the model from the store: the same bytes with hosts.txt and with --join
"$bin/export" --nodes run/hosts.txt -o fetched.gguf >out.txt
grep -q "from the run at step 60 of 60" out.txt || { cat out.txt; fail "export did not print the step"; }
cmp fetched.gguf run/anna/x.gguf || fail "the store's model differs"
"$bin/export" --join "$line" -o pasted.gguf >/dev/null
cmp fetched.gguf pasted.gguf || fail "--join gives another model"
echo "$line" >invite.txt
"$bin/export" --join invite.txt -o pasted.gguf --force >/dev/null
cmp fetched.gguf pasted.gguf || fail "--join FILE gives another model"
"$bin/export" --join - -o pasted.gguf --force <invite.txt >/dev/null
cmp fetched.gguf pasted.gguf || fail "--join - gives another model"
expect 1 "neither an invitation" "$bin/export" --join nothing-here -o pasted.gguf --force

# refusals
tiny gpt2 o.gguf --seed 7
expect 1 "weights differ from the run" "$bin/train-gpt" -m o.gguf --data text.txt --nodes run/hosts.txt --name ben --out other
kill $hub
invite other
serve other
sed "s/127.0.0.1:[0-9]*/127.0.0.1:$port/" run/hosts.txt >wrong.txt
expect 1 "has another key" timeout 20 "$bin/train-gpt" -m s.gguf --data text.txt --nodes wrong.txt --name ben --out wrong
kill $hub

# stopped in the middle: the last shared checkpoint plus the rounds since then equal the host's own state
for kind in "demo" "demo --overlap 1"; do
    folder=middle-${kind// /-}
    invite "$folder"
    serve "$folder"
    host "$folder" anna --nodes ../hosts.txt --batch 4 --steps 100000 --checkpoint-every 10 --replicator $kind
    wait_for_step "$folder/anna/run" 37 $pid
    kill -INT $pid
    code=0
    wait $pid || code=$?
    [ $code = 130 ] || { cat "$folder/anna/out.txt"; fail "Ctrl+C ended with $code"; }
    "$bin/export" --nodes "$folder/hosts.txt" -o fetched.gguf --force >out.txt || { cat out.txt; fail "$kind: no model from a stopped run"; }
    grep -q "from the run at step" out.txt
    if [ "$kind" = demo ]; then
        "$bin/export" "$folder/anna/run" -o own.gguf --force >/dev/null
        cmp own.gguf fetched.gguf || fail "$kind: the store's model is not the host's"
    fi
    kill $hub
done

# ben is four times slower: anna does not wait, ben computes fewer samples, and they weigh less
invite slow
serve slow
export GT_TEST_STEP_SECONDS=0.4
host slow anna --nodes ../hosts.txt --batch 4 --steps 24 --min-hosts 2
a=$pid
until_logged "run      run" slow/anna/out.txt
GT_TEST_STEP_SECONDS=1.6 host slow ben --nodes ../hosts.txt
b=$pid
unset GT_TEST_STEP_SECONDS
ended "$a" slow
ended "$b" slow
cmp slow/anna/x.gguf slow/ben/x.gguf || fail "a slow host ends with other weights"
seconds=$(values slow/anna seconds | tail -1)
awk -v s="$seconds" 'BEGIN { exit !(s < 24 * 0.4 * 2) }' || fail "anna had to wait: $seconds s for 24 steps of 0.4 s"
[ "$(both slow/anna)" -ge 8 ] || { cat slow/anna/run/metrics.jsonl; fail "ben's messages were not committed"; }
[ "$(values slow/ben samples | grep -c '^1$')" -ge 8 ] || { values slow/ben samples; fail "ben did not reduce his batch"; }
[ "$(values slow/anna samples | sort -u)" = 4 ] || fail "anna reduced her batch"
grep -q " ben step=[0-9]* .* samples=1 " slow/hub/=hub/metrics.txt || fail "ben's message did not weigh its samples"
kill $hub
echo "slow host: $seconds s, ben in $(both slow/anna) of 24 rounds"

# the hub's disk is full: logged, and the run continues once there is space
invite full
if mount -t tmpfs -o size=300k tmpfs full/hub 2>/dev/null; then
    serve full
    host full anna --nodes ../hosts.txt --batch 4 --steps 20 --checkpoint-every 5
    a=$pid
    until_logged "No space left on device; free some space there" full/hub.txt
    mount -o remount,size=50m full/hub
    ended "$a" full
    kill $hub
    wait $hub 2>/dev/null || true
    umount full/hub
    echo "full disk: logged, and the run continued"
fi
# the hub is gone: hosts name it within seconds, Ctrl+C saves then, too, and they find it again
invite gone
serve gone
export GT_TEST_STEP_SECONDS=0.1
host gone anna --nodes ../hosts.txt --batch 4 --steps 60 --min-hosts 2
a=$pid
until_logged "waiting for the other hosts" gone/anna/out.txt  # the run has its settings
host gone ben --nodes ../hosts.txt
wait_for_lines gone/ben/run 5 "$pid"
kill -9 "$hub"
SECONDS=0
until_logged "the hub 127.0.0.1:$port does not answer (" gone/ben/out.txt
[ $SECONDS -le 15 ] || fail "the hub's absence was told after $SECONDS s"
kill -INT "$pid"
SECONDS=0
code=0
wait "$pid" || code=$?
[ $code = 130 ] && [ $SECONDS -le 20 ] && grep -q "stopped after step [0-9]*; saved as" gone/ben/out.txt ||
    { cat gone/ben/out.txt; fail "Ctrl+C without a hub ended with $code after $SECONDS s"; }
serve gone
host gone ben --nodes ../hosts.txt
until_logged "the hub 127.0.0.1:$port answers again" gone/anna/out.txt
ended "$pid" gone
ended "$a" gone
cmp gone/anna/x.gguf gone/ben/x.gguf || fail "anna and ben differ after the hub was gone"
echo "e2e-hub: passed"
