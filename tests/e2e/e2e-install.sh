#!/usr/bin/env bash
# cmake --install into an empty folder: ggml-train and its links run from there and train two steps. Only names
# that nobody else has are links there.
# usage: e2e-install.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-install "$1" "$2"
cmake --install "$bin/.." --prefix "$work/prefix" >install.txt || { tail install.txt; fail "cmake --install"; }
installed=$work/prefix/bin
module=$(cd "$bin" && ls libggml-vulkan.so 2>/dev/null || true)  # with -DGT_VULKAN=ON
[ "$(ls "$installed" | tr '\n' ' ')" = "ggml-train ${module:+$module }new-model prepare-data train-gpt train-vit " ] ||
    { ls -l "$installed"; fail "other programs are installed than expected"; }

for file in bash-completion/completions/train-gpt zsh/site-functions/_ggml-train zsh/vendor-completions/_ggml-train man/man1/train-gpt.1; do
    [ -s "$work/prefix/share/$file" ] || fail "not installed: $file"
done

# every verb, by its name in the build folder and after ggml-train
verbs=$("$installed/ggml-train" | awk '/^  / { print $1 }')
[ "$(wc -w <<<"$verbs")" -ge 11 ] || fail "ggml-train lists too few programs: $verbs"
for verb in $verbs; do
    expect 0 "$verb (ggml-train) " "$bin/$verb" --version
    expect 0 "ggml-train $verb (ggml-train) " "$installed/ggml-train" "$verb" --version
    expect 0 "usage: ggml-train $verb " "$installed/ggml-train" "$verb" --help
    expect 2 "unknown flag --no-such" "$installed/ggml-train" "$verb" --no-such
done
expect 0 "usage: train-gpt " "$installed/train-gpt" --help
expect 2 'unknown program "tran-gpt"; did you mean train-gpt?' "$installed/ggml-train" tran-gpt
expect 2 'unknown program "zzz"' "$installed/ggml-train" zzz
expect 0 "usage: ggml-train PROGRAM" "$installed/ggml-train"

bin=$installed
tiny gpt2 s.gguf --vocab gpt-2  # a vocabulary that is installed beside the programs
train -m s.gguf --data text.txt --steps 2 >out.txt 2>&1 || { cat out.txt; fail "training from the installed programs"; }
[ -s s-trained.gguf ] || fail "no trained model"
echo "e2e-install: passed"
