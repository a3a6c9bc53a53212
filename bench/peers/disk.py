#!/usr/bin/env python3
"""Holds Terrace's store on a disk against NIXL, LMCache, vLLM and fio on this machine.

    bench/peers/disk.py [--folder DIR] [--page-kib 1024,256] [--mib 1024] [--rounds 3] [--reads 5]
                        [--batch 8] [--batches 8] [--only NAME]... [--engines PYTHON] [--json FILE]

In each round every store has a turn, in a process and an empty folder of its own: it writes --mib
of pages, and reads all of them --reads times, scattered; all bytes are compared, outside the time.
Then a bit of one page is flipped in its file, and the page read again. --batches requests of
--batch pages are under way at a time, in memory that the process has touched before: huge pages for
Terrace, NIXL and rows named so, ordinary ones for the others.

Peers are installed first: NIXL and LMCache from PyPI into build/venv-disk-peers, vLLM into
build/venv-engines, where --engines names no other interpreter that has it, and fio as set `peers`
of packages/debian.txt says. A peer that cannot be had, or fails, has a row that says why.
"""

import argparse
import datetime
import functools
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "environments"))

import disk_figures  # noqa: E402
import disk_turns  # noqa: E402
import environments  # noqa: E402

STORES = pathlib.Path(__file__).resolve().parent / "disk_stores.py"
PROGRAM = ROOT / "build" / "release" / "bin" / "disk_terrace"
DISK_PEERS, ENGINES = "NIXL and LMCache", "vLLM"


class Contender(typing.NamedTuple):
    """A row: Terrace's program, fio, or a class of disk_stores.py with its environment. The words
    are the first arguments of the program."""

    name: str
    words: tuple
    environment: str = ""


# The first row is the one that others and goals are held against: as the runtime opens a store.
# LMCache and vLLM have memory of ordinary pages where nobody asks for huge ones. NIXL has none, and
# is given the better kind.
CONTENDERS = [
    Contender("Terrace", ("plain",)),
    Contender("Terrace, registered memory", ("registered",)),
    Contender("fio", ("fio",)),
    Contender("NIXL POSIX", ("NixlPosix", "huge"), DISK_PEERS),
    Contender("NIXL POSIX, sleeping", ("NixlPosixSleeping", "huge"), DISK_PEERS),
    Contender("LMCache raw_block", ("LmcacheRawBlock", "ordinary"), DISK_PEERS),
    Contender("LMCache raw_block, huge", ("LmcacheRawBlock", "huge"), DISK_PEERS),
    Contender("LMCache fs_native", ("LmcacheFsNative", "ordinary"), DISK_PEERS),
    Contender("LMCache fs_native, huge", ("LmcacheFsNative", "huge"), DISK_PEERS),
    Contender("vLLM fs", ("VllmFs", "ordinary"), ENGINES),
    Contender("vLLM fs, huge", ("VllmFs", "huge"), ENGINES),
]


def make_environments(options) -> dict:
    """Finds interpreters for the peers that are asked for, and installs what is missing first."""
    wanted = {one.environment for one in options.contenders}
    found = {}
    if DISK_PEERS in wanted:
        found[DISK_PEERS] = environments.make(environments.DISK_PEERS)
    if ENGINES in wanted and options.engines:
        found[ENGINES] = environments.find_environment(options.engines.absolute(), "vllm",
                                                       "see --engines")
    elif ENGINES in wanted:
        found[ENGINES] = environments.make(environments.ENGINES)
    if any(one.words == ("fio",) for one in options.contenders):
        subprocess.run([ROOT / "tools" / "install-packages", "peers"], check=False,
                       stdout=sys.stderr)
    return found


def turn_of(contender: Contender, options, found: dict) -> typing.Callable:
    """Returns what takes a turn, given a load and a folder. Raises Failed where it is not there."""
    if contender.words == ("fio",):
        return disk_turns.fio_turn
    command = [options.program, *contender.words]
    if contender.environment:
        environment = found[contender.environment]
        if environment.lacks:
            raise disk_turns.Failed(environment.lacks)
        command = [environment.python, "-I", STORES, *contender.words]
    return functools.partial(disk_turns.store_turn, command)


