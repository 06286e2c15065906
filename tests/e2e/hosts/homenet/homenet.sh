#!/bin/bash
# homenet.sh — homes with internet links of their own, in network namespaces. Needs root.
#
#   homenet.sh up   NET N [up_mbit=20] [down_mbit=100] [one_way_ms=20] [loss_%=1] [queue_ms=200]
#   homenet.sh down NET
#   homenet.sh cut  NET I SECONDS      an outage of home I
#   homenet.sh exec NET I COMMAND...   in home I; I = core: at the hub's place
#
# NET is a short name (at most 6 letters), so that several nets can run in parallel. The core is
# the internet: 10.9.0.1 is the hub's address; home I is 10.9.I.2 behind a router that
# accepts no incoming connections. HOMELINK names the homelink program (default: beside this script, then build/bin).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
log() { echo "homenet: $*" >&2; }
[ $# -ge 2 ] || { sed -n '2,12p' "$0" >&2; exit 2; }
verb=$1 net=$2
state=/tmp/homenet-$net

need_root() {
    [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ] && return
    log "SKIPPED: network namespaces and /dev/net/tun need root; run it as root"
    exit 77
}

up() {
    need_root
    n=$1 up=${2:-20} down=${3:-100} delay=${4:-20} loss=${5:-1} queue=${6:-200}
    link=${HOMELINK:-$here/homelink}
    [ -x "$link" ] || link=$here/../../../../build/bin/homelink
    [ -x "$link" ] || { log "no homelink program; build it (ninja homelink) and set HOMELINK"; exit 1; }
    mkdir -p "$state"
    echo "$n" >"$state/n"
    ip netns add "$net-core"
    ip -n "$net-core" link set lo up
    ip -n "$net-core" addr add 10.9.0.1/32 dev lo
    ip netns exec "$net-core" sysctl -qw net.ipv4.ip_forward=1
    for i in $(seq "$n"); do
        ip netns add "$net-$i"
        ip -n "$net-$i" link set lo up
        setsid nice -n -5 "$link" "$net-$i" wan "$net-core" "c$i" "$up" "$down" "$delay" "$loss" \
            "$queue" 0 "$i" >"$state/link$i.log" 2>&1 &
        echo $! >"$state/link$i.pid"
    done
    for i in $(seq "$n"); do
        for _ in $(seq 100); do
            ip -n "$net-core" link show "c$i" >/dev/null 2>&1 && ip -n "$net-$i" link show wan >/dev/null 2>&1 && break
            sleep 0.05
        done
        ip -n "$net-$i" addr add "10.9.$i.2" peer "10.9.$i.1" dev wan
        ip -n "$net-$i" link set wan up txqueuelen 2000
        ip -n "$net-$i" route add default via "10.9.$i.1"
        ip -n "$net-core" addr add "10.9.$i.1" peer "10.9.$i.2" dev "c$i"
        ip -n "$net-core" link set "c$i" up txqueuelen 2000
        # like a home router: no incoming connections
        if [ -z "${HOMENET_OPEN:-}" ] && command -v iptables >/dev/null; then
            ip netns exec "$net-core" iptables -A FORWARD -o "c$i" -m conntrack --ctstate NEW -j DROP
        fi
    done
}

down() {
    [ -d "$state" ] || return 0
    for i in $(seq "$(cat "$state/n")"); do
        pid=$(cat "$state/link$i.pid" 2>/dev/null || true)
        if [ -n "$pid" ]; then
            kill -CONT "$pid" 2>/dev/null || true
            kill "$pid" 2>/dev/null || true
            for _ in $(seq 20); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
            sed "s/^/home $i: /" "$state/link$i.log"
        fi
        ip netns del "$net-$i" 2>/dev/null || true
    done
    ip netns del "$net-core" 2>/dev/null || true
    rm -rf "$state"
}

case $verb in
    up) shift 2; up "$@" ;;
    down) down ;;
    cut)
        pid=$(cat "$state/link$3.pid")
        kill -STOP "$pid"
        sleep "$4"
        kill -CONT "$pid" ;;
    exec)
        i=$3
        shift 3
        exec ip netns exec "$net-$i" "$@" ;;
    *) log "unknown: $verb"; exit 2 ;;
esac
