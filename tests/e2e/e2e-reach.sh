#!/usr/bin/env bash
# A hub without an open port, which hosts reach through `ssh -R` on another machine (here: loopback); the
# tunnel breaks and returns. Then an impostor of a name, and `hub --remove`.
# usage: e2e-reach.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-reach "$1" "$2"
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "sshd not found: skipped"; exit 77; }
tiny gpt2 s.gguf
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
hub_port=$("$free_port") far_port=$("$free_port") ssh_port=$("$free_port")

# the rented machine
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
chmod go-w . && mkdir -p /run/sshd 2>/dev/null || true
"$sshd" -D -e -f /dev/null -p "$ssh_port" -h "$work/host_key" -o ListenAddress=127.0.0.1 -o PidFile=none -o UsePAM=no \
    -o StrictModes=no -o PermitRootLogin=yes -o AuthorizedKeysFile="$work/user_key.pub" >sshd.txt 2>&1 &
tunnel() {
    ssh -N -p "$ssh_port" -i user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes \
        -o ExitOnForwardFailure=yes -R "127.0.0.1:$far_port:127.0.0.1:$hub_port" "$(id -un)@127.0.0.1" >>ssh.txt 2>&1 &
    ssh=$!
}
# host NAME OPTION...: sets $pid
host() {
    local me=$1
    shift
    mkdir -p "$me"
    (cd "$me" && exec "$bin/train-gpt" -m "$work/s.gguf" --threads 1 --batch 4 --sample-tokens 8 --out run --export x.gguf \
        --data "$work/text.txt" --nodes "$work/hosts.txt" --name "$me" "$@" >>out.txt 2>&1) &
    pid=$!
}

"$bin/hub" --new --nodes hosts.txt --name box --address "127.0.0.1:$far_port" >/dev/null
printf 'anna -\nben -\n' >>hosts.txt
"$bin/hub" --nodes hosts.txt --listen "127.0.0.1:$hub_port" >hub.txt 2>&1 &
sleep 0.5
tunnel
export GT_TEST_STEP_SECONDS=0.05
host anna --steps 2000 --min-hosts 2
anna=$pid
host ben
ben=$pid
wait_for_step anna 20 "$anna"
kill "$ssh"  # the tunnel breaks
sleep 1
tunnel
before=$(losses anna/run | tail -n 1 | cut -d ' ' -f 1)
wait_for_step anna $((before + 20)) "$anna"

# another machine takes the name of ben
mkdir -p impostor
XDG_CONFIG_HOME=$work/other expect 1 "the run knows another machine as 'ben'" \
    "$bin/train-gpt" -m s.gguf --threads 1 --data text.txt --nodes hosts.txt --name ben --out impostor/run
kill -0 "$ben" || fail "the impostor has stopped ben"

# ben is put out, and anna continues alone
expect 1 "the run has no host 'carl'; it has anna, ben" "$bin/hub" --nodes hosts.txt --remove carl
expect 0 "ben is removed" "$bin/hub" --nodes hosts.txt --remove ben
wait "$ben" && fail "ben does not stop"
grep -q "'ben' was removed from the run" ben/out.txt || { tail ben/out.txt; fail "ben was not told"; }
before=$(losses anna/run | tail -n 1 | cut -d ' ' -f 1)
wait_for_step anna $((before + 20)) "$anna"
kill -0 "$anna" || { tail anna/out.txt; fail "anna has ended"; }
stat -c %a "$XDG_CONFIG_HOME/ggml-train/host-key" | grep -qx 600 || fail "others can read the host's key"
echo "e2e-reach: ok"
