#!/usr/bin/env bash
# Errors while training: a clear message, exit code 1 (2: wrong usage), saved files stay intact.   usage: e2e-trouble.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-trouble "$1" "$2"
tiny gpt2 s.gguf

# data
expect 1 "nowhere.txt" train -m s.gguf --data nowhere.txt --steps 5
expect 1 "no data: name text files or folders" train -m s.gguf --steps 5
mkdir -p locked/sub
if su nobody -s /bin/sh -c true 2>/dev/null && [ "$(id -u)" = 0 ]; then
    # root can read every file: try as another user
    echo secret >locked/secret.txt && chmod 600 locked/secret.txt
    mkdir -m 777 nobody && cp s.gguf nobody/
    chmod a+rx . && expect 1 "Permission denied" su nobody -s /bin/sh -c "XDG_CACHE_HOME=$work/nobody '$bin/train-gpt' -m nobody/s.gguf --data locked/secret.txt --steps 5"
elif [ "$(id -u)" != 0 ]; then
    echo secret >locked/secret.txt && chmod 0 locked/secret.txt
    expect 1 "Permission denied" train -m s.gguf --data locked/secret.txt --steps 5
fi
echo "too short" >short.txt
expect 1 "short.txt: has 11 training tokens, a context of 32 needs at least 33" train -m s.gguf --data short.txt --steps 5
: >empty.txt
expect 1 "contains no text" train -m s.gguf --data empty.txt --steps 5
"$bin/prepare-data" -m s.gguf text.txt -o s.tokens >/dev/null
head -c 9000 s.tokens >cut.tokens
expect 1 "cut off or half-copied" train -m s.gguf --data cut.tokens --steps 5
tiny llama spm.gguf --vocab llama-spm
expect 1 "another tokenizer" train -m spm.gguf --data s.tokens --steps 5
expect 1 "made for at most 32" train -m s.gguf --data text.txt --context 64 --steps 5
# too little text for a validation batch, or for validation at all
head -c 1500 text.txt >little.txt
expect 0 "validation loss" train -m s.gguf --data little.txt --steps 3 --out little
! grep -q nan out.txt || { cat out.txt; fail "validation loss on little text is NaN"; }
expect 0 "trained model" train -m s.gguf --data little.txt --val 0 --steps 3 --out no-val

# models
"$bin/new-model" --preset vit-micro --classes 3 -o vit.gguf >/dev/null
expect 1 "train it with train-vit" train -m vit.gguf --data text.txt --steps 5
head -c 20000 s.gguf >cut.gguf
expect 1 "cut off" train -m cut.gguf --data text.txt --steps 5
echo nonsense >nonsense.gguf
expect 1 "nonsense.gguf" train -m nonsense.gguf --data text.txt --steps 5
expect 1 "no such file" train -m none.gguf --data text.txt --steps 5
sed 's/gpt2/gptx/g' s.gguf >gptx.gguf
expect 1 "gptx" train -m gptx.gguf --data text.txt --steps 5

# NaN weights, in the file or from a learning rate that is far too high
python3 - s.gguf nan.gguf <<'PY'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-64:] = struct.pack("<16f", *[float("nan")] * 16)
open(sys.argv[2], "wb").write(data)
PY
expect 1 "nan.gguf: output_norm.bias contains NaN or Inf" train -m nan.gguf --data text.txt --steps 5
expect 0 "trained model" train -m s.gguf --data text.txt --steps 10 --save-every 5 --out kept --export kept.gguf
expect 1 "lower --lr" train -m kept.gguf --data text.txt --steps 50 --lr 1e30 --clip 0 --schedule constant --warmup 0 --save-every 1 --out wild
for file in wild/checkpoint-*.gguf; do
    [ ! -e "$file" ] || expect 0 "" "$bin/export" "$file" -o wild.gguf --force
done
[ -z "$(ls wild | grep -v -e metrics -e .lock -e checkpoint)" ] || { ls wild; fail "files of a failed run remain"; }

# a full disk while saving: reported, and the run resumes once there is space
full=$work/full
mkdir full
on_disk=(train -m s.gguf --data text.txt --steps 30 --save-every 5 --out full/run --export full/x.gguf)
more_room() { :; }
if mount -t tmpfs -o size=1m tmpfs "$full" 2>/dev/null; then
    trap 'umount "$full"' EXIT
    more_room() { mount -o remount,size=20m "$full"; }
    expect 1 "No space left" "${on_disk[@]}"
    grep -q "on disk: NOT ENOUGH SPACE, .* free" out.txt || { cat out.txt; fail "the start did not warn of the full disk"; }
else  # a limit on the size of files is the next best thing
    expect 0 "trained model" "${on_disk[@]}"
    rm full/run/checkpoint-*25.gguf full/run/checkpoint-*30.gguf full/x.gguf
    (ulimit -f 100 && trap '' XFSZ && expect 1 "File too large" "${on_disk[@]}") || fail "the file size limit is not reported"
