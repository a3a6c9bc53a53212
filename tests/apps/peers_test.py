"""bench/peers/compare.py with made-up programs and libraries, and with those of this machine where
they are: nothing is installed. Each class is one test."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from program import assert_refuses, terrace

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"
sys.path.insert(0, str(PEERS))
import compare  # noqa: E402
import libraries  # noqa: E402

ROW = "kmeans_l2_n32768_d64_k64_i10"
LACKING = {"PyPI": compare.Environment(pathlib.Path("/nowhere"), "no network"),
           "Debian": compare.Environment(pathlib.Path("/nowhere"), "no apt")}
# Answers with 4, 2 and 3 ms in turn, and writes down that it was asked.
PROGRAM = """
import json, pathlib, sys
log = pathlib.Path(sys.argv[0]).with_name("log")
asked = log.read_text().split().count("program") if log.exists() else 0
log.open("a").write("program ")
row = {"name": sys.argv[sys.argv.index("--only") + 1], "value": [0.004, 0.002, 0.003][asked % 3],
       "samples": 10, "spread": 0.5, "peer": None, "ratio": None}
print(json.dumps({"command": "bench kernels", "rows": [row, row | {"name": "another"}]}))
"""
LIBRARY = """
import sys
print('"1.0 (made up)"', flush=True)
for _ in sys.stdin:
    print("[0.3, 0.1, 0.2]", flush=True)
"""


def script(path, text):
    """Returns the path of a program in Python."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


