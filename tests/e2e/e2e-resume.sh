#!/usr/bin/env bash
# A run that is killed, stopped or finds damaged checkpoints ends with the same bits as an undisturbed run.   usage: e2e-resume.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-resume "$1" "$2"
RANDOM=${GT_SEED:=$$}
echo "GT_SEED=$GT_SEED repeats this choice of moments"
tiny gpt2 s.gguf

# last_step: the last step of run/
last_step() { grep -o '^{"step":[0-9]*' run/metrics.jsonl 2>/dev/null | tail -1 | cut -d: -f2 || true; }

# same_run OPTION...: undisturbed in a/; in b/ killed several times, then stopped by Ctrl+C. Steps in b/ are
# slowed down so that each can be hit.
same_run() {
    rm -rf a b
    mkdir a b
    local command=(-m ../s.gguf --data ../text.txt --out run --export x.gguf --steps 130 --save-every 6
                   --eval-every 20 --sample-every 45 "$@")
    (cd a && train "${command[@]}" >out.txt 2>&1) || { cat a/out.txt; fail "the undisturbed run failed"; }
    cd b
    local -x GT_TEST_STEP_SECONDS=0.02
    local step=0 n_killed=0 n_resumed=0 code
    for ((i = 0; i < 5; ++i)); do
        step=$(($(last_step) + 3 + RANDOM % 12))
        start "${command[@]}"
        wait_for_step run "$step" "$pid"
        sleep "0.00$((RANDOM % 10))"
        kill -KILL "$pid" && ((++n_killed))
        wait "$pid" 2>/dev/null || true
        grep -q "resuming after step" out.txt && ((++n_resumed))
    done
    [ $n_killed -ge 3 ] && [ $n_resumed -ge 2 ] || fail "only $n_killed kills, $n_resumed resumed: too few"

    start "${command[@]}"
    wait_for_step run $(($(last_step) + 4)) "$pid"
    kill -INT "$pid"
    code=0
    wait "$pid" || code=$?
    [ "$code" = 130 ] || { cat out.txt; fail "Ctrl+C ended the run with $code, not 130"; }
    grep -q "stopped after step [0-9]*; saved as run/checkpoint-" out.txt || { cat out.txt; fail "Ctrl+C: the saved file is not named"; }
    grep -q "run the same command to resume" out.txt || fail "Ctrl+C: no advice how to resume"

    train "${command[@]}" >out.txt 2>&1 || { cat out.txt; fail "did not resume"; }
    cd ..
    cmp a/x.gguf b/x.gguf || fail "$*: different weights after interruptions"
    cmp a/run/checkpoint-0000000130.gguf b/run/checkpoint-0000000130.gguf || fail "$*: other checkpoint"
    diff <(losses a/run) <(losses b/run) || fail "$*: other losses"
    [ "$(losses a/run | wc -l)" -ge 95 ] || fail "metrics are missing"
    [ "$(ls b/run | grep -c checkpoint-)" = 3 ] || { ls b/run; fail "not exactly three checkpoints"; }
    echo "same run: ${*:-alone} ($n_killed kills)"
}
same_run
same_run --moments q8
same_run --replicator demo --micro 2
same_run --replicator demo --overlap 1
same_run --replicator diloco --every 5 --overlap 3

# the newest checkpoint is damaged in every way: logged, and the one before it is used
mkdir c
go=(train -m s.gguf --data text.txt --out c/run --export c/x.gguf --save-every 10 --steps 40)
expect 0 "trained model" "${go[@]}"
cp c/x.gguf c/alone.gguf
losses c/run >c/alone.csv
last=c/run/checkpoint-0000000040.gguf
tiny gpt2 other.gguf --heads 4
broken() {  # broken TEXT: resumes from step 30 and names the reason
    expect 0 "$1" "${go[@]}"
    grep -q "resuming after step 30" out.txt || { cat out.txt; fail "did not use the checkpoint before"; }
    cmp c/x.gguf c/alone.gguf || fail "$1: other weights"
    diff <(losses c/run) c/alone.csv || fail "$1: other losses"
}
cp $last c/good.gguf
head -c 50000 c/good.gguf >$last && broken "cut"
: >$last && broken "not a checkpoint"
cp s.gguf $last && broken "skipped"
cp c/good.gguf $last && printf 'x' | dd of=$last bs=1 seek=60000 conv=notrunc 2>/dev/null && broken "skipped"
mkdir d
expect 0 "trained model" train -m other.gguf --data text.txt --out d/run --steps 40 --save-every 40 --export d/x.gguf
cp d/run/checkpoint-0000000040.gguf $last && broken "another model"
rm $last && head -c 50000 c/good.gguf >c/run/checkpoint-0000000037.gguf.part && broken "resuming after step 30"
[ -z "$(ls c/run | grep part)" ] || fail "files of a killed process are not removed"

