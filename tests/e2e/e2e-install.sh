#!/usr/bin/env bash
# cmake --install into an empty folder: every program runs from there and trains two steps.
# usage: e2e-install.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-install "$1" "$2"
cmake --install "$bin/.." --prefix "$work/prefix" >install.txt || { tail install.txt; fail "cmake --install"; }
for program in new-model prepare-data train-gpt train-vit generate classify export inspect hub plan selftest; do
    [ -x "prefix/bin/$program" ] || fail "$program is not installed"
    grep -q '[0-9]' <("prefix/bin/$program" --version) || fail "$program --version"
    "prefix/bin/$program" --help >/dev/null || fail "$program --help"
done
bin=$work/prefix/bin
tiny gpt2 s.gguf --vocab gpt-2  # a vocabulary that is installed beside the programs
train -m s.gguf --data text.txt --steps 2 >out.txt 2>&1 || { cat out.txt; fail "training from the installed programs"; }
[ -s s-trained.gguf ] || fail "no trained model"
echo "e2e-install: passed"
