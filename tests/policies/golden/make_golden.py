"""Makes the golden traces and their hit counts.

    python3 -m venv peer && peer/bin/pip install libcachesim==0.3.5
    peer/bin/python make_golden.py [SELECTIONS.csv]

Traces are text, one unit a line. `selections` is layer 1 of a recorded run (`terrace trace convert
--to csv`), and is left unchanged if no run is given. Counts are libCacheSim's, item by item, every
unit of size 1; W-TinyLFU and last_steps, for which the peer has nothing equal, are not in it.
"""

import csv
import pathlib
import random
import struct
import sys
import tempfile

import libcachesim as peer

FOLDER = pathlib.Path(__file__).parent
REQUESTS = 6000
SIZES = (20, 50, 120)


def zipf(rng, units=600, skew=0.9):
    weights = [1 / (i + 1) ** skew for i in range(units)]
    return rng.choices(range(units), weights, k=REQUESTS)


def loop(_, length=70):
    return [i % length for i in range(REQUESTS)]


def drift(rng, spread=40):
    return [int(i / 60 + abs(rng.gauss(0, spread))) for i in range(REQUESTS)]


def selections(path):
    with open(path, encoding="utf-8") as file:
        units = [int(row["unit"]) for row in csv.DictReader(file) if row["layer"] == "1"]
    return units[:REQUESTS]


def reader_of(units, folder):
    """The peer's format with the time of the next request, which its Belady needs."""
    later, records = {}, []
    for time in range(len(units) - 1, -1, -1):
        records.append((time, units[time], 1, later.get(units[time], -1)))
        later[units[time]] = time
    path = pathlib.Path(folder) / "trace.oracleGeneral"
    path.write_bytes(b"".join(struct.pack("<IQIq", *record) for record in reversed(records)))
    return peer.TraceReader(str(path), peer.TraceType.ORACLE_GENERAL_TRACE,
                            peer.ReaderInitParam(ignore_obj_size=True))


def policies(size):
    return {
        "lru": peer.LRU(size),
        "lfu": peer.LFU(size),
        "sieve": peer.Sieve(size),
        "s3fifo": peer.S3FIFO(size, small_size_ratio=0.1, ghost_size_ratio=0.9,
                              move_to_main_threshold=2),
        "arc": peer.ARC(size),
        "belady": peer.Belady(size),
    }


def main():
    rng = random.Random(2024)
    for name, make in (("zipf", zipf), ("loop", loop), ("drift", drift)):
        (FOLDER / f"{name}.txt").write_text("\n".join(map(str, make(rng))) + "\n")
    if len(sys.argv) > 1:
        units = selections(sys.argv[1])
        (FOLDER / "selections.txt").write_text("\n".join(map(str, units)) + "\n")
    lines = ["trace,policy,slots,requests,hits"]
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(FOLDER.glob("*.txt")):
            units = [int(line) for line in path.read_text().split()]
            for size in SIZES:
                for name, cache in policies(size).items():
                    missed, _ = cache.process_trace(reader_of(units, folder))
                    hits = round(len(units) * (1 - missed))
                    lines.append(f"{path.stem},{name},{size},{len(units)},{hits}")
    (FOLDER / "hits.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
