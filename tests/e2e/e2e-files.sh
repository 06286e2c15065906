#!/usr/bin/env bash
# The tools around training: new-model, prepare-data, export, generate; the Python `gguf` reader opens their
# output, too.   usage: e2e-files.sh BIN_DIR WORK_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$1
work=$2
rm -rf "$work/files"
mkdir -p "$work/files"
export XDG_CACHE_HOME="$work/files/cache"

fail() { echo "e2e-files: $*" >&2; exit 1; }

# expect CODE TEXT COMMAND...: checks the exit code, and that the output contains TEXT
expect() {
    local code=$1 text=$2 got=0
    shift 2
    "$@" >out.txt 2>&1 || got=$?
    [ "$got" = "$code" ] || { cat out.txt; fail "$* ended with $got, expected $code"; }
    grep -qF -- "$text" out.txt || { cat out.txt; fail "$* did not print: $text"; }
}
cd "$work/files"

source "$here/gguf-venv.inc.sh" "$work"
cat >read.py <<'EOF'
import sys
from gguf import GGUFReader
reader = GGUFReader(sys.argv[1])
print(reader.fields["general.architecture"].contents(), len(reader.tensors), {t.tensor_type.name for t in reader.tensors})
EOF
opens() {
    "$python_gguf" read.py "$1" >out.txt || fail "the Python reader refuses $1"
    grep -q "^$2 $3 " out.txt || { cat out.txt; fail "$1: expected $2 with $3 tensors"; }
}

# GPT-2 and Llama with every tokenizer, and ViT
expect 0 "gpt2, 4 layers"  "$bin/new-model" --preset gpt-tiny -o gpt.gguf
expect 0 "llama, 4 layers" "$bin/new-model" --preset llama-tiny --vocab llama-spm -o llama.gguf
expect 0 "3 classes"       "$bin/new-model" --preset vit-micro --classes 3 -o vit.gguf
expect 0 "vocabulary 50257" "$bin/new-model" --arch gpt2 --layers 1 --width 64 --heads 2 --context 64 --vocab gpt-2 -o bpe.gguf
opens gpt.gguf gpt2 52
opens llama.gguf llama 38
opens vit.gguf vit 72
"$bin/new-model" --preset gpt-tiny -o again.gguf >/dev/null
cmp gpt.gguf again.gguf || fail "the same seed gave another file"

# every export type; --from keeps the weights of an export
for type in f16 bf16 q8_0; do
    expect 0 "$type" "$bin/export" gpt.gguf --type $type -o gpt-$type.gguf
    opens gpt-$type.gguf gpt2 52
    expect 0 "" "$bin/generate" -m gpt-$type.gguf -p "Once" -n 5
done
expect 0 "gpt2" "$bin/new-model" --from gpt-f16.gguf -o back.gguf
expect 0 "gpt2" "$bin/export" back.gguf --type f16 -o back-f16.gguf
cmp gpt-f16.gguf back-f16.gguf || fail "F16 to F32 and back changed the weights"

# every form of text
mkdir books
for i in 1 2 3; do seq -f "Line %g of book $i." 1 2000 >books/$i.txt; done
seq -f '{"text": "Story number %g.", "id": 7}' 1 500 | gzip >stories.jsonl.gz
expect 0 "3 documents to train on" "$bin/prepare-data" -m gpt.gguf books -o books.tokens
expect 0 "from 4 files" "$bin/prepare-data" --vocab gpt-2 books stories.jsonl.gz -o all.tokens
expect 0 "from 1 file" "$bin/prepare-data" -m bpe.gguf stories.jsonl.gz
[ -f bpe.tokens ] || fail "the token file is not beside the model"

# errors: a message, the right exit code, no output file left behind
expect 2 "did you mean --preset?" "$bin/new-model" --prest gpt-tiny -o x.gguf
expect 2 "choose a model" "$bin/new-model" -o x.gguf
expect 1 "known presets: gpt-tiny" "$bin/new-model" --preset nope -o x.gguf
expect 1 "no vocabulary" "$bin/new-model" --preset gpt-tiny --vocab nope -o x.gguf
expect 1 "does not divide" "$bin/new-model" --preset gpt-tiny --heads 5 -o x.gguf
expect 1 "No such file" "$bin/prepare-data" -m gpt.gguf nowhere.txt -o x.tokens
expect 1 "choose one with --field" "$bin/prepare-data" -m gpt.gguf --field body stories.jsonl.gz -o x.tokens
head -c 100000 gpt.gguf >cut.gguf
expect 1 "cut off" "$bin/export" cut.gguf -o x.gguf
expect 1 "cut off" "$bin/generate" -m cut.gguf -p a
expect 1 "no tokenizer" "$bin/prepare-data" -m vit.gguf books -o x.tokens
expect 1 "No such file" "$bin/new-model" --preset gpt-tiny -o no/such/folder.gguf
[ ! -e x.gguf ] && [ ! -e x.tokens ] || fail "a failed program left its output behind"
for tool in new-model prepare-data export generate; do
    expect 0 "usage: $tool" "$bin/$tool" --help
    expect 0 "$tool (ggml-train)" "$bin/$tool" --version
done

# Ctrl+C while text is prepared leaves nothing behind
{ yes "And the evening and the morning were the first day." || true; } | head -c 80M >long.txt
"$bin/prepare-data" --vocab gpt-2 long.txt -o long.tokens --threads 1 >out.txt 2>&1 &
until [ -e long.tokens.part ]; do kill -0 $! || { cat out.txt; fail "prepare-data ended at once"; }; sleep 0.05; done
kill -INT $!
! wait $! || fail "prepare-data was not stopped"
grep -q "stopped; long.tokens was not written" out.txt && [ -z "$(ls long.tokens* 2>/dev/null)" ] || { cat out.txt; ls; fail "Ctrl+C left files"; }

# a full disk: a tiny tmpfs, if it can be mounted
if mkdir full && mount -t tmpfs -o size=1m tmpfs full 2>/dev/null; then
    trap 'umount "$work/files/full"' EXIT
    echo old >full/gpt.gguf
    expect 1 "No space left" "$bin/export" gpt.gguf -o full/gpt.gguf --force
    [ "$(cat full/gpt.gguf)" = old ] && [ "$(ls full)" = gpt.gguf ] || fail "a full disk harmed the old file"
fi
echo "e2e-files: passed"
