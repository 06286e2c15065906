# tools/setup.sh — sourced by demo.sh and check.sh: installs what is missing and configures.

say() { printf '\n== %s\n' "$*"; }

# gt_install PACKAGE... : Debian packages, when missing
gt_install() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    local sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
            echo "missing packages; install them and start again:" >&2
            echo "    sudo apt-get install ${missing[*]}" >&2
            exit 1
        fi
        sudo=sudo
    fi
    say "installing ${missing[*]}"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${missing[@]}" >/dev/null
}

GT_PACKAGES="g++ cmake ninja-build pkg-config libcurl4-openssl-dev libssl-dev libsodium-dev
             zlib1g-dev libstb-dev libdnnl-dev catch2"

# gt_configure FOLDER OPTION... : cmake with Ninja
gt_configure() {
    local folder=$1
    shift
    [ -n "${GT_LLAMA_CPP_DIR:-}" ] && set -- "$@" "-DGT_LLAMA_CPP_DIR=$GT_LLAMA_CPP_DIR"
    cmake -G Ninja -S . -B "$folder" "$@" | grep -vE '^-- (Looking|Performing|Found|Check)' || true
    [ -f "$folder/build.ninja" ]
}
