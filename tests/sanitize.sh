#!/usr/bin/env bash
# Hub, stores, rounds and ranks under a sanitizer; exit code 0 if it reports nothing.
#   tests/sanitize.sh thread|address [CMAKE_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    thread) folder=build-tsan; configure="gt_configure $folder -DCMAKE_BUILD_TYPE=Release -DGT_SANITIZE=thread" ;;
    address) folder=build-asan; configure="gt_configure_sanitized $folder" ;;
    *) sed -n '2,3p' "$0" >&2; exit 2 ;;
esac
shift
tests=(local-tests store-tests rounds-tests net-rounds-tests hub-tests hub-process-tests)
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
source tools/dev/setup.sh
$configure "$@"
cmake --build "$folder" --target "${tests[@]}"
for test in "${tests[@]}"; do
    say "$test in $folder"
    "$folder/bin/$test"
done
