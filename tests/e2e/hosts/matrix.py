#!/usr/bin/env python3
"""matrix — every kind of store x every kind of replicator x every process killed, as real processes.

    tests/e2e/hosts/matrix.py BIN_DIR WORK_DIR [--short] [--jobs 3] [--only NAME]

A cell: three hosts start; the host ben, or the sequencer, gets SIGKILL in the middle. A hub is restarted at once;
in a folder or bucket another host takes over first. A hub's folder is also replaced by nothing (lost) or by a copy of
before (older). All must finish with bit-identical weights, and no commit from before the kill may be lost. An empty
or skipped cell fails. --short: one cell per place, one of a lost folder, and one of shares.
"""

import argparse
import shutil
import sys

from lab import PLACES, REPLICATORS, Lab, Run, check, keeps, need_s3, side_by_side, until

STEPS, COPY_AT, KILL_AT = 40, 4, 14
VICTIMS = ("host", "sequencer", "lost", "older")
SHORT = {("folder", "random", "host"), ("star", "full", "sequencer"), ("star", "loco", "host"), ("direct", "demo", "host"),
         ("s3", "diloco", "sequencer"), ("direct", "loco", "lost"), ("star", "loco_shares", "host")}


def kill(run, victim):
    """Kills and restarts a process. Returns the commits of before."""
    who = "ben" if victim == "host" else run.sequencer()
    run.kill(who)
    before = run.commits()
    if victim == "sequencer" and run.place in ("folder", "s3"):  # another host takes over by itself
        until(lambda: len(run.commits()) > len(before) + 1, 90, "another host writes commits")
        check(run.sequencer() != who, f"{who} is gone and is still the sequencer")
    run.start_hub() if who == "hub" else run.start(who)
    until(lambda: who == "hub" or "resuming after step" in run.log(who), 120, f"{who} resumes")
    return before


def cell(lab, name):
    place, replicator, victim = name.split("-")
    run = Run(lab, name, place, replicator, steps=STEPS)
    try:
        run.begin()
        if victim == "older":
            run.wait_step("ben", COPY_AT)
            run.copy_store()
        run.wait_step("ben", KILL_AT)
        before = run.commits()
        check(len(before) > 1, "no round was committed before the kill")
        check(place != "direct" or run.n_held() > len(before), "messages did not travel directly")
        if victim in ("host", "sequencer"):
            before = kill(run, victim)
        else:
            before = run.replace_store(older=victim == "older")
        digest = run.finish()
        after = run.commits()
        check(before and keeps(before, after), "a committed round was lost")
    finally:
        run.stop()
    shutil.rmtree(run.folder)
    return f"same bits {digest[:12]}, {len(before)} of {len(after)} commits before the fault"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--short", action="store_true")
    args.add_argument("--jobs", type=int, default=3)
    args.add_argument("--only", default="", help="cells whose name contains this")
    args = args.parse_args()
    need_s3([sys.executable, *sys.argv])
    cells = [(p, r, v) for p in PLACES for r in REPLICATORS for v in VICTIMS if p in ("star", "direct") or v in VICTIMS[:2]]
    names = ["-".join(c) for c in cells if not args.short or c in SHORT]
    names = [name for name in names if args.only in name]
    lab = Lab(args.bin, args.work + "/matrix")
    n_good = side_by_side(names, lambda name: cell(lab, name), args.jobs)
    expected = len(names) if args.only else len(SHORT) if args.short else len(cells)
    print(f"matrix: {n_good} of {expected} cells passed")
    sys.exit(0 if n_good == expected > 0 else 1)


main()
