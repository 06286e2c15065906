#!/usr/bin/env bash
# The .deb on a fresh machine: a minimal Debian root in which it is installed, trains two hosts to the same bits,
# has its pages for man and its completion, and is removed without a trace. Then the tarball, from a folder.
# Needs root and the package debootstrap; see tests/fresh-root.inc.sh.
#
#   tests/fresh-package.sh [bookworm|trixie] [BUILD_DIR]
#
# BUILD_DIR: a build of this release, whose packages are made by cpack. Without it, the committed tree is built
# for all CPUs in a root of the release.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm} build=${2:-}
case $suite in bookworm | trixie) ;; *) sed -n '6p' "$0" >&2; exit 2 ;; esac
source tests/fresh-root.inc.sh
packages=$PWD/build/roots/packages-$suite
rm -rf "$packages"
mkdir -p "$packages"

# the packages
if [ -n "$build" ]; then
    (cd "$build" && cpack -B "$packages")
else
    fresh_root "$suite" package-build
    git archive HEAD | tar -x -C "$root/src"
    in_root bash -euc "cd /src && source tools/dev/setup.sh && gt_install \$GT_PACKAGES dpkg-dev file
        gt_configure build -DGT_NATIVE=OFF -DGT_TESTS=OFF && cmake --build build --target programs && cd build && cpack"
    cp "$root"/src/build/*.deb "$root"/src/build/*.tar.gz "$packages"
fi
rm -rf "$packages/_CPack_Packages"

# install, use, remove
fresh_root "$suite" package
cp "$packages"/*.deb "$packages"/*.tar.gz "$root/src"
cat >"$root/src/use.sh" <<'END'
set -euo pipefail
fail() { echo "fresh-package: $*" >&2; exit 1; }
files() { find / -xdev \( -path /src -o -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/apt \
    -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \) -prune -o -print | grep -v '^/etc/ld.so.cache$' | sort; }
# train PREFIX FOLDER: two hosts; PREFIX before the names of programs
train() {
    mkdir -p "$2" && cd "$2" && export HOME=$2
    for ((i = 0; i < 3000; ++i)); do echo "in the beginning $((i * i % 97)) was the word $((i % 13))"; done >text.txt
    $1new-model --preset gpt-tiny -o small.gguf
    $1ggml-train hub --new --address 127.0.0.1:7077 --name anna
    echo "ben -" >>hosts.txt
    run="$1train-gpt -m small.gguf text.txt --nodes hosts.txt --min-hosts 2 --steps 10 --batch 4 --context 64 --threads 1"
    $run --name ben --out ben-run >ben.txt 2>&1 &
    $run --name anna --out anna-run || { cat ben.txt; fail "anna failed"; }
    wait $! || { cat ben.txt; fail "ben failed"; }
    cmp anna-trained.gguf ben-trained.gguf || fail "the hosts differ"
    $1ggml-train generate -m anna-trained.gguf -p "in the" -n 20 --threads 1
    cd /
}
apt-get update -qq
# libidn2-0: libc6 recommends it, so autoremove keeps it once something has brought it
apt-get install -y -qq --no-install-recommends man-db bash-completion libidn2-0 >/dev/null
rm -f /etc/dpkg/dpkg.cfg.d/docker  # some images leave out pages for man
files >/src/before.txt
apt-get install -y -qq --no-install-recommends /src/*.deb
dpkg -s ggml-train | grep Depends
train "" /src/installed
for page in ggml-train train-gpt train-vit new-model prepare-data ggml-train-hub ggml-train-export; do
    man "$page" 2>/src/man.txt | grep -q "$page" || fail "no page for man: $page"
    [ ! -s /src/man.txt ] || { cat /src/man.txt; fail "man $page complains"; }
done
completed=$(bash -c 'source /usr/share/bash-completion/bash_completion; _comp_load train-gpt 2>/dev/null || __load_completion train-gpt
    COMP_WORDS=(train-gpt --shard f) COMP_CWORD=2; _ggml_train; echo "${COMPREPLY[*]}"')
[ "$completed" = full ] || fail "completion of train-gpt --shard f: $completed"
apt-get purge -y -qq --autoremove ggml-train >/dev/null
files >/src/after.txt
diff /src/before.txt /src/after.txt || fail "the package left or took files"

# the tarball needs the same libraries
apt-get install -y -qq --no-install-recommends $(dpkg-deb -f /src/*.deb Depends | sed -E 's/ *\([^)]*\)//g; s/\|[^,]*//g; s/,/ /g') >/dev/null
mkdir /src/tarball && tar -xzf /src/*.tar.gz -C /src/tarball --strip-components 1
train /src/tarball/bin/ /src/unpacked
END
seconds=$SECONDS
in_root bash /src/use.sh
echo "fresh-package: $(basename "$packages"/*.deb) and the tarball work on $suite; $((SECONDS - seconds)) s"
