#!/usr/bin/env python3
"""scale — simulates runs of 10 to 1000 hosts on given lines: rounds per hour, bytes, waiting, what limits.

    tests/bench/scale.py [--hosts 10,30,100,300,1000] [--message 2.26] [--compute 30] [--up 20] [--down 100]
                         [--hub 1000] [--spread 0.1] [--overlap 0|1] [--means 4.0]

A round: each host computes, with the given spread, and sends its message (MB) to the hub; the hub passes it on
at once (comm/http/feed.h); the round closes when all that keep up have sent, or at 1.5 times the median
(sequencer/membership.h); a host waits until it has all listed messages. Lines are in Mbit/s; --hub: the hub's,
both ways. The hub's CPU time per message is a fit to tests/e2e/hosts/many-hosts.py with 16 hosts (57 ms per round) and with
32 (177 ms), on a busy machine of two cores; that per MB is assumed.

--means M: hosts average messages in shares, from 16 hosts on (comm/rounds/butterfly.h); the means are M times the bytes of a message, such as 4.0
for loco. A host averages its share when the first commit is there, and waits for the means of the second.
"""

import argparse
import random
import statistics

RTT = 0.04
# milliseconds of CPU: per message that arrives, per message that is sent to one host, per MB sent
HUB_MS = {"in": 1.7, "out": 0.12, "mb": 2.0}
HUB_CORES = 2
ROUNDS = 60
FEWEST_IN_SHARES, MOST_SHARES = 16, 32  # default_shares in optim/optim.cpp


def in_shares(args, n):
    return args.means > 0 and n >= FEWEST_IN_SHARES


def traffic(args, n):
    """MB up and down per host and round, and the values that the hub takes from and gives to a host."""
    if not in_shares(args, n):
        return args.message, (n - 1) * args.message, {"in": 1, "out": n - 1}
    shares, means = min(n, MOST_SHARES), args.means * args.message
    lists = n * (40 * shares + 300) / 1e6  # digests of all shards
    down = (n - 1) / n * (args.message + means) + lists
    return args.message + means / n + lists / n, down, {"in": shares + 3, "out": 2 * shares + 2 * n}


def simulate(args, n):
    """Mean seconds per round, the part of it that hosts wait, and the most loaded part."""
    chance = random.Random(n)
    pace = [chance.lognormvariate(0, args.spread) for _ in range(n)]
    up, down, n_values = traffic(args, n)
    cpu = (n * n_values["in"] * HUB_MS["in"] + n * (n_values["out"] * HUB_MS["out"] + down * HUB_MS["mb"])) / 1000 / HUB_CORES
    averager = down if n <= MOST_SHARES or not in_shares(args, n) else down + (n / MOST_SHARES - 1) * args.message
    loads = {"host's download": 8 * averager / args.down, "host's upload": 8 * up / args.up,
             "hub's line": n * 8 * down / args.hub, "hub's CPU": cpu}
    travel = max(loads["host's upload"] + RTT, n * 8 * up / args.hub)  # until the last message is at the hub
    spread_out = max(loads["host's download"], loads["hub's line"], cpu)  # until everybody has everything
    if in_shares(args, n):
        spread_out += 3 * RTT  # the second commit, and the means
    rounds, waits, listed, deadline = [], [], [], None
    for _ in range(ROUNDS):
        done = sorted(args.compute * p * chance.lognormvariate(0, args.spread / 2) for p in pace)
        arrived = [t + (0 if args.overlap else travel) for t in done]
        close = arrived[-1] if deadline is None else min(arrived[-1], max(deadline, arrived[(n - 1) // 2]))
        in_time = [t for t in arrived if t <= close]
        deadline = 1.5 * statistics.median(arrived)
        end = max(close, travel + spread_out) if args.overlap else max(close, in_time[0] + spread_out)
        rounds.append(end + RTT)
        listed.append(len(in_time))
        waits.append(1 - statistics.mean(min(t, end) for t in done) / rounds[-1])
    busiest = max(loads, key=loads.get)
    seconds = statistics.mean(rounds)
    limit = busiest if loads[busiest] > args.compute / 2 else "computing"
    return seconds, statistics.mean(waits), statistics.mean(listed), limit, up, down


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--hosts", default="10,30,100,300,1000")
    args.add_argument("--message", type=float, default=2.26, help="MB; GPT-2 124M with demo q4")
    args.add_argument("--compute", type=float, default=30, help="seconds per round")
    args.add_argument("--up", type=float, default=20)
    args.add_argument("--down", type=float, default=100)
    args.add_argument("--hub", type=float, default=1000)
    args.add_argument("--spread", type=float, default=0.1)
    args.add_argument("--overlap", type=int, default=1)
    args.add_argument("--means", type=float, default=0, help="times the bytes of a message; 0: no shares")
    args = args.parse_args()
    print("| hosts | rounds per hour | listed | waiting | MB per round up, down | hub GB per hour | limit |")
    print("|---|---|---|---|---|---|---|")
    for n in (int(word) for word in args.hosts.split(",")):
        seconds, waiting, listed, limit, up, down = simulate(args, n)
        per_hour = 3600 / seconds
        print(f"| {n} | {per_hour:.1f} | {listed:.0f} | {100 * waiting:.0f} % | {up:.1f}, "
              f"{down:.0f} | {per_hour * n * down / 1000:.1f} | {limit} |")


if __name__ == "__main__":
    main()
