#!/usr/bin/env bash
# -hf USER/REPO[:FILE] against a local server: choice of the file, redirection, resumed downloads, digest, token,
# cache in the layout of llama.cpp and huggingface_hub, and without network.   usage: e2e-hf.sh BIN_DIR WORK_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/e2e.inc.sh" e2e-hf "$1" "$2"
unset HF_TOKEN HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE LLAMA_CACHE
mkdir -p server/anna/tiny server/anna/two
tiny llama server/anna/tiny/tiny-f32.gguf --width 64 --layers 6
cp server/anna/tiny/tiny-f32.gguf server/anna/two/
"$bin/export" server/anna/tiny/tiny-f32.gguf --type q8_0 -o "server/anna/two/tiny Q8_0.gguf" >/dev/null
echo "a readme" >server/anna/two/README.md
"$here/hf_server.py" server >port.txt &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until [ -s port.txt ]; do sleep 0.05; done
export HF_ENDPOINT=http://127.0.0.1:$(cat port.txt)
repo=cache/huggingface/hub/models--anna--tiny
snapshot=$repo/snapshots/0123456789abcdef0123456789abcdef01234567
sample="-p lord -n 4 --threads 1"

# the only file of a repository; the second time it is not downloaded
expect 0 "downloading tiny-f32.gguf of anna/tiny" "$bin/generate" -hf anna/tiny $sample
cmp $snapshot/tiny-f32.gguf server/anna/tiny/tiny-f32.gguf || fail "the cache has another file"
[ -L $snapshot/tiny-f32.gguf ] && [ "$(cat $repo/refs/main)" = 0123456789abcdef0123456789abcdef01234567 ] ||
    fail "the cache does not have the layout of huggingface_hub"
expect 0 "lord" "$bin/generate" -hf anna/tiny $sample
! grep -q downloading out.txt || fail "a cached file was downloaded again"

# several files: named by a part of the name, by the whole name; otherwise listed
expect 1 "anna/two:tiny Q8_0.gguf  (" "$bin/generate" -hf anna/two $sample
expect 1 "anna/two has no file q4_k" "$bin/generate" -hf anna/two:q4_k $sample
expect 0 "downloading tiny Q8_0.gguf" "$bin/generate" -hf anna/two:q8_0 $sample
expect 0 "made.gguf: llama" "$bin/new-model" -hf anna/two:tiny-f32.gguf -o made.gguf

# training: run folder and trained model are here, not in the cache
expect 0 "trained model: tiny-f32-trained.gguf" train -hf anna/tiny --data text.txt --steps 2
[ -d tiny-f32-run ] && [ -s tiny-f32-trained.gguf ] || fail "the run is not in this folder"

# connections that break: every answer ends after 100,000 bytes, and an earlier process left a part
forget() { rm -rf cache/huggingface; : >server/requests; }
bytes=$(stat -c %s server/anna/tiny/tiny-f32.gguf)
[ "$bytes" -gt 500000 ] || fail "the model is too small for this test: $bytes"
forget
mkdir -p $repo/blobs
sha=$(sha256sum <server/anna/tiny/tiny-f32.gguf | cut -d' ' -f1)
head -c 150000 server/anna/tiny/tiny-f32.gguf >"$repo/blobs/$sha.incomplete"
echo cut >server/faults
expect 0 "lord" "$bin/generate" -hf anna/tiny $sample
cmp $snapshot/tiny-f32.gguf server/anna/tiny/tiny-f32.gguf || fail "a resumed download differs"
for begin in 150000 250000 350000; do
    grep -q "bytes=$begin-" server/requests || { cat server/requests; fail "not resumed at $begin"; }
done
! grep -q "^/cdn.* - " server/requests || fail "a byte was asked for twice"

# a server without ranges: from the beginning; a damaged file is not kept
forget
mkdir -p $repo/blobs
head -c 150000 server/anna/tiny/tiny-f32.gguf >"$repo/blobs/$sha.incomplete"
echo whole >server/faults
expect 0 "lord" "$bin/generate" -hf anna/tiny $sample
cmp $snapshot/tiny-f32.gguf server/anna/tiny/tiny-f32.gguf || fail "a download without ranges differs"
forget
echo damaged >server/faults
expect 1 "its SHA-256 differs" "$bin/generate" -hf anna/tiny $sample
[ -z "$(find cache -name "$sha*" ! -name '*.lock')" ] || fail "a damaged file was kept"

# a token, which only the first server sees
echo token >server/faults
expect 1 "set HF_TOKEN" "$bin/generate" -hf anna/tiny $sample
forget
HF_TOKEN=secret expect 0 "lord" "$bin/generate" -hf anna/tiny $sample
grep -q "^/anna/tiny/resolve.* secret" server/requests || fail "the token was not sent"
rm server/faults

# names
expect 1 "check the name of the repository" "$bin/generate" -hf anna/none $sample
for name in anna /tiny anna/ anna/../tiny a/b/c; do
    expect 1 "expected USER/REPO" "$bin/generate" -hf "$name" $sample
done
expect 2 "as a file or with -hf, not both" "$bin/generate" -hf anna/tiny -m made.gguf $sample

# without network: what is in the cache
kill $server
wait $server 2>/dev/null || true
expect 0 "taking the file that was downloaded before" "$bin/generate" -hf anna/tiny $sample
expect 1 "$HF_ENDPOINT/api/models/anna/two" "$bin/generate" -hf anna/two $sample
echo "e2e-hf: passed"
