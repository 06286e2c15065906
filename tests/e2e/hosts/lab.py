"""lab — runs of real processes for tests: hosts.txt, hub and hosts; start, kill, restart, compare.

A `Lab` has what runs share (programs, a tiny model, a text). A `Run` is one run in its own folder, over a
folder, a hub ("star", or "direct": hosts serve their own messages) or a bucket.
Every script in this folder is made of these.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from free_port import free_port  # noqa: E402

PLACES = ("folder", "star", "direct", "s3")
REPLICATORS = {"demo": [], "loco": [], "random": [], "diloco": ["--every", "4", "--overlap", "3"], "full": [],
               "demo_shares": ["--shares", "5", "--overlap", "1"], "loco_shares": ["--shares", "3"]}


class Failed(Exception):
    """A claim that did not hold."""


def check(claim, words):
    if not claim:
        raise Failed(words)


def until(condition, seconds, words):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while not (got := condition()):
        check(time.monotonic() < end, f"{words}: not within {seconds} s")
        time.sleep(0.05)
    return got


def filer_names(folder):
    """The names in a folder of SeaweedFS, through its filer: what its buckets really contain."""
    request = urllib.request.Request(folder + "?limit=100000", headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return [entry["FullPath"].rsplit("/", 1)[1] for entry in json.load(answer)["Entries"] or []]


def need_s3(argv):
    """Starts this program again beside a real S3 server, unless it is already there."""
    if "AWS_ENDPOINT_URL" not in os.environ:
        server = HERE.parent / "s3-server.sh"
        os.execv(server, [str(server), *argv])


@contextlib.contextmanager
def home_links(lab, run, loss=0, up=20, down=100, homes=None):
    """Puts the hosts `homes` (default: all) of a run behind home links (`up` / `down` Mbit/s, 40 ms round trip, `loss`
    percent, cubic) in network namespaces, the hub and the others outside at 10.9.0.1; yields the options that all need."""
    check(os.getuid() == 0, "network namespaces need root")
    homenet, net, homes = HERE / "homenet" / "homenet.sh", f"h{free_port()}", homes or run.names
    env = dict(lab.env, HOMELINK=str(lab.bin / "homelink"))
    subprocess.run([homenet, "up", net, *map(str, (len(homes), up, down, 20, loss))], env=env, check=True)
    for name in ("hub", *run.names, *homes):
        run.prefix[name] = [homenet, "exec", net, str(homes.index(name) + 1) if name in homes else "core"]
    try:
        yield ["--tcp", "cubic"]
    finally:
        run.stop()
        subprocess.run([homenet, "down", net], env=env, stdout=subprocess.DEVNULL, check=True)


def side_by_side(names, play, jobs):
    """Plays all cells, `jobs` at a time: play(name) returns the words to print, or raises Failed. Returns how many passed."""
    def one(name):
        begin = time.monotonic()
        try:
            words, good = play(name), True
        except Failed as failed:
            words, good = f"FAILED: {failed}", False
        print(f"{name:<28} {time.monotonic() - begin:5.1f} s  {words}", flush=True)
        return good

    with ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(one, names))


def keeps(before, after):
    """Whether the commits `after` contain those of `before`, but for the oldest: they are removed behind a checkpoint."""
    return all(after.get(name) == value for name, value in before.items() if name >= min(after))


class Lab:
    def __init__(self, bin_dir, work):
        self.bin, self.work = Path(bin_dir).resolve(), Path(work).resolve()
        subprocess.run(["rm", "-rf", self.work], check=True)
        self.work.mkdir(parents=True)
        self.env = dict(os.environ, XDG_CACHE_HOME=str(self.work / "cache"),
                        XDG_CONFIG_HOME=str(self.work / "config"))
        words = "the lord said unto moses and he went up into mount sinai with him . ,".split()
        chance = random.Random(1)
        lines = (" ".join(chance.choice(words) for _ in range(15)) for _ in range(300))
        self.text = self.work / "text.txt"
        self.text.write_text("\n".join(lines))
        self.runs = []
        self.model = self.new_model("s.gguf")

    def new_model(self, name, layers=1, width=16, seed=1):
        path, sizes = self.work / name, {"layers": layers, "width": width, "heads": 2, "context": 16, "seed": seed}
        flags = [word for flag, value in sizes.items() for word in (f"--{flag}", str(value))]
        subprocess.run([self.bin / "new-model", "--arch", "gpt2", *flags, "-o", path], check=True, stdout=subprocess.DEVNULL)
        return path


class Run:
    """One run. Hosts are started by name; the first of `names` begins and gives the settings."""

    def __init__(self, lab, name, place, replicator="demo", names=("anna", "ben", "cleo"), steps=40, options=(),
                 address=None, model=None, checkpoint_every=1000000):
        self.lab, self.place, self.names, self.steps = lab, place, names, steps
        self.model, self.checkpoint_every = model or lab.model, checkpoint_every
        self.folder = lab.work / name
        self.folder.mkdir()
        self.settings = ["--replicator", replicator.split("_")[0], *REPLICATORS.get(replicator, []), "--steps", str(steps), "--min-hosts",
                         str(len(names)), "--checkpoint-every", str(checkpoint_every),
                         *([] if "--batch" in options else ["--batch", "2"]), *options]
        self.processes, self.env, self.proxy = {}, {}, None
        self.prefix, self.program = {}, {}  # by name: words before its command, its program
        lab.runs.append(self)
        self.has_hub = place in ("star", "direct")
        self.address = address or f"127.0.0.1:{free_port()}"
        self.port = int(self.address.split(":")[1])
        self.nodes = self.folder / "hosts.txt"
        self.write_nodes()

    def write_nodes(self):
        command = [self.lab.bin / "hub", "--new", "--nodes", self.nodes]
        if self.has_hub:
            command += ["--name", "hub", "--address", self.address]
        elif self.place == "s3":
            command += ["--name", self.names[0], "--store", f"s3://runs/{self.folder.name}"]
        else:
            command += ["--name", self.names[0], "--store", f"file://{self.folder}/store"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with self.nodes.open("a") as out:
            out.write("delivery direct\n" if self.place == "direct" else "")
            for name in self.names[0 if self.has_hub else 1:]:  # the last host has no address
                serves = self.place == "direct" and name != self.names[-1]
                out.write(f"{name} 127.0.0.1:{free_port()}\n" if serves else f"{name} -\n")

    def store(self):
        """The folder of the store's values, as they lie on disk; not of a bucket."""
        root = self.folder / "store"
        return next(root.glob("r????????????????"), None) if root.exists() else None

    def values(self, kind):
        """All values of a kind (commit): name -> bytes."""
        if self.place != "s3":
            values = {}
            for path in (self.store() / kind).iterdir():
                with contextlib.suppress(FileNotFoundError):  # old ones are being removed
                    values[path.name] = path.read_bytes()
            return values
        root = f"{os.environ['S3_FILER']}/buckets/runs/{self.folder.name}/"
        run = next(name for name in filer_names(root) if re.fullmatch("r[0-9a-f]{16}", name))
        names = filer_names(f"{root}{run}/{kind}/")
        return {name: urllib.request.urlopen(f"{root}{run}/{kind}/{name}", timeout=20).read() for name in names}

    def start_hub(self, *options):
        self.launch("hub", [self.lab.bin / "hub", "--nodes", self.nodes, "--path", self.folder / "store",
                            "--listen", self.address, "--min-hosts", len(self.names),
                            "--checkpoint-every", self.checkpoint_every, *options])
        until(lambda: "listening" in self.log("hub") or self.ended("hub"), 20, "the hub listens")

    def start(self, name, *options):
        """A host; the first one writes the run's settings, the others take them."""
        (self.folder / name).mkdir(exist_ok=True)
        flags = {"-m": self.model, "--data": self.lab.text, "--threads": "1", "--sample-tokens": "1", "--eval-batches": "1",
                 "--save-every": "5", "--out": "run", "--export": "x.gguf", "--nodes": self.nodes, "--name": name}
        given = [*(self.settings if name == self.names[0] else []), *options]
        defaults = [word for flag, value in flags.items() if flag not in given for word in (flag, value)]
        self.launch(name, [self.lab.bin / self.program.get(name, "train-gpt"), *defaults, *given])

    def launch(self, name, command):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (folder / "out.txt").open("a") as out:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in [*self.prefix.get(name, []), *command]], cwd=folder, stdout=out, stderr=out,
                env={**self.lab.env, **self.env.get(name, {})})

    def begin(self, *options):
        """Starts the hub, then the first host until it has published the settings, then the others."""
        if self.has_hub and "hub" not in self.processes:
            self.start_hub()
        self.start(self.names[0], *options)
        until(lambda: "waiting for the other hosts" in self.log(self.names[0]) or self.ended(self.names[0]), 60,
              "the first host begins")
        for name in self.names[1:]:
            self.start(name, *options)

    def log(self, name):
        path = self.folder / name / "out.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def step(self, name):
        path = self.folder / name / "run" / "metrics.jsonl"
        lines = path.read_text().splitlines()[-3:] if path.exists() else []
        return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)

    def losses(self):
        """Of all validations, by whichever host: they are of equal weights."""
        files = [self.folder / name / "run" / "metrics.jsonl" for name in self.names]
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [line["val_loss"] for line in sorted(lines, key=lambda line: line["step"]) if "val_loss" in line]

    def ended(self, name):
        return self.processes[name].poll() is not None

    def wait_step(self, name, step, seconds=180):
        until(lambda: self.step(name) >= step or self.ended(name), seconds, f"{name} reaches step {step}")
        check(self.step(name) >= step, f"{name} ended before step {step}:\n{self.tail(name)}")

    def kill(self, name, how=signal.SIGKILL):
        check(not self.ended(name), f"{name} had ended before it could be killed:\n{self.tail(name)}")
        self.processes[name].send_signal(how)
        self.processes[name].wait()

    def commits(self):
        """All commit records in the store: name -> bytes."""
        return self.values("commit")

    def read_commits(self, n=None):
        """The newest n commits as the program `inspect` describes them, oldest first."""
        def read():
            files = sorted((self.store() / "commit").iterdir())[-n if n else None:]
            told = subprocess.run([self.lab.bin / "inspect", "--nodes", self.nodes, *files], capture_output=True, text=True)
            return told.stdout if told.returncode == 0 else ""
        return until(read, 20, "commits are read, though old ones are being removed")

    def applied_commits(self):
        """The commits that hosts have read: all but the newest, since they have sent for the next one."""
        commits = self.commits()
        return {name: value for name, value in commits.items() if name < max(commits)}

    def copy_store(self):
        """For replace_store. The hub may be running: what it removes meanwhile is in the copy or not."""
        subprocess.run(["cp", "-r", self.folder / "store", self.folder / "copy"], stderr=subprocess.DEVNULL)

    def replace_store(self, older=False):
        """Kills the hub, replaces its folder by nothing or by the copy, and waits for rounds. Returns the commits of before
        that hosts have put back."""
        self.kill("hub")
        before, reached = self.applied_commits(), max(self.step(name) for name in self.names)
        for path in (self.folder / "store").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if older:
            shutil.copytree(self.folder / "copy", self.folder / "store", dirs_exist_ok=True)
        self.start_hub()
        live = next(name for name in self.names if not self.ended(name))
        self.wait_step(live, min(self.steps, reached + 3))
        after = self.commits()
        back = {name: value for name, value in before.items() if name in after}
        check(keeps(before, after), "a round was replaced by another one")
        check(max(before) in back or max(before) < min(after), "the last round that hosts applied was not put back")
        return back

    def n_held(self):
        """Messages that were served by their senders and fetched by a second member."""
        return sum(1 for _ in (self.store() / "held").glob("*/*/*"))

    def sequencer(self):
        """The process that writes commits."""
        if self.has_hub:
            return "hub"
        # the author of the newest commit: its name is behind the head of the frame (comm/wire/frame.h)
        frame = max(self.values("commit").items())[1]
        return frame[140:140 + frame[7]].decode()

    def finish(self, names=None, seconds=240):
        """Waits for all hosts; they must succeed with the same weights. Returns their digest."""
        names = names or self.names
        for name in names:
            try:
                code = self.processes[name].wait(seconds)
            except subprocess.TimeoutExpired:
                raise Failed(f"{name} does not end:\n{self.tail(name)}") from None
            check(code == 0, f"{name} ended with {code}:\n{self.tail(name)}")
        digests = {hashlib.sha256((self.folder / n / "x.gguf").read_bytes()).hexdigest() for n in names}
        check(len(digests) == 1, f"{', '.join(names)} have different weights")
        for name in names:
            check(self.step(name) == self.steps, f"{name} made {self.step(name)} of {self.steps} steps")
        return digests.pop()

    def tail(self, name, n=12):
        return "\n".join(f"    {name}: {line}" for line in self.log(name).splitlines()[-n:])

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        if self.proxy:
            self.proxy.close()
