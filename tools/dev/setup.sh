# tools/dev/setup.sh — sourced by demo.sh and check.sh: installs missing packages, configures builds.

say() { printf '\n== %s\n' "$*"; }

# gt_install PACKAGE...: installs the Debian packages that are missing
gt_install() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    local sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
            echo "missing packages; install them and run this again:" >&2
            echo "    sudo apt-get install ${missing[*]}" >&2
            exit 1
        fi
        sudo=sudo
    fi
    say "installing ${missing[*]}"
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null
}

# what the programs and the unit tests need
GT_PACKAGES="g++ cmake ninja-build pkg-config python3-pip ca-certificates libcurl4-openssl-dev libssl-dev
             libsodium-dev zlib1g-dev libstb-dev libdnnl-dev libnatpmp-dev libminiupnpc-dev libonnx-dev
             libprotobuf-dev catch2"

# what tools/check.sh needs besides: fuzzers, data sets, network namespaces, a browser, a terminal
GT_TEST_PACKAGES="python3-venv clang clang-tidy libclang-rt-dev libomp-dev bible-kjv dataset-fashion-mnist iproute2 procps curl git chromium tmux man-db zsh"

# what -DGT_VULKAN=ON needs, and a driver that computes on the CPU
GT_VULKAN_PACKAGES="libvulkan-dev glslc spirv-headers mesa-vulkan-drivers"

# gt_configure FOLDER OPTION...: cmake with Ninja, for whole builds; ccache is used if it is installed
gt_configure() {
    local folder=$1
    shift
    [ -n "${GT_LLAMA_CPP_DIR:-}" ] && set -- "$@" "-DGT_LLAMA_CPP_DIR=$GT_LLAMA_CPP_DIR"
    if command -v ccache >/dev/null; then
        set -- -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"
    fi
    cmake -G Ninja -S . -B "$folder" -DGT_UNITY=ON "$@" | grep -vE '^-- (Looking|Performing|Found|Check)' || true
    [ -f "$folder/build.ninja" ]
}

# gt_configure_sanitized FOLDER OPTION...: our code under address and undefined-behaviour sanitizers and ready for
# libFuzzer, or under what -DGT_SANITIZE names. Clang compiles it in half of GCC's time, and it is the check's second compiler.
# Classes of third-party code that GCC has compiled may have another size for Clang (nlohmann::ordered_json's objects: 24 and 32
# bytes); Clang 19 would tell it to operator delete.
gt_configure_sanitized() {
    local folder=$1
    shift
    gt_configure "$folder" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CXX_FLAGS=-fno-sized-deallocation "-DGT_SANITIZE=fuzzer-no-link,address,undefined" "$@"
}
