#!/usr/bin/env bash
# Fails on an include that is not an arrow of the layering:
#
#   tools -> models, optim, comm -> ggml-train -> ggml
#
# models, optim and comm never include one another; nobody includes tools; comm knows of ggml-train
# only base.h and exchange.h, and no ggml; optim knows ggml only where it builds graphs (demo-graph).
# usage: layering.sh [SOURCE_DIR]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
bad=0

# forbid FOLDER PATTERN WHY [EXCEPT]: no include of FOLDER matches PATTERN (unless file or line does EXCEPT)
forbid() {
    local found
    found=$(grep -rnE --include='*.h' --include='*.cpp' --include='*.cuh' --include='*.cu' \
        "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($2)" "$1" | grep -vE "${4:-^\$}" || true)
    if [ -n "$found" ]; then
        printf '%s:\n%s\n' "$3" "$found" >&2
        bad=1
    fi
}
ggml='(ggml|gguf|llama)[-a-z]*\.h'
forbid ggml-train '(models|optim|comm|tools|tests)/' "the engine includes none of the folders above it"
forbid models '(optim|comm|tools|tests)/' "models includes only ggml-train"
forbid optim '(models|comm|tools|tests)/' "optim includes only ggml-train"
forbid comm '(models|optim|tools|tests)/' "comm includes only ggml-train"
forbid comm 'ggml-train/' "comm includes only base.h and exchange.h of the engine" 'ggml-train/(base|exchange)\.h'
forbid comm "$ggml" "comm builds without ggml"
forbid optim "$ggml" "optim works on arrays, not on ggml tensors" '^optim/[a-z-]*graph[a-z-]*\.(h|cpp):'
forbid tools 'tests/' "a tool includes no test"
for folder in ggml-train models optim comm tools tests; do
    forbid $folder '\.\./' "includes are written from the top folder"
done

# the engine's parts that stand without ggml
for file in base.h base.cpp exchange.h file.h file.cpp; do
    forbid ggml-train/$file "$ggml" "ggml-train/$file needs no ggml"
done
[ $bad = 0 ] && echo "layering: every include is an arrow that is drawn"
exit $bad
