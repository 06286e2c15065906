#!/usr/bin/env python3
"""What each replicator costs in loss, beside full synchronisation with AdamW: simulated hosts.

    converge.py BIN_DIR RESULTS.jsonl [--task text|pictures] [--steps 400] [--hosts 4] [--plot FILE.svg] [--only-table]

text: a byte GPT of 0.8M weights on Debian's King James bible; pictures: a ViT of 0.2M weights on
Fashion-MNIST. Every setting runs at several learning rates; the best is reported. Finished runs are
kept in RESULTS, so that it can be interrupted. Prints a table and one line of JSON. --plot needs matplotlib."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

FASHION = "/usr/share/datasets/fashion-mnist"


def install(package, there):
    if not os.path.exists(there):
        subprocess.run(["apt-get", "install", "-y", "-q", package], check=True, stdout=subprocess.DEVNULL)


def simulate(args):
    rest = [args.results, "--steps", str(args.steps), "--hosts", str(args.hosts), "--threads", str(args.threads)]
    if args.task == "pictures":
        install("dataset-fashion-mnist", FASHION)
        subprocess.run([f"{args.bin_dir}/bench-converge-vit", FASHION, *rest], check=True)
        return
    install("bible-kjv", "/usr/bin/bible")
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/bible.txt", "w") as file:
            subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, stdout=file)
        subprocess.run([f"{args.bin_dir}/new-model", "--preset", "gpt-tiny", "-o", f"{work}/m.gguf"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([f"{args.bin_dir}/prepare-data", "-m", f"{work}/m.gguf", f"{work}/bible.txt", "-o", f"{work}/m.tokens"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([f"{args.bin_dir}/bench-converge", f"{work}/m.tokens", *rest], check=True)


def best_runs(args):
    """The best rate of each setting, and all its rates, in the order of the results."""
    settings = {}
    for line in open(args.results):
        run = json.loads(line)
        if (run["task"], run["steps"], run["hosts"]) == (args.task, args.steps, args.hosts):
            settings.setdefault(run["name"], []).append(run)
    score = lambda run: -run["accuracy"] if "accuracy" in run else run["val_loss"]
    return {name: {**min(runs, key=score), "rates": sorted(runs, key=lambda r: r["lr"])} for name, runs in settings.items()}


def table(best, full):
    pictures = "accuracy" in full
    print(f"| setting | validation loss |{' accuracy |' if pictures else ''} of full sync | best rate | MB sent per host | times less |")
    print("|---|---|---|---|---|---|" + ("---|" if pictures else ""))
    for name, run in best.items():
        less = f"{full['sent_mb'] / run['sent_mb']:.0f}" if run["sent_mb"] else ""
        accuracy = f" {100 * run['accuracy']:.2f} % |" if pictures else ""
        print(f"| {name} | {run['val_loss']:.4f} |{accuracy} {run['val_loss'] / full['val_loss']:.3f} | {run['lr']:g} | {run['sent_mb']:.1f} | {less} |")


def plot(best, full, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "converge"
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(7, 4))
    least = min(run["sent_mb"] for run in best.values() if run["sent_mb"]) / 3  # where "none" stands
    for name, run in best.items():
        x = run["sent_mb"] or least
        axes.plot([x] * len(run["rates"]), [r["val_loss"] for r in run["rates"]], color="0.85", zorder=1)
        axes.scatter([x], [run["val_loss"]], zorder=2)
        axes.annotate(name, (x, run["val_loss"]), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.axhline(full["val_loss"], color="0.7", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(least / 1.5, 5 * max(run["sent_mb"] for run in best.values()))
    axes.set_ylim(min(r["val_loss"] for r in best.values()) * 0.98, min(max(r["val_loss"] for r in best.values()) * 1.02, full["val_loss"] * 1.5))
    axes.set_xlabel("MB that a host sent in all (none: 0)")
    axes.set_ylabel("validation loss at its best rate")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("results")
    parser.add_argument("--task", choices=["text", "pictures"], default="text")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot")
    parser.add_argument("--only-table", action="store_true")
    args = parser.parse_args()
    if not args.only_table:
        simulate(args)
    best = best_runs(args)
    if "adamw-full" not in best:
        sys.exit(f"{args.results} has no run of adamw-full with {args.steps} steps and {args.hosts} hosts")
    full = best["adamw-full"]
    table(best, full)
    if args.plot:
        plot(best, full, args.plot)
    ratios = {name: round(run["val_loss"] / full["val_loss"], 4) for name, run in best.items()}
    result = {"bench": "converge", "task": args.task, "steps": args.steps, "hosts": args.hosts, "loss_ratio": ratios}
    if "accuracy" in full:
        result["accuracy_minus_full"] = {name: round(run["accuracy"] - full["accuracy"], 4) for name, run in best.items()}
    print(json.dumps(result))


main()
