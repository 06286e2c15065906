#!/usr/bin/env python3
"""Fashion-MNIST with a ViT under one million weights: our train-vit beside the same model and settings in PyTorch. Prints
a table and one line of JSON; fails below 92 %, above 15 minutes on two cores, or if the two differ by more than 0.5 points.

    tests/bench/vit-fashion.py [BIN_DIR] [--epochs 26] [--threads 2] [--no-peer | --only-peer]
    tests/bench/vit-fashion.py [BIN_DIR] --speed 3 [--threads 2]

The minutes are the CPU time divided by two. With --speed it compares the CPU time of training steps instead, in alternating
rounds: ours with every kind of augmentation, PyTorch with pictures that are in memory and stay as they are; fails below 1.3
times PyTorch's pictures per second. PyTorch is installed by bench_venv.py."""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from bench_venv import ROOT, venv_python
from fashion import DATA, SIZES, install_data, read_idx

BATCH, LR, PAD, SMOOTHING = 64, 6e-3, 1, 0.1
DECAY, CLIP = 0.1, 1.0  # our defaults
N_CORES = 2
EVERYTHING = ("--flip --crop 0.7 --randaugment 1 --magnitude 5 --erase 0.1 --cutmix 1 --mixup 0.2 --smoothing 0.1 --stochastic-depth 0.1"
              " --ema 0.999").split()


def make_model(bin_dir, path):
    sizes = [x for key, value in SIZES.items() for x in (f"--{key}", str(value))]
    made = subprocess.run([f"{bin_dir}/new-model", "--arch", "vit", *sizes, "-o", path], check=True, text=True, capture_output=True)
    print(made.stdout.strip(), flush=True)


