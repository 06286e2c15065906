#!/usr/bin/env python3
"""adapt — do models that were trained together learn something new as well as models trained with everything sent?

    tests/bench/adapt.py BIN_DIR NAME=MODEL.gguf... [--steps 100] [--seeds 1,2,3] [--rates 5e-4,1e-3,2e-3]

The models are those of `bench-converge --save`, with equal loss on the text they know. Each is fine-tuned on Debian's
texts of licences by a host alone with AdamW, at every rate with every seed; held out are two other licences. Prints
the held-out loss before, and after at each model's best rate (mean, standard deviation over the seeds), then one line
of JSON whose ratios are to the first model."""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LICENCES = Path("/usr/share/common-licenses")
HELD_OUT = ["Apache-2.0", "CC0-1.0"]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def held_out_loss(args, model):
    losses = [re.search(r"loss (\S+?),", run(args.bin_dir / "evaluate", "-m", model, LICENCES / name, "-c", 128, "-t", 1)) for name in HELD_OUT]
    return statistics.mean(float(found.group(1)) for found in losses)


def fine_tuned(args, work, name, model, rate, seed):
    out = work / f"{name}-{rate:g}-{seed}"
    texts = [path for path in sorted(LICENCES.iterdir()) if not path.is_symlink() and path.name not in HELD_OUT]
    run(args.bin_dir / "train-gpt", "-m", model, *texts, "--steps", args.steps, "--batch", 8, "--context", 128, "--rule", "adamw",
        "--lr", rate, "--seed", seed, "--threads", 1, "--out", out, "--export", f"{out}.gguf", "--eval-every", 0, "--sample-every", 0)
    return held_out_loss(args, f"{out}.gguf")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", type=Path)
    parser.add_argument("models", nargs="+", type=lambda text: text.split("=", 1))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--rates", type=lambda text: [float(rate) for rate in text.split(",")], default=[5e-4, 1e-3, 2e-3])
    args = parser.parse_args()
    rows = {}
    print("| model | held-out loss before | after | rate |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in args.models:
            losses = {rate: [fine_tuned(args, Path(folder), name, model, rate, seed) for seed in args.seeds] for rate in args.rates}
            rate = min(losses, key=lambda rate: statistics.mean(losses[rate]))
            rows[name] = {"before": held_out_loss(args, model), "after": statistics.mean(losses[rate])}
            print(f"| {name} | {rows[name]['before']:.3f} | {rows[name]['after']:.3f} ± {statistics.stdev(losses[rate]):.3f} | {rate:g} |", flush=True)
    first = rows[args.models[0][0]]["after"]
    print(json.dumps({"bench": "adapt", "steps": args.steps, "seeds": len(args.seeds), **rows,
                      "ratio": {name: round(row["after"] / first, 4) for name, row in rows.items()}}))


main()
