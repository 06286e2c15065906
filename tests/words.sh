#!/usr/bin/env bash
# Fails on a retired word in sources, messages, scripts and pages, also inside a name_of_words. CONTRIBUTING.md has
# the words to use instead.
# usage: words.sh [SOURCE_DIR]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# retired -> use
retired='
life                       -> incarnation
stranger|strangers         -> peer, another host
broom|keep house           -> garbage collection
hear|hears|heard           -> receive, answer
patience                   -> timeout
anew                       -> again
alike                      -> the same, identical
whoever                    -> the process that ...
no numbers?                -> NaN or Inf
so many                    -> this many, N
leave away                 -> omit
go on|goes on|going on     -> resume, continue
held to                    -> checked against
stands for                 -> represents
for people                 -> human-readable
of its own accord          -> automatically
made_up                    -> subtract_missed_mean
Together                   -> Session
HostLine                   -> HostEntry
StepSource|TrainTask       -> Data, Optimizer, Peers
step-line                  -> progress
held word                  -> record
'
files() {
    find README.md CONTRIBUTING.md CMakeLists.txt .ci ggml-train models optim comm tools tests -type f \
        \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' -o -name '*.md' \
        -o -name '*.txt' -o -name '*.cmake' -o -name '*.html' -o -name run -o -name home -o -name optim-speed \) \
        ! -path tests/words.sh ! -path CONTRIBUTING.md
}
bad=0
while IFS= read -r row; do
    words=$(sed -E 's/ *->.*//' <<<"$row")
    [ -n "$words" ] || continue
    flags=-nE
    [[ $words =~ [A-Z_] ]] || flags=-niE
    words="(^|[^[:alnum:]])(${words// /[ _]})([^[:alnum:]]|$)"
    while IFS= read -r found; do
        echo "$found    <- retired: $row"
        bad=$((bad + 1))
    done < <(files | xargs grep $flags -- "$words" /dev/null || true)
done <<<"$retired" >&2
if [ $bad != 0 ]; then
    echo "words: $bad lines with retired words" >&2
    exit 1
fi
echo "words: no retired word"
