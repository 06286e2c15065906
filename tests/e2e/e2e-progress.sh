#!/usr/bin/env bash
# The progress line is correct: speed, memory and time left against the metrics file, a clock and the
# process itself; on a terminal one updated line, elsewhere plain lines.
# usage: e2e-progress.sh BIN_DIR WORK_DIR
set -euo pipefail
source "$(dirname "$0")/e2e.inc.sh" e2e-progress "$1" "$2"
tiny gpt2 s.gguf --width 64 --context 64

# no terminal: plain lines, no control codes, no progress of data preparation
expect 0 "100/100 100% | loss" train -m s.gguf --data text.txt --out plain --steps 100 --log-every 25 --eval-every 100
! grep -q $'[\r\033]' out.txt || fail "control codes without a terminal"
[ "$(grep -c 'tokens/s' out.txt)" = 5 ] || { cat out.txt; fail "expected lines for steps 1, 25, 50, 75, 100"; }
! grep -q "preparing" out.txt || fail "progress of preparation without a terminal"

cat >line.py <<'PY'
"""Runs train-gpt on a terminal of our own and holds what it draws against metrics.jsonl and the clock."""
import fcntl, json, os, pty, re, select, struct, sys, termios, time

command = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(command[0], command)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))

text, drawn, resident = "", [], {}
line = re.compile(r"(\d+)/(\d+) \[([=> ]{16})\] (\d+)% \| loss ([\d.]+)(?: \| (\w+) left)?"
                  r" \| ([\d.]+)([kM]?) tokens/s(?: \| val [\d.]+)? \| lr \S+ \| ([\d.]+) ([kMG])B[\r\n]")
while True:
    select.select([terminal], [], [], 60)
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    now = time.monotonic()
    text += data.decode("utf-8", "replace").replace("\033[K", "")
    for match in line.finditer(text + "\r"):
        step = int(match[1])
        if not drawn or drawn[-1][0] < step:
            drawn.append((step, now, match))
            try:
                status = open(f"/proc/{pid}/status").read()
                resident[step] = 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])
            except (OSError, TypeError):
                pass
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
end = time.monotonic()
assert code == 0, (code, text[-2000:])

folder = command[command.index("--out") + 1]
rows = [json.loads(row) for row in open(folder + "/metrics.jsonl")]
steps = {row["step"]: row for row in rows if "loss" in row}
n_steps = max(steps)
begun = rows[0]["seconds"]  # after the validation before the first step
assert rows[0]["step"] == 0 and "val_loss" in rows[0], rows[0]
assert len(steps) == n_steps and len(drawn) >= 5, (len(steps), len(drawn), text[-3000:])
scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}


def seconds(left):
    return sum(int(n) * {"s": 1, "m": 60, "h": 3600}[unit] for n, unit in re.findall(r"(\d+)([smh])", left))


for step, when, match in drawn:
    row = steps[step]
    assert int(match[4]) == 100 * step // n_steps
    assert match[3].count("=") == 16 * step // n_steps, match[0]
    assert abs(float(match[5]) - row["loss"]) < 1e-4
    # speed: the mean of the last twenty steps, from the metrics and from their times
    speed = float(match[7]) * scale[match[8]]
    assert abs(speed - row["tokens_per_second"]) <= 0.006 * speed, (match[0], row)
    last = [steps[s] for s in range(max(1, step - 19), step + 1)]
    each = last[-1]["tokens"] / step
    assert abs(row["tokens_per_second"] - each * len(last) / sum(r["step_seconds"] for r in last)) < 0.01 * speed
    # memory: that of the metrics up to rounding, and that of /proc
    memory = float(match[9]) * scale[match[10]]
    assert abs(memory - row["memory_bytes"]) <= 0.06 * memory + 1e6, (match[0], row)
    if step in resident:
        assert abs(memory - resident[step]) < 0.3 * memory, (match[0], resident[step])
    # time left: the mean of up to 199 last steps, pauses for evaluation included
    if step > 1 and match[6]:
        ends = [begun] + [steps[s]["seconds"] for s in range(1, step + 1)]
        ends = ends[-200:]
        expected = (ends[-1] - ends[0]) / (len(ends) - 1) * (n_steps - step)
        assert abs(seconds(match[6]) - expected) <= 1.0 + 0.02 * expected, (match[0], expected)

