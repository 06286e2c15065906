#!/usr/bin/env python3
"""What pooling machines is worth: the share of full synchronisation's gain that each setting keeps.

    converge.py BIN_DIR RESULTS.jsonl [--task text|pictures] [--steps 1200] [--hosts 4] [--seeds 1,2,3]
                [--rows NAME,...] [--tune] [--jobs 2] [--plot FILE.svg] [--only-table] [--save FOLDER]

Simulated hosts, each with its own samples: a byte GPT of 0.8M weights on Debian's King James Bible (4 x 128
bytes per host and step), or a ViT of 0.2M weights on Fashion-MNIST (16 images per host and step).

    share = (loss alone - loss) / (loss alone - loss of full synchronisation), all with the rule Muon

--tune runs every row with another seed and a third of the steps at rates a factor of 1.5 to 2 apart, and at
two warm-ups, until the best rate lies inside those tried; the report then uses the best. Without tuned runs
in RESULTS a row takes the rate of the table below. Finished runs are kept in RESULTS, so it can be
interrupted. --save keeps the models of text for adapt.py. Prints a table and one line of JSON. --plot needs
matplotlib."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

FASHION = "/usr/share/datasets/fashion-mnist"
LADDER = [5e-4, 1e-3, 2e-3, 4e-3, 6e-3, 8e-3, 1.2e-2, 1.6e-2, 2.4e-2, 3.2e-2]
MULOCO = "--replicator diloco --rule muon --overlap 0"
DILOCO = "--replicator diloco --outer-lr 0.7 --outer-momentum 0.9 --overlap 0"

# name: (flags, rate, warm-up, floats per weight that a host keeps besides weight and gradient)
ROWS = {
    "alone": ("--replicator none --rule muon", 8e-3, 40, 1),
    "everything": ("--replicator full --rule muon", 8e-3, 40, 2),
    "AdamW alone": ("--replicator none --rule adamw", 4e-3, 100, 2),
    "AdamW everything": ("--replicator full --rule adamw", 8e-3, 100, 3),
    "loco": ("--replicator loco", 8e-3, 40, 4),
    "loco 14 fragments": ("--replicator loco --fragments 14", 8e-3, 40, 4),
    "loco 4 fragments of signs": ("--replicator loco --fragments 4 --wire q1", 8e-3, 40, 4),
    "loco 15 fragments": ("--replicator loco --fragments 15", 8e-3, 40, 4),
    "loco 23 fragments, ternary": ("--replicator loco --fragments 23 --wire q2", 8e-3, 40, 4),
    "loco uncorrected": ("--replicator loco --momentum-correction 0", 8e-3, 40, 3),
    "loco norm not restored": ("--replicator loco --restore-norm off", 8e-3, 40, 4),
    "loco whole model every 4": ("--replicator loco --fragments 1 --steps-per-round 4", 8e-3, 40, 4),
    "demo 32 of 4096": ("--replicator demo", 1.6e-2, 40, 2),
    "demo 128 of 4096": ("--replicator demo --density 0.03125", 1.6e-2, 40, 2),
    "demo decay 0.99": ("--replicator demo --momentum-decay 0.99", 1.6e-2, 40, 2),
    "demo second version": ("--replicator demo --momentum-subtract 0.2 --momentum-decay 0.995", 1.6e-2, 40, 2),
    "demo as published": ("--published demo", 2e-3, 40, 1),
    "muloco every 10": (f"{MULOCO} --steps-per-round 10 --wire q2 --outer-lr 1 --outer-momentum 0.5", 8e-3, 40, 4),
    "muloco as published": ("--published muloco", 8e-3, 40, 4),
    "diloco as published": ("--published diloco", 4e-3, 100, 5),
    "diloco": (DILOCO, 4e-3, 100, 5),
    "diloco, overlap 15": ("--replicator diloco --overlap 15", 4e-3, 100, 5),
    "diloco, overlap 29": ("--replicator diloco --overlap 29", 4e-3, 100, 5),
    "sparseloco as published": ("--published sparseloco", 4e-3, 100, 4),
    "random": ("--replicator random --momentum-decay 0.99", 8e-3, 40, 2),
    "striding": ("--replicator striding --momentum-decay 0.99", 8e-3, 40, 2),
}


def install(package, there):
    if not os.path.exists(there):
        subprocess.run(["apt-get", "install", "-y", "-q", package], check=True, stdout=subprocess.DEVNULL)


def data_of(args, work):
    if args.task == "pictures":
        install("dataset-fashion-mnist", FASHION)
        return FASHION
    install("bible-kjv", "/usr/bin/bible")
    with open(f"{work}/bible.txt", "w") as file:
        subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, stdout=file)
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([f"{args.bin_dir}/new-model", "--preset", "gpt-tiny", "-o", f"{work}/m.gguf"], **quiet)
    subprocess.run([f"{args.bin_dir}/prepare-data", "-m", f"{work}/m.gguf", f"{work}/bible.txt", "-o", f"{work}/m.tokens"], **quiet)
    return f"{work}/m.tokens"


class Runs:
    """The runs in RESULTS, by their settings."""

    def __init__(self, args):
        self.args, self.lines = args, {}
        if os.path.exists(args.results):
            for line in open(args.results):
                run = json.loads(line)
                self.lines[self.key(run)] = run

    @staticmethod
    def key(run):
        return tuple(run[name] for name in ("task", "name", "lr", "warmup", "seed", "steps", "hosts"))

    def settings(self, name, lr, warmup, seed, steps):
        return {"task": self.args.task, "name": name, "lr": lr, "warmup": warmup, "seed": seed, "steps": steps, "hosts": self.args.hosts}

    def get(self, data, wanted):
        """Runs what is not there yet, on --jobs cores; returns all in order."""
        missing = [run for run in wanted if self.key(run) not in self.lines]
        with ThreadPoolExecutor(self.args.jobs) as pool:
            for i, run in enumerate(pool.map(lambda run: self.simulate(data, run), missing), 1):
                self.lines[self.key(run)] = run
                with open(self.args.results, "a") as file:
                    file.write(json.dumps(run) + "\n")
                print(f"{i}/{len(missing)} {run['name']}, rate {run['lr']:g}, seed {run['seed']}: {run['val_loss']:.4f}  ({run['seconds']:.0f} s)", flush=True)
        return [self.lines[self.key(run)] for run in wanted]

    def simulate(self, data, run):
        flags = ROWS[run["name"]][0].split()
        for name in ("task", "lr", "warmup", "seed", "steps"):
            flags += [f"--{name}", str(run[name])]
        if self.args.save and run["task"] == "text":
            flags += ["--save", f"{self.args.save}/{run['name'].replace(' ', '-')}-{run['seed']}.gguf"]
        # the first host is validated; of hosts alone the others do not matter
        flags += ["--hosts", "1" if "none" in flags else str(run["hosts"])]
        done = subprocess.run([f"{self.args.bin_dir}/bench-converge", "--data", data, *flags], check=True, capture_output=True, text=True)
        return {**run, **json.loads(done.stdout.splitlines()[-1])}


def tune(args, runs, data, name):
    """Tries rates around the row's until the best lies inside, then another warm-up at that rate."""
    rate, warmup = ROWS[name][1:3]
    steps, tried = args.steps // 3, {}
    low = high = LADDER.index(rate)
    while not tried or (low > 0 and LADDER.index(min(tried, key=tried.get)) == low) or (
            high < len(LADDER) - 1 and LADDER.index(min(tried, key=tried.get)) == high):
        low, high = max(0, low - 1), min(len(LADDER) - 1, high + 1)
        found = runs.get(data, [runs.settings(name, lr, warmup, 0, steps) for lr in LADDER[low:high + 1]])
        tried = {run["lr"]: run["val_loss"] for run in found}
    runs.get(data, [runs.settings(name, min(tried, key=tried.get), 140 - warmup, 0, steps)])


