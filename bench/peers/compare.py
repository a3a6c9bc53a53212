#!/usr/bin/env python3
"""Holds rows of `terrace bench kernels` against FAISS, scikit-learn and NumPy on this machine.

    bench/peers/compare.py [--program build/release/bin/terrace] [--rounds 5] [--only NAME]
                           [--format text|json]

Program and peers take turns, one thread each; the figure is the median of all rounds. FAISS comes
twice, from PyPI and from Debian: one is built for this CPU's vectors, the other is what a program
gets that links libfaiss-dev. Missing peers are installed first: PyPI's libraries into a virtual
environment of their own, build/venv-peers, Debian's as set `peers` of packages/debian.txt says. A
peer that cannot be installed has a row that says why.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "environments"))

import libraries  # noqa: E402
from environments import Environment, find_environment  # noqa: E402

LIBRARIES = ["faiss-cpu", "scikit-learn", "numpy"]
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
BOTH, PYPI = ("PyPI", "Debian"), ("PyPI",)
PEERS = [
    ("kmeans_l2_n32768_d64_k64_i10", libraries.FaissKmeans, {"dims": 64, "clusters": 64}, BOTH),
    ("kmeans_l2_n32768_d64_k64_i10", libraries.SklearnKmeans, {"dims": 64, "clusters": 64}, PYPI),
    ("kmeans_l2_n32768_d64_k256_i10", libraries.FaissKmeans, {"dims": 64, "clusters": 256}, BOTH),
    ("kmeans_cosine_n32768_d128_k400_i10", libraries.FaissKmeans,
     {"dims": 128, "clusters": 400, "spherical": True}, BOTH),
    ("pq_scan_topk_n131072_m2_b6_k1024", libraries.FaissPq, {"count": 1024}, BOTH),
    ("pq_scan_topk_n131072_m2_b6_k13107", libraries.FaissPq, {"count": 13107}, BOTH),
    ("pq_scan_topk_n131072_m4_b6_k1024", libraries.FaissPq,
     {"count": 1024, "subspaces": 4, "bits": 6}, BOTH),
    ("pq_scan_topk_n131072_m4_b8_k1024", libraries.FaissPq,
     {"count": 1024, "subspaces": 4, "bits": 8}, BOTH),
    ("pq_scan_topk_n131072_m8_b8_k1024", libraries.FaissPq,
     {"count": 1024, "subspaces": 8, "bits": 8}, BOTH),
    ("pq_select_g4_n131072_m2_b6_k1024", libraries.FaissPqGroup, {"count": 1024}, BOTH),
    ("pq_select_g4_n131072_m4_b6_k1024", libraries.FaissPqGroup,
     {"count": 1024, "subspaces": 4, "bits": 6}, BOTH),
]


def find_pypi(folder: pathlib.Path) -> Environment:
    return find_environment(folder / "bin" / "python", "faiss, sklearn",
                            f"pip install {' '.join(LIBRARIES)}")


def find_debian() -> Environment:
    return find_environment(pathlib.Path("/usr/bin/python3"), "faiss",
                            "tools/install-packages peers")


def make_environments(folder: pathlib.Path) -> dict:
    """Finds both, and installs what is missing first. Standard output is for the rows alone."""
    pypi = find_pypi(folder)
    if pypi.lacks:
        made = subprocess.run([sys.executable, "-m", "venv", folder], check=False,
                              stdout=sys.stderr)
        if made.returncode == 0:
            subprocess.run([pypi.python, "-m", "pip", "install", "--quiet", *LIBRARIES],
                           check=False, stdout=sys.stderr)
        pypi = find_pypi(folder)
    subprocess.run([ROOT / "tools" / "install-packages", "peers"], check=False, stdout=sys.stderr)
    return {"PyPI": pypi, "Debian": find_debian()}


class Peer:
    """A library's way to do a row's work: a process that waits for its turn."""

    lacks = ""

    def __init__(self, python: pathlib.Path, kind: type, arguments: dict) -> None:
        self.name, self.python = kind.name, python
        self.process = subprocess.Popen(
            [python, "-I", libraries.__file__, kind.__name__, json.dumps(arguments)],
            env=os.environ | ONE_THREAD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.answer()  # when it has warmed up

    def answer(self) -> typing.Any:
        if line := self.process.stdout.readline():
            return json.loads(line)
        self.close()
        sys.exit(f"compare: {self.name} in {self.python} ended, status {self.process.returncode}")

    def take_turn(self) -> list:
        """Returns the seconds of a few runs."""
        with contextlib.suppress(BrokenPipeError):  # no answer says so
            print(file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


class MissingPeer:
    """Takes its turns, too, and has no seconds."""

    def __init__(self, origin: str, kind: type, lacks: str) -> None:
        self.name, self.version, self.lacks = kind.name, origin, lacks

    def take_turn(self) -> list:
        return []

    def close(self) -> None:
        pass


def peers_of(row: str, environments: dict) -> list:
    peers = []
    for _, kind, arguments, origins in (one for one in PEERS if one[0] == row):
        for origin in origins:
            python, lacks = environments[origin]
            peers.append(MissingPeer(origin, kind, lacks) if lacks
                         else Peer(python, kind, arguments))
    return peers


def ask_program(program: pathlib.Path, row: str) -> dict:
    command = [program, "bench", "kernels", "--only", row, "--format", "json", "--quiet"]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"compare: {process.stderr.strip()}")
    return json.loads(process.stdout)


def compare(program: pathlib.Path, row: str, peers: list, rounds: int) -> tuple:
    """Returns the row once for each peer, and the program's document without rows."""
    ours, samples = [], 0
    theirs = [[] for _ in peers]
    for _ in range(rounds):
        document = ask_program(program, row)
        (figure,) = [one for one in document.pop("rows") if one["name"] == row]
        ours.append(figure["value"])
        samples += figure["samples"]
        for peer, seconds in zip(peers, theirs):
            seconds += peer.take_turn()
    value = statistics.median(ours)
    figure |= {"value": value, "samples": samples, "spread": (max(ours) - min(ours)) / value}
    return [with_peer(figure, peer, seconds) for peer, seconds in zip(peers, theirs)], document


