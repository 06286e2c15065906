#!/usr/bin/env python3
"""campaign — fault injection on real processes: kills, cut links, forged messages, full disks, wrong keys.

    tests/e2e/hosts/campaign.py BIN_DIR WORK_DIR [--short] [--jobs 4] [--only NAME] [--seed 1]

Three hosts train a tiny model; each row of FAULTS injects one fault. The run continues, if necessary after
a wait; all hosts end with bit-identical weights, no commit written before the fault is lost, and every
refusal is logged. Prints counts. --short: without the rows of LONG, with fewer kills and shorter outages.
Needs root for home links and for a small disk that fills up.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

from tcp_proxy import Proxy
from lab import Lab, Run, check, free_port, home_links, keeps, side_by_side, until

STEPS = 60


def begin(lab, name, place="star", at=10, **options):
    """Starts a run and waits for step `at`; returns it with its commits so far."""
    run = Run(lab, name, place, steps=STEPS, **options)
    run.begin()
    run.wait_step("ben", at)
    return run, run.commits()


def hosts_are_killed(lab, args, name):
    chance = random.Random(args.seed)
    run, before = begin(lab, name, at=chance.randrange(2, 8))
    n = 2 if args.short else 6
    for _ in range(n):
        who = chance.choice(("ben", "cleo"))
        if run.ended(who):
            break
        run.kill(who)
        lab.counts["kills"] += 1
        time.sleep(chance.random() * 0.3)
        run.start(who)
        until(lambda: run.log(who).count("waiting for the other hosts") > 1 or run.ended(who), 60, "it returns")
        time.sleep(chance.random() * 0.5)
    return run, before, f"{n} kills of ben and cleo"


def hub_is_killed(lab, args, name):
    chance = random.Random(args.seed)
    run, before = begin(lab, name, at=5)
    n = 2 if args.short else 5
    for i in range(n):
        run.kill("hub")
        lab.counts["kills"] += 1
        before |= run.commits()
        time.sleep(chance.random() * 0.5)
        run.start_hub()
        run.wait_step("anna", min(STEPS, run.step("anna") + 3))
    return run, before, f"{n} kills of the hub"


def hub_folder_is_lost(lab, args, name):
    run, before = begin(lab, name)
    n = 1 if args.short else 3
    for _ in range(n):
        before = run.replace_store()
        lab.counts["kills"] += 1
    check("putting them back" in run.log("anna") + run.log("ben") + run.log("cleo"), "no host says what it does")
    return run, before, f"the hub's folder was lost {n} times"


def hub_folder_is_an_older_copy(lab, args, name):
    run, before = begin(lab, name, at=5)
    run.kill("hub")
    shutil.copytree(run.folder / "store", run.folder / "copy")
    run.start_hub()
    run.wait_step("anna", 25)
    before = run.replace_store(run.folder / "copy")
    lab.counts["kills"] += 2
    return run, before, "the hub's folder was restored from a copy of 20 rounds before"


def all_restart_without_the_store(lab, args, name):
    """What the hosts have saved is what is left: the one that has saved the most continues."""
    run, _ = begin(lab, name, at=15)
    for process in ("hub", *run.names):
        run.kill(process)
        lab.counts["kills"] += 1
    shutil.rmtree(run.folder / "store")
    run.start_hub()
    run.begin()
    run.wait_step("ben", 25)
    before = run.commits()
    check(min(int(name.split("-")[0]) for name in before) > 5, "the run began again")
    return run, before, "hub and hosts killed, the hub's folder lost"


def a_second_hub_starts(lab, args, name):
    run, before = begin(lab, name)
    for address in (run.address, f"127.0.0.1:{free_port()}"):
        second = subprocess.run([lab.bin / "hub", "--nodes", run.nodes, "--path", run.folder / "store", "--listen", address],
                                capture_output=True, text=True, timeout=30)
        check(second.returncode == 1, f"a second hub on the same folder was not refused:\n{second.stdout}{second.stderr}")
        lab.counts["refusals"] += 1
    return run, before, "a second hub on the same folder: refused, on the same port and another one"


def behind_proxy(run, proxy):
    """ben's own hosts.txt: the hub's address is the proxy's."""
    nodes = run.folder / "hosts-ben.txt"
    nodes.write_text(run.nodes.read_text().replace(f":{run.port}", f":{proxy.port}"))
    return ["--nodes", nodes]


def begin_with_proxy(lab, name, **line):
    run = Run(lab, name, "star", steps=STEPS)
    run.proxy = Proxy(run.port, **line)
    run.start_hub()
    run.start("anna")
    until(lambda: "waiting for the other hosts" in run.log("anna"), 60, "anna begins")
    run.start("ben", *behind_proxy(run, run.proxy))
    run.start("cleo")
    run.wait_step("ben", 5)
    return run, run.commits()


def network_is_cut(lab, args, name):
    run, before = begin_with_proxy(lab, name)
    seconds = 3 if args.short else 60
    run.proxy.cut()
    reached = run.step("ben")
    time.sleep(seconds)
    check(run.step("anna") > reached, "the others did not continue without ben")
    run.proxy.cut(False)
    return run, before, f"ben cut off for {seconds} s"