def best(runs, name):
    tuned = [run for run in runs.lines.values() if run["name"] == name and run["seed"] == 0 and run["task"] == runs.args.task]
    chosen = min(tuned, key=lambda run: run["val_loss"], default=None)
    return (chosen["lr"], chosen["warmup"]) if chosen else ROWS[name][1:3]


def summary(seeds):
    """One row of the table from the runs of all seeds."""
    run = seeds[0]
    loss = [r["val_loss"] for r in seeds]
    row = {"loss": statistics.mean(loss), "spread": statistics.stdev(loss) if len(loss) > 1 else 0.0, "up": run["sent_mb"], "lr": run["lr"], "seeds": len(loss)}
    row["in_shares"] = run["in_shares"]
    if "accuracy" in run:
        row["accuracy"] = statistics.mean(r["accuracy"] for r in seeds)
    return row


def down(row, n):
    """What a host of n downloads: the messages of all others, or its share of them and the means of the other shares."""
    return (n - 1) * row["up"] * (2 / n if row["in_shares"] else 1)


def table(args, rows):
    alone, full = rows.get("alone"), rows.get("everything")
    if not alone or not full:
        sys.exit("the share needs the rows alone and everything")
    pictures = "accuracy" in full
    print(f"| setting | validation loss | {'accuracy | ' if pictures else ''}share | times fewer bytes up than fp32 (bf16) | MB up, down | MB down with 16, 64 hosts | floats per weight | rate |")
    print("|---|---|---|---|---|---|---|---|" + ("---|" if pictures else ""))
    for name, row in rows.items():
        row["share"] = (alone["loss"] - row["loss"]) / (alone["loss"] - full["loss"])
        row["times"] = full["up"] / row["up"] if row["up"] else 0.0
        times = f"{row['times']:.0f} ({row['times'] / 2:.0f})" if row["up"] else ""
        downs = [down(row, n) for n in (args.hosts, 16, 64)]
        accuracy = f"{100 * row['accuracy']:.1f} % | " if pictures else ""
        print(f"| {name} | {row['loss']:.3f} ± {row['spread']:.3f} | {accuracy}{100 * row['share']:.0f} % | {times} | {row['up']:.1f}, {downs[0]:.1f} "
              f"| {downs[1]:.0f}, {downs[2]:.0f} | {ROWS[name][3]} | {row['lr']:g} |")


