#!/usr/bin/env bash
# Several hosts as real processes, over a hub inside the first host and over a folder, with every kind of
# replicator. All end with the same bits, also if a host is killed and returns, or joins late without the
# model.   usage: e2e-nodes.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-nodes "$1" "$2"
tiny gpt2 s.gguf
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# invite FOLDER hub|folder: hosts.txt for anna, ben and cleo
invite() {
    mkdir -p "$1"/{anna,ben,cleo}
    if [ "$2" = hub ]; then
        "$bin/hub" --new --nodes "$1/hosts.txt" --name anna --address "127.0.0.1:$("$free_port")" >/dev/null
    else
        "$bin/hub" --new --nodes "$1/hosts.txt" --name anna --store "file://$work/$1/store" >/dev/null
    fi
    printf 'ben -\ncleo -\n' >>"$1/hosts.txt"
}

# host FOLDER NAME OPTION...: in the background; sets $pid, logs to FOLDER/NAME/out.txt
host() {
    local folder=$1 me=$2
    shift 2
    (cd "$folder/$me" && exec "$bin/train-gpt" --threads 1 --sample-tokens 8 --out run --export x.gguf --data "$work/text.txt" \
        --nodes ../hosts.txt --name "$me" "$@" >>out.txt 2>&1) &
    pid=$!
}

# same FOLDER NAME...: checks that all hosts have the same model
same() {
    local folder=$1 first=$2
    shift
    for me in "$@"; do
        cmp "$folder/$first/x.gguf" "$folder/$me/x.gguf" || { tail -5 "$folder"/*/out.txt; fail "$folder: $first and $me differ"; }
    done
}

# begun FOLDER: waits until anna, the first host, has published the settings
begun() {
    until grep -q "^run " "$1/anna/out.txt" 2>/dev/null || ! kill -0 "$a" 2>/dev/null; do
        sleep 0.02
    done
}

ended() { wait "$1" || { tail -n 8 "$2"/*/out.txt; fail "$2: a host failed"; }; }

run="-m $work/s.gguf --batch 4 --min-hosts 2"
for kind in "hub demo" "hub diloco --every 6" "hub diloco --every 6 --overlap 0" "hub full" "hub random" "folder demo" "folder sparseloco --every 6" \
    "hub demo --overlap 1" "folder diloco --every 6 --overlap 5"; do
    set -- $kind
    where=$1 replicator=$2
    shift 2
    folder=${kind// /-}
    invite "$folder" "$where"
    host "$folder" anna $run --steps 24 --replicator "$replicator" "$@"
    a=$pid
    begun "$folder"
    host "$folder" ben -m "$work/s.gguf"
    ended "$pid" "$folder"
    ended "$a" "$folder"
    same "$folder" anna ben
    echo "$kind: same bits"
done

# one host is killed and returns; one joins late without model and settings; with and without overlap
faults() {
    local folder=faults${*// /-}
    invite "$folder" hub
    host "$folder" anna $run --steps 150 --checkpoint-every 10 "$@"
    a=$pid
    begun "$folder"
    host "$folder" ben -m "$work/s.gguf" --save-every 7
    b=$pid
    wait_for_step "$folder/ben/run" 20 "$b"
    kill -KILL "$b"
    wait "$b" 2>/dev/null || true
    host "$folder" ben -m "$work/s.gguf" --save-every 7
    b=$pid
    wait_for_step "$folder/anna/run" 60 "$a"
    host "$folder" cleo -m nothing-here.gguf
    c=$pid
    for p in $c $b $a; do
        ended "$p" "$folder"
    done
    same "$folder" anna ben cleo
    grep -q "fetching the model from the run" "$folder/cleo/out.txt" || fail "cleo did not log that the model comes from the run"
    echo "killed and returned, joined late ($*): same bits"
}
faults
faults --overlap 1
faults --overlap 1 --replicator diloco --every 5
faults --overlap 4 --replicator diloco --every 5

# a folder of a run alone is refused before other hosts can see anything of it
mkdir mixed
tiny gpt2 mixed/s.gguf
"$bin/hub" --new --nodes mixed/hosts.txt --name anna --store "file://$work/mixed/store" >/dev/null
expect 0 "trained model" train -m mixed/s.gguf --data text.txt --steps 2
joined=(train -m mixed/s.gguf --data text.txt --nodes mixed/hosts.txt --name anna)
expect 1 "mixed/s-run has a run without other hosts" "${joined[@]}" --steps 2
expect 2 "--hours works only without other hosts" "${joined[@]}" --hours 1 --out mixed/none
[ -z "$(find mixed/store -name 'settings*' 2>/dev/null)" ] || { find mixed/store; fail "settings of a failed start were stored"; }
expect 0 "trained model" "${joined[@]}" --steps 2 --fresh --replicator demo
expect 1 "mixed/s-run has a run with other hosts" train -m mixed/s.gguf --data text.txt
"$bin/hub" --new --nodes mixed/apart.txt --name anna --store "file://$work/mixed/apart" >/dev/null
expect 0 "WARNING: --replicator none" train -m mixed/s.gguf --data text.txt --nodes mixed/apart.txt --name anna --steps 2 \
    --replicator none --out mixed/apart-run

# refusals name the next move
expect 2 "--name: host name 'anna b' is invalid; use 1 to 64 letters" "$bin/hub" --new --nodes none.txt --address 127.0.0.1:7 --name "anna b"
expect 2 "hub: address '127.0.0.1': no port" "$bin/hub" --new --nodes none.txt --address 127.0.0.1 --name anna
expect 1 "--name: host name 'anna b' is invalid" "$bin/train-gpt" -m s.gguf --data text.txt --nodes folder-demo/hosts.txt --name "anna b"
expect 1 "contradicts the run" "$bin/train-gpt" -m s.gguf --data text.txt --nodes folder-demo/hosts.txt --name ben --batch 5 --out other
tiny gpt2 o.gguf --seed 7
expect 1 "weights differ from the run" "$bin/train-gpt" -m o.gguf --data text.txt --nodes folder-demo/hosts.txt --name ben --out other

# a host with the hub's address is a client of the hub that already runs there
"$bin/hub" --new --nodes twice.txt --name anna --address "127.0.0.1:$("$free_port")" >/dev/null
"$bin/hub" --nodes twice.txt --path twice-store >hub.txt 2>&1 &
hub=$!
until grep -q listening hub.txt; do kill -0 $hub || { cat hub.txt; fail "the hub ended"; }; sleep 0.05; done
expect 0 "trained model" train -m s.gguf --data text.txt --nodes twice.txt --name anna --steps 2 --out twice-run
kill $hub

# Ctrl+C ends a host that waits for its hub, also in the background of a script, where the shell ignores it
"$bin/hub" --new --nodes nobody.txt --name anna --address "127.0.0.1:$("$free_port")" >/dev/null
start --data text.txt --nodes nobody.txt --name ben
until grep -q "not yet" out.txt; do kill -0 $pid 2>/dev/null || { cat out.txt; fail "ben did not wait for the hub"; }; sleep 0.1; done
kill -INT $pid
for ((i = 0; i < 50; ++i)); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
! kill -9 $pid 2>/dev/null || fail "a waiting host ignores Ctrl+C"

# without other hosts a model must be named
expect 2 "--model is missing" "$bin/train-gpt" text.txt
echo "e2e-nodes: passed"
