"""bench/settings/compare.py over the real program. Each class is one test."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = os.environ["TERRACE_PROGRAM"]
SCRIPT = pathlib.Path(__file__).parents[2] / "bench" / "settings" / "compare.py"
SMALL = ["--context", "200", "--decode", "4", "--needles", "1", "--budget", "60"]


def compare(*arguments):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TERRACE_")}
    return subprocess.run([sys.executable, SCRIPT, "--program", PROGRAM, *SMALL, *arguments],
                          env=clean, check=False, capture_output=True, text=True)


class Settings(unittest.TestCase):
    def test_each_setting_is_a_row_of_its_own_figures(self):
        settings = ["pqcache", "pqcache,pq.bits=4", "pqcache,retrieval.sink_tokens=4"]
        answer = compare("--format", "json", *settings)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        rows = json.loads(answer.stdout)["rows"]
        self.assertEqual([row["setting"] for row in rows], settings)
        index = [row["figures"]["index kB"] for row in rows]
        self.assertLess(index[1], index[0])
        for row in rows:
            self.assertGreater(row["figures"]["mass"], 0)
            self.assertLessEqual(row["figures"]["rows"], 60)

    def test_estimates_are_counted_in_a_row_of_their_own(self):
        answer = compare("--format", "json", "--budget", "100", "wave")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        by_rows, by_entries = json.loads(answer.stdout)["rows"]
        self.assertEqual([by_rows["setting"], by_entries["setting"]],
                         ["wave", "wave, by all entries"])
        entries = [row["figures"]["rows"] + row["figures"]["others"]
                   for row in (by_rows, by_entries)]
        self.assertGreater(entries[0], 100)
        self.assertLess(entries[1], entries[0])

    def test_a_table_has_a_line_for_each_setting(self):
        answer = compare("streaming", "oracle")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertRegex(answer.stdout, r"(?m)^streaming +[+-]?\d")
        self.assertRegex(answer.stdout, r"(?m)^oracle +[+-]?\d")

    def test_a_key_that_does_not_exist_is_one_line(self):
        answer = compare("pqcache,no.such_key=1")
        self.assertEqual(answer.returncode, 1)
        self.assertIn("no.such_key", answer.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
