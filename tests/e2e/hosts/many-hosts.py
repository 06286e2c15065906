#!/usr/bin/env python3
"""many-hosts — many real hosts on one hub with few file descriptors: all bits equal, the hub's costs printed.

    tests/e2e/hosts/many-hosts.py BIN_DIR WORK_DIR [--hosts 8,16,32] [--rounds 200] [--kills 3] [--step 1.0]
                                  [--replicator demo] [--shares N] [--width 16]

Hosts train a tiny model with a fixed time per step; every process may open 1024 files. Some hosts are killed
and return. --shares: hosts average each round in N shares; --width of the model. Prints a host's traffic, and the hub's CPU time and memory per round, for each quarter of the run: neither may grow.
The last line compares runs: the hub's CPU time grows no faster than the bytes that it moves, about N(N - 1)
messages a round. The short form of the check: --hosts 8 --rounds 30 --kills 1 --step 0.1.
"""

import argparse
import json
import os
import sys
import time

from lab import Failed, Lab, Run, check


class HubCosts:
    """CPU seconds and resident memory of a process, since the last call."""

    def __init__(self, pid):
        self.proc, self.cpu, self.rows = f"/proc/{pid}", 0.0, []

    def take(self, n_rounds):
        with open(f"{self.proc}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        with open(f"{self.proc}/status") as status:
            memory = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024
        self.rows.append((1000 * (cpu - self.cpu) / n_rounds, memory))
        self.cpu = cpu
        print(f"rounds {n_rounds:4d}: hub {self.rows[-1][0]:6.1f} ms of CPU per round, {memory:6.1f} MB", flush=True)


def traffic(run):
    """kB per round that a host that was not killed has sent and received for rounds."""
    last = (run.folder / run.names[0] / "run" / "metrics.jsonl").read_text().splitlines()
    line = next(line for line in map(json.loads, reversed(last)) if "up_bytes" in line)
    return [line[name] / run.steps / 1000 for name in ("up_bytes", "down_bytes")]


def play(lab, args, n_hosts):
    """Returns the hub's CPU milliseconds and kB per round."""
    names = [f"h{i:03d}" for i in range(n_hosts)]
    options = ["--shares", str(args.shares)] if args.shares is not None else []
    model = lab.new_model(f"width-{args.width}.gguf", width=args.width)
    run = Run(lab, f"hosts-{n_hosts}", "star", args.replicator, names, args.rounds, options, model=model)
    for name in ["hub", *names]:
        run.prefix[name] = ["prlimit", "--nofile=1024:1024", "--"]
    try:
        began = time.monotonic()
        run.begin()
        costs = HubCosts(run.processes["hub"].pid)
        watched, done = names[0], 0
        for quarter in range(1, 5):
            for kill in range(args.kills):
                if quarter == 2 + kill % 2:
                    killed = names[-1 - kill]
                    run.kill(killed)
                    run.start(killed)
            step = args.rounds * quarter // 4
            run.wait_step(watched, step, seconds=7200)
            costs.take(step - done)
            done = step
        digest = run.finish(seconds=1200)
        check(costs.rows[3][0] < 2 * costs.rows[1][0] + 5, "the hub needs more and more time per round")
        check(costs.rows[3][1] < 1.5 * costs.rows[1][1] + 20, "the hub needs more and more memory")
        check("Too many open files" not in run.log("hub"), "the hub has not enough descriptors")
        print(f"{n_hosts} hosts, {args.rounds} rounds, {args.kills} killed and returned, "
              f"{time.monotonic() - began:.0f} s: all bits equal {digest[:12]}", flush=True)
        up, down = traffic(run)
        print(f"{n_hosts} hosts: {up:.1f} kB up and {down:.1f} kB down per host and round, {n_hosts * down:.0f} kB out of the hub", flush=True)
        return sum(row[0] for row in costs.rows) / 4, n_hosts * (up + down)
    finally:
        run.stop()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--hosts", default="8,16,32")
    args.add_argument("--rounds", type=int, default=200)
    args.add_argument("--kills", type=int, default=3)
    args.add_argument("--step", type=float, default=1.0, help="seconds per step")
    args.add_argument("--replicator", default="demo")
    args.add_argument("--shares", type=int)
    args.add_argument("--width", type=int, default=16)
    args = args.parse_args()
    lab = Lab(args.bin, args.work + "/many-hosts")
    lab.env["GT_TEST_STEP_SECONDS"] = str(args.step)
    costs = {int(n): play(lab, args, int(n)) for n in args.hosts.split(",")}
    print("hub per round: " + "; ".join(f"{n} hosts {ms:.0f} ms, {kb:.0f} kB" for n, (ms, kb) in costs.items()))
    (ms, kb), *more = costs.values()
    check(all(m / ms < 1.25 * k / kb for m, k in more), "the hub's time grows faster than the bytes")


try:
    main()
except Failed as failed:
    sys.exit(f"many-hosts: {failed}")
