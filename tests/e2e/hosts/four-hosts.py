#!/usr/bin/env python3
"""four-hosts — four hosts end with the bits that one process computes for the same rounds.

    tests/e2e/hosts/four-hosts.py BIN_DIR WORK_DIR [--short] [--only loopback|home]

loopback: four processes and a hub. home: the same in network namespaces behind home links (20 up / 100
down Mbit/s, 40 ms round trip, 1 % loss, cubic), the hub outside; needs root. No round closes without all
four (--quorum 100), since the residual of a host that missed a round is not visible from outside.
--short: all replicators on loopback, one behind home links; the full form has all in both places.
"""

import argparse
import subprocess
import sys

from lab import REPLICATORS, Failed, Lab, Run, check, home_links

NAMES, STEPS = ("anna", "ben", "cleo", "dora"), 32


def compare(lab, run, replicator):
    """Checks the run against one process; returns its digest."""
    digest, flags = run.finish(), dict(zip(REPLICATORS[replicator][::2], REPLICATORS[replicator][1::2]))
    got = subprocess.run([lab.bin / "one-process", run.nodes, run.folder / "store", lab.model, lab.text, str(STEPS), "2",
                          replicator.split("_")[0], flags.get("--every", "0"), flags.get("--overlap", "-1"),
                          flags.get("--shares", "-1"), run.folder / NAMES[0] / "x.gguf"], env=lab.env, capture_output=True, text=True)
    check(got.returncode == 0, f"{run.folder.name}: one process has different weights:\n{got.stdout}{got.stderr}")
    return digest


def loopback(lab, replicator):
    run = Run(lab, f"loopback-{replicator}", "star", replicator, NAMES, STEPS)
    try:
        run.start_hub("--quorum", 100)
        run.begin()
        return compare(lab, run, replicator)
    finally:
        run.stop()


def home(lab, replicator):
    run = Run(lab, f"home-{replicator}", "star", replicator, NAMES, STEPS, address="10.9.0.1:7077")
    with home_links(lab, run, loss=1) as options:
        run.start_hub("--quorum", 100, *options)
        run.begin(*options)
        return compare(lab, run, replicator)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--short", action="store_true")
    args.add_argument("--only", default="")
    args = args.parse_args()
    lab = Lab(args.bin, args.work + "/four-hosts")
    rows = [(place, replicator) for place in (loopback, home) for replicator in REPLICATORS
            if not args.short or place is loopback or replicator == "demo"]
    for place, replicator in rows:
        if args.only in place.__name__:
            digest = place(lab, replicator)
            print(f"{place.__name__}, {replicator}: four hosts and one process have the same bits {digest[:12]}", flush=True)


try:
    main()
except Failed as failed:
    sys.exit(f"four-hosts: {failed}")
