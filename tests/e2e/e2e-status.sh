#!/bin/bash
# e2e-status.sh HUB — the status page of a real hub in a real browser. Skipped without chromium.
set -eu
hub=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "e2e-status: SKIPPED: no browser; sudo apt-get install chromium" >&2
    exit 77
fi
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
port=$("$(dirname "$0")/free_port.py")
cd "$work"
"$hub" --new --name hubbox --address "127.0.0.1:$port"
printf 'anna -\nben -\n' >>hosts.txt
# curves of an earlier start of the hub: time in ms, host, metrics
mkdir -p hub-store/=hub
for host in anna ben; do
    awk -v host=$host 'BEGIN { for (s = 0; s < 50; s++)
        printf "%d %s step=%d loss=%.4f tokens_s=1234 waited_s=0.25\n",
               1700000000000 + s, host, s, 3 - 0.25 * length(host) + 2 * (49 - s) / 49 }'
done >hub-store/=hub/metrics.txt
"$hub" --nodes hosts.txt --listen "127.0.0.1:$port" --status 0 >hub.out 2>hub.err &
pid=$!
for _ in $(seq 100); do grep -q '^status:' hub.out && break; sleep 0.1; done
page=$(sed -n 's/^status: //p' hub.out)

look() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --virtual-time-budget=4000 --window-size=1000,900 "$@" "$page" 2>>browser.log
}
look --dump-dom >dom.html
for text in 'data-ready="1"' '>anna<' '>ben<' 'tokens/s' '49' '2.00'; do
    grep -q -- "$text" dom.html || { echo "e2e-status: FAILED: the page does not show $text"; cat dom.html; exit 1; }
done
# the curve is drawn: the screenshot has pixels of the first host's colour
look --screenshot="$work/page.png" >/dev/null
[ -z "${GT_KEEP_PICTURE:-}" ] || cp page.png "$GT_KEEP_PICTURE"
python3 - <<'PY'
import struct, zlib
data = open('page.png', 'rb').read()
pos, body, width, height, kind = 8, b'', 0, 0, 0
while pos < len(data):
    n, tag = struct.unpack('>I4s', data[pos:pos + 8])
    chunk = data[pos + 8:pos + 8 + n]
    if tag == b'IHDR':
        width, height, kind = struct.unpack('>IIxB', chunk[:10])
    if tag == b'IDAT':
        body += chunk
    pos += 12 + n
size = {2: 3, 6: 4}[kind]
raw, rows, last = zlib.decompress(body), [], bytes(width * size)
for y in range(height):
    line = bytearray(raw[y * (width * size + 1) + 1:(y + 1) * (width * size + 1)])
    f = raw[y * (width * size + 1)]
    for i in range(len(line)):
        a = line[i - size] if i >= size else 0
        b, c = last[i], last[i - size] if i >= size else 0
        p = a + b - c
        paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth)[f]) & 255
    rows.append(bytes(line))
    last = bytes(line)
blue = sum(1 for r in rows for x in range(0, len(r), size) if abs(r[x] - 0x16) < 24 and abs(r[x + 1] - 0x68) < 24 and abs(r[x + 2] - 0xc7) < 24)
assert blue > 300, f'only {blue} pixels of the first curve'
print(f'e2e-status: the page shows both hosts, and {blue} pixels of the first curve')
PY
