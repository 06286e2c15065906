# tests/fresh-root.inc.sh — sourced by fresh-machine.sh and fresh-package.sh: minimal Debian roots (debootstrap,
# minbase) in build/roots. The bare root of a release is copied before each run; the last copy stays for a look.
# A copy gets this machine's resolv.conf and /usr/local/share/ca-certificates, and the variables http_proxy,
# https_proxy, no_proxy and PIP_INDEX_URL. GT_DEBIAN_MIRROR names another mirror than deb.debian.org.
test_name=$(basename "$0" .sh)
[ "$(id -u)" = 0 ] || { echo "$test_name: needs root (debootstrap, chroot, mount)" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "$test_name: sudo apt-get install debootstrap" >&2; exit 1; }

# mounts, also those of tests in the root, end with the run
[ -n "${GT_FRESH_INSIDE:-}" ] || GT_FRESH_INSIDE=1 exec unshare --mount -- "$PWD/tests/$test_name.sh" "$@"

# fresh_root SUITE NAME: sets $root to a new copy of the release's bare root, with its mounts
fresh_root() {
    local bare=$PWD/build/roots/$1
    root=$bare-$2
    mkdir -p build/roots
    if [ ! -d "$bare" ]; then
        rm -rf "$bare.part"
        debootstrap --variant=minbase "$1" "$bare.part" "${GT_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$bare.log" ||
            { tail -5 "$bare.log" >&2; exit 1; }
        mv "$bare.part" "$bare"
    fi
    rm -rf --one-file-system "$root"
    cp -a "$bare" "$root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    mkdir -p "$root/usr/local/share/ca-certificates" "$root/src"
    cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    mount --bind "$root" "$root"  # `ip netns` expects / to be a mount
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --bind /dev "$root/dev"
    mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
    mount -t tmpfs tmpfs "$root/dev/shm"
}

# in_root VARIABLE=VALUE... COMMAND...: runs a command in $root, with none of our environment
in_root() {
    local variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}")
    for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
        [ -z "${!name:-}" ] || variables+=("$name=${!name}")
    done
    chroot "$root" env -i "${variables[@]}" "$@"
}
