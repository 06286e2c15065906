#!/usr/bin/env bash
# Ranks, stores, rounds and hub under a sanitizer, compiled by clang; exit code 0 if it reports nothing.
#   tests/sanitize.sh thread|address [CMAKE_OPTION...]      -DGT_THIRD_PARTY=$PWD/build links what is built there
# What starts the programs as processes of their own (hub-process-tests, tests/e2e) is not in it.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    thread) folder=build-tsan options=-DGT_SANITIZE=thread ;;
    address) folder=build-asan options= ;;
    *) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac
shift
tests=(local-tests store-tests rounds-tests net-rounds-tests hub-tests)
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
source tools/dev/setup.sh
gt_configure_sanitized "$folder" $options "$@"
cmake --build "$folder" --target "${tests[@]}"
for test in "${tests[@]}"; do
    say "$test in $folder"
    "$folder/bin/$test" "~[time]"  # what is slow is sent twice, on other connections
done
