#!/bin/bash
# home-link.sh BIN — a hub outside and two homes (20 up / 100 down Mbit/s, 40 ms round trip, 1 % loss,
# cubic): values of 2 MB arrive intact and fast enough, also through an outage.
set -eu
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
net=hl$(($$ % 10000))
export HOMELINK=$bin/homelink
work=$(mktemp -d)
hub=
clean() {
    [ -z "$hub" ] || kill "$hub" 2>/dev/null || true
    "$here/homenet.sh" down "$net" >/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
"$here/homenet.sh" up "$net" 2 20 100 20 1

key=$(head -c 32 /dev/zero | tr '\0' 'x' | base64 | tr '+/' '-_' | tr -d '=')
printf 'key %s\nhub 10.9.0.1:7077\na -\nb -\n' "$key" >"$work/hosts.txt"
"$here/homenet.sh" exec "$net" core "$bin/link-try" --serve "$work/hosts.txt" "$work/store" cubic \
    >"$work/hub.log" 2>&1 &
hub=$!
sleep 0.5
"$here/homenet.sh" exec "$net" 1 "$bin/link-try" "$work/hosts.txt" a cubic 2 3 >"$work/a.log" 2>&1 &
a=$!
"$here/homenet.sh" exec "$net" 2 "$bin/link-try" "$work/hosts.txt" b cubic 2 3 >"$work/b.log" 2>&1 &
b=$!
sleep 8
"$here/homenet.sh" cut "$net" 2 4
rc=0
wait $a || rc=1
wait $b || rc=1
cat "$work/a.log" "$work/b.log"
[ $rc = 0 ] || { echo "home-link: FAILED"; cat "$work/hub.log"; exit 1; }

# One cubic connection uploads 2.7 Mbit/s on this link; several must reach more than twice that.
best=$(sed -n 's/^a: round.*put [0-9.]* s (\([0-9.]*\) Mbit.*/\1/p' "$work/a.log" | sort -n | tail -1)
echo "home-link: best upload of home a: $best Mbit/s of 20"
awk -v x="$best" 'BEGIN { exit !(x > 6) }' || { echo "home-link: FAILED: too slow"; exit 1; }
# The router accepts no incoming connections.
if "$here/homenet.sh" exec "$net" core timeout 2 bash -c '</dev/tcp/10.9.1.2/22' 2>"$work/in.log"; then
    echo "home-link: FAILED: a home can be reached from outside"; exit 1
fi
