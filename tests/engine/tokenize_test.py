"""tools/tokenize.py on a model of bytes: what it plants is what its sidecar says."""

import array
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL, MODEL = sys.argv[1:3]
TEXT = "The tide follows the morning. " * 200


class TokenizeTool(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "text.txt").write_text(TEXT)

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, TOOL, MODEL, *map(str, arguments)],
                              capture_output=True, text=True)

    def encode(self, *arguments):
        out = self.folder / "out.u32"
        self.assertEqual(self.run_tool(self.folder / "text.txt", out, *arguments).returncode, 0)
        return array.array("I", out.read_bytes()).tolist()

    def test_text_comes_back(self):
        self.encode()
        self.assertEqual(self.run_tool("--decode", self.folder / "out.u32").stdout, TEXT)

    def test_statements_stand_where_the_sidecar_says(self):
        ids = self.encode("--needles", 4, "--seed", 7, "--context", 2000)
        sidecar = json.loads((self.folder / "out.needles.json").read_text())
        self.assertEqual((sidecar["version"], sidecar["context_tokens"]), (1, 2000))
        self.assertEqual(len(sidecar["needles"]), 4)
        planted = 0
        for needle in sidecar["needles"]:
            statement, answer = needle["statement"], needle["answer"]
            end = needle["position"] + len(statement)
            self.assertEqual(ids[needle["position"]:end], statement)
            self.assertLess(end, 2000)
            self.assertEqual(statement[-len(answer):], answer)
            digits = bytes(t for t, is_digit in zip(answer, needle["answer_is_digit"]) if is_digit)
            self.assertEqual(bytes(answer), b" " + digits + b".\n")
            planted += len(statement)
        self.assertEqual(len(ids), len(TEXT) + planted)

    def test_the_seed_decides(self):
        arguments = ("--needles", 4, "--context", 2000, "--seed")
        self.assertEqual(self.encode(*arguments, 1), self.encode(*arguments, 1))
        self.assertNotEqual(self.encode(*arguments, 1), self.encode(*arguments, 2))

    def test_a_short_text_is_one_line_of_error(self):
        failed = self.run_tool(self.folder / "text.txt", self.folder / "out.u32", "--needles", 1,
                               "--context", 100000)
        self.assertNotEqual(failed.returncode, 0)
        self.assertEqual(failed.stderr.count("\n"), 1)
        self.assertIn("--context 100000", failed.stderr)


unittest.main(argv=sys.argv[:1])