def with_peer(figure: dict, peer, seconds: list) -> dict:
    value = statistics.median(seconds) if seconds else None
    row = figure | {"peer": {"name": peer.name, "version": peer.version, "value": value},
                    "ratio": value / figure["value"] if seconds else None}
    return row | ({} if seconds else {"reason": peer.lacks})


def table(rows: list) -> str:
    lines = []
    for row in rows:
        its = row["peer"]
        ratio, theirs = "skipped", row.get("reason")
        if its["value"] is not None:
            ratio, theirs = f"{row['ratio']:.2f}x", f"{1e3 * its['value']:.3f} ms"
        lines.append(f"{row['name']:36} {1e3 * row['value']:9.3f} ms {ratio:>8}  "
                     f"{its['name']} {its['version']}: {theirs}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "terrace")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "venv-peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows with this in their names")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    wanted = [row for row in dict.fromkeys(one[0] for one in PEERS) if options.only in row]
    if not options.program.exists():
        sys.exit(f"compare: {options.program} is not there; run make first")
    if not wanted:
        sys.exit(f"compare: --only {options.only}: no row has that in its name")
    if options.rounds < 1:
        sys.exit(f"compare: --rounds {options.rounds}: give at least 1")

    environments = make_environments(options.venv.resolve())
    rows, document = [], {}
    for row in wanted:
        print(f"compare: {row}", file=sys.stderr)
        peers = peers_of(row, environments)
        compared, document = compare(options.program, row, peers, options.rounds)
        rows += compared
        for peer in peers:
            peer.close()
    if options.format == "json":
        print(json.dumps(document | {"rows": rows}, indent=2))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
