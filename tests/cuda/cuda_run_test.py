"""The whole program on the backend for CUDA. Each class is one test."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "apps"))

from program import run_json, terrace

SMALL = ["--context", 120, "--decode", 4, "--policy", "all", "--budget", 48,
         "--cache-tokens", 64]


class SameAsTheHost(unittest.TestCase):
    """The figures of the two backends for the same text. Sums are taken in another order, so what a
    model predicts differs by little, and a selection by a row now and then; what crosses the link
    otherwise is the same to the byte."""

    @classmethod
    def setUpClass(cls):
        cls.runs = {
            backend: run_json("--backend", backend, *SMALL)["runs"]
            for backend in ("host", "cuda")
        }

    def pairs(self):
        self.assertEqual(len(self.runs["host"]), len(self.runs["cuda"]))
        for host, cuda in zip(self.runs["host"], self.runs["cuda"]):
            with self.subTest(policy=host["policy"]):
                yield host, cuda

    def test_the_text_costs_as_many_bits(self):
        for host, cuda in self.pairs():
            self.assertAlmostEqual(cuda["bits_per_token"], host["bits_per_token"], delta=0.05)

    def test_as_much_is_attended_to(self):
        for host, cuda in self.pairs():
            self.assertEqual(cuda["budget_tokens"], host["budget_tokens"])
            self.assertEqual(cuda["attended_tokens_mean"], host["attended_tokens_mean"])
            self.assertAlmostEqual(cuda["attention_mass"], host["attention_mass"], delta=0.02)

    def test_rows_that_do_not_depend_on_a_selection_cross_the_link_alike(self):
        for host, cuda in self.pairs():
            self.assertEqual(cuda["bytes"]["offload"], host["bytes"]["offload"])
            self.assertEqual(cuda["bytes"]["index"], host["bytes"]["index"])

    def test_the_oracle_finds_everything(self):
        for _, cuda in self.pairs():
            if cuda["policy"] == "oracle":
                self.assertGreater(cuda["recall"], 0.999)

    def test_the_device_multiplies(self):
        for _, cuda in self.pairs():
            self.assertIn(cuda["gemm"], ("cuBLAS", "own kernels"))

    def test_times_are_measured(self):
        for _, cuda in self.pairs():
            self.assertGreater(cuda["seconds"]["attend"], 0)
            self.assertGreater(cuda["seconds"]["model"], 0)


class Choice(unittest.TestCase):
    def test_the_device_is_found(self):
        process = terrace("doctor")
        self.assertIn("cuda_device", process.stdout)


class Ops(unittest.TestCase):
    def test_each_op_gives_what_the_host_gives(self):
        process = terrace("bench", "kernels", "--backend", "cuda", "--quick", "--only", "n16384",
                          "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        rows = json.loads(process.stdout)["rows"]
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertIsNotNone(row["value"], row)


class Link(unittest.TestCase):
    def test_every_row_of_the_device_has_a_figure(self):
        process = terrace("bench", "pcie", "--quick", "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        for row in json.loads(process.stdout)["rows"]:
            if not row["name"].endswith("_far"):  # few machines have such memory
                self.assertIsNotNone(row["value"], row)


if __name__ == "__main__":
    unittest.main()
