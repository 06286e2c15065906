# tools/dev/llvm14.sh — sourced by tests/format.sh and tests/tidy.sh.

# gt_llvm14 clang-format|clang-tidy: prints the path of version 14, from Debian or else from PyPI
gt_llvm14() {
    local program=$1 version=14.0.6 venv=${GT_LLVM14_VENV:-$PWD/build/venv-llvm14}
    local found
    for found in "$program-14" "$program"; do
        if "$found" --version 2>/dev/null | grep -q 'version 14\.'; then
            command -v "$found"
            return
        fi
    done
    if [ ! -x "$venv/bin/$program" ]; then
        (
            flock 9
            [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
            "$venv/bin/pip" install --quiet "$program==$version" >&2
        ) 9>"$venv.lock"
    fi
    echo "$venv/bin/$program"
}