fi
[ -n "$(ls full/run/checkpoint-*.gguf)" ] && [ -z "$(ls full/run | grep part)" ] || { ls -a full/run; fail "a full disk harmed the checkpoints"; }
more_room
expect 0 "resuming after step" "${on_disk[@]}"
expect 0 "trained model" train -m s.gguf --data text.txt --steps 30 --save-every 5 --out roomy --export roomy.gguf
cmp roomy.gguf full/x.gguf || fail "a full disk changed the run"

# a folder that cannot be created, an export that cannot be written
expect 1 "text.txt: cannot be made" train -m s.gguf --data text.txt --steps 5 --out text.txt
expect 1 "there is no folder no/such" train -m s.gguf --data text.txt --steps 5 --out kept2 --export no/such/x.gguf
! grep -q "loss" out.txt || fail "the export path was checked only after training"

# no output replaces a file by accident
cp text.txt again.txt
expect 1 "s.gguf exists" tiny gpt2 s.gguf
expect 1 "kept.gguf exists" "$bin/export" kept -o kept.gguf
expect 1 "is the input" "$bin/export" kept.gguf -o ./kept.gguf --force
expect 1 "s.tokens exists" "$bin/prepare-data" -m s.gguf text.txt -o s.tokens
expect 1 "is the input" "$bin/prepare-data" -m s.gguf again.txt -o again.txt --force
cmp text.txt again.txt || fail "prepare-data changed its input"
expect 1 "is a folder" "$bin/new-model" --preset gpt-tiny -o . --force
expect 1 "would replace the model that is trained" train -m s.gguf --data text.txt --steps 5 --export ./s.gguf --out own
expect 0 "the previous kept.gguf is now kept.gguf.old-1" train -m s.gguf --data text.txt --steps 2 --out kept3 --export kept.gguf
expect 0 "trained model: kept4-trained.gguf" train -m s.gguf --data text.txt --steps 2 --out kept4

# all text counts, wherever it is named; what is no text is refused
head -c 30000 text.txt >half.txt
expect 0 "in 2 files" train -m s.gguf --data half.txt --data text.txt --steps 1 --out two-files
grep -qE "^length +1 step of 128 tokens, [0-9.e-]+ passes" out.txt || { cat out.txt; fail "the passes over the text are not told"; }
grep -qE "^run +two-files: checkpoints of .*, up to .* on disk, .* free" out.txt || { cat out.txt; fail "no forecast of the disk"; }
expect 0 "in 2 files" train -m s.gguf half.txt text.txt --steps 1 --out two-named
expect 1 "nowhere.txt" train -m s.gguf --data nowhere.txt --data text.txt --steps 1 --out none
expect 1 "contains NUL bytes" train -m s.gguf s.gguf --steps 1 --out none
expect 1 "is a token file; name it alone" train -m s.gguf s.tokens text.txt --steps 1 --out none

# wrong usage
expect 2 "--steps is given twice: 1 and 2" train -m s.gguf text.txt --steps 1 --steps 2
expect 2 "give one" train -m s.gguf text.txt --steps 1 --tokens 100
expect 1 "no/such" train -m s.gguf no/such --steps 1 --out none
expect 1 "tpu" train -m s.gguf nowhere.txt --device tpu --steps 1 --out none
expect 2 "name the samples per step with --batch" "$bin/train-gpt" -m s.gguf -b 4
expect 2 "--micro" "$bin/train-gpt" -m s.gguf -ub 4
expect 2 "expected a number from 0 to 1" "$bin/generate" -m s.gguf -p a --top-p 3
expect 2 "at least 0" "$bin/generate" -m s.gguf -p a --temp -1
expect 2 "expected a number from 2" "$bin/plan" -m s.gguf --hosts 0
expect 2 "--layers 0" "$bin/new-model" --preset gpt-tiny --layers 0 -o none.gguf
expect 2 "--status 99999" "$bin/hub" --status 99999
expect 0 "cpu:0" "$bin/train-gpt" --list-devices
echo "the lord" >prompt.txt
"$bin/generate" -m s.gguf -p "the lord" -n 8 -s 3 --temp 0.5 -t 1 >by-prompt.txt
"$bin/generate" -m s.gguf -f prompt.txt -n 8 --seed 3 --temperature 0.5 --threads 1 >by-file.txt
cmp by-prompt.txt by-file.txt || fail "generate -f reads another prompt"
expect 2 "did you mean --batch?" "$bin/train-gpt" -m s.gguf --batsh 4
expect 2 "--model is missing" "$bin/train-gpt" --data text.txt
expect 2 "did you mean -m s.gguf?" "$bin/train-gpt" s.gguf text.txt
expect 2 "expected one of cosine" train -m s.gguf --schedule sine
expect 2 "--keep 0" train -m s.gguf --data text.txt --keep 0
expect 2 "--micro 3 does not divide the batch of 7 samples" train -m s.gguf --data text.txt --batch 7 --micro 3 --out none
expect 2 "--micro -1" train -m s.gguf --data text.txt --micro -1
expect 2 "--context -8" train -m s.gguf --data text.txt --context -8
expect 2 "" train -m s.gguf --steps many
echo "e2e-trouble: passed"