# no checkpoint is valid: the user decides
mkdir e
for step in 10 20; do head -c 1000 c/good.gguf >e/checkpoint-00000000$step.gguf; done
expect 1 "--fresh" train -m s.gguf --data text.txt --out e --steps 40
expect 0 "the previous run is now in e.old-1" train -m s.gguf --data text.txt --out e --steps 5 --fresh
[ "$(ls e.old-1 | grep -c checkpoint)" = 2 ] || fail "--fresh lost the old run"

# flags of the run are kept; a conflicting flag is refused by name, an equal one is accepted
again=("$bin/train-gpt" -m s.gguf --data text.txt --out c/run --export c/x.gguf --threads 1)
expect 1 "was started with --steps 40, not 41" "${again[@]}" --steps 41
expect 1 "was started with --batch 4, not 8" "${again[@]}" --batch 8
expect 1 "was started with --lr 0.004, not 0.5" "${go[@]}" --lr 0.5
expect 1 "was started with --replicator auto, not demo" "${go[@]}" --replicator demo
expect 0 "trained model" "${go[@]}" --replicator auto --lr 0.004 --eval-every 3
expect 0 "this run is finished (step 40 of 40)" "$bin/train-gpt" -m s.gguf --data text.txt --out c/run --export c/y.gguf
cmp c/x.gguf c/y.gguf || fail "restarting a finished run changed the model"

# another text is another run; the same text in another place is not
cp text.txt moved.txt
expect 0 "this run is finished" "$bin/train-gpt" -m s.gguf --data moved.txt --out c/run --export c/y.gguf
(cat text.txt; echo "and one line more") >changed.txt
expect 1 "the training data has changed since c/run/checkpoint-0000000040.gguf was saved" "${again[@]}" --data changed.txt
grep -q -- "--fresh" out.txt || fail "no advice for another text"
expect 0 "the previous run is now in c/run.old-1" "${go[@]}" --fresh

# a finished run can be made longer: with a constant rate it is the run that was longer from the start
long=(train -m s.gguf --data text.txt --schedule constant --warmup 0)
expect 0 "12/12 100%" "${long[@]}" --steps 12 --out long --export long.gguf
expect 0 "8/8 100%" "${long[@]}" --steps 8 --out short --export short.gguf
expect 0 "12/12 100%" "${long[@]}" --out short --export short.gguf --extend 4
cmp long.gguf short.gguf || fail "an extended run differs from a long one"
expect 2 "has no run to continue" "${long[@]}" --out nothing --extend 4

# a closed terminal saves, as Ctrl+C does; nohup trains on
start -m s.gguf --data text.txt --out hup --steps 100000
wait_for_step hup 3 $pid
kill -HUP $pid
code=0
wait $pid || code=$?
[ $code = 130 ] && grep -q "saved as hup/checkpoint-" out.txt || { cat out.txt; fail "a closed terminal did not save ($code)"; }
nohup "$bin/train-gpt" -m s.gguf --data text.txt --threads 1 --batch 4 --out nohup --steps 60 --export nohup.gguf >out.txt 2>&1 &
pid=$!
wait_for_step nohup 3 $pid
kill -HUP $pid
wait $pid || { cat out.txt; fail "nohup did not keep the run"; }

# one process per run
start -m s.gguf --data text.txt --out f --steps 100000
wait_for_step f 3 $pid
expect 1 "another process is training here" train -m s.gguf --data text.txt --out f --steps 100000
expect 1 "another process is training here" train -m s.gguf --data text.txt --out f --steps 100000 --fresh
kill -INT $pid
sleep 0.02
kill -INT $pid 2>/dev/null || true
code=0
wait $pid || code=$?
[ $code = 130 ] || fail "the second Ctrl+C ended with $code"
echo "e2e-resume: passed"
