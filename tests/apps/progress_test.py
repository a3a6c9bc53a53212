"""The progress that a terminal is shown while a command works."""

import os
import pathlib
import pty
import subprocess
import tempfile
import unittest

from program import PROGRAM, clean_environment

BAR = r" \[#*-*\] \d+ %"


def shown(*arguments, kind="xterm"):
    """Returns what the program writes to a terminal; its results go elsewhere."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd="/",
                               env=clean_environment() | {"TERM": kind},
                               stdout=subprocess.DEVNULL, stderr=its_end)
    os.close(its_end)
    said = b""
    try:
        while some := os.read(terminal, 65536):
            said += some
    except OSError:  # the program has closed its end
        pass
    os.close(terminal)
    assert process.wait() == 0, said
    return said.decode()


class Terminal(unittest.TestCase):
    def test_a_run_shows_what_it_does(self):
        job = ("run", "--context", 4096, "--decode", 4, "--policy", "pqcache")
        said = shown(*job)
        for stage in ("full: prefill", "pqcache: prefill", "pqcache: prefill without clustering"):
            self.assertRegex(said, stage + BAR)
        self.assertNotIn("streaming", said)
        self.assertTrue(said.endswith("\r\033[K"), "the line is taken away")
        self.assertEqual(shown(*job, "-q"), "")

    def test_a_dumb_terminal_gets_no_control_characters(self):
        job = ("run", "--context", 1000, "--decode", 4, "--policy", "pqcache")
        self.assertRegex(shown(*job), "pqcache: prefill" + BAR)
        for kind in ("dumb", ""):
            self.assertEqual(shown(*job, kind=kind), "")

    def test_reading_a_trace_shows_how_far_it_is(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "trace"
            shown("run", "--context", 256, "--decode", 4, "--policy", "oracle", "--trace", trace,
                  "-q")
            self.assertRegex(shown("trace", "info", trace), f"{trace}: check" + BAR)
            self.assertEqual(shown("trace", "info", trace, "-q"), "")
            self.check_converting(trace, pathlib.Path(name))
            tune = ("tune", "--trace", trace, "--device-memory", "4MiB", "--policies", "lru")
            self.assertRegex(shown(*tune), "tune: searching" + BAR)
            self.assertEqual(shown(*tune, "-q"), "")

    def check_converting(self, trace, folder):
        requests = folder / "requests"
        requests.write_text('{"input_length": 600, "hash_ids": [7, 3]}\n')
        for source, form in ((trace, ()), (trace, ("--to", "csv")),
                             (requests, ("--from", "mooncake"))):
            convert = ("trace", "convert", source, folder / "out", *form)
            said = shown(*convert)
            self.assertRegex(said, f"{source}: convert{BAR}\r\033\\[K", "the line is taken away")
            self.assertEqual(shown(*convert, "-q"), "")


if __name__ == "__main__":
    unittest.main()
