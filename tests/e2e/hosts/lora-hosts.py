#!/usr/bin/env python3
"""lora-hosts — an adapter trained by three hosts with every replicator x every rule, as real processes over a hub.

    tests/e2e/hosts/lora-hosts.py BIN_DIR WORK_DIR [--short] [--jobs 3] [--only NAME]

A cell: three hosts with chats of their own train an adapter for the same quantized model; ben gets SIGKILL in the
middle and returns. All must end with the same adapter, bit for bit, and it must have moved. --short: a cell per rule.
"""

import argparse
import json
import shutil
import subprocess
import sys

from lab import Lab, Run, check, side_by_side, until

TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\\x~{% endfor %}"
STEPS, KILL_AT = 24, 6
REPLICATORS = {"loco": [], "demo": [], "random": [], "striding": [], "slicing": [], "full": [], "diloco": ["--every", "4"], "sparseloco": ["--every", "4"]}
RULES = ("sgd", "adamw", "muon")
SHORT = {("demo", "sgd"), ("full", "adamw"), ("sparseloco", "muon")}


def make_base(lab):
    """A llama in Q8_0 with a chat template."""
    (lab.work / "template.jinja").write_text(TEMPLATE)
    sizes = "--arch llama --layers 1 --width 32 --heads 2 --kv-heads 1 --context 64".split()
    new, base = lab.work / "new.gguf", lab.work / "base.gguf"
    subprocess.run([lab.bin / "new-model", *sizes, "--chat-template", lab.work / "template.jinja", "-o", new], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([lab.bin / "export", new, "--type", "q8_0", "-o", base], check=True, stdout=subprocess.DEVNULL)
    return base


def cell(lab, name):
    replicator, rule = name.split("-")
    settings = [*REPLICATORS[replicator], "--rule", rule, "--lora", "2", "--lr", "1e-2"]
    run = Run(lab, name, "star", replicator, steps=STEPS, options=settings)
    try:
        run.start_hub()
        for who in run.names:
            chats = run.folder / f"{who}.jsonl"
            chats.write_text("".join(json.dumps({"prompt": f"Who is {i}?", "completion": f"{who}, of course."}) + "\n" for i in range(9)))
            run.env[who] = {"GT_TEST_STEP_SECONDS": "0.1"}
        host = lambda who: run.start(who, "--data", run.folder / f"{who}.jsonl", *([] if who == "anna" else ["--lora", "2"]))
        host("anna")  # gives the settings
        until(lambda: "waiting for the other hosts" in run.log("anna") or run.ended("anna"), 60, "anna begins")
        host("ben")
        host("cleo")
        run.wait_step("ben", KILL_AT)
        run.kill("ben")
        host("ben")
        digest = run.finish()
        check("resuming after step" in run.log("ben"), f"ben did not resume:\n{run.tail('ben')}")
        moved = any(b != 0 for b in last_tensor(run.folder / "anna" / "x.gguf"))
        check(moved, "B of the adapter is still zero")
    finally:
        run.stop()
    shutil.rmtree(run.folder)
    return f"same bits {digest[:12]}"


def last_tensor(path):
    """The last bytes of a file: B of the last matrix, which begins as zeros."""
    return path.read_bytes()[-256:]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--short", action="store_true")
    args.add_argument("--jobs", type=int, default=3)
    args.add_argument("--only", default="", help="cells whose name contains this")
    args = args.parse_args()
    lab = Lab(args.bin, args.work + "/lora-hosts")
    lab.model = make_base(lab)
    names = [f"{replicator}-{rule}" for replicator in REPLICATORS for rule in RULES if not args.short or (replicator, rule) in SHORT]
    names = [name for name in names if args.only in name]
    n_good = side_by_side(names, lambda name: cell(lab, name), args.jobs)
    print(f"lora-hosts: {n_good} of {len(names)} cells passed")
    sys.exit(0 if n_good == len(names) > 0 else 1)


main()
