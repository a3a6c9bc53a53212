#!/usr/bin/env python3
"""Holds rows of `terrace bench kernels` against FAISS, scikit-learn and NumPy on this machine.

    bench/peers/compare.py [--program build/release/bin/terrace] [--rounds 5] [--format text|json]

Program and peer take turns, one thread each; the figure is the median of all rounds. Peers do what
the row says: the same sizes, standard normal rows, seeding, ten iterations, final labels. Libraries
go into a virtual environment of their own, build/venv-peers.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARIES = ["faiss-cpu", "scikit-learn", "numpy"]
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
ROWS, CODES, HEAD_DIM = 32768, 131072, 128


def enter_environment(folder: pathlib.Path) -> None:
    """Goes on in a Python that has the libraries, on one thread."""
    python = folder / "bin" / "python"
    if pathlib.Path(sys.prefix) == folder:
        return
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *LIBRARIES], check=True)
    os.execve(python, [str(python), *sys.argv], os.environ | ONE_THREAD)


def faiss_name() -> tuple:
    import faiss

    return "FAISS", f"{faiss.__version__} ({faiss.get_compile_options().strip()})"


class FaissKmeans:
    """Spherical for the cosine metric, as FAISS has it: unit centroids by inner product."""

    def __init__(self, dims: int, clusters: int, spherical: bool = False) -> None:
        import numpy as np

        self.rows = np.random.default_rng(7).standard_normal((ROWS, dims), dtype=np.float32)
        self.dims, self.clusters, self.spherical = dims, clusters, spherical
        self.name, self.version = faiss_name()

    def run(self) -> None:
        import faiss

        kmeans = faiss.Kmeans(self.dims, self.clusters, niter=10, seed=8, spherical=self.spherical,
                              max_points_per_centroid=ROWS)
        kmeans.train(self.rows)
        kmeans.index.search(self.rows, 1)


class SklearnKmeans:
    def __init__(self, dims: int, clusters: int) -> None:
        import numpy as np
        import sklearn

        self.rows = np.random.default_rng(7).standard_normal((ROWS, dims), dtype=np.float32)
        self.clusters = clusters
        self.name, self.version = "scikit-learn", sklearn.__version__

    def run(self) -> None:
        from sklearn.cluster import KMeans

        KMeans(self.clusters, init="random", n_init=1, max_iter=10, tol=0, random_state=8,
               algorithm="lloyd").fit(self.rows)


class FaissPq:
    def __init__(self, count: int, heads: int = 1) -> None:
        import faiss
        import numpy as np

        random = np.random.default_rng(9)
        rows = random.standard_normal((CODES, HEAD_DIM), dtype=np.float32)
        self.queries = random.standard_normal((heads, HEAD_DIM), dtype=np.float32)
        self.index = faiss.IndexPQ(HEAD_DIM, 2, 6, faiss.METRIC_INNER_PRODUCT)
        self.index.train(rows[:8192])
        self.index.add(rows)
        self.count = count
        self.name, self.version = faiss_name()

    def run(self) -> None:
        self.index.search(self.queries, self.count)


class FaissPqGroup(FaissPq):
    """FAISS's tables, then softmax of each head, group sum and top-k in NumPy."""

    def __init__(self, count: int) -> None:
        import faiss
        import numpy as np

        super().__init__(count, heads=4)
        packed = faiss.vector_to_array(self.index.codes).reshape(CODES, -1).astype(np.uint16)
        joined = packed[:, 0] | packed[:, 1] << 8
        self.codes = [(joined & 63).astype(np.intp), (joined >> 6 & 63).astype(np.intp)]
        self.name = "FAISS scores in NumPy"

    def run(self) -> None:
        import faiss
        import numpy as np

        tables = np.empty((4, 2, 64), dtype=np.float32)
        self.index.pq.compute_inner_prod_tables(4, faiss.swig_ptr(self.queries),
                                                faiss.swig_ptr(tables))
        weights = np.zeros(CODES, dtype=np.float32)
        for table in tables / np.sqrt(HEAD_DIM):
            logits = table[0][self.codes[0]] + table[1][self.codes[1]]
            powers = np.exp(logits - logits.max())
            weights += powers / powers.sum()
        np.argpartition(weights, CODES - self.count)[CODES - self.count:]


PEERS = [
    ("kmeans_l2_n32768_d64_k64_i10", lambda: FaissKmeans(64, 64)),
    ("kmeans_l2_n32768_d64_k64_i10", lambda: SklearnKmeans(64, 64)),
    ("kmeans_l2_n32768_d64_k256_i10", lambda: FaissKmeans(64, 256)),
    ("kmeans_cosine_n32768_d128_k400_i10", lambda: FaissKmeans(128, 400, spherical=True)),
    ("pq_scan_topk_n131072_m2_b6_k1024", lambda: FaissPq(1024)),
    ("pq_scan_topk_n131072_m2_b6_k13107", lambda: FaissPq(13107)),
    ("pq_select_g4_n131072_m2_b6_k1024", lambda: FaissPqGroup(1024)),
]


def seconds_of(peer) -> float:
    begin = time.perf_counter()
    peer.run()
    return time.perf_counter() - begin


def ask_program(program: pathlib.Path, row: str) -> dict:
    command = [program, "bench", "kernels", "--only", row, "--format", "json", "--quiet"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def compare(program: pathlib.Path, row: str, peer, rounds: int) -> tuple:
    """Returns the row with its peer, and the program's document without rows."""
    ours, theirs, samples = [], [], 0
    peer.run()  # warms up
    for _ in range(rounds):
        document = ask_program(program, row)
        (figure,) = [one for one in document.pop("rows") if one["name"] == row]
        ours.append(figure["value"])
        samples += figure["samples"]
        theirs += [seconds_of(peer) for _ in range(3)]
    value, peer_value = statistics.median(ours), statistics.median(theirs)
    figure |= {"value": value, "samples": samples, "spread": (max(ours) - min(ours)) / value,
               "peer": {"name": peer.name, "version": peer.version, "value": peer_value},
               "ratio": peer_value / value}
    return figure, document


def table(rows: list) -> str:
    lines = [f"{row['name']:36} {1e3 * row['value']:9.3f} ms   {row['ratio']:6.2f}x  "
             f"{row['peer']['name']} {row['peer']['version']}: {1e3 * row['peer']['value']:.3f} ms"
             for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "terrace")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "venv-peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows with this in their names")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    if not options.program.exists():
        sys.exit(f"compare: {options.program} is not there; run make first")
    enter_environment(options.venv.resolve())

    rows, document = [], {}
    for name, make_peer in PEERS:
        if options.only not in name:
            continue
        print(f"compare: {name}", file=sys.stderr)
        row, document = compare(options.program, name, make_peer(), options.rounds)
        rows.append(row)
    if options.format == "json":
        print(json.dumps(document | {"rows": rows}, indent=2))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
