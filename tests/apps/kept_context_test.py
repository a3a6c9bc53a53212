"""`terrace run --save` and `--restore`: what a run has computed of a context, a later one reads."""

import pathlib
import tempfile
import unittest

from program import run_json, terrace

JOB = ("--context", 1100, "--decode", 4, "--policy", "full,signs,pqcache,streaming")
CHUNK = 256
KEPT = 1100 // CHUNK * CHUNK


class KeptContext(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "rows"

    def runs(self, *options):
        runs = run_json(*JOB, "--nvme", self.file, "--nvme-bytes", "64MiB", *options)["runs"]
        return {run["policy"]: run for run in runs}

    def test_a_later_process_begins_with_it(self):
        saved = self.runs("--save", "book")
        self.assertTrue(self.file.exists())
        # The policy that keeps all rows in device memory keeps none for later.
        self.assertEqual(saved["full"]["prefix"]["saved"]["tokens"], 0)
        for policy in ("signs", "pqcache", "streaming"):
            self.assertEqual(saved[policy]["prefix"]["saved"]["tokens"], KEPT, policy)
            self.assertTrue(saved[policy]["prefix"]["saved"]["indexed"], policy)
        # Rows are the same for all policies.
        self.assertEqual(saved["signs"]["prefix"]["saved"]["chunks"], KEPT // CHUNK)
        self.assertEqual(saved["pqcache"]["prefix"]["saved"]["chunks"], 0)
        restored = self.runs("--restore", "book")
        for policy in ("signs", "pqcache", "streaming"):
            self.assertEqual(restored[policy]["prefix"]["restored"]["tokens"], KEPT, policy)
            self.assertGreater(restored[policy]["prefix"]["restored"]["bytes_read"], 0)
        for policy in ("full", "signs", "streaming"):
            for key in ("bits_per_token", "attention_mass", "recall"):
                self.assertEqual(restored[policy][key], saved[policy][key], f"{policy}: {key}")
        other = self.runs("--restore", "another")
        self.assertEqual(other["signs"]["prefix"]["restored"]["tokens"], 0)

    def test_another_context_finds_what_is_the_same_of_it(self):
        self.runs("--save", "book")
        text = pathlib.Path(self.file.parent) / "text"
        text.write_text("something else entirely " * 200)
        other = self.runs("--restore", "book", "--text", text)
        self.assertEqual(other["signs"]["prefix"]["restored"]["tokens"], 0)

    def test_rows_are_kept_in_a_file(self):
        for flag in ("--save", "--restore"):
            process = terrace("run", *JOB, flag, "book")
            self.assertEqual(process.returncode, 2)
            self.assertIn("--nvme", process.stderr)


if __name__ == "__main__":
    unittest.main()
