"""`terrace run` with less host memory than rows take. Each class is one test."""

import pathlib
import tempfile
import unittest

from program import run_json, terrace

JOB = ("--context", 4096, "--decode", 8, "--policy", "signs,pqcache,streaming")


class RowsBelow(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "rows"

    def below(self, *options):
        return ("--nvme", self.file, "--nvme-bytes", "32MiB", "--host-memory", "8MiB", *options)

    def test_bits_are_the_same_and_the_file_is_gone_afterwards(self):
        # The usual unit of a cache depends on whether there is a tier below.
        blocks = ("--cache-granularity", "block")
        free, tight = (run_json(*JOB, *blocks, *options)["runs"] for options in ((), self.below()))
        for one, other in zip(free, tight):
            for key in ("bits_per_token", "recall", "attention_mass"):
                self.assertEqual(one[key], other[key], f"{one['policy']}: {key}")
            for key in ("offload", "demand", "refill"):
                self.assertEqual(one["bytes"][key], other["bytes"][key], key)
            self.assertIsNone(one["tiers"]["nvme"])
            self.assertLessEqual(other["memory"]["host_peak_bytes"], 8 << 20)
        moved = [run["tiers"]["nvme"] for run in tight]
        self.assertGreater(moved[0]["bytes_read"], 0)
        self.assertEqual(moved[2]["bytes_read"], 0, "streaming needs none of them")
        self.assertFalse(self.file.exists())

    def test_without_a_file_host_memory_runs_out_in_one_line(self):
        process = terrace("run", *JOB, "--host-memory", "4MiB")
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("host.memory", process.stderr.splitlines()[-1])

    def test_a_file_of_somebody_else_is_left_as_it_is(self):
        self.file.write_text("mine")
        process = terrace("run", *JOB, *self.below())
        self.assertNotEqual(process.returncode, 0)
        self.assertIn(str(self.file), process.stderr)
        self.assertEqual(self.file.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