def plot(rows, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "converge"
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(7, 4))
    span = rows["alone"]["loss"] - rows["everything"]["loss"]
    for name, row in rows.items():
        if row["up"] and name != "everything" and "AdamW" not in name:
            axes.errorbar([row["times"]], [100 * row["share"]], [100 * row["spread"] / span], fmt="o", capsize=3, color="C3" if name.startswith("loco") else "C0")
            axes.annotate(name, (row["times"], 100 * row["share"]), xytext=(6, 3), textcoords="offset points", fontsize=8)
    for level, text in ((0, "a host alone"), (100, "full synchronisation")):
        axes.axhline(level, color="0.7", linewidth=0.8, linestyle="--")
        axes.annotate(text, (1.05, level), xytext=(0, 3), textcoords="offset points", fontsize=8, color="0.4")
    axes.set_xscale("log")
    axes.set_xlim(0.9, 12 * max(row["times"] for row in rows.values()))
    axes.set_ylim(min(-8, *(100 * row["share"] - 5 for row in rows.values() if row["up"])), 110)
    axes.set_xlabel("times fewer bytes sent than fp32 gradients")
    axes.set_ylabel("share of the gain kept, %")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("results")
    parser.add_argument("--task", choices=["text", "pictures"], default="text")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--rows", type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--plot")
    parser.add_argument("--save")
    parser.add_argument("--only-table", action="store_true")
    args = parser.parse_args()
    names = args.rows or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        sys.exit(f"--rows {unknown[0]}: there are {', '.join(ROWS)}")
    runs = Runs(args)
    with tempfile.TemporaryDirectory() as work:
        if not args.only_table:
            data = data_of(args, work)
            for name in names if args.tune else []:
                tune(args, runs, data, name)
            runs.get(data, [runs.settings(name, *best(runs, name), seed, args.steps) for seed in args.seeds for name in names])
    rows = {}
    for name in names:
        wanted = [runs.settings(name, *best(runs, name), seed, args.steps) for seed in args.seeds]
        seeds = [runs.lines[runs.key(run)] for run in wanted if runs.key(run) in runs.lines]
        if seeds:
            rows[name] = summary(seeds)
    table(args, rows)
    if args.plot:
        plot(rows, args.plot)
    print(json.dumps({
        "bench": "converge", "task": args.task, "steps": args.steps, "hosts": args.hosts, "seeds": len(args.seeds),
        "share": {name: round(row["share"], 4) for name, row in rows.items()},
        "ratio": {name: round(row["loss"] / rows["everything"]["loss"], 4) for name, row in rows.items()},
        "times_fewer": {name: round(row["times"], 1) for name, row in rows.items()}}))


main()
