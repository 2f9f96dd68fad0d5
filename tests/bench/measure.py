#!/usr/bin/env python3
"""Runs a command and says what it took:

    measure.py DIR COMMAND…

Prints on one line, with blanks between: wall seconds, CPU seconds (user and system, of all its processes), the peak memory of its
largest process in MB, the most that stood in DIR at once in MB (files without a name among them, as they are until they are closed),
what is in DIR at the end in MB, and what was written to files in MB (pages made dirty). The disk is looked at ten times a second.
Fails with the command's status.
"""

import os
import resource
import subprocess
import sys
import threading
import time


def standing(directory, device):
    """Bytes in a directory, and of unnamed files of its file system that this user's processes have open."""
    total, seen = 0, set()

    def add(stat):
        nonlocal total
        if (stat.st_dev, stat.st_ino) not in seen:
            seen.add((stat.st_dev, stat.st_ino))
            total += stat.st_blocks * 512

    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                add(os.lstat(os.path.join(folder, name)))
            except OSError:
                pass
    for process in descendants(os.getpid()):
        try:
            for number in os.listdir(f"/proc/{process}/fd"):
                stat = os.stat(f"/proc/{process}/fd/{number}")
                if stat.st_nlink == 0 and stat.st_dev == device and (stat.st_mode & 0o170000) == 0o100000:
                    add(stat)
        except OSError:
            pass
    return total


def descendants(root):
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(name))
            except (OSError, ValueError):
                pass
    found, pending = [], [root]
    while pending:
        for child in children.get(pending.pop(), []):
            found.append(child)
            pending.append(child)
    return found


def main():
    directory, command = sys.argv[1], sys.argv[2:]
    device = os.stat(directory).st_dev
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, standing(directory, device))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.monotonic()
    status = subprocess.call(command, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - start
    done.set()
    watcher.join()
    if status:
        sys.exit(status)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    left = standing(directory, device)
    figures = (wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, max(peak, left) / 1e6, left / 1e6)
    print(*(f"{figure:.2f}" for figure in figures), f"{usage.ru_oublock * 512 / 1e6:.2f}")


main()
