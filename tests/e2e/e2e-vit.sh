#!/usr/bin/env bash
# From images to a classifier: new-model, train-vit (killed and resumed), classify; IDX files and a folder
# with damaged images.   usage: e2e-vit.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-vit "$1" "$2"

# four classes of noisy 12x12 images: the bright quarter
cat >make.py <<'PY'
import gzip, os, random, struct, zlib
random.seed(1)
def picture(label):
    cx, cy = 2 + 6 * (label % 2) + random.randint(-1, 1), 2 + 6 * (label // 2) + random.randint(-1, 1)
    near = lambda x, y: abs(x - cx) <= 1 and abs(y - cy) <= 1
    return bytes(min(255, (120 if near(x, y) else 0) + random.randint(0, 135)) for y in range(12) for x in range(12))
for folder, name, n in ("idx", "train", 600), ("idx", "t10k", 200), ("others", "train", 300), ("others", "t10k", 50):
    labels = bytes(random.randrange(4) for _ in range(n))
    os.makedirs(folder, exist_ok=True)
    with gzip.open(f"{folder}/{name}-images-idx3-ubyte.gz", "wb") as f:
        f.write(struct.pack(">4I", 2051, n, 12, 12) + b"".join(map(picture, labels)))
    with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">2I", 2049, n) + labels)
def png(pixels, width=12, height=12):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
for i in range(60):
    name = f"photos/{('left', 'right')[i % 2]}/{i}.png"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, "wb").write(png(picture(i % 2)))
