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

    def run_tool(self, *arguments, model=MODEL, stdin=None, text=True):
        return subprocess.run([sys.executable, TOOL, model, *map(str, arguments)],
                              capture_output=True, text=text, input=stdin)

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

    def test_every_byte_is_kept(self):
        text = b"\xef\xbb\xbfone\r\ntwo\rthree\n\n\x00\xff\x1a"
        (self.folder / "text.txt").write_bytes(text)
        self.assertEqual(self.encode(), list(text))
        back = self.run_tool("--decode", self.folder / "out.u32", text=False)
        self.assertEqual(back.stdout, text)

    def test_standard_input_is_a_dash(self):
        out = self.folder / "out.u32"
        self.assertEqual(self.run_tool("-", out, stdin=b"a\r\nb", text=False).returncode, 0)
        self.assertEqual(array.array("I", out.read_bytes()).tolist(), list(b"a\r\nb"))
        back = self.run_tool("--decode", "-", stdin=out.read_bytes(), text=False)
        self.assertEqual(back.stdout, b"a\r\nb")

    def fails(self, mentions, *arguments, **options):
        failed = self.run_tool(*arguments, **options)
        self.assertEqual(failed.returncode, 1)
        self.assertEqual(failed.stderr.count("\n"), 1, failed.stderr)
        for word in mentions.split("|"):
            self.assertIn(word, failed.stderr)

    def test_a_file_that_cannot_be_read_is_named_with_the_reason(self):
        out = self.folder / "out.u32"
        link = self.folder / "link"
        link.symlink_to("gone")
        for arguments in ((link, out), ("--decode", link)):
            self.fails(f"{link}: cannot be read: is a link to gone", *arguments)
        self.fails("Is a directory", self.folder, out)
        self.fails("/proc/self/mem: cannot be read: Input/output error", "/proc/self/mem", out)
        self.fails("No such file", "/nowhere", out)
        self.fails("/nowhere/config.json: cannot be read", "/nowhere", out, model="/nowhere")
        (self.folder / "config.json").write_text("[]")
        self.fails("config.json: holds no JSON object", "/dev/null", out, model=self.folder)

    def test_a_file_that_holds_no_ids_is_refused(self):
        ids = self.folder / "ids.u32"
        ids.write_bytes(b"12345")
        self.fails("5 bytes are no whole number", "--decode", ids)
        ids.write_bytes(array.array("I", [1, 256]).tobytes())
        self.fails("id 256 is outside", "--decode", ids)


unittest.main(argv=sys.argv[:1])
