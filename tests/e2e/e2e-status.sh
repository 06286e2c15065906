#!/usr/bin/env bash
# The status page in a real browser: two hosts that wait, train and lose one of them; a finished run from its
# folder; the hub's page. Skipped without chromium. GT_KEEP_PICTURES=FOLDER keeps screenshots.
# usage: e2e-status.sh BIN_DIR WORK_DIR
set -euo pipefail
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "e2e-status: SKIPPED: no browser; sudo apt-get install chromium" >&2; exit 77; }
source "$(dirname "$0")/e2e.inc.sh" e2e-status "$1" "$2"
pids=()
trap 'for pid in "${pids[@]}"; do kill -9 $pid 2>/dev/null || true; done' EXIT

browse() { timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget=3000 "$@" 2>>browser.log; }

# look STATE URL TEXT...: the page of that state has the texts, some of them markup
look() {
    local state=$1 url=$2
    shift 2
    browse --dump-dom "$url" >"$state.html"
    for text in "$@"; do
        grep -qE -- "$text" "$state.html" || { sed -n '/<body/,/<script/p' "$state.html"; fail "the page of a run that is $state does not show $text"; }
    done
    [ -z "${GT_KEEP_PICTURES:-}" ] || for size in 400,1500 1200,1150; do for dark in 0 1; do
        browse --hide-scrollbars --blink-settings=preferredColorScheme=$dark --window-size=$size --screenshot="$GT_KEEP_PICTURES/$state-${size%,*}-$dark.png" "$url"
    done; done
}
page_of() {  # LOG: the address that the program prints
    until grep -qE '^status:? ' "$1"; do sleep 0.1; done
    sed -nE 's/^status:? +//p' "$1"
}

# a run alone: the page is in its folder when it is over
tiny gpt2 small.gguf
expect 0 "status   http://127.0.0.1:" train -m small.gguf text.txt --steps 30 --status 0
[ "$(grep -c 'https\?://' small-run/status.html)" = 0 ] || fail "status.html needs something outside"
look finished "file://$work/small-run/status.html" '<title>finished · small-run</title>' 'finished: 30 steps in' 'this machine' \
    'id="validation" d="M|d="M[^"]*" id="validation"' '<b id="val">' 'class="tick-x"' 'class="tick-y"' '>30<|>25<' 'class="sample"' 'gpt2, 2 layers'

# two hosts
port=$("$free_port")
"$bin/hub" --new --address "127.0.0.1:$port" --name anna >/dev/null
echo "ben -" >>hosts.txt
export GT_TEST_STEP_SECONDS=0.1
common="-m small.gguf text.txt --nodes hosts.txt --steps 5000 --sample-every 10 --eval-every 5 --eval-batches 1 --threads 1 --batch 4"
"$bin/train-gpt" $common --name anna --out anna-run --min-hosts 2 --status 0 >anna.txt 2>&1 &
pids+=($!)
anna=$!
page=$(page_of anna.txt)
until grep -q '1 of 2 hosts; missing: ben' anna.txt; do kill -0 $anna || { cat anna.txt; fail "anna ended"; }; sleep 0.1; done
look waiting "$page" '<title>waiting · anna-run</title>' 'waiting: 1 of 2 hosts; missing: ben' 'The curve begins with the first step'
"$bin/train-gpt" $common --name ben --out ben-run >ben.txt 2>&1 &
pids+=($!)
ben=$!
wait_for_lines anna-run 25 $anna
look running "$page" '<title>[0-9]+ % · anna-run</title>' 'step [0-9]+ of 5000' '(min|h|days|s) left<' '<b id="loss">[0-9.]+<' '<b id="val">[0-9.]+<' \
    '<b id="speed">' '<b id="up">[0-9.]+ .B<' '<b id="down">' 'data-host="anna"' 'data-host="ben"' 'id="validation"' '>4 of 4 samples<' '>training<' 'class="sample"'
kill -9 $ben
until python3 -c '
import sys, urllib.request
sys.exit(b"ben has sent nothing since step" not in urllib.request.urlopen(sys.argv[1] + "status.json").read())' "$page"; do sleep 0.3; done
sleep 6  # the page tells the age of messages older than 5 s
look killed "$page" 'ben has sent nothing since step [0-9]+' '>(late|gone), last message [0-9]+ (s|min) ago<'
[ "$(grep -o '>4 of 4 samples<' killed.html | wc -l)" = 1 ] || fail "a killed host has a part of the batch"
kill -INT $anna
wait $anna || true
look stopped "file://$work/anna-run/status.html" 'stopped after step [0-9]+ of 5000; run the same command to resume' 'data-host="ben"'

# the hub's page
"$bin/hub" --nodes hosts.txt --path hub-store --listen "127.0.0.1:$port" --status 0 >hub.txt 2>&1 &
pids+=($!)
look hub "$(page_of hub.txt)" '<h1 id="run">hub<' 'step [0-9]+ of 5000' 'data-host="anna"' 'data-host="ben"' 'tokens/s'
! grep -qE 'tick-y[^>]*>-?0\.0+<' hub.html || fail "the hub's curve begins at zero"
echo "e2e-status: passed"