def connections_break(lab, args, name):
    run, before = begin_with_proxy(lab, name, p_break=0.05, seed=args.seed)
    run.finish()
    check(run.proxy.n_broken > 0, "no connection broke")
    return run, before, f"5 % of transfers broken, {run.proxy.n_broken} in all"


def messages_are_reordered(lab, args, name):
    run, before = begin_with_proxy(lab, name, delay=0.03, seed=args.seed)
    run.finish()
    check(run.proxy.n_overtaken > 0, "no packet was reordered")
    return run, before, f"blocks delayed by up to 30 ms, {run.proxy.n_overtaken} reordered"


def packets_are_lost(lab, args, name):
    run = Run(lab, name, "star", steps=STEPS, address="10.9.0.1:7077")
    with home_links(lab, run, loss=5) as options:
        run.start_hub(*options)
        run.begin(*options)
        run.wait_step("ben", 5)
        before = run.commits()
        run.finish()
    return run, before, "5 % of packets lost on every link"


def messages_are_forged(lab, args, name):
    """An attacker writes into the folder while ben is stopped: his messages are refused, ben's are not."""
    run, before = begin(lab, name, "folder", at=5)
    messages, chance = run.store() / "message", random.Random(args.seed)
    for kind in ("forged", "truncated", "replayed", "swapped", "duplicated"):
        run.processes["ben"].send_signal(signal.SIGSTOP)
        n_named, newest = run.log("anna").count("refused message of ben"), len(run.commits()) - 1
        latest = max(messages.glob("*/ben/*"))
        genuine, cleos = latest.read_bytes(), max(messages.glob("*/cleo/*")).read_bytes()
        value = {"forged": chance.randbytes(len(genuine)), "truncated": genuine[:len(genuine) // 2],
                 "replayed": genuine, "swapped": cleos, "duplicated": genuine}[kind]
        if kind == "duplicated":  # harmless
            put_aside(run, latest, value)
        else:
            for index in range(newest + 1, newest + 4):
                put_aside(run, messages / f"{index:012}" / "ben" / f"{1:012}", value)
            until(lambda: run.log("anna").count("refused message of ben") > n_named, 60, f"a {kind} message is refused")
        run.processes["ben"].send_signal(signal.SIGCONT)
        run.wait_step("ben", run.step("ben") + 4)
    n = run.log("anna").count("refused message of ben")
    lab.counts["refusals"] += n
    return run, before, f"messages forged, truncated, replayed, swapped, duplicated; {n} refusals logged"


def put_aside(run, target, value):
    """Writes a value as a store does: to a temporary file, then renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    (run.folder / "aside").write_bytes(value)
    (run.folder / "aside").rename(target)


def key_is_wrong(lab, args, name):
    run, before = begin(lab, name, at=2)
    other = run.folder / "other.txt"
    subprocess.run([lab.bin / "hub", "--new", "--nodes", other, "--name", "hub", "--address", f"127.0.0.1:{run.port}"],
                   check=True, stdout=subprocess.DEVNULL)
    run.start("eve", "--nodes", other)
    until(lambda: run.ended("eve"), 20, "eve is refused at once")
    check(run.processes["eve"].returncode == 1 and "has another key" in run.log("eve"), f"eve was not refused:\n{run.tail('eve')}")
    n = run.log("hub").count("no handshake with this run's key")
    check(n > 0, f"the hub does not log the wrong key:\n{run.tail('hub')}")
    lab.counts["refusals"] += n
    return run, before, f"a host with another key: refused at once, logged by the hub {n} times"


def model_is_another(lab, args, name):
    run, before = begin(lab, name, at=2)
    run.kill("cleo")
    shutil.rmtree(run.folder / "cleo" / "run")
    run.start("cleo", "-m", lab.new_model("other.gguf", "--seed", "7"))
    until(lambda: run.ended("cleo"), 120, "cleo is refused")
    check(run.processes["cleo"].returncode == 1 and "differ from the run's initial ones" in run.log("cleo"),
          f"another model was not refused:\n{run.tail('cleo')}")
    lab.counts["refusals"] += 1
    run.start("cleo")
    return run, before, "another model: refused, then the right one joins"


def host_is_cloned(lab, args, name):
    """A second process has ben's name and key: a second terminal, a copy of the machine, and a copy that nobody refuses."""
    run, before = begin(lab, name, "folder", at=5)
    run.start("twin", "-m", lab.model, "--data", lab.text, "--name", "ben")
    until(lambda: run.ended("twin"), 60, "a second terminal is refused")
    check("another process of this machine takes part in the run as 'ben'" in run.log("twin"), run.tail("twin"))
    config = run.folder / "config"
    shutil.copytree(lab.work / "config", config)
    run.env["twin"] = {"XDG_CONFIG_HOME": str(config)}
    run.start("twin", "--name", "ben")
    until(lambda: run.ended("twin"), 60, "a copy of the machine is refused")
    check("another process takes part as 'ben', last listed in round" in run.log("twin"), run.tail("twin"))
    check(not run.ended("ben"), f"ben did not continue:\n{run.tail('ben')}")
    lab.counts["refusals"] += 2
    (hello,) = (run.store() / "presence" / "ben").glob("*-hello")
    hello.unlink()  # now nobody knows that ben is there
    run.start("twin", "--name", "ben")
    until(lambda: run.ended("ben"), 60, "ben is displaced")
    saved = re.search(r"saved as \S*checkpoint-0*(\d+)\S*\n.*another process takes part as 'ben'", run.log("ben"))
    check(run.processes["ben"].returncode == 1 and saved, f"ben did not save before it ended:\n{run.tail('ben')}")
    run.kill("twin", signal.SIGINT)
    run.start("ben")
    run.wait_step("ben", int(saved[1]) + 1)
    check(f"resuming after step {saved[1]}\n" in run.log("ben"), f"ben lost what it had saved:\n{run.tail('ben')}")
    return run, before, "a second terminal and a copy of the machine refused; displaced, it saved and returned"


def clock_is_wrong(lab, args, name):
    shim = lab.work / "clock.so"
    code = """#define _GNU_SOURCE
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    int clock_gettime(clockid_t id, struct timespec * t) {
        int failed = syscall(SYS_clock_gettime, id, t);
        t->tv_sec += id == CLOCK_REALTIME ? 3 * 86400 : 0;
        return failed;
    }
    time_t time(time_t * out) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        if (out) *out = t.tv_sec;
        return t.tv_sec;
    }
    """
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", shim], input=code.encode(), check=True)
    run = Run(lab, name, "star", steps=STEPS)
    run.env["cleo"] = {"LD_PRELOAD": str(shim)}
    run.begin()
    run.wait_step("cleo", 10)
    check("ahead of the hub's" in run.log("cleo"), f"the wrong clock is not logged:\n{run.tail('cleo')}")
    return run, run.commits(), "cleo's clock is three days ahead: logged, no effect"


def disk_is_full(lab, args, name):
    check(os.getuid() == 0, "mounting a disk needs root")
    run = Run(lab, name, "star", steps=STEPS)
    (run.folder / "store").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", run.folder / "store"], check=True)
    try:
        run.begin()
        run.wait_step("ben", 5)
        before, filler = run.commits(), run.folder / "store" / "=filler"
        with filler.open("wb", buffering=0) as out:
            try:
                while out.write(bytes(4096)):
                    pass
            except OSError:
                pass
        until(lambda: "No space left" in run.log("hub"), 60, "the hub logs the full disk")
        reached = run.step("anna")
        time.sleep(1)
        filler.unlink()
        run.finish()
        check(run.step("anna") > reached, "the run did not continue")
        shutil.copytree(run.folder / "store", run.folder / "kept")
    finally:
        run.stop()
        subprocess.run(["umount", run.folder / "store"], check=True)
    shutil.copytree(run.folder / "kept", run.folder / "store", dirs_exist_ok=True)
    return run, before, f"the hub's disk was full at step {reached}"


FAULTS = {f.__name__: f for f in (hosts_are_killed, hub_is_killed, hub_folder_is_lost, hub_folder_is_an_older_copy,
                                  all_restart_without_the_store, a_second_hub_starts, network_is_cut, connections_break, packets_are_lost,
                                  messages_are_forged, messages_are_reordered, key_is_wrong, model_is_another,
                                  host_is_cloned, clock_is_wrong, disk_is_full)}
LONG = (connections_break, packets_are_lost, hub_folder_is_an_older_copy)


def play(lab, args, name):
    try:
        run, before, words = FAULTS[name](lab, args, name)
        digest, after = run.finish(), run.commits()
    finally:
        for other in [r for r in lab.runs if r.folder.name == name]:
            other.stop()
    check(before and keeps(before, after), "a committed round was lost")
    check(len(after) > len(before), "no round was committed after the fault")
    lab.counts["commits"] += len(after)
    return f"{words}; {len(before)} of {len(after)} commits before it, same bits {digest[:12]}"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("bin")
    args.add_argument("work")
    args.add_argument("--short", action="store_true")
    args.add_argument("--jobs", type=int, default=4)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--only", default="", help="rows whose name contains this")
    args = args.parse_args()
    names = [name for name, fault in FAULTS.items() if args.only in name and not (args.short and fault in LONG)]
    lab = Lab(args.bin, args.work + "/campaign")
    lab.counts = Counter()
    lab.env["GT_TEST_STEP_SECONDS"] = "0.1"  # a fault must hit the run on fast machines, too
    n_good = side_by_side(names, lambda name: play(lab, args, name), args.jobs)
    print(f"campaign: {n_good} of {len(names)} faults survived; {lab.counts['kills']} kills, "
          f"{lab.counts['commits']} commits and none lost, {lab.counts['refusals']} refusals logged")
    sys.exit(0 if n_good == len(names) > 0 else 1)


main()
