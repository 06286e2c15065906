#!/usr/bin/env bash
# A hub alone and hosts that meet there: the check before training, one pasted line instead of a file,
# the trained model fetched from the store, a slow host, a hub whose disk is full.
# usage: e2e-hub.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-hub "$1" "$2"
tiny gpt2 s.gguf
trap 'kill $(jobs -p) 2>/dev/null || true; umount "$work/full/hub" 2>/dev/null || true' EXIT

# invite FOLDER: hosts.txt of a hub that is none of the hosts
invite() {
    mkdir -p "$1"/{hub,anna,ben}
    port=$("$free_port")
    "$bin/hub" --new --nodes "$1/hosts.txt" --name box --address "127.0.0.1:$port" >/dev/null
    printf 'anna - up=10 down=50\nben -\n' >>"$1/hosts.txt"
}
# serve FOLDER OPTION...: the hub, as $hub
serve() {
    local folder=$1
    shift
    "$bin/hub" --nodes "$folder/hosts.txt" --path "$folder/hub" "$@" >>"$folder/hub.txt" 2>&1 &
    hub=$!
}
# host FOLDER NAME OPTION...: as $pid
host() {
    local folder=$1 me=$2
    shift 2
    (cd "$folder/$me" && exec "$bin/train-gpt" -m "$work/s.gguf" --threads 1 --sample-tokens 8 --out run --export x.gguf \
        --data "$work/text.txt" --name "$me" "$@" >>out.txt 2>&1) &
    pid=$!
}
ended() { wait "$1" || { tail -n 8 "$2"/*/out.txt "$2/hub.txt"; fail "$2: a host failed"; }; }
# until_said TEXT FILE: at most half a minute
until_said() {
    for ((i = 0; i < 600; ++i)); do
        ! grep -qF -- "$1" "$2" 2>/dev/null || return 0
        sleep 0.05
    done
    cat "$2"
    fail "not said in time: $1"
}
# values FOLDER KEY: of every step in a host's metrics
values() { sed -n "s/.*\"$2\":\\([^,}]*\\)[,}].*/\\1/p" "$1/run/metrics.jsonl"; }

# both FOLDER: rounds in which anna and ben were in
both() { grep -c '"in":\["anna","ben"\]' "$1/run/metrics.jsonl" || true; }

# anna is there before the hub; ben has one pasted line and no file
invite run
line=$("$bin/hub" --nodes run/hosts.txt --invite)
host run anna --nodes ../hosts.txt --batch 4 --steps 30 --min-hosts 2 --checkpoint-every 8
a=$pid
until_said "line     not yet: hub 127.0.0.1:$port" run/anna/out.txt
grep -q "check that the hub runs, that its port is open" run/anna/out.txt || fail "not said what to do without a hub"
serve run
until_said "run      run" run/anna/out.txt
host run ben --join "$line"
ended "$pid" run
ended "$a" run
cmp run/anna/x.gguf run/ben/x.gguf || fail "anna and ben differ"
for text in "line     the hub answers in" "clocks agree within" "agreed   weights, tokenizer, settings and version" \
    "cost     .* a step, with 3 hosts .* GB up and .* GB down a day"; do
    grep -q "$text" run/ben/out.txt || { cat run/ben/out.txt; fail "ben's check did not say: $text"; }
done
grep -q "round [0-9]*: anna, ben | up .* down .* | waits [0-9]*% for hosts" run/anna/out.txt || { cat run/anna/out.txt; fail "no word about rounds"; }
[ "$(both run/ben)" -ge 25 ] && [ "$(values run/ben up_bytes | tail -1)" -gt 10000 ] || fail "no rounds in the metrics"
for me in anna ben; do
    grep -q " $me step=[0-9]* loss=.* samples=4 up_bytes=[0-9]* down_bytes=[0-9]*" run/hub/=hub/metrics.txt || fail "no metrics of $me at the hub"
done

# the model from the store: the same bytes, by the file and by the line
"$bin/export" --nodes run/hosts.txt -o fetched.gguf >out.txt
grep -q "from the run at step 30 of 30" out.txt || { cat out.txt; fail "export did not say which step"; }
cmp fetched.gguf run/anna/x.gguf || fail "the store's model is another one"
"$bin/export" --join "$line" -o pasted.gguf >/dev/null
cmp fetched.gguf pasted.gguf || fail "the pasted line gives another model"

# refused, in plain words
tiny gpt2 o.gguf --seed 7
expect 1 "weights are not those that the run began with" "$bin/train-gpt" -m o.gguf --data text.txt --nodes run/hosts.txt --name ben --out other
kill $hub
invite other
serve other
sed "s/127.0.0.1:[0-9]*/127.0.0.1:$port/" run/hosts.txt >wrong.txt
expect 1 "has another key" timeout 20 "$bin/train-gpt" -m s.gguf --data text.txt --nodes wrong.txt --name ben --out wrong
kill $hub

# stopped in the middle: the last shared checkpoint and the rounds since are the host's own state
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
    "$bin/export" --nodes "$folder/hosts.txt" -o fetched.gguf >out.txt || { cat out.txt; fail "$kind: no model from a run that stands still"; }
    grep -q "from the run at step" out.txt
    if [ "$kind" = demo ]; then
        "$bin/export" "$folder/anna/run" -o own.gguf >/dev/null
        cmp own.gguf fetched.gguf || fail "$kind: the store's model is not the host's"
    fi
    kill $hub
done

# ben needs four times as long for a batch: anna is not held up, ben does less, and that counts less
invite slow
serve slow
export GT_TEST_STEP_SECONDS=0.4
host slow anna --nodes ../hosts.txt --batch 4 --steps 24 --min-hosts 2
a=$pid
until_said "run      run" slow/anna/out.txt
GT_TEST_STEP_SECONDS=1.6 host slow ben --nodes ../hosts.txt
b=$pid
unset GT_TEST_STEP_SECONDS
ended "$a" slow
ended "$b" slow
cmp slow/anna/x.gguf slow/ben/x.gguf || fail "a slow host ends with other weights"
seconds=$(values slow/anna seconds | tail -1)
awk -v s="$seconds" 'BEGIN { exit !(s < 24 * 0.4 * 2) }' || fail "anna was held up: $seconds s for 24 steps of 0.4 s"
[ "$(both slow/anna)" -ge 8 ] || { cat slow/anna/run/metrics.jsonl; fail "ben's work does not count"; }
[ "$(values slow/ben samples | grep -c '^1$')" -ge 8 ] || { values slow/ben samples; fail "ben did not do less"; }
[ "$(values slow/anna samples | sort -u)" = 4 ] || fail "anna did less"
grep -q " ben step=[0-9]* .* samples=1 " slow/hub/=hub/metrics.txt || fail "ben's message did not weigh its samples"
kill $hub
echo "slow host: $seconds s, ben in $(both slow/anna) of 24 rounds"

# a full disk at the hub: named in its log, and the run goes on once there is room
invite full
if mount -t tmpfs -o size=300k tmpfs full/hub 2>/dev/null; then
    serve full
    host full anna --nodes ../hosts.txt --batch 4 --steps 20 --checkpoint-every 5
    a=$pid
    until_said "No space left on device; free some space there" full/hub.txt
    mount -o remount,size=50m full/hub
    ended "$a" full
    kill $hub
    wait $hub 2>/dev/null || true
    umount full/hub
    echo "full disk: named, and went on"
fi
echo "e2e-hub: passed"
