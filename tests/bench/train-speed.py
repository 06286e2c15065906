#!/usr/bin/env python3
"""train-speed — ours beside PyTorch (eager, fused attention, fused AdamW) on the same CPU.

    tests/bench/train-speed.py [--rounds 3] [--steps 4] [--threads 2] [--only NAME]

Same model, batch, threads and steps in both, in alternating rounds; prints medians, ranges, ratios and
peak memory as a table, then one line of JSON. Needs build/bin/bench-train; PyTorch is installed by
bench_venv.py.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from bench_venv import venv_python

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# name, B, T, what is counted per step
CASES = [
    ("gpt2-124m", 4, 64, 256),
    ("gpt2-124m", 4, 256, 1024),
    ("gpt-10m", 8, 256, 2048),
    ("vit-192", 32, 65, 32),
]


def run(command, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env=env)
    return json.loads(out.stdout.strip().splitlines()[-1])


def fma_peak(threads):
    """GFLOP/s of independent fused multiply-adds, by bench-kernels; 0 if it does not say."""
    out = subprocess.run([ROOT / "build/bin/bench-kernels", str(threads), "peak"], capture_output=True, text=True)
    found = re.search(r"([0-9.]+) GFLOP/s", out.stdout)
    return float(found.group(1)) if found else 0.0


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--steps", type=int, default=4)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--only", default="")
    args = args.parse_args()
    python, ours = venv_python(), ROOT / "build/bin/bench-train"
    table, result = [], []
    for name, B, T, count in CASES:
        if args.only and args.only != name:
            continue
        times = {"ours": [], "torch": [], "recompute": []}
        peaks = {"ours": 0.0, "torch": 0.0, "recompute": 0.0}
        adamw, weights = [], 0
        with_recompute = (name, T) == ("gpt2-124m", 256)
        for _ in range(args.rounds):
            for who in ["ours", "torch"] + (["recompute"] if with_recompute else []):
                if who == "torch":
                    command = [python, HERE / "train_speed_peer.py", name, B, T, args.steps, args.threads]
                else:
                    command = [ours, name, B, T, "--steps", args.steps, "--threads", args.threads]
                    command += ["--recompute"] if who == "recompute" else []
                got = run(command, args.threads)
                times[who] += got["seconds"][1:]  # the first step warms up
                peaks[who] = max(peaks[who], got["peak_mb"])
                if who == "ours":
                    adamw += got["adamw"][1:]
                    weights = got["weights"]
        median = {who: statistics.median(t) for who, t in times.items() if t}
        tokens = count * (65 if name.startswith("vit") else 1)
        row = {
            "model": name, "B": B, "T": T,
            "ours_per_s": count / median["ours"], "torch_per_s": count / median["torch"],
            "ratio": median["torch"] / median["ours"],
            "ours_range": [count / max(times["ours"]), count / min(times["ours"])],
            "torch_range": [count / max(times["torch"]), count / min(times["torch"])],
            "ours_gflops_6nd": 6e-9 * weights * tokens / median["ours"],
            "ours_mb": peaks["ours"], "torch_mb": peaks["torch"],
            "memory_ratio": peaks["ours"] / peaks["torch"],
            "adamw_s": statistics.median(adamw),
        }
        if with_recompute:
            row["recompute_memory_ratio"] = peaks["recompute"] / peaks["torch"]
            row["recompute_ratio"] = median["torch"] / median["recompute"]
        result.append(row)
        table.append(
            f"{name:10} B{B:<3} T{T:<4} {row['ours_per_s']:9.1f} ({row['ours_range'][0]:.0f}-{row['ours_range'][1]:.0f})"
            f" {row['torch_per_s']:9.1f} ({row['torch_range'][0]:.0f}-{row['torch_range'][1]:.0f})"
            f"  {row['ratio']:5.2f}x  {row['ours_gflops_6nd']:6.1f}   {row['ours_mb']:6.0f} / {row['torch_mb']:6.0f} = {row['memory_ratio']:.2f}"
        )
        print(table[-1], flush=True)
    print("\nmodel              ours per second      torch per second    ratio  GFLOP/s (6ND)  peak MB ours / torch")
    print("\n".join(table))
    peak = fma_peak(args.threads)
    for row in result:
        row["share_of_peak"] = row["ours_gflops_6nd"] / peak if peak else 0.0
        print(f"{row['model']} B{row['B']} T{row['T']}: {100 * row['share_of_peak']:.0f} % of {peak:.0f} GFLOP/s by 6ND")
    print(json.dumps({"bench": "train-speed", "threads": args.threads, "fma_peak_gflops": peak, "rows": result}))


main()
