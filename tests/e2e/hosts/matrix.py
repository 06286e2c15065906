#!/usr/bin/env python3
"""matrix — every kind of store x every kind of replicator x every process killed, as real processes.

    tests/e2e/hosts/matrix.py BIN_DIR WORK_DIR [--short] [--jobs 3] [--only NAME]

A cell: three hosts start; the host ben, or the sequencer, gets SIGKILL in the middle. A hub and the only
host that may sequence on a bucket are restarted at once; on a folder another host takes over first. All
must finish with bit-identical weights, and no commit from before the kill may be lost. An empty or skipped
cell fails. --short: one cell per place.
"""

import argparse
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from lab import PLACES, REPLICATORS, Failed, Lab, Run, check, need_s3, until

STEPS, KILL_AT = 40, 10
SHORT = {("folder", "random", "host"), ("star", "full", "sequencer"), ("star", "loco", "host"), ("direct", "demo", "host"),
         ("s3", "diloco", "sequencer")}


def cell(lab, place, replicator, victim):
    run = Run(lab, f"{place}-{replicator}-{victim}", place, replicator, steps=STEPS)
    try:
        run.begin()
        run.wait_step("ben", KILL_AT)
        who = "ben" if victim == "host" else run.sequencer()
        run.kill(who)
        before = run.commits()
        check(len(before) > 1, "no round was committed before the kill")
        check(place != "direct" or run.n_held() > len(before), "messages did not travel directly")
        if victim == "sequencer" and place in ("folder", "s3"):  # another host takes over by itself
            until(lambda: len(run.commits()) > len(before) + 1, 90, "another host writes commits")
            check(run.sequencer() != who, f"{who} is gone and is still the sequencer")
        run.start_hub() if who == "hub" else run.start(who)
        digest = run.finish()
        after = run.commits()
        check(all(after.get(name) == value for name, value in before.items()), "a committed round was lost")
        check(who == "hub" or "resuming after step" in run.log(who), f"{who} did not resume:\n{run.tail(who)}")
        return digest, len(before), len(after)
    finally:
        run.stop()


def show(lab, name, wanted):
    begin = time.monotonic()
    try:
        digest, n_before, n_after = cell(lab, *wanted)
        shutil.rmtree(lab.work / name)
        line, good = f"same bits {digest[:12]}, {n_before} of {n_after} commits before the kill", True
    except Failed as failed:
        line, good = f"FAILED: {failed}", False
    print(f"{name:<28} {time.monotonic() - begin:5.1f} s  {line}", flush=True)
    return good


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--short", action="store_true")
    args.add_argument("--jobs", type=int, default=3)
    args.add_argument("--only", default="", help="cells whose name contains this")
    args = args.parse_args()
    need_s3([sys.executable, *sys.argv])
    cells = [(p, r, v) for p in PLACES for r in REPLICATORS for v in ("host", "sequencer")]
    cells = [c for c in cells if (not args.short or c in SHORT) and args.only in "-".join(c)]
    lab = Lab(args.bin, args.work + "/matrix")
    with ThreadPoolExecutor(args.jobs) as pool:
        good = list(pool.map(lambda c: show(lab, "-".join(c), c), cells))
    expected = len(SHORT) if args.short else len(PLACES) * len(REPLICATORS) * 2
    print(f"matrix: {sum(good)} of {expected if not args.only else len(cells)} cells passed")
    sys.exit(0 if all(good) and good and (args.only or len(good) == expected) else 1)


main()