good = open("photos/left/0.png", "rb").read()
open("photos/left/empty.png", "wb")
open("photos/left/cut.png", "wb").write(good[: len(good) // 2])
open("photos/right/text.jpg", "w").write("no picture at all\n")
open("photos/right/misnamed.bmp", "wb").write(good)          # a PNG: read as what it is
open("photos/right/huge.png", "wb").write(good[:16] + struct.pack(">2I", 100000, 100000) + good[24:])
open("photos/right/one.png", "wb").write(png(b"\x80", 1, 1))
PY
python3 make.py
tiny="--arch vit --layers 2 --width 32 --heads 2 --image 12 --patch 4 --channels 1"
"$bin/new-model" $tiny --classes 4 -o vit.gguf >/dev/null

# accuracy well above chance (25 %)
run="--steps 400 --batch 32 --lr 3e-3 --save-every 20 --eval-every 200 --threads 1 --log-every 40 --pad 1 --mixup 0.2 --stochastic-depth 0.05 --smoothing 0.05"
expect 0 "worst mistakes: a/mistakes.html" "$bin/train-vit" -m vit.gguf --data idx $run --out a --export a.gguf
grep -q "images/s" out.txt || fail "no speed in the line"
[ -s a/mistakes.html ] || fail "no page of mistakes"
accuracy=$(grep -o '"accuracy":[0-9.e-]*' a/metrics.jsonl | tail -1 | cut -d: -f2)
python3 -c "import sys; sys.exit(not $accuracy > 0.7)" || fail "accuracy $accuracy"

grep -q "<svg" a/mistakes.html || fail "no curves on the page"
grep -q "matrix" a/mistakes.html || fail "no confusion matrix on the page"
grep -q "prefers-color-scheme: dark" a/mistakes.html || fail "the page is white on dark screens"
! grep -qE "https?://|<script" a/mistakes.html || fail "the page is not self-contained"

# pictures that are not square
expect 0 "12 x 8 pixels" "$bin/new-model" --from a.gguf --image 8 --image-width 12 -o oblong.gguf
expect 0 "trained model" "$bin/train-vit" -m oblong.gguf --data idx --steps 3 --batch 8 --threads 1 --flip --crop 0.5

# several ranks, whole or streamed: the same losses up to rounding, and the same validation
few="--steps 6 --batch 12 --lr 3e-3 --eval-every 3 --threads 1 --mixup 0.2 --stochastic-depth 0.3"
expect 0 "trained model" "$bin/train-vit" -m vit.gguf --data idx $few --out one --export one.gguf
for shard in optimizer full; do
    expect 0 "worst mistakes" "$bin/train-vit" -m vit.gguf --data idx $few --ranks 3 --shard $shard --out $shard --export ranks.gguf
    python3 -c "
import json
a, b = ([json.loads(line) for line in open(f + '/metrics.jsonl')] for f in ('one', '$shard'))
assert len(a) == len(b) >= 8, (len(a), len(b))
for x, y in zip(a, b):
    for key in 'loss', 'val_loss':
        assert abs(x.get(key, 0) - y.get(key, 0)) < 1e-4, (x, y)
" || fail "three ranks ($shard) have different losses"
done

# classify agrees with the run's validation for every batch size
for batch in 32 64 7; do
    "$bin/classify" -m a.gguf idx --json --batch $batch --threads 2 >report.json
    python3 -c "
import json, sys
r = json.load(open('report.json'))
n = sum(map(sum, r['confusion'])); right = sum(row[i] for i, row in enumerate(r['confusion']))
assert n == r['pictures'] == 200, n
assert abs(right / n - $accuracy) < 1e-7 and abs(r['accuracy'] - $accuracy) < 1e-7, (right / n, $accuracy)
" || fail "classify disagrees with the run's validation (batch $batch)"
done
expect 0 "confusion" "$bin/classify" -m a.gguf idx --mistakes mistakes.html
grep -qE '200 pictures, accuracy [0-9.]+ %' mistakes.html || fail "no page of mistakes from classify"

# killed and resumed, the run ends with the same bits
"$bin/train-vit" -m vit.gguf --data idx $run --out b --export b.gguf >b.txt 2>&1 &
pid=$!
for _ in $(seq 600); do
    [ ! -e b/metrics.jsonl ] || [ "$(wc -l <b/metrics.jsonl)" -lt 110 ] || break
    sleep 0.1
done
kill -9 $pid 2>/dev/null || fail "the run was over before it could be killed"
wait $pid 2>/dev/null || true
[ ! -e b.gguf ] || fail "the run was over before it was killed"
expect 0 "resuming after step" "$bin/train-vit" -m vit.gguf --data idx $run --out b --export b.gguf
cmp a.gguf b.gguf || fail "the killed run ended with other weights"
expect 1 "was started with --mixup" "$bin/train-vit" -m vit.gguf --data idx ${run/--mixup 0.2/--mixup 0.5} --out b

# every augmentation and the average of the weights: resumed at half, the same bits
all="--steps 20 --batch 16 --threads 1 --save-every 10 --recipe small-data --repeats 2 --cutout 3 --crop 0.7 --randaugment 1 --erase 0.1 --cutmix 1 --mixup 0.2 --stochastic-depth 0.1 --ema 0.999"
expect 0 "trained model" "$bin/train-vit" -m vit.gguf --data idx $all --out all --export all.gguf
cp -r all half
rm half/checkpoint-0000000020.gguf
expect 0 "resuming after step 10" "$bin/train-vit" -m vit.gguf --data idx $all --out half --export half.gguf
cmp all.gguf half.gguf || fail "the resumed run with --ema ended with other weights"
expect 0 "weights are the running average" "$bin/export" half/checkpoint-0000000020.gguf -o half-exported.gguf
expect 2 "does not divide the batch" "$bin/train-vit" -m vit.gguf --data idx --steps 2 --batch 16 --repeats 3 --out bad

# for timm and back, bit for bit; the head is replaced, frozen blocks stay
mkdir timm again tuned
expect 0 "config for timm: timm/config.json" "$bin/export" a.gguf -o timm/model.safetensors
expect 1 "config.json exists" "$bin/export" a.gguf -o timm/other.safetensors
expect 0 "4 classes" "$bin/new-model" --from timm/model.safetensors -o back.gguf
expect 0 "again/model.safetensors" "$bin/export" back.gguf -o again/model.safetensors
cmp timm/model.safetensors again/model.safetensors || fail "other weights after export and import"
cmp timm/config.json again/config.json || fail "another config.json after export and import"
expect 0 "2 classes" "$bin/new-model" --from timm/model.safetensors --classes 2 --seed 3 -o start.gguf
expect 0 "trained model" "$bin/train-vit" -m start.gguf --data photos --recipe fine-tune --layer-decay 0.75 --freeze 1 --steps 3 --batch 8 --threads 1 --out tune --export tuned.gguf
expect 0 "tuned/model.safetensors" "$bin/export" tuned.gguf -o tuned/model.safetensors
python3 - <<'PY' || fail "--freeze 1"
import json, struct
def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8: 8 + n])
    return {k: data[8 + n + v["data_offsets"][0]: 8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
was, now = tensors("timm/model.safetensors"), tensors("tuned/model.safetensors")
assert was.keys() == now.keys()
for name in was:
    frozen = name.startswith(("patch_embed", "cls_token", "pos_embed", "blocks.0."))
    assert (was[name] == now[name]) == frozen, name
PY
# an adapter and the classifier: merged with the model, they answer as in the run
expect 0 "trained model" "$bin/train-vit" -m vit.gguf --data idx --lora 4 --lr 1e-2 --steps 100 --batch 32 --threads 1 --out lora --export lora.gguf
[ "$(stat -c %s lora.gguf)" -lt "$(stat -c %s vit.gguf)" ] || fail "the adapter is as large as the model"
expect 0 "with the adapter" "$bin/export" lora --merge vit.gguf -o merged.gguf
"$bin/new-model" $tiny --classes 2 -o halves.gguf >/dev/null
expect 1 "is for another model" "$bin/export" lora --merge halves.gguf -o bad.gguf
expect 1 "is an adapter" "$bin/classify" -m lora.gguf idx
expect 1 "is an adapter" "$bin/train-vit" -m lora.gguf --data idx --steps 2 --out bad
"$bin/classify" -m merged.gguf idx --json >report.json
python3 -c "
import json
rows = [json.loads(line) for line in open('lora/metrics.jsonl')]
run, merged = [row['accuracy'] for row in rows if 'accuracy' in row][-1], json.load(open('report.json'))['accuracy']
assert run > 0.4 and abs(run - merged) < 0.006, (run, merged)  # of 200 pictures one may be on the edge
" || fail "an adapter learns nothing, or is not merged"
expect 2 "the model has 2 blocks" "$bin/train-vit" -m start.gguf --data photos --freeze 3 --steps 2 --out bad
head -c 1000 timm/model.safetensors >cut.safetensors
expect 1 "cut off" "$bin/new-model" --from cut.safetensors -o cut.gguf
[ ! -e cut.gguf ] || fail "a model from a file that is cut off"

# two hosts with images of their own, one of them too slow for its whole batch: the same model
"$bin/hub" --new --name anna --address "127.0.0.1:$("$free_port")" >/dev/null
echo "ben -" >>hosts.txt
together="--nodes hosts.txt --steps 20 --batch 16 --threads 1 --min-hosts 2"
GT_TEST_STEP_SECONDS=0.6 "$bin/train-vit" -m vit.gguf --data idx $together --mixup 0.2 --ema 0.9 --name anna --out anna --export anna.gguf >anna.txt 2>&1 &
pid=$!
GT_TEST_STEP_SECONDS=1.6 "$bin/train-vit" -m nothing.gguf --data others $together --micro 2 --log-every 1 --name ben --out ben --export ben.gguf >ben.txt 2>&1 ||
    { tail -n 5 anna.txt ben.txt; fail "ben failed"; }
wait $pid || { tail -n 5 anna.txt ben.txt; fail "anna failed"; }
cmp anna.gguf ben.gguf || fail "anna and ben ended with different models"
"$bin/classify" -m ben.gguf idx --json >report.json || fail "the shared model can't classify"
grep -q ' of 16 samples' ben.txt || fail "ben's log does not tell its part of the batch"
python3 - <<'PY' || fail "anna computes a part of its batch, or ben more than half"
import json
for name, most in ("anna", 16), ("ben", 8):
    n = [row["samples"] for row in map(json.loads, open(f"{name}/metrics.jsonl")) if "samples" in row]
    assert 2 <= min(n[-5:]) and max(n[-5:]) <= most and (most < 16 or min(n) == 16), (name, n)
PY

# a folder: damaged files are named and skipped
expect 1 "has 4 classes, the data 2" "$bin/train-vit" -m vit.gguf --data photos --steps 2 --out c
"$bin/new-model" $tiny --classes 2 --pooling mean -o two.gguf >/dev/null
expect 0 "trained model: two-trained.gguf" "$bin/train-vit" -m two.gguf --data photos --steps 40 --batch 16 --lr 3e-3 --threads 1 --flip --crop 0.8
for name in left/empty.png left/cut.png right/text.jpg right/huge.png; do
    grep -q "skipped: $name (" out.txt || { cat out.txt; fail "$name is not listed"; }
    grep -q "^$name (" two-run/left-out.txt || fail "$name is not in the list file"
done
! grep -q "misnamed\|one.png" out.txt || fail "a readable image was skipped"
accuracy=$(grep -o '"accuracy":[0-9.e-]*' two-run/metrics.jsonl | tail -1 | cut -d: -f2)
"$bin/classify" -m two-trained.gguf photos --part validation --json >report.json 2>/dev/null
python3 -c "import json, sys; sys.exit(abs(json.load(open('report.json'))['accuracy'] - $accuracy) > 1e-7)" || fail "classify disagrees on the folder"
expect 0 "photos/left/2.png: " "$bin/classify" -m two-trained.gguf photos/left/2.png photos/right/1.png
[ "$(grep -c ' %, ' out.txt)" = 2 ] || fail "one line per picture"
expect 0 '{"picture":"photos/left/2.png","answers":[{"class":"' "$bin/classify" -m two-trained.gguf photos/left/2.png --json
expect 0 "attention of the last block: look.png" "$bin/classify" -m two-trained.gguf photos/left/2.png --explain look.png
[ "$(head -c 4 look.png | tail -c 3)" = PNG ] || fail "no PNG from --explain"
expect 2 "takes one picture" "$bin/classify" -m two-trained.gguf photos --explain other.png
expect 1 "text.jpg" "$bin/classify" -m two-trained.gguf photos/right/text.jpg photos/right/1.png
expect 1 "not trained yet" "$bin/classify" -m two.gguf photos/right/1.png

# a copied folder is the same data; one more image is another run
cp -r photos moved
expect 0 "this run is finished (step 40 of 40)" "$bin/train-vit" -m two.gguf --data moved
cp moved/left/0.png moved/left/one-more.png
expect 1 "the training data has changed since two-run/checkpoint-0000000040.gguf was saved" "$bin/train-vit" -m two.gguf --data moved

# fine-tuning at another size, with other classes
expect 0 "24 pixels" "$bin/new-model" --from a.gguf --image 24 --classes 2 -o finer.gguf
expect 0 "trained model" "$bin/train-vit" -m finer.gguf --data photos --steps 2 --batch 8 --threads 1
"$bin/new-model" --preset gpt-tiny -o gpt.gguf >/dev/null
expect 1 "train it with train-gpt" "$bin/train-vit" -m gpt.gguf --data idx
expect 1 "no such folder or file" "$bin/train-vit" -m vit.gguf --data nowhere --out d
echo "e2e-vit: passed"
