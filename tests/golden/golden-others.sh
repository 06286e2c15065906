#!/usr/bin/env bash
# Reference runs of other shapes, hosts and settings than tests/golden has, made by golden_make.py on the
# spot; golden-tests must agree with each.   usage: golden-others.sh BIN_DIR WORK_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$1
work=$2/golden-others
mkdir -p "$work/files"
rm -f "$work"/files/*
source "$here/../e2e/gguf-venv.inc.sh" "$2"
"$python_gguf" "$here/golden_make.py" "$work/files" 1 6
GT_GOLDEN_DIR="$work/files" "$bin/golden-tests"
