#!/usr/bin/env python3
"""Fashion-MNIST with a ViT under one million weights: our train-vit beside the same model and settings in PyTorch. Prints
a table and one line of JSON; fails below 92 %, above 15 minutes on two cores, or if the two differ by more than 0.5 points.

    tests/bench/vit-fashion.py [BIN_DIR] [--epochs 12] [--threads 2] [--no-peer | --only-peer]

The minutes are the CPU time divided by two. PyTorch is installed by bench_venv.py."""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

from bench_venv import ROOT, venv_python
from fashion import DATA, SIZES, install_data, read_idx

BATCH, LR, PAD, SMOOTHING = 64, 6e-3, 1, 0.1
DECAY, CLIP = 0.1, 1.0  # our defaults
N_CORES = 2


def ours(bin_dir, epochs, threads):
    with tempfile.TemporaryDirectory() as work:
        model = f"{work}/vit.gguf"
        sizes = [x for key, value in SIZES.items() for x in (f"--{key}", str(value))]
        made = subprocess.run([f"{bin_dir}/new-model", "--arch", "vit", *sizes, "-o", model], check=True, text=True, capture_output=True)
        print(made.stdout.strip(), flush=True)
        command = [
            f"{bin_dir}/train-vit", "-m", model, "--data", DATA, "--epochs", str(epochs), "--batch", str(BATCH), "--rule", "muon", "--lr", str(LR),
            "--min-lr-ratio", "0", "--flip", "--pad", str(PAD), "--smoothing", str(SMOOTHING), "--threads", str(threads), "--log-every", "200"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rows = [json.loads(line) for line in open(f"{work}/vit-run/metrics.jsonl")]
        accuracy = [row["accuracy"] for row in rows if "accuracy" in row][-1]
        report = subprocess.run(
            [f"{bin_dir}/classify", "-m", f"{work}/vit-trained.gguf", DATA, "--json"], check=True, text=True, capture_output=True)
        again = json.loads(report.stdout)
        assert abs(again["accuracy"] - accuracy) < 1e-7, f"classify: {again['accuracy']}, the run: {accuracy}"
        assert again["pictures"] == 10000
        waited = sum(row.get("waited_seconds", 0) for row in rows)
        return dict(accuracy=accuracy, seconds=seconds, cpu_seconds=cpu, waited=waited)


def peer(epochs, threads):
    import torch
    import torch.nn.functional as F

    from peer_models import Muon, Vit

    torch.set_num_threads(threads)
    torch.manual_seed(1)

    def load(name):
        shape, pixels = read_idx(f"{name}-images-idx3-ubyte")
        images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(shape[0], 1, 28, 28).float() / 255
        _, labels = read_idx(f"{name}-labels-idx1-ubyte")
        return images, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()

    images, labels = load("train")
    test_images, test_labels = load("t10k")
    mean, deviation = images.mean(), images.std()
    images, test_images = (images - mean) / deviation, (test_images - mean) / deviation
    s = SIZES
    model = Vit(s["layers"], s["width"], s["heads"], s["image"], s["patch"], s["channels"], s["classes"], pooling=s["pooling"])
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    optimizer = Muon(model, LR, DECAY)
    steps = int(epochs * len(images) / BATCH)
    warmup = steps // 50
    order = torch.cat([torch.randperm(len(images)) for _ in range(math.ceil(epochs))])

    def rate(step):
        if step < warmup:
            return LR * (step + 1) / warmup
        return LR * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    start, cpu_start = time.perf_counter(), time.process_time()
    for step in range(steps):
        ids = order[step * BATCH: (step + 1) * BATCH]
        x = F.pad(images[ids], (PAD,) * 4, mode="replicate")
        moved = torch.randint(0, 2 * PAD + 1, (len(ids), 2))
        grid = torch.arange(28)
        x = x[torch.arange(len(ids))[:, None, None], 0, moved[:, 0, None, None] + grid[None, :, None], moved[:, 1, None, None] + grid[None, None, :]]
        flip = torch.rand(len(ids)) < 0.5
        x[flip] = x[flip].flip(-1)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = model(x[:, None], labels[ids], SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0:
            print(f"PyTorch {step}/{steps} loss {loss.item():.4f}", flush=True)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    with torch.no_grad():
        right = sum((model(test_images[i: i + 500]).argmax(1) == test_labels[i: i + 500]).sum().item() for i in range(0, 10000, 500))
    return dict(accuracy=right / len(test_images), seconds=seconds, cpu_seconds=cpu)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", default=str(ROOT / "build" / "bin"))
    parser.add_argument("--epochs", type=float, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--only-peer", action="store_true")
    args = parser.parse_args()
    python = sys.executable if args.no_peer else venv_python()
    if not os.path.samefile(os.path.dirname(python), os.path.dirname(sys.executable)):
        os.execv(python, [python, *sys.argv])  # the same command in the environment that has PyTorch
    install_data()
    rows = {}
    if not args.only_peer:
        rows["ggml-train"] = ours(args.bin_dir, args.epochs, args.threads)
    if not args.no_peer:
        rows["PyTorch"] = peer(args.epochs, args.threads)
    print(f"\n{'':12} {'accuracy':>9} {'minutes':>8} {'images/s':>9}   ({args.epochs:g} epochs, {args.threads} threads)")
    for name, row in rows.items():
        row["minutes"] = row["cpu_seconds"] / N_CORES / 60
        print(f"{name:12} {100 * row['accuracy']:8.2f}% {row['minutes']:8.1f} {args.epochs * 1000 / row['minutes']:9.0f}")
    result = {"bench": "vit-fashion", "epochs": args.epochs, "threads": args.threads, **rows}
    good = [row["accuracy"] >= 0.92 and row["minutes"] <= 15 for name, row in rows.items() if name == "ggml-train"]
    if len(rows) == 2:
        mine, theirs = rows.values()
        result["speed_ratio"] = theirs["cpu_seconds"] / mine["cpu_seconds"]
        result["accuracy_minus_peer"] = mine["accuracy"] - theirs["accuracy"]
        good.append(abs(result["accuracy_minus_peer"]) <= 0.005)
    print(json.dumps(result))
    sys.exit(0 if all(good) else 1)


main()
