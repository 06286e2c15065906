#!/usr/bin/env bash
# Runs the demo or the whole check on a fresh machine: a minimal Debian root (debootstrap, minbase)
# that holds nothing but the committed tree. Needs root and the package debootstrap.
#
#   tests/fresh-machine.sh [bookworm|trixie] [demo|check] [VARIABLE=VALUE...]
#
# Roots are kept in build/roots: the bare one is copied before each run, the last run stays for a look.
# The copy gets this machine's resolv.conf and /usr/local/share/ca-certificates, and the variables
# http_proxy, https_proxy, no_proxy, PIP_INDEX_URL and those given as arguments. GT_DEBIAN_MIRROR names
# another mirror than deb.debian.org.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm} what=${2:-demo}
shift $(($# < 2 ? $# : 2))
case $suite:$what in
    bookworm:demo | bookworm:check | trixie:demo | trixie:check) ;;
    *) sed -n '5p' "$0" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "fresh-machine: needs root (debootstrap, chroot, mount)" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "fresh-machine: sudo apt-get install debootstrap" >&2; exit 1; }

# mounts, also those of tests in the root, end with the run
[ -n "${GT_FRESH_INSIDE:-}" ] ||
    GT_FRESH_INSIDE=1 exec unshare --mount -- "$PWD/tests/fresh-machine.sh" "$suite" "$what" "$@"

roots=$PWD/build/roots
bare=$roots/$suite root=$roots/$suite-$what
mkdir -p "$roots"
if [ ! -d "$bare" ]; then
    rm -rf "$bare.part"
    debootstrap --variant=minbase "$suite" "$bare.part" "${GT_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$bare.log" ||
        { tail -5 "$bare.log" >&2; exit 1; }
    mv "$bare.part" "$bare"
fi

rm -rf --one-file-system "$root"
cp -a "$bare" "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/usr/local/share/ca-certificates" "$root/src"
cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
git archive HEAD | tar -x -C "$root/src"

mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --bind /dev "$root/dev"
mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"

variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}")
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
    [ -z "${!name:-}" ] || variables+=("$name=${!name}")
done
seconds=$SECONDS
chroot "$root" env -i "${variables[@]}" "$@" sh -c "cd /src && tools/$what.sh"
echo "fresh-machine: tools/$what.sh passed on $suite in $((SECONDS - seconds)) s"