# the metrics' clock runs at real time
first, final = drawn[1], drawn[-2]
by_clock = final[1] - first[1]
by_metrics = steps[final[0]]["seconds"] - steps[first[0]]["seconds"]
assert abs(by_clock - by_metrics) < 0.3 + 0.1 * by_clock, (by_clock, by_metrics)
assert sum(r["step_seconds"] for r in steps.values()) <= steps[n_steps]["seconds"] + 0.1
# the estimate at half time was right (with room for other load on the machine)
middle = min(drawn, key=lambda d: abs(d[0] - n_steps // 2))
left, took = seconds(middle[2][6]), drawn[-1][1] - middle[1]
assert took / 3 - 2 < left < took * 3 + 2, (left, took)
print(f"{len(drawn)} lines; half way: {left} s left, took {took:.1f} s; {speed:.0f} tokens/s, {memory / 1e6:.0f} MB; "
      f"clock {by_clock:.2f} s, metrics {by_metrics:.2f} s")
PY
python3 line.py "$bin/train-gpt" --threads 1 --batch 8 -m s.gguf --data text.txt --out living --steps 300 \
    --eval-every 50 --sample-every 100 --sample-tokens 8 || fail "the progress line is wrong"
grep -q "^step,tokens,seconds,loss" <(head -1 living/metrics.csv) || fail "metrics.csv has no head"
[ "$(wc -l <living/metrics.csv)" -ge 300 ] || fail "metrics.csv is short"

# in a real terminal: what matters most fits 80 columns, the rest is shown in 200, and no line is torn when it is resized
on_screen() { tmux -L "e2e-progress-$$" "$@"; }
trap 'on_screen kill-server 2>/dev/null || true' EXIT
on_screen -f /dev/null new-session -d -x 80 -y 24 "GT_TEST_STEP_SECONDS=0.3 '$bin/train-gpt' --threads 1 --batch 8 --micro 1 \
    -m s.gguf --data text.txt --out screen --steps 2000 --sample-tokens 8; sleep 60"
# shown PATTERN WIDTH: waits for the line; the screen has one such line, and none is wider
shown() {
    for ((i = 0; i < 300; ++i)); do
        on_screen capture-pane -p >screen.txt
        if grep -qE "$1" screen.txt; then
            [ "$(grep -cE '^[0-9]+/2000 ' screen.txt)" = 1 ] || { cat screen.txt; fail "the line is torn"; }
            [ "$(grep -E '^[0-9]+/2000 ' screen.txt | wc -L)" -lt "$2" ] || { cat screen.txt; fail "wider than $2"; }
            return
        fi
        sleep 0.1
    done
    cat screen.txt
    fail "not on a screen of $2 columns: $1"
}
shown '^[0-9]+/2000 [0-9]+% \| loss [0-9.]+ \| [0-9hms]+ left \| [0-9.k]+ tokens/s' 80
on_screen resize-window -x 200 -y 24
shown '^[0-9]+/2000 \[.{16}\] [0-9]+% \| loss .* left \| .*tokens/s .*\| lr .* MB' 200
on_screen resize-window -x 60 -y 24
shown '^[0-9]+/2000 [0-9]+% \| loss [0-9.]+ \| [0-9hms]+ left' 60
on_screen send-keys C-c
for ((i = 0; i < 300; ++i)); do
    on_screen capture-pane -p >screen.txt
    ! grep -q "run the same command to resume" screen.txt || break
    sleep 0.1
done
grep -q "stopped after step" screen.txt || { cat screen.txt; fail "Ctrl+C in a terminal"; }
echo "e2e-progress: passed"
