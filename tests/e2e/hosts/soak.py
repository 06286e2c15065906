#!/usr/bin/env python3
"""soak — random faults on real processes, by a seed, for a given time: nothing is lost, and nobody diverges.

    tests/e2e/hosts/soak.py BIN_DIR WORK_DIR [--minutes 60] [--seed 1]

Episode after episode, three hosts train a tiny model over a hub while faults of FAULTS hit them, one after
the other, at random times. Each time the run must continue; at the end all hosts have the same bits, and
every commit that a host had applied is still in the chain. Prints counts; the first failure ends it.
Needs root for a disk that fills up.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

from lab import Failed, Lab, Run, check, keeps, until

STEPS = 60


def host_is_killed(run, chance):
    who = chance.choice(run.names)
    run.kill(who)
    time.sleep(chance.random())
    run.start(who)


def hub_is_killed(run, chance):
    run.kill("hub")
    time.sleep(chance.random())
    run.start_hub()


def host_is_cut(run, chance):
    process = run.processes[chance.choice(run.names)]
    process.send_signal(signal.SIGSTOP)
    time.sleep(3 * chance.random())
    process.send_signal(signal.SIGCONT)


def folder_is_lost(run, chance):
    run.replace_store()


def folder_is_older(run, chance):
    run.replace_store(older=True)


def disk_is_full(run, chance):
    filler = run.folder / "store" / "=filler"
    with filler.open("wb", buffering=0) as out:
        try:
            while out.write(bytes(4096)):
                pass
        except OSError:
            pass
    time.sleep(2 * chance.random())
    filler.unlink()


FAULTS = (host_is_killed, hub_is_killed, host_is_cut, folder_is_lost, folder_is_older, disk_is_full)


def episode(lab, number, chance, end):
    """One run to its end. Returns how many faults hit it."""
    run = Run(lab, f"episode-{number}", "star", steps=STEPS)
    (run.folder / "store").mkdir()
    has_disk = os.getuid() == 0
    if has_disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", run.folder / "store"], check=True)
    try:
        run.begin()
        run.wait_step("ben", 5)
        run.copy_store()
        known = run.applied_commits()
        for _ in range(chance.randrange(1, 5)):
            if max(run.step(name) for name in run.names) > STEPS - 15 or time.monotonic() > end:
                break
            fault = chance.choice([f for f in FAULTS if has_disk or f is not disk_is_full])
            lab.counts[fault.__name__] += 1
            lab.story.append(fault.__name__)
            fault(run, chance)
            reached = max(run.step(name) for name in run.names)
            until(lambda: all(run.ended(n) or run.step(n) >= min(STEPS, reached + 2) for n in run.names), 180,
                  "all hosts continue")
            known = {**known, **run.applied_commits()} if keeps(known, run.commits()) else {}
            check(known, "a committed round was lost")
        run.finish()
        after = run.commits()
        check(keeps(known, after), "a committed round was lost")
        lab.counts["commits"] += len(after)
    finally:
        run.stop()
        if has_disk:
            subprocess.run(["umount", run.folder / "store"], check=True)
    shutil.rmtree(run.folder)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--minutes", type=float, default=60)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    lab = Lab(args.bin, args.work + "/soak")
    lab.counts = Counter()
    lab.env["GT_TEST_STEP_SECONDS"] = "0.1"
    begin, number, good = time.monotonic(), 0, True
    end = begin + 60 * args.minutes
    while good and (number == 0 or time.monotonic() < end):
        lab.story = []
        number += 1
        try:
            episode(lab, number, random.Random(f"{args.seed} {number}"), end)
        except Failed as failed:
            print(f"soak: episode {number} ({', '.join(lab.story)}) FAILED: {failed}")
            good = False
    faults = ", ".join(f"{lab.counts[f.__name__]} {f.__name__}" for f in FAULTS)
    print(f"soak: seed {args.seed}, {number} episodes in {time.monotonic() - begin:.0f} s: {faults}; "
          f"{lab.counts['commits']} commits, {'none lost, no divergence' if good else 'see above'}")
    sys.exit(0 if good else 1)


main()
