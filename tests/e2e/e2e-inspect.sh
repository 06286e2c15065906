#!/usr/bin/env bash
# inspect on every kind of file that the programs write; damaged and unknown files.
# usage: e2e-inspect.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-inspect "$1" "$2"
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
inspect="$bin/inspect"

# shows FILE TEXT... [-- OPTION...]: the report has a line "NAME  VALUE" for every TEXT, blanks do not count
shows() {
    local file=$1 texts=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do texts+=("$1"); shift; done
    [ $# = 0 ] || shift
    "$inspect" "$file" "$@" >out.txt 2>&1 || { cat out.txt; fail "inspect $file failed"; }
    for text in "${texts[@]}"; do
        tr -s ' ' <out.txt | grep -qE -- "^$text" || { cat out.txt; fail "inspect $file did not print: $text"; }
    done
}

# models and vocabularies: the name does not matter
tiny gpt2 s.gguf
cp s.gguf renamed.tokens
shows renamed.tokens "kind model \(GGUF\)" "architecture gpt2" "model gpt2, 2 layers, 32 wide" "tokenizer bytes, 257 tokens, digest [0-9a-f]{16}$" \
    "tensors [0-9]+, .* f32" " token_embd.weight f32 \[32, 257\]"
"$bin/export" s.gguf --type q8_0 -o q.gguf >/dev/null
shows q.gguf "tensors .* q8_0" " token_embd.weight q8_0 \[32, 257\]"
tiny gpt2 b.gguf --vocab gpt-2
shows b.gguf "tokenizer gpt2 \(gpt-2\), 50257 tokens"

# a token file
"$bin/prepare-data" -m s.gguf text.txt -o text.tokens >/dev/null
shows text.tokens "kind token file" "tokens $((($(stat -c %s text.tokens) - 128) / 2))$" "training [0-9]+ tokens \(.*%\), 1 documents" "validation [0-9]+ tokens" \
    "vocabulary 257$" "tokenizer digest [0-9a-f]{16}$" "digest [0-9a-f]{16}$"
[ "$("$inspect" text.tokens | awk '$1 == "tokenizer" { print $3 }')" = "$("$inspect" s.gguf | awk '$1 == "tokenizer" { print $NF }')" ] ||
    fail "the tokenizers of model and token file differ"

# a checkpoint of a run alone
train -m s.gguf --data text.tokens --steps 4 --lr 0.002 >train.txt 2>&1 || { cat train.txt; fail "training"; }
checkpoint=$(ls s-run/checkpoint-*.gguf | tail -1)
shows "$checkpoint" "kind checkpoint of a run" "model gpt2, 2 layers" "step 4$" "weights [0-9]+ tensors, " "state [1-9][0-9]* tensors, " \
    "counters [0-9]+" "blobs [0-9]+$" " run-mark 8 bytes$" "flags [0-9]+" " lr 0.002$" " steps 4$"
[ "$(awk '$1 == "weights" { print $2 }' out.txt)" = "$("$inspect" s.gguf | awk '$1 == "tensors" { print $2 }' | tr -d ,)" ] ||
    fail "the checkpoint has other weights than the model"

# two hosts over a folder; ben's invitation is not printed
"$bin/hub" --new --nodes hosts.txt --name anna --store "file://$work/store" >/dev/null
echo "ben -" >>hosts.txt
together="--threads 1 --batch 4 --sample-tokens 8 --data text.tokens --steps 6 --min-hosts 2 --overlap 1"
"$bin/train-gpt" -m s.gguf $together --nodes hosts.txt --name anna --out anna --export anna.gguf >anna.txt 2>&1 &
pid=$!
line=$("$bin/hub" --nodes hosts.txt --invite)
"$bin/train-gpt" -m s.gguf $together --join "$line" --name ben --out ben --export ben.gguf >ben.txt 2>&1 ||
    { tail -n 5 anna.txt ben.txt; fail "ben failed"; }
wait $pid || { tail -n 5 anna.txt ben.txt; fail "anna failed"; }
shows "$(ls ben/checkpoint-*.gguf | tail -1)" "kind checkpoint"
! grep -q " join " <("$bin/inspect" "$(ls ben/checkpoint-*.gguf | tail -1)") || fail "a checkpoint has the invitation"
! grep -qF "$line" out.txt || fail "the invitation is printed"

# commits: only the head of the frame without the key
commit=$(ls store/r*/commit/* | tail -1)
message=$(ls store/r*/message/*/ben/* | tail -1)
run=$(basename store/r*)
round=$((10#$(basename "$commit")))
shows "$commit" "kind commit" "run ${run#r}$" "round $round$" "host (anna|ben)$" "content not shown"
! grep -q "^step\|^messages" out.txt || fail "a commit is shown without the key"
shows "$commit" "undone 0 commits before it$" "step [0-9]+" "previous [0-9a-f]{16}" "hosts 2$" " anna incarnation [0-9]+" " ben incarnation [0-9]+" \
    "messages [0-9]+" "checkpoint the last complete one is listed in round " -- --nodes hosts.txt
listed=store/$run/commit/$(basename "$(dirname "$(dirname "$message")")")
[ ! -e "$listed" ] || shows "$listed" " ben incarnation [0-9]+, weight 4, $(stat -c %s "$message") bytes" -- --nodes hosts.txt

# messages: the clear head without the key
shows "$message" "kind message" "host ben$" "incarnation $((10#$(basename "$message")))$" "step [0-9]+" "weight 4 samples" "loss [0-9.]+" "seal not checked: --nodes"
shows "$message" "seal opens with the run's key" -- --nodes hosts.txt
"$bin/hub" --nodes hosts.txt --hub-file rented.txt >/dev/null
shows "$message" "seal not checked: a hub-key" -- --nodes rented.txt
for record in settings model; do
    shows "store/$run/$record" "kind $record" "tag made with the run's key" "body [0-9]+ bytes" -- --nodes hosts.txt
done
"$bin/hub" --new --nodes other.txt --name anna --store "file://$work/none" >/dev/null
expect 1 "give the hosts.txt of that run" "$inspect" "$commit" --nodes other.txt

# a cache of images, one of them cut off
python3 - <<'PY'
import os, random, struct, zlib
random.seed(1)
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for i in range(40):
    rows = b"".join(b"\0" + random.randbytes(12) for _ in range(12))
    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 12, 12, 8, 0, 0, 0, 0))
           + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    name = f"photos/{('left', 'right')[i % 2]}/{i}.png"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, "wb").write(png[:100] if i == 7 else png)
PY
"$bin/new-model" --arch vit --layers 1 --width 32 --heads 2 --image 12 --patch 4 --channels 1 --classes 2 -o vit.gguf >/dev/null
shows vit.gguf "architecture vit" "tokenizer none"
"$bin/train-vit" -m vit.gguf --data photos --cache images.cache --steps 1 --batch 4 --threads 1 >out.txt 2>&1 || { cat out.txt; fail "train-vit"; }
shows images.cache "kind cache of decoded images" "images 40$" "unreadable 1$" "width 12 to 12$" "height 12 to 12$" "key [0-9a-f]{16}$"

# cut, changed, unknown
for file in s.gguf text.tokens "$checkpoint" "$commit" "$message" images.cache; do
    head -c $(($(stat -c %s "$file") - 40)) "$file" >cut
    expect 1 "inspect: cut: " "$inspect" cut
    head -c 3 "$file" >cut
    expect 1 "inspect: cut: of no known kind" "$inspect" cut
    grep -q "known are checkpoints, models and vocabularies (GGUF), token files, image caches, and values of a store" out.txt || fail "no list of kinds"
done
for file in text.tokens "$checkpoint" "$commit" "$message"; do
    python3 -c "
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
data[-50] ^= 1
open('changed', 'wb').write(data)" "$file"
    expect 1 "inspect: changed: " "$inspect" changed
done
: >empty
expect 1 "empty: of no known kind" "$inspect" empty
expect 1 "text.txt: of no known kind" "$inspect" text.txt
expect 1 "No such file" "$inspect" nowhere
expect 1 "is not a file" "$inspect" photos
expect 2 "name a file" "$inspect"
echo "e2e-inspect: passed"
