"""Other libraries' work for rows of `terrace bench kernels`, each in a process of its own.

    libraries.py FaissKmeans '{"dims": 64, "clusters": 64}'

compare.py runs this in an interpreter that has the library. It makes the data, warms up and says
its version; for each line it reads it works a few times and says how long each time took. All is
JSON, a line each. Peers do what the row says: the same sizes, standard normal rows, seeding, ten
iterations, final labels.
"""

import functools
import json
import operator
import pathlib
import re
import sys
import time

ROWS, CODES, HEAD_DIM = 32768, 131072, 128
RUNS_PER_TURN = 3


def faiss_version() -> str:
    """Returns "1.7.3 (Debian, OPTIMIZE GENERIC, openblas-pthread)"; PyPI's brings its BLAS."""
    import faiss

    debian = faiss.__file__.startswith("/usr/lib/python3/")
    options = " ".join(faiss.get_compile_options().split())
    blas = re.search(r"([^/]+)/libblas\.so", pathlib.Path("/proc/self/maps").read_text())
    build = ["Debian" if debian else "PyPI", options, *(blas.groups() if blas else ())]
    return f"{faiss.__version__} ({', '.join(build)})"


class FaissKmeans:
    """Spherical for the cosine metric, as FAISS has it: unit centroids by inner product."""

    name = "FAISS"
    version = staticmethod(faiss_version)

    def __init__(self, dims: int, clusters: int, spherical: bool = False) -> None:
        import numpy as np

        self.rows = np.random.default_rng(7).standard_normal((ROWS, dims), dtype=np.float32)
        self.dims, self.clusters, self.spherical = dims, clusters, spherical

    def run(self) -> None:
        import faiss

        kmeans = faiss.Kmeans(self.dims, self.clusters, niter=10, seed=8, spherical=self.spherical,
                              max_points_per_centroid=ROWS)
        kmeans.train(self.rows)
        kmeans.index.search(self.rows, 1)


class SklearnKmeans:
    name = "scikit-learn"

    def __init__(self, dims: int, clusters: int) -> None:
        import numpy as np

        self.rows = np.random.default_rng(7).standard_normal((ROWS, dims), dtype=np.float32)
        self.clusters = clusters

    @staticmethod
    def version() -> str:
        import sklearn

        return sklearn.__version__

    def run(self) -> None:
        from sklearn.cluster import KMeans

        KMeans(self.clusters, init="random", n_init=1, max_iter=10, tol=0, random_state=8,
               algorithm="lloyd").fit(self.rows)


class FaissPq:
    name = "FAISS"
    version = staticmethod(faiss_version)

    def __init__(self, count: int, subspaces: int = 2, bits: int = 6, heads: int = 1) -> None:
        import faiss
        import numpy as np

        random = np.random.default_rng(9)
        rows = random.standard_normal((CODES, HEAD_DIM), dtype=np.float32)
        self.queries = random.standard_normal((heads, HEAD_DIM), dtype=np.float32)
        self.index = faiss.IndexPQ(HEAD_DIM, subspaces, bits, faiss.METRIC_INNER_PRODUCT)
        self.index.train(rows[:8192])
        self.index.add(rows)
        self.count = count

    def run(self) -> None:
        self.index.search(self.queries, self.count)


class FaissPqGroup(FaissPq):
    """FAISS's tables, then softmax of each head, group sum and top-k in NumPy."""

    name = "FAISS scores in NumPy"

    def __init__(self, count: int, subspaces: int = 2, bits: int = 6) -> None:
        import faiss
        import numpy as np

        super().__init__(count, subspaces, bits, heads=4)
        packed = faiss.vector_to_array(self.index.codes).reshape(CODES, -1)
        unpacked = np.unpackbits(packed, axis=1, count=subspaces * bits, bitorder="little")
        codes = unpacked.reshape(CODES, subspaces, bits) @ (1 << np.arange(bits))
        self.codes = np.ascontiguousarray(codes.T).astype(np.intp)
        self.table_shape = 4, subspaces, 1 << bits

    def run(self) -> None:
        import faiss
        import numpy as np

        tables = np.empty(self.table_shape, dtype=np.float32)
        self.index.pq.compute_inner_prod_tables(4, faiss.swig_ptr(self.queries),
                                                faiss.swig_ptr(tables))
        weights = np.zeros(CODES, dtype=np.float32)
        for table in tables / np.sqrt(HEAD_DIM):
            logits = functools.reduce(operator.add, map(np.take, table, self.codes))
            powers = np.exp(logits - logits.max())
            weights += powers / powers.sum()
        np.argpartition(weights, CODES - self.count)[CODES - self.count:]


def seconds_of(peer) -> float:
    begin = time.perf_counter()
    peer.run()
    return time.perf_counter() - begin


def main(kind: str, arguments: str) -> None:
    peer = globals()[kind](**json.loads(arguments))
    peer.run()  # warms up
    print(json.dumps(peer.version()), flush=True)
    for _ in sys.stdin:
        print(json.dumps([seconds_of(peer) for _ in range(RUNS_PER_TURN)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
