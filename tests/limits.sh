#!/usr/bin/env bash
# Fails on a C++ file over 500 lines, a class over 300 lines, or a folder with more than 26 sources of
# its own (a header and its .cpp count as one).   usage: limits.sh [SOURCE_DIR]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
bad=0
files() { find ggml-train models optim comm tools tests -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu'; }

while read -r lines file; do
    [ "$lines" -le 500 ] || { echo "limits: $file has $lines lines; split it by responsibility" >&2; bad=1; }
done < <(files | xargs wc -l | grep -v ' total$')

# a class ends at the first line that closes a brace at its own indentation
files | xargs awk '
    FNR == 1 { name = "" }
    name == "" && match($0, /^ *(class|struct) [A-Za-z_]+[^;]*\{$/) {
        indent = match($0, /[^ ]/) - 1; start = FNR; split($0, word, /[ {:]+/); name = word[indent ? 3 : 2]
        next
    }
    name != "" && match($0, /[^ ]/) - 1 == indent && substr($0, indent + 1, 1) == "}" {
        if (FNR - start > 300) { printf "limits: %s:%d: %s has %d lines\n", FILENAME, start, name, FNR - start; found = 1 }
        name = ""
    }
    END { exit found }' >&2 || bad=1

while read -r n folder; do
    [ "$n" -le 26 ] || { echo "limits: $folder has $n sources; give a concern its own subfolder" >&2; bad=1; }
done < <(files | sed -E 's/\.(h|cpp|cuh|cu)$//' | sort -u | sed 's|/[^/]*$||' | sort | uniq -c)

[ $bad = 0 ] && echo "limits: files, classes and folders are within their limits"
exit $bad
