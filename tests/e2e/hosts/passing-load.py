#!/usr/bin/env python3
"""passing-load — two hosts over a hub are slowed for a while: their batches shrink, and are whole again soon after.

    tests/e2e/hosts/passing-load.py BIN_DIR WORK_DIR [--seconds 24]

The load is SIGSTOP and SIGCONT in turn: a micro-batch of 0.1 s takes 0.4 s on any machine. Every step later than
ten rounds after it must have the whole batch on both hosts. The short form of the check: --seconds 5.
"""

import argparse
import json
import os
import signal
import sys
import time

from lab import Failed, Lab, Run, check

BATCH, AFTER, KEPT = 8, 10, 3


def samples(run, name):
    """step -> samples that this host computed"""
    lines = (run.folder / name / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["step"]: row["samples"] for row in rows if "samples" in row}


def slow_down(processes, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for how, pause in ((signal.SIGSTOP, 0.37), (signal.SIGCONT, 0.03)):
            for process in processes:
                os.kill(process.pid, how)
            time.sleep(pause)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--seconds", type=float, default=24.0)
    args = args.parse_args()
    lab = Lab(args.bin, args.work + "/passing-load")
    lab.env["GT_TEST_STEP_SECONDS"] = "0.8"
    options = ["--batch", str(BATCH), "--eval-every", "100000"]
    run = Run(lab, "load", "star", "demo", ("anna", "ben"), 100000, options)
    try:
        run.begin("--micro", "1", "--log-every", "1")
        run.wait_step("ben", 5)
        before = run.step("ben")
        slow_down([run.processes[name] for name in run.names], args.seconds)
        after = run.step("anna")
        for name in run.names:
            run.wait_step(name, after + AFTER + KEPT)
        for name in run.names:
            n = samples(run, name)
            least = min(count for step, count in n.items() if before < step <= after + 2)
            print(f"{name}: at least {least} of {BATCH} samples under load, then "
                  + ", ".join(str(n[step]) for step in sorted(n) if step > after), flush=True)
            check(least <= BATCH // 2, f"the load did not slow {name}")
            check(f"| {least} of {BATCH} samples" in run.log(name), f"the log of {name} does not tell its part of the batch")
            late = {step: count for step, count in n.items() if step > after + AFTER and count != BATCH}
            check(not late, f"{name} is not back at {BATCH} samples {AFTER} rounds after step {after}: {late}")
    finally:
        run.stop()


try:
    main()
except Failed as failed:
    sys.exit(f"passing-load: {failed}")
