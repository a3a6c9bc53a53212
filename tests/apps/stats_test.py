"""`terrace stats` of a process that publishes its counters."""

import json
import pathlib
import tempfile
import unittest

from program import terrace

METRICS = """# HELP terrace_steps_total Steps.
# TYPE terrace_steps_total counter
terrace_steps_total 12
# TYPE terrace_wait_seconds_total counter
terrace_wait_seconds_total{reason="rows"} 0.25
"""


class Stats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "terrace.prom"

    def test_prints_what_a_process_publishes(self):
        self.file.write_text(METRICS)
        shown = terrace("stats", "--file", self.file)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r'(?m)^terrace_steps_total +12$')
        self.assertRegex(shown.stdout, r'(?m)^terrace_wait_seconds_total{reason="rows"} +0.250$')
        document = json.loads(terrace("stats", "--set", f"stats.file={self.file}",
                                      "--format", "json").stdout)
        self.assertEqual(document["rows"], [
            {"counter": "terrace_steps_total", "value": 12},
            {"counter": 'terrace_wait_seconds_total{reason="rows"}', "value": 0.25}])

    def test_says_that_the_process_is_away(self):
        away = terrace("stats", "--file", self.file)
        self.assertEqual(away.returncode, 1)
        self.assertIn("while it runs", away.stderr)
        self.assertIn(str(self.file), away.stderr)

    def test_names_the_line_of_another_file(self):
        self.file.write_text("terrace_steps_total 12\nsteps: many\n")
        other = terrace("stats", "--file", self.file)
        self.assertEqual(other.returncode, 1)
        self.assertIn(f"{self.file}:2", other.stderr)

    def test_a_run_publishes_in_the_file_and_removes_it(self):
        run = terrace("run", "--context", "512", "--decode", "4", "--policy", "signs",
                      "--set", f"stats.file={self.file}")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertFalse(self.file.exists())


if __name__ == "__main__":
    unittest.main()