class MadeUpPeer:
    lacks = ""

    def __init__(self, name, seconds, log):
        self.name, self.version, self.seconds, self.log = name, "1.0", seconds, log

    def take_turn(self):
        with self.log.open("a") as log:
            log.write(f"{self.name} ")
        return self.seconds


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = script(self.folder / "program", PROGRAM)

    def main(self, *arguments):
        """Returns the output of compare.py if no library can be installed."""
        with (mock.patch.object(compare, "make_environments", lambda folder: LACKING),
              mock.patch.object(sys, "argv", ["compare", "--program", str(self.program),
                                              "--rounds", "1", *arguments]),
              contextlib.redirect_stdout(io.StringIO()) as printed,
              contextlib.redirect_stderr(io.StringIO())):
            compare.main()
        return printed.getvalue()

    def test_all_take_turns_and_a_figure_is_the_median(self):
        log = self.folder / "log"
        peers = [MadeUpPeer("a", [0.006, 0.001, 0.009], log), MadeUpPeer("b", [0.0015], log)]
        (a, b), document = compare.compare(self.program, ROW, peers, rounds=3)
        self.assertEqual(log.read_text(), "program a b " * 3)
        self.assertEqual(document, {"command": "bench kernels"})
        for row in (a, b):
            self.assertEqual((row["name"], row["value"], row["samples"]), (ROW, 0.003, 30))
            self.assertAlmostEqual(row["spread"], 2 / 3)
            self.assertNotIn("reason", row)
        self.assertEqual(a["peer"], {"name": "a", "version": "1.0", "value": 0.006})
        self.assertEqual(b["peer"], {"name": "b", "version": "1.0", "value": 0.0015})
        self.assertAlmostEqual(a["ratio"], 2)
        self.assertAlmostEqual(b["ratio"], 0.5)
        self.assertEqual(compare.table([a, b]).splitlines(),
                         [f"{ROW:36}     3.000 ms    2.00x  a 1.0: 6.000 ms",
                          f"{ROW:36}     3.000 ms    0.50x  b 1.0: 1.500 ms"])

    def test_a_library_answers_from_its_own_process(self):
        python = script(self.folder / "python", LIBRARY)
        peer = compare.Peer(python, libraries.FaissKmeans, {"dims": 64, "clusters": 64})
        self.assertEqual((peer.name, peer.version), ("FAISS", "1.0 (made up)"))
        for _ in range(2):
            self.assertEqual(peer.take_turn(), [0.3, 0.1, 0.2])
        peer.close()
        self.assertEqual(peer.process.returncode, 0)

    def test_a_library_that_fails_is_one_line(self):
        python = script(self.folder / "python", "exit(3)")
        with self.assertRaisesRegex(SystemExit, "^compare: FAISS in .*python ended, status 3$"):
            compare.Peer(python, libraries.FaissPq, {"count": 1})

    def test_a_library_works_once_to_warm_up_and_then_when_asked(self):
        runs = []

        class Counting:
            def __init__(self, step):
                self.step = step

            def version(self):
                return "1.0"

            def run(self):
                runs.append(self.step)

        with (mock.patch.object(libraries, "Counting", Counting, create=True),
              mock.patch.object(sys, "stdin", io.StringIO("\n\n")),
              contextlib.redirect_stdout(io.StringIO()) as printed):
            libraries.main("Counting", '{"step": 5}')
        version, *turns = map(json.loads, printed.getvalue().splitlines())
        self.assertEqual(version, "1.0")
        self.assertEqual([len(turn) for turn in turns], [libraries.RUNS_PER_TURN] * 2)
        self.assertGreaterEqual(min(turns[0] + turns[1]), 0)
        self.assertEqual(runs, [5] * (1 + 2 * libraries.RUNS_PER_TURN))

    def test_what_cannot_be_had_has_a_row_that_says_why(self):
        rows = json.loads(self.main("--format", "json"))["rows"]
        self.assertEqual(len(rows), sum(len(origins) for *_, origins in compare.PEERS))
        for row in rows:
            lacking = LACKING[row["peer"]["version"]].lacks
            self.assertEqual((row["reason"], row["ratio"], row["peer"]["value"]),
                             (lacking, None, None))
            self.assertGreater(row["value"], 0)
        lines = self.main("--only", "pq_select_g4_n131072_m2").splitlines()
        self.assertEqual([line.split(" ms ")[1].split() for line in lines],
                         [[*"skipped FAISS scores in NumPy".split(), *why.split()]
                          for why in ("PyPI: no network", "Debian: no apt")])

    def test_each_faiss_has_the_same_rows(self):
        for row, kind, _, origins in compare.PEERS:
            faiss = kind.name.startswith("FAISS")
            self.assertEqual(origins, compare.BOTH if faiss else compare.PYPI, row)

    def test_what_is_not_there_is_lacking(self):
        lacking = compare.find_pypi(self.folder / "no-venv")
        self.assertRegex(lacking.lacks, "no faiss, sklearn in .*; pip install faiss-cpu ")
        python = script(self.folder / "python",
                        "import sys\nsys.exit(sys.argv[1:] != ['-I', '-c', 'import a'])")
        self.assertEqual(compare.find_environment(python, "a", "").lacks, "")
        self.assertEqual(compare.find_environment(python, "b", "get it").lacks,
                         f"no b in {python}; get it")

    def test_rows_and_their_sizes_are_the_programs(self):
        answer = terrace("bench", "kernels", "--quick", "--format", "json")
        rows = {row["name"]: row["parameters"] for row in json.loads(answer.stdout)["rows"]}
        for row, kind, arguments, _ in compare.PEERS:
            its = rows[row]
            if issubclass(kind, libraries.FaissPq):
                self.assertEqual((its["codes"], its["head_dim"]),
                                 (libraries.CODES, libraries.HEAD_DIM))
                self.assertEqual({"subspaces": 2, "bits": 6} | arguments,
                                 {"count": its["selected"], "subspaces": its["subspaces"],
                                  "bits": its["bits"]})
                self.assertEqual(its["query_heads"], 4 if kind is libraries.FaissPqGroup else 1)
            else:
                self.assertEqual(its["rows"], libraries.ROWS)
                self.assertEqual({"spherical": False} | arguments,
                                 {"dims": its["dims"], "clusters": its["clusters"],
                                  "spherical": its["metric"] == "cosine"})

    def test_what_is_wrong_ends_in_one_line(self):
        for word, *arguments in (("fly", "--only", "fly"), ("--rounds 0", "--rounds", "0"),
                                 ("/nowhere", "--program", "/nowhere")):
            assert_refuses(self, PEERS / "compare.py", word, "--program", self.program, *arguments)
        failing = script(self.folder / "failing", "exit('terrace: no')")
        with self.assertRaisesRegex(SystemExit, "^compare: terrace: no$"):
            compare.compare(failing, ROW, [], rounds=1)


class RealPeer:
    """Runs a row against the libraries of an environment, if it is there."""

    def test_a_row(self):
        environment = self.find()
        if environment.lacks:
            self.skipTest(environment.lacks)
        with tempfile.TemporaryDirectory() as name:
            program = script(pathlib.Path(name) / "program", PROGRAM)
            peers = compare.peers_of(ROW, LACKING | {self.origin: environment})
            rows, _ = compare.compare(program, ROW, peers, rounds=1)
            for peer in peers:
                peer.close()
        there = [row for row in rows if "reason" not in row]
        self.assertEqual([row["peer"]["name"] for row in there], self.names)
        self.assertRegex(there[0]["peer"]["version"], rf"^\d+\.\d+\.\d+ \({self.origin}, \w+")
        for row in there:
            self.assertGreater(row["ratio"], 0)


class PypiPeer(RealPeer, unittest.TestCase):
    origin, names = "PyPI", ["FAISS", "scikit-learn"]

    @staticmethod
    def find():
        return compare.find_pypi(compare.ROOT / "build" / "venv-peers")


class DebianPeer(RealPeer, unittest.TestCase):
    origin, names = "Debian", ["FAISS"]
    find = staticmethod(compare.find_debian)


if __name__ == "__main__":
    unittest.main()
