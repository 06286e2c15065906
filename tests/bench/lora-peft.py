#!/usr/bin/env python3
"""lora-peft — adapters trained by train-gpt --lora beside PyTorch + transformers + PEFT on the same CPU.

    tests/bench/lora-peft.py [BIN_DIR] [--steps 50] [--threads 2] [--rounds 3] [--no-speed]

First a tiny llama and a tiny qwen2: the same base, initial adapter, chats, rank and optimizer in both; the losses of
all steps must agree within 1e-3 of their value. Then a llama of 135M weights in F32, in alternating rounds: tokens
per second, CPU seconds a step, and peak memory. Of ours these are the CPU seconds of the whole program divided by its
steps, and its peak from start to end; of PEFT those of the steps alone. Prints a table and one line of JSON with the
ratios and the machine's load. Fails if the losses differ, or no setting of a batch takes 1.3 times fewer CPU seconds in a third
of PEFT's memory at once. PyTorch and PEFT are installed by bench_venv.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_venv import ROOT, venv_python

HERE = Path(__file__).resolve().parent
RANK, ALPHA, END = 8, 16, 256  # END: the token that ends a text, \x~ in the vocabulary of bytes
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\\x~{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
TINY = "--layers 2 --width 64 --heads 4 --kv-heads 2 --mlp 160 --context 128"
LARGE = "--arch llama --layers 30 --width 576 --heads 9 --kv-heads 3 --mlp 1536 --context 2048 --vocab gpt-2"
OPTIM = "--schedule constant --warmup 0 --weight-decay 0.1 --beta1 0.9 --beta2 0.95 --clip 1"


def run(command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def environment(threads):
    return dict(os.environ, OMP_NUM_THREADS=str(threads))


def peak_run(command, threads):
    """Runs a command; its CPU seconds and peak memory in MB."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, env=environment(threads))
        _, status, usage = os.wait4(child.pid, 0)
        out.seek(0)
        text = out.read()
    if status:
        sys.exit(f"{command}\n{text[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def chats():
    """Eight chats, each of which fills more than half of a sample, so that none shares one."""
    pairs = []
    for i in range(8):
        ask = f"Tell me about number {i}, please, and be brief."
        reply = f"{i} times {i + 3} is {i * (i + 3)}; {i} comes before {i + 1}."
        pairs.append((ask, reply))
    return pairs


def as_tokens(ask, reply):
    """What the template makes of a chat, and which tokens count."""
    prompt = [*f"user: {ask}".encode(), END, *b"assistant: "]
    answer = [*reply.encode(), END]
    return prompt + answer, [-100] * len(prompt) + answer


def losses_of(folder):
    rows = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    return [row["loss"] for row in rows if "loss" in row]


def compare_losses(arch, bin_dir, python, args, work):
    base, text = work / f"{arch}.gguf", work / "chats.jsonl"
    (work / "template.jinja").write_text(TEMPLATE)
    text.write_text("".join(json.dumps({"prompt": a, "completion": r}) + "\n" for a, r in chats()))
    run([bin_dir / "new-model", "--arch", arch, *TINY.split(), "--chat-template", work / "template.jinja", "-o", work / "new.gguf", "--force"])
    common = [text, "--batch", 8, "--val-fraction", 0, "--threads", 1, *OPTIM.split(), "--sample-tokens", 1]
    lora = ["-m", base, "--lora", RANK, "--lora-alpha", ALPHA]
    # norms and biases away from their initial values
    run([bin_dir / "train-gpt", "-m", work / "new.gguf", *common, "--steps", 30, "--lr", 5e-3, "--out", work / f"{arch}-base", "--export", base])
    # a step too small to change A, or to move B away from zero
    first = work / f"{arch}-first.gguf"
    run([bin_dir / "train-gpt", *lora, *common, "--steps", 1, "--lr", 1e-30, "--out", work / f"{arch}-first", "--export", first])
    ours = work / f"{arch}-run"
    run([bin_dir / "train-gpt", *lora, *common, "--steps", args.steps, "--lr", args.lr, "--out", ours, "--export", work / f"{arch}-lora.gguf"])
    samples = work / "samples.json"
    samples.write_text(json.dumps([as_tokens(*pair) for pair in chats()]))
    peer = run([python, HERE / "lora_peft_peer.py", "losses", base, first, samples, args.steps, args.lr, ALPHA, 1])
    a, b = losses_of(ours), json.loads(peer.splitlines()[-1])["losses"]
    worst = max(abs(x - y) / y for x, y in zip(a, b, strict=True))
    return {"arch": arch, "steps": args.steps, "first": [a[0], b[0]], "last": [a[-1], b[-1]], "worst": worst, "ok": worst < 1e-3}


# Samples per step and how, of the runs that take turns; and which of ours and PEFT's make a row of the table.
OURS = [(4, "default"), (1, "default"), (1, "--recompute")]
PEFT = [(4, "plain"), (1, "plain"), (1, "checkpointing")]
PAIRS = [(0, 0), (1, 1), (2, 1), (2, 2)]


def compare_speed(bin_dir, python, args, work):
    T, n = 256, args.timed + 1
    base, text = work / "large.gguf", work / "text.txt"
    run([bin_dir / "new-model", *LARGE.split(), "-o", base])
    text.write_text("".join(f"{i} plus {i + 1} is {2 * i + 1}, said the clerk.\n" for i in range(4000)))
    ours = [bin_dir / "train-gpt", "-m", base, text, "--lora", RANK, "--lora-alpha", ALPHA, "--context", T, "--steps", n, "--threads", args.threads,
            "--val-fraction", 0, "--sample-tokens", 1, "--out", work / "large-run", "--export", work / "large-lora.gguf", "--fresh"]

    def run_ours(B, how):
        cpu, peak = peak_run([*ours, "--batch", B, *([] if how == "default" else [how])], args.threads)
        rows = [json.loads(line) for line in open(work / "large-run" / "metrics.jsonl")]
        return {"seconds": [row["step_seconds"] for row in rows if "loss" in row], "cpu": [cpu / n] * n, "peak_mb": peak}

    def run_peer(B, how):
        out = run([python, HERE / "lora_peft_peer.py", "speed", base, B, T, n, RANK, ALPHA, how, args.threads], env=environment(args.threads))
        return json.loads(out.splitlines()[-1])

    runs = [(run_ours(*a), run_peer(*b)) for _ in range(args.rounds) for a, b in zip(OURS, PEFT)]

    def middle(side, i):
        mine = [pair[side] for pair in runs[i :: len(OURS)]]
        of = {what: statistics.median([x for one in mine for x in one[what][1:]]) for what in ("seconds", "cpu")}  # the first step warms up
        return {"per_s": OURS[i][0] * T / of["seconds"], "cpu_s": of["cpu"], "mb": max(one["peak_mb"] for one in mine)}

    rows = []
    for i, j in PAIRS:
        a, b = middle(0, i), middle(1, j)
        rows.append({
            "B": OURS[i][0], "T": T, "ours": a | {"how": OURS[i][1]}, "peft": b | {"how": PEFT[j][1]},
            "ratio": a["per_s"] / b["per_s"], "cpu_ratio": b["cpu_s"] / a["cpu_s"], "memory_ratio": a["mb"] / b["mb"]})
        rows[-1]["ok"] = rows[-1]["cpu_ratio"] >= 1.3 and rows[-1]["memory_ratio"] <= 1 / 3
    return rows


def print_speed(rows):
    print("\n135M, F32, T256, ours / PEFT      tokens per second      CPU seconds a step      peak MB               1.3x, a third")
    for r in rows:
        a, b = r["ours"], r["peft"]
        print(f"B{r['B']} {a['how']:11} / {b['how']:13}  {a['per_s']:5.0f} / {b['per_s']:4.0f} = {r['ratio']:.2f}x"
              f"   {a['cpu_s']:5.2f} / {b['cpu_s']:5.2f} = {r['cpu_ratio']:.2f}x   {a['mb']:4.0f} / {b['mb']:4.0f} = {r['memory_ratio']:.2f}    {'yes' if r['ok'] else 'no'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", type=Path, default=ROOT / "build" / "bin")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timed", type=int, default=4, help="steps that are timed in a round")
    parser.add_argument("--no-speed", action="store_true")
    args = parser.parse_args()
    python = venv_python("transformers", "peft", "gguf")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rows = [compare_losses(arch, args.bin_dir, python, args, work) for arch in ("llama", "qwen2")]
        speed = [] if args.no_speed else compare_speed(args.bin_dir, python, args, work)
    print("model    loss at step 1, ours / PEFT    at the last step          largest relative difference")
    for row in rows:
        print(f"{row['arch']:8} {row['first'][0]:.6f} / {row['first'][1]:.6f}          {row['last'][0]:.6f} / {row['last'][1]:.6f}      {row['worst']:.1e}")
    if speed:
        print_speed(speed)
    print(json.dumps({"bench": "lora-peft", "threads": args.threads, "load": os.getloadavg(), "losses": rows, "speed": speed}))
    fast_and_small = {row["B"] for row in speed if row["ok"]} == {row["B"] for row in speed}
    sys.exit(0 if all(row["ok"] for row in rows) and fast_and_small else 1)


main()
