#!/usr/bin/env python3
"""lora-friends — three hosts with different chats train one adapter over a hub; beside it each host alone.

    tests/bench/lora-friends.py [BIN_DIR] [--steps 200] [--seeds 3]

Each host has chats of one kind (spell a word, count, say a word twice); the held-out chats are a mix of all kinds,
with other words and numbers. The base, a tiny llama, has learnt to repeat words. Every run has the same rule, rate and
number of steps. A host alone is trained twice: with the samples per step that it has in the joint run, and with three
times as many, which is what the joint run sees in all. Prints the held-out loss of the base, of each host alone and of
the joint adapter (mean and largest deviation over the seeds), then one line of JSON; fails if the adapters of the
hosts differ, or if with some seed the joint one is not below every single one.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from free_port import free_port  # noqa: E402

TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\\x~{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def word(rng):
    return "".join(rng.choice(pair) for pair in ["bdfgklmnprst", "aeiou"] * 2)


def spell(rng):
    w = word(rng)
    return f"Spell {w}.", "-".join(w)


def count(rng):
    n = rng.randrange(1, 90)
    return f"Count from {n}.", " ".join(str(n + i) for i in range(4))


def twice(rng):
    w = word(rng)
    return f"Twice: {w}.", f"{w} {w}"


def say(rng):
    w = word(rng)
    return f"Say {w}.", w


KINDS = {"anna": spell, "ben": count, "cleo": twice}


def write_chats(path, kind, n, seed):
    rng = random.Random(seed)
    path.write_text("".join(json.dumps(dict(zip(("prompt", "completion"), kind(rng)))) + "\n" for _ in range(n)))


BATCH = 8  # samples per step of a host


def one_seed(bin_dir, work, args, seed):
    """The held-out losses of all runs, by name, and whether the hosts ended with equal bits."""

    def start(*command):
        log = open(work / f"{len(list(work.glob('*.log')))}.log", "w+", errors="replace")
        return log, subprocess.Popen([str(c) for c in command], stdout=log, stderr=subprocess.STDOUT, cwd=work)

    def finish(log, process):
        code = process.wait()
        log.seek(0)
        text = log.read()
        if code:
            sys.exit(f"{process.args}\n{text[-2000:]}")
        return text

    def loss_of(*adapter):
        out = finish(*start(bin_dir / "evaluate", "-m", "base.gguf", *adapter, "held-out.jsonl", "--threads", 1))
        return float(out.split("loss ")[1].split(",")[0])

    def train(*more, batch=BATCH):
        return start(bin_dir / "train-gpt", "--batch", batch, "--context", 64, "--threads", 1, "--sample-tokens", 1, "--val-fraction", 0, "--seed", seed, *more)

    (work / "template.jinja").write_text(TEMPLATE)
    write_chats(work / "say.jsonl", say, 400, 100 * seed)
    for i, (host, kind) in enumerate(KINDS.items()):
        write_chats(work / f"{host}.jsonl", kind, 200, 100 * seed + 10 + i)
    parts = [work / f"mix-{host}.jsonl" for host in KINDS]
    for i, (part, kind) in enumerate(zip(parts, KINDS.values())):
        write_chats(part, kind, 40, 100 * seed + 20 + i)
    (work / "held-out.jsonl").write_text("".join(part.read_text() for part in parts))
    finish(*start(
        bin_dir / "new-model", "--arch", "llama", "--layers", 2, "--width", 64, "--heads", 4, "--context", 64, "--seed", seed,
        "--chat-template", "template.jinja", "-o", "new.gguf"))
    finish(*train("-m", "new.gguf", "say.jsonl", "--steps", 300, "--lr", 5e-3, "--out", "base", "--export", "base.gguf"))

    lora = ["-m", "base.gguf", "--lora", 8, "--steps", args.steps, "--lr", 5e-3, "--rule", "muon"]
    losses = {"base": loss_of()}
    for host in KINDS:
        for times, words in [(1, "alone"), (3, "alone, 3 x samples")]:
            name = f"{host}-{times}"
            finish(*train(*lora, f"{host}.jsonl", "--out", name, "--export", f"{name}.gguf", batch=times * BATCH))
            losses[f"{host} {words}"] = loss_of("--lora", f"{name}.gguf")
    finish(*start(bin_dir / "hub", "--new", "--address", f"127.0.0.1:{free_port()}", "--name", "anna"))
    with open(work / "hosts.txt", "a") as hosts:
        hosts.write("ben -\ncleo -\n")
    running = [
        train(*lora, f"{host}.jsonl", "--nodes", "hosts.txt", "--name", host, "--min-hosts", 3, "--out", host, "--export", f"{host}.gguf")
        for host in KINDS]
    for each in running:
        finish(*each)
    losses["the three"] = loss_of("--lora", "anna.gguf")
    return losses, len({(work / f"{host}.gguf").read_bytes() for host in KINDS}) == 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", type=Path, default=ROOT / "build" / "bin")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    runs, equal = [], True
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            losses, same = one_seed(args.bin_dir.resolve(), Path(folder), args, seed)
        runs.append(losses)
        equal = equal and same
    print(f"held-out loss of the mix, {args.steps} steps, {args.seeds} seeds")
    for name in runs[0]:
        values = [run[name] for run in runs]
        mean = statistics.mean(values)
        print(f"{name:26} {mean:.4f} ± {max(abs(v - mean) for v in values):.4f}")
    print("the hosts end with", "equal bits" if equal else "DIFFERENT BITS")
    ratios = [run["the three"] / min(loss for name, loss in run.items() if "alone" in name) for run in runs]
    print(json.dumps({"bench": "lora-friends", "steps": args.steps, "runs": runs, "ratios": ratios, "equal": equal}))
    sys.exit(0 if equal and max(ratios) < 1.0 else 1)


main()