def measure(load: disk_turns.Load, options, found: dict) -> list:
    """Returns a row for each contender. One that fails takes no further turn."""
    turns = {one: [] for one in options.contenders}
    reasons = {}
    for number in range(options.rounds):
        for one in options.contenders:
            if one in reasons:
                continue
            print(f"disk: pages of {load.page_bytes >> 10} KiB, round {number + 1} of "
                  f"{options.rounds}, {one.name}", file=sys.stderr)
            try:
                with tempfile.TemporaryDirectory(dir=options.folder, prefix="disk-peers-") as name:
                    turns[one].append(turn_of(one, options, found)(load, pathlib.Path(name)))
            except disk_turns.Failed as failed:
                reasons[one] = str(failed)
    rows = []
    for one in options.contenders:
        its = turns[one]
        version = its[0]["version"] if its else ""
        row = disk_figures.row_of(one.name, version, load.page_bytes, its)
        rows.append({key: row[key] for key in ("name", "version", "page_bytes")}
                    | {"reason": reasons[one]} if one in reasons else row)
    disk_figures.add_ratios(rows)
    return rows


def surroundings(options) -> dict:
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], check=False,
                            capture_output=True, text=True).stdout.strip()
    cpus = [line.partition(":")[2].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")]
    return {"day": datetime.date.today().isoformat(), "commit": commit, "cpu": (cpus or ["?"])[0],
            "cores": os.cpu_count(), "kernel": platform.release(),
            "load_before": os.getloadavg()[0], "command": sys.argv[1:],
            "mib": options.mib, "rounds": options.rounds, "reads": options.reads,
            "batch": options.batch, "batches": options.batches}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()),
                        help="on the disk to be measured")
    parser.add_argument("--page-kib", default="1024,256", metavar="LIST")
    parser.add_argument("--mib", type=int, default=1024, help="that a store writes in a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=5, help="of all pages, in a turn")
    parser.add_argument("--batch", type=int, default=8, help="pages of a request")
    parser.add_argument("--batches", type=int, default=8, help="requests under way")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="rows with this in their names; Terrace's first row is always there")
    parser.add_argument("--engines", type=pathlib.Path, metavar="PYTHON")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    counts = (options.mib, options.rounds, options.reads, options.batch, options.batches)
    if min(counts) < 1:
        sys.exit("disk: counts are at least 1")
    if not options.program.exists():
        sys.exit(f"disk: {options.program} is not there; run cmake --build --preset release "
                 "--target disk_terrace")
    options.contenders = [one for one in CONTENDERS if one is CONTENDERS[0] or not options.only
                          or any(name in one.name for name in options.only)]
    if options.only and len(options.contenders) == 1:
        sys.exit(f"disk: no row has {' or '.join(options.only)} in its name")
    return options


def main() -> None:
    options = read_options()
    document = surroundings(options)
    found = make_environments(options)
    tables = []
    for kib in map(int, options.page_kib.split(",")):
        load = disk_turns.Load(kib << 10, (options.mib << 10) // kib, options.batch,
                               options.batches, options.reads)
        tables.append(measure(load, options, found))
    document["load_after"] = os.getloadavg()[0]
    print(f"{document['cpu']}, {document['cores']} cores, kernel {document['kernel']}, commit "
          f"{document['commit']}, {document['day']}; load {document['load_before']:.2f} before, "
          f"{document['load_after']:.2f} after\n")
    print(disk_figures.table(tables))
    if options.json:
        goals = [goal for rows in tables for goal in disk_figures.goals_of(rows)]
        rows = [row for one in tables for row in one]
        options.json.write_text(json.dumps(document | {"rows": rows, "goals": goals}, indent=1)
                                + "\n")


if __name__ == "__main__":
    main()
