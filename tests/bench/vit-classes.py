#!/usr/bin/env python3
"""Fine-tuning beside training from scratch: a ViT that has learnt five classes of Fashion-MNIST goes through safetensors, gets
a new head, and learns the other five from 50 pictures each; a new ViT learns them in as many steps, which take the same CPU
time. Prints the accuracies on the 5,000 test pictures of these classes and one line of JSON; fails if the first is not better
by 5 points.

    tests/bench/vit-classes.py [BIN_DIR] [--epochs 2] [--steps 50] [--threads 2] [--seeds 1]

The pictures come from Debian's package dataset-fashion-mnist."""

import argparse
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_venv import ROOT
from fashion import DATA, SIZES, install_data, read_idx

KNOWN, NEW, N_EACH = (1, 3, 5, 7, 9), (0, 2, 4, 6, 8), 50
TUNE_LR = 0.01  # as for the new model


def run(*command):
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def write_part(folder, classes, n_each):
    """IDX files of these classes; for training the first n_each pictures of each class."""
    folder.mkdir()
    for name in ("train", "t10k"):
        (_, height, width), pixels = read_idx(f"{name}-images-idx3-ubyte")
        _, labels = read_idx(f"{name}-labels-idx1-ubyte")
        size, seen, kept = height * width, dict.fromkeys(classes, 0), []
        for i, label in enumerate(labels):
            if label in seen and (name == "t10k" or seen[label] < n_each):
                seen[label] += 1
                kept.append(i)
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb", compresslevel=1) as file:
            file.write(struct.pack(">4I", 2051, len(kept), height, width))
            file.write(b"".join(pixels[i * size: (i + 1) * size] for i in kept))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 2049, len(kept)) + bytes(classes.index(labels[i]) for i in kept))


def train(args, model, data, out, *flags):
    """The accuracy at the end, and the CPU seconds."""
    before = os.times()
    run(args.bin_dir / "train-vit", "-m", model, "--data", data, "--threads", args.threads, "--out", out, "--export", f"{out}.gguf", *flags)
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return [row["accuracy"] for row in rows if "accuracy" in row][-1], seconds


def compare(args, seed):
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_part(work / "known", KNOWN, 6000)
        write_part(work / "new", NEW, N_EACH)
        sizes = [x for key, value in (SIZES | {"classes": 5}).items() for x in (f"--{key}", value)]
        run(args.bin_dir / "new-model", "--arch", "vit", *sizes, "--seed", seed, "-o", work / "start.gguf")
        learnt, _ = train(args, work / "start.gguf", work / "known", work / "first", "--recipe", "small-data", "--epochs", args.epochs)
        (work / "timm").mkdir()
        run(args.bin_dir / "ggml-train", "export", work / "first.gguf", "-o", work / "timm" / "model.safetensors")
        run(args.bin_dir / "new-model", "--from", work / "timm" / "model.safetensors", "--classes", 5, "--seed", seed, "-o", work / "tune.gguf")
        common = ["--steps", args.steps, "--batch", 50, "--seed", seed]
        tuned, seconds = train(args, work / "tune.gguf", work / "new", work / "tuned", "--recipe", "fine-tune", "--lr", TUNE_LR, *common)
        alone, alone_seconds = train(args, work / "start.gguf", work / "new", work / "alone", "--recipe", "small-data", *common)
        return dict(seed=seed, known=learnt, tuned=tuned, scratch=alone, tuned_seconds=seconds, scratch_seconds=alone_seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", type=Path, default=ROOT / "build" / "bin")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    install_data()
    rows = [compare(args, seed) for seed in range(1, args.seeds + 1)]
    print(f"seed  five classes  fine-tuned to the others  from scratch      ({N_EACH} pictures each, {args.steps} steps)")
    for row in rows:
        print(f"{row['seed']:4} {100 * row['known']:12.1f}% {100 * row['tuned']:16.1f}% in {row['tuned_seconds']:3.0f} CPU s "
              f"{100 * row['scratch']:8.1f}% in {row['scratch_seconds']:3.0f} CPU s")
    print(json.dumps({"bench": "vit-classes", "epochs": args.epochs, "steps": args.steps, "threads": args.threads, "rows": rows}))
    sys.exit(0 if all(row["tuned"] - row["scratch"] >= 0.05 for row in rows) else 1)


main()
