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
    run.copy_store()
    run.wait_step("anna", 25)
    before = run.replace_store(older=True)
    lab.counts["kills"] += 1
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

    def n_refused():  # by whichever host writes the commits
        return sum(run.log(who).count("refused message of ben") for who in run.names)

    for kind in ("forged", "truncated", "replayed", "swapped", "duplicated"):
        run.processes["ben"].send_signal(signal.SIGSTOP)
        n_named, newest = n_refused(), len(run.commits()) - 1
        latest = max(messages.glob("*/ben/*"))
        genuine, cleos = latest.read_bytes(), max(messages.glob("*/cleo/*")).read_bytes()
        value = {"forged": chance.randbytes(len(genuine)), "truncated": genuine[:len(genuine) // 2],
                 "replayed": genuine, "swapped": cleos, "duplicated": genuine}[kind]
        if kind == "duplicated":  # harmless
            put_aside(run, latest, value)
        else:
            for index in range(newest + 1, newest + 4):
                put_aside(run, messages / f"{index:012}" / "ben" / f"{1:012}", value)
            until(lambda: n_refused() > n_named, 60, f"a {kind} message is refused")
        run.processes["ben"].send_signal(signal.SIGCONT)
        run.wait_step("ben", run.step("ben") + 4)
    n = n_refused()
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
    run.start("cleo", "-m", lab.new_model("other.gguf", seed=7))
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


def hub_is_full(lab, args, name):
    """A limit that fits only because old messages are removed; between, one that fits nothing."""
    limit, too_small = 240_000, 60_000
    run = Run(lab, name, "star", steps=STEPS)
    run.start_hub("--disk", limit)
    run.begin()
    run.wait_step("ben", 40)
    before, reached = run.commits(), run.step("anna")
    check(min(int(path.name) for path in (run.store() / "message").iterdir()) > 5, "the hub removed nothing")
    run.kill("hub")
    run.start_hub("--disk", too_small)
    why = "refuses what we send (the hub's 60 kB are full"
    until(lambda: all(why in run.log(n) for n in run.names), 60, "all are told why")
    check(run.step("anna") < reached + 5, "rounds closed at a full hub")
    run.kill("hub")
    run.start_hub("--disk", limit)
    run.finish()
    run.kill("hub")  # which may still remove files
    n_bytes = sum(path.stat().st_size for path in run.store().rglob("*") if path.is_file())
    check(n_bytes <= limit, f"the hub has {n_bytes} bytes of {limit}")
    return run, before, f"the hub had {limit} bytes for a run of 400000, then none: all hosts were told"


def large_state(lab, name, checkpoint_every, homes, **line):
    """A run with a state of some MB, the hosts `homes` behind a slow line."""
    model = lab.new_model(f"{name}.gguf", layers=4, width=128)
    run = Run(lab, name, "star", steps=3 * STEPS, options=("--rule", "adamw"), address="10.9.0.1:7077", model=model,
              checkpoint_every=checkpoint_every)
    return run, home_links(lab, run, homes=homes, **line)


def a_joiner_is_slow(lab, args, name):
    """While dora loads a checkpoint, ben returns twice with nothing: newer ones are made, and hers goes away."""
    run, links = large_state(lab, name, 0, ["dora"], up=10, down=10)
    with links as options:
        run.start_hub(*options)
        run.begin(*options)
        run.wait_step("ben", 5)
        before = run.commits()
        run.start("dora", *options)
        for _ in range(2):
            time.sleep(3)
            run.kill("ben")
            lab.counts["kills"] += 1
            shutil.rmtree(run.folder / "ben" / "run")
            run.start("ben", *options)
            run.wait_step("ben", run.step("anna"))
        until(lambda: "dora" in run.read_commits(1).split("\nmessages")[1], 180, "a message of dora is listed")
        joined = run.step("anna")
        check(joined < run.steps, "dora came too late")
        run.finish([*run.names, "dora"])
    return run, before, f"a host behind 10 Mbit/s joined at step {joined} of {run.steps}"


def a_checkpoint_writer_is_slow(lab, args, name):
    """A checkpoint is due every 5 rounds, and ben's slice takes many more: one is written at a time, and completed."""
    run, links = large_state(lab, name, 5, ["ben"], up=2, down=20)
    most = 0
    with links as options:
        run.start_hub(*options)
        run.begin(*options)
        run.wait_step("ben", 5)
        before = run.commits()
        while not run.ended("anna"):
            most = max(most, sum(1 for _ in (run.store() / "part").iterdir()))
            time.sleep(0.5)
        run.finish()
    told = run.read_commits()
    slices = told.count("\ncomplete"), len(re.findall(r"ben +incarnation \d+, [1-9]\d* bytes", told))
    # the last two complete ones, the one that is being written, and a late piece of an older one
    check(most <= 4 and slices[0] > 0, f"{most} checkpoints at the hub at a time, {slices[0]} completed")
    return run, before, f"{slices[0]} checkpoints kept, {slices[1]} with a slice by the slow host, {most} at a time"


def with_bad_host(lab, name, how, **options):
    """A run with a fourth host, which has a key of its own and does what bad-host.cpp says."""
    run = Run(lab, name, "star", names=("anna", "ben", "cleo", "mallory"), steps=STEPS, **options)
    run.program["mallory"] = "bad-host"
    run.env["mallory"] = {"BAD_HOST": how, "XDG_CONFIG_HOME": str(run.folder / "mallory-config")}
    run.begin()
    run.wait_step("ben", 10)
    return run


def a_member_lies(lab, args, name):
    """About its weight, the size of its slices, and who ben is; a host that returns with nothing gets a checkpoint."""
    run = with_bad_host(lab, name, "lies", checkpoint_every=2)
    before = run.commits()
    run.kill("cleo")
    lab.counts["kills"] += 1
    shutil.rmtree(run.folder / "cleo" / "run")
    run.start("cleo")
    run.finish()
    rounds = [re.findall(r"(\w+) +incarnation \d+, weight (\d+)", told) for told in run.read_commits().split("\nround ")]
    weights = {one for messages in rounds if len(messages) > 2 for one in messages}  # of two the median is the larger one
    check({("ben", "2"), ("mallory", "8")} <= weights <= {*((n, "2") for n in run.names), ("mallory", "8")},
          f"the weights that count: {weights}")
    lab.counts["refusals"] += run.log("hub").count("slice of a checkpoint by mallory")
    check("slice of a checkpoint by mallory" in run.log("hub"), f"the hub does not refuse a slice:\n{run.tail('hub')}")
    return run, before, "2^40 samples claimed, 8 count; slices of 2^41 bytes refused; a host returned with nothing"


def a_host_explodes(lab, args, name):
    run = with_bad_host(lab, name, "explodes")
    before = run.commits()
    run.finish()
    begin, *_, end = run.losses()
    check(end < 0.6 * begin, f"the validation loss is {end}, it was {begin}")
    n = len(re.findall(r"mallory +incarnation 1, weight", run.read_commits()))
    check(n > STEPS / 2, f"{n} messages of mallory were listed")
    return run, before, f"gradients times 1e4 and 1e30 from one of four in {n} rounds: loss {begin:.2f} to {end:.2f}"


def a_host_name_is_cloned(lab, args, name):
    """Copies of ben's machine, with its name and key, two of them at once: one stays, and no two have one incarnation."""
    run, bens = Run(lab, name, "star", steps=STEPS), ["ben", "clone"]
    run.start_hub()
    run.start("anna")
    until(lambda: "waiting for the other hosts" in run.log("anna"), 60, "anna begins")
    for who in ("ben", "clone", "third"):
        run.env[who] = {"XDG_CONFIG_HOME": str(run.folder / f"config-{who}")}
        shutil.copytree(lab.work / "config", run.folder / f"config-{who}")
    for who in ("ben", "clone", "cleo"):
        run.start(who, *(("--name", "ben") if who in bens else ()))

    def one_stays():
        until(lambda: sum(run.ended(who) for who in bens) == len(bens) - 1, 120, "all but one end")
        for who in bens:
            check(not run.ended(who) or (run.processes[who].returncode == 1 and "'ben'" in run.tail(who, 1)),
                  f"{who} does not say why it ends:\n{run.tail(who)}")

    one_stays()
    run.wait_step("anna", 10)
    before = run.commits()
    bens.append("third")
    run.start("third", "--name", "ben")
    one_stays()
    lab.counts["refusals"] += len(bens) - 1
    run.names = ("anna", next(who for who in bens if not run.ended(who)), "cleo")
    run.finish()
    incarnations = [int(n) for n in re.findall(r"ben +incarnation (\d+), weight", run.read_commits())]
    check(incarnations == sorted(incarnations), f"incarnations of ben in the order of rounds: {incarnations}")
    return run, before, f"three processes of one name: {run.names[1]} stayed, with incarnation {incarnations[-1]}"


FAULTS = {f.__name__: f for f in (hosts_are_killed, hub_is_killed, hub_folder_is_lost, hub_folder_is_an_older_copy,
                                  all_restart_without_the_store, a_second_hub_starts, network_is_cut, connections_break, packets_are_lost,
                                  messages_are_forged, messages_are_reordered, key_is_wrong, model_is_another,
                                  host_is_cloned, clock_is_wrong, disk_is_full, hub_is_full, a_joiner_is_slow, a_checkpoint_writer_is_slow,
                                  a_member_lies, a_host_explodes, a_host_name_is_cloned)}
LONG = (connections_break, packets_are_lost, a_joiner_is_slow, a_checkpoint_writer_is_slow)


def play(lab, args, name):
    try:
        run, before, words = FAULTS[name](lab, args, name)
        digest, after = run.finish(), run.commits()
    finally:
        for other in [r for r in lab.runs if r.folder.name == name]:
            other.stop()
    check(before and keeps(before, after), "a committed round was lost")
    check(max(after) > max(before), "no round was committed after the fault")
    n_before, n_after = int(max(before)) + 1, int(max(after)) + 1  # indices have no gaps; old commits are removed
    lab.counts["commits"] += n_after
    return f"{words}; {n_before} of {n_after} commits before it, same bits {digest[:12]}"


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
