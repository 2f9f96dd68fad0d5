#!/usr/bin/env python3
"""Shares the nodes of a plan out to 1 to 32 workers, on paper, for docs/scaling.md:

    schedule.py NODES.tsv [--input GB] [--network MB/S] [--workers N,N…] [--time wall|CPU]

NODES.tsv is what nodes.sh measured. The set is repeated until its nodes read as many GB as --input says (default: once): a release
has more components of the same kinds. Planning comes first, alone; its time grows with the set. Then each worker that is free takes the
longest node whose needs are done (ninja's way, but for the order). With --network each node also has the time of fetching what it
reads and of sending what it writes: workers that share no disk. Prints a Markdown table: workers, makespan, the time of one worker
divided by it, how busy workers are on average, and what the last worker did at the end; before it the critical path, below which no
number of workers gets. --time CPU takes CPU seconds in place of wall seconds: for nodes of one thread (JOBS=1) that were measured
beside other work.
"""

import argparse
import csv
import heapq


def read(path, time):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    plan = [row for row in rows if row["node"] == "(plan)"]
    nodes = [row for row in rows if row["node"] != "(plan)"]
    for row in nodes:
        row["seconds"] = row[f"{time} s"]
    return float(plan[0][f"{time} s"]), nodes


def repeat(nodes, times):
    """The nodes of so many sets, each with needs in its own."""
    out = {}
    for nth in range(times):
        name = lambda node: node if times == 1 else f"{node} ({nth + 1})"
        for row in nodes:
            needs = [name(need) for need in row["needs"].split(",") if need]
            out[name(row["node"])] = (float(row["seconds"]), int(row["input bytes"]), int(row["output bytes"]), needs)
    return out


def simulate(nodes, workers):
    """Time of the end, time of work in all, and what ended last."""
    left = {name: len(needs) for name, (_, _, needs) in nodes.items()}
    users = {}
    for name, (_, _, needs) in nodes.items():
        for need in needs:
            users.setdefault(need, []).append(name)
    ready = [(-seconds, name) for name, (seconds, _, needs) in nodes.items() if not needs]
    heapq.heapify(ready)
    running, now, free, last = [], 0.0, workers, ""
    while ready or running:
        while ready and free:
            seconds, name = heapq.heappop(ready)
            heapq.heappush(running, (now - seconds, name))
            free -= 1
        now, name = heapq.heappop(running)
        free, last = free + 1, name
        for user in users.get(name, []):
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, (-nodes[user][0], user))
    return now, last


def critical(nodes):
    """The longest way through the graph."""
    best = {}

    def way(name):
        if name not in best:
            seconds, _, needs = nodes[name]
            before = max((way(need) for need in needs), default=(0.0, []))
            best[name] = (before[0] + seconds, before[1] + [name])
        return best[name]

    return max(way(name) for name in nodes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--input", type=float, default=0, help="GB of input")
    parser.add_argument("--network", type=float, default=0, help="MB/s of each worker")
    parser.add_argument("--workers", default="1,2,4,8,12,16,24,32")
    parser.add_argument("--time", choices=["wall", "CPU"], default="wall")
    args = parser.parse_args()
    plan, measured = read(args.table, args.time)
    of_one = sum(int(row["input bytes"]) for row in measured)
    times = max(1, round(args.input * 1e9 / of_one)) if args.input else 1
    plan *= times
    nodes = {}
    for name, (seconds, reads, writes, needs) in repeat(measured, times).items():
        if args.network:
            seconds += (reads + writes) / (args.network * 1e6)
        nodes[name] = (seconds, reads, needs)
    total = sum(seconds for seconds, _, _ in nodes.values())
    length, path = critical(nodes)
    longest = max(nodes, key=lambda name: nodes[name][0])
    print(f"{len(nodes)} nodes that read {of_one * times / 1e9:.1f} GB: {total:.1f} s of work after {plan:.1f} s of planning")
    print(f"longest node: {longest}, {nodes[longest][0]:.1f} s; critical path: {' → '.join(path)}, {length:.1f} s")
    print()
    print("| workers | makespan s | × one worker | busy | ends with |")
    print("|---|---|---|---|---|")
    for workers in map(int, args.workers.split(",")):
        end, last = simulate(nodes, workers)
        speed = (plan + total) / (plan + end)
        print(f"| {workers} | {plan + end:.1f} | {speed:.1f} | {100 * total / (workers * end):.0f} % | {last} |")


main()
