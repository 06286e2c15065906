#!/usr/bin/env bash
# Runs the demo or the whole check on a fresh machine: a minimal Debian root that holds nothing but the
# committed tree. Needs root and the package debootstrap; see tests/fresh-root.inc.sh.
#
#   tests/fresh-machine.sh [bookworm|trixie] [demo|check] [VARIABLE=VALUE...]
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm} what=${2:-demo}
case $suite:$what in
    bookworm:demo | bookworm:check | trixie:demo | trixie:check) ;;
    *) sed -n '5p' "$0" >&2; exit 2 ;;
esac
source tests/fresh-root.inc.sh
shift $(($# < 2 ? $# : 2))

fresh_root "$suite" "$what"
git archive HEAD | tar -x -C "$root/src"
seconds=$SECONDS
in_root "$@" sh -c "cd /src && tools/$what.sh"
echo "fresh-machine: tools/$what.sh passed on $suite in $((SECONDS - seconds)) s"
