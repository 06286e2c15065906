#!/usr/bin/env python3
"""Resumes run folders and a hub folder that an older build wrote, and compares the result with that build's own.

Each run is started by the old programs, interrupted, and copied. The old programs finish one copy, the new ones
the other; both must export the same bytes.   usage: older-version.py OLD_BIN_DIR NEW_BIN_DIR WORK_DIR
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from free_port import free_port

old, new = (Path(arg).resolve() for arg in sys.argv[1:3])
work = Path(sys.argv[3]).resolve() / "older-version"
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
live, saved = work / "live", work / "saved"  # both builds run in `live`: paths in checkpoints stay true
ENV = dict(os.environ, XDG_CACHE_HOME=str(work / "cache"), XDG_CONFIG_HOME=str(work / "config"),
           GT_TEST_STEP_SECONDS="0.1")  # so that no host is late, and all can be interrupted in the middle
TEXT = ["--threads", "1", "--sample-tokens", "8", "--data", "../text.txt", "--out", "run", "--export", "x.gguf"]
PICTURES = ["--threads", "1", "--data", "/usr/share/datasets/fashion-mnist", "--out", "run", "--export", "x.gguf"]


def start(bin_dir, host, program, args):
    folder = live / host
    folder.mkdir(exist_ok=True)
    log = open(folder / "log.txt", "a")
    return subprocess.Popen([bin_dir / program, *args], cwd=folder, env=ENV, stdout=log, stderr=log)


def steps_done(host):
    try:
        return sum(1 for _ in open(live / host / "run/metrics.jsonl"))
    except FileNotFoundError:
        return 0


def finish(bin_dir, runs):
    processes = [start(bin_dir, *run) for run in runs]
    for process, run in zip(processes, runs):
        if process.wait(timeout=300) != 0:
            raise SystemExit(f"{bin_dir}: {run[0]} failed:\n" + (live / run[0] / "log.txt").read_text()[-2000:])
    return [(live / run[0] / "x.gguf").read_bytes() for run in runs]


def case(name, runs):
    processes = []
    for run in runs:
        processes.append(start(old, *run))
        time.sleep(1.0)
    end = time.monotonic() + 120
    while steps_done(runs[0][0]) < 15:
        if time.monotonic() > end or processes[0].poll() is not None:
            raise SystemExit(f"{name}: the old build did not train:\n" + (live / runs[0][0] / "log.txt").read_text())
        time.sleep(0.02)
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        process.wait(timeout=60)
    n = steps_done(runs[0][0])
    shutil.copytree(live, saved)
    by_old = finish(old, runs)
    shutil.rmtree(live)
    saved.rename(live)
    by_new = finish(new, runs)
    same = len(set(by_new)) == 1 and (len(runs) > 1 or by_old == by_new)
    print(f"{'ok    ' if same else 'FAILED'} {name}: interrupted after {n} steps", flush=True)
    shutil.rmtree(live)
    return same


def model(*args):
    live.mkdir()
    subprocess.run([old / "new-model", *args, "-o", live / "s.gguf"], check=True, stdout=subprocess.DEVNULL)


def text_model():
    model("--arch", "gpt2", "--layers", "2", "--width", "32", "--heads", "2", "--context", "32")
    words = "the lord said unto moses and he went up into mount sinai with him . ,".split()
    state, lines = 1, []
    for _ in range(500):
        line = []
        for _ in range(15):
            state = (state * 1103515245 + 12345) % 2**31
            line.append(words[state // 65536 % len(words)])
        lines.append(" ".join(line))
    (live / "text.txt").write_text("\n".join(lines))


ok = True
for options in (["--rule", "adamw"], ["--rule", "muon", "--warmup", "10"], ["--schedule", "wsd", "--decay", "0.3"]):
    text_model()
    args = ["-m", "../s.gguf", "--batch", "4", "--steps", "40", *options, *TEXT]
    ok &= case("text alone, " + " ".join(options), [("anna", "train-gpt", args)])

model("--arch", "vit", "--layers", "2", "--width", "32", "--heads", "2", "--image", "28", "--patch", "7", "--channels",
      "1", "--classes", "10")
args = ["-m", "../s.gguf", "--batch", "8", "--steps", "40", "--flip", "--pad", "1", "--stochastic-depth", "0.1"]
ok &= case("pictures alone", [("anna", "train-vit", [*args, *PICTURES])])


def hub_run(options, hosts):
    text_model()
    subprocess.run([old / "hub", "--new", "--nodes", live / "hosts.txt", "--name", "anna", "--address",
                    f"127.0.0.1:{free_port()}"], check=True, stdout=subprocess.DEVNULL)
    with open(live / "hosts.txt", "a") as file:
        file.write("".join(f"{name} -\n" for name in hosts[1:]))
    both = ["-m", "../s.gguf", "--nodes", "../hosts.txt", *TEXT]
    first = ["--batch", "4", "--steps", "40", "--min-hosts", str(len(hosts)), *options]
    return [(name, "train-gpt", [*both, "--name", name, *(first if name == "anna" else [])]) for name in hosts]


# Which rounds a returning host of several misses depends on time, so two hosts are compared with each other only.
for options in ([], ["--overlap", "1"], ["--replicator", "diloco", "--every", "4"], ["--replicator", "random", "--rate", "0.2"],
                ["--replicator", "sparseloco", "--every", "5"], ["--replicator", "full"]):
    ok &= case("a host and its hub " + " ".join(options), hub_run(options, ["anna"]))
    ok &= case("two hosts and a hub " + " ".join(options), hub_run(options, ["anna", "ben"]))
sys.exit(0 if ok else 1)