def train(bin_dir, model, threads, *flags, **how):
    """CPU seconds of train-vit."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [f"{bin_dir}/train-vit", "-m", model, "--data", DATA, "--batch", BATCH, "--rule", "muon", "--lr", LR, "--threads", threads, *flags]
    subprocess.run([str(c) for c in command], check=True, **how)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(bin_dir, epochs, threads):
    with tempfile.TemporaryDirectory() as work:
        model = f"{work}/vit.gguf"
        make_model(bin_dir, model)
        start = time.perf_counter()
        cpu = train(
            bin_dir, model, threads, "--epochs", epochs, "--schedule", "linear", "--min-lr-ratio", 0, "--flip", "--pad", PAD, "--smoothing",
            SMOOTHING, "--log-every", 200)
        seconds = time.perf_counter() - start
        rows = [json.loads(line) for line in open(f"{work}/vit-run/metrics.jsonl")]
        accuracy = [row["accuracy"] for row in rows if "accuracy" in row][-1]
        report = subprocess.run(
            [f"{bin_dir}/classify", "-m", f"{work}/vit-trained.gguf", DATA, "--json"], check=True, text=True, capture_output=True)
        again = json.loads(report.stdout)
        assert abs(again["accuracy"] - accuracy) < 1e-7, f"classify: {again['accuracy']}, the run: {accuracy}"
        assert again["pictures"] == 10000
        waited = sum(row.get("waited_seconds", 0) for row in rows)
        return dict(accuracy=accuracy, seconds=seconds, cpu_seconds=cpu, waited=waited)


def our_step(bin_dir, threads, short=20, long=120):
    """CPU seconds of a picture with all augmentation: the difference of two runs, which both start and validate."""
    with tempfile.TemporaryDirectory() as work:
        make_model(bin_dir, f"{work}/vit.gguf")
        spent = [
            train(
                bin_dir, f"{work}/vit.gguf", threads, *EVERYTHING, "--steps", n, "--eval-every", n, "--out", f"{work}/{n}", "--export",
                f"{work}/{n}.gguf", stdout=subprocess.DEVNULL)
            for n in (short, long)]
        return (spent[1] - spent[0]) / (long - short) / BATCH


def twin(threads):
    """The model and its optimizer in PyTorch, and a function that makes one step."""
    import torch

    from peer_models import Muon, Vit

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    s = SIZES
    model = Vit(s["layers"], s["width"], s["heads"], s["image"], s["patch"], s["channels"], s["classes"], pooling=s["pooling"])
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    optimizer = Muon(model, LR, DECAY)

    def step(images, labels, lr):
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = model(images, labels, SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return model, step


def peer_step(threads, n_steps=50):
    """CPU seconds of a picture."""
    import torch

    _, step = twin(threads)
    images, labels = torch.rand(BATCH, 1, 28, 28), torch.arange(BATCH) % 10
    for i in range(10 + n_steps):
        if i == 10:
            start = time.process_time()
        step(images, labels, LR)
    return (time.process_time() - start) / n_steps / BATCH


def compare_speed(bin_dir, threads, rounds):
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(our_step(bin_dir, threads))
        theirs.append(peer_step(threads))
        print(f"CPU ms per picture: ggml-train with all augmentation {1000 * mine[-1]:.2f}, PyTorch {1000 * theirs[-1]:.2f}", flush=True)
    ratio = statistics.median(theirs) / statistics.median(mine)
    print(f"medians: {1000 * statistics.median(mine):.2f} and {1000 * statistics.median(theirs):.2f} ms, ratio {ratio:.2f}")
    print(json.dumps({"bench": "vit-fashion-speed", "threads": threads, "ours": mine, "torch": theirs, "ratio": ratio}))
    return ratio >= 1.3


def peer(epochs, threads):
    import torch
    import torch.nn.functional as F

    model, step = twin(threads)

    def load(name):
        shape, pixels = read_idx(f"{name}-images-idx3-ubyte")
        images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(shape[0], 1, 28, 28).float() / 255
        _, labels = read_idx(f"{name}-labels-idx1-ubyte")
        return images, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()

    images, labels = load("train")
    test_images, test_labels = load("t10k")
    mean, deviation = images.mean(), images.std()
    images, test_images = (images - mean) / deviation, (test_images - mean) / deviation
    steps = int(epochs * len(images) / BATCH)
    warmup = max(10, steps // 50)
    order = torch.cat([torch.randperm(len(images)) for _ in range(math.ceil(epochs))])

    def rate(i):
        return LR * min((i + 1) / warmup, (steps - i) / (steps - warmup))

    @torch.no_grad()
    def accuracy():
        right = sum((model(test_images[i: i + 500]).argmax(1) == test_labels[i: i + 500]).sum().item() for i in range(0, 10000, 500))
        return right / len(test_images)

    start, cpu_start = time.perf_counter(), time.process_time()
    for i in range(steps):
        ids = order[i * BATCH: (i + 1) * BATCH]
        x = F.pad(images[ids], (PAD,) * 4, mode="replicate")
        moved = torch.randint(0, 2 * PAD + 1, (len(ids), 2))
        grid = torch.arange(28)
        x = x[torch.arange(len(ids))[:, None, None], 0, moved[:, 0, None, None] + grid[None, :, None], moved[:, 1, None, None] + grid[None, None, :]]
        flip = torch.rand(len(ids)) < 0.5
        x[flip] = x[flip].flip(-1)
        loss = step(x[:, None], labels[ids], rate(i))
        if (i + 1) % (steps // 20) == 0:  # as often as ours
            print(f"PyTorch {i + 1}/{steps} loss {loss.item():.4f}, accuracy {100 * accuracy():.2f} %", flush=True)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return dict(accuracy=accuracy(), seconds=seconds, cpu_seconds=cpu)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", default=str(ROOT / "build" / "bin"))
    parser.add_argument("--epochs", type=float, default=26)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--speed", type=int, metavar="ROUNDS")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--only-peer", action="store_true")
    args = parser.parse_args()
    python = sys.executable if args.no_peer else venv_python()
    if not os.path.samefile(os.path.dirname(python), os.path.dirname(sys.executable)):
        os.execv(python, [python, *sys.argv])  # the same command in the environment that has PyTorch
    install_data()
    if args.speed:
        sys.exit(0 if compare_speed(args.bin_dir, args.threads, args.speed) else 1)
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
