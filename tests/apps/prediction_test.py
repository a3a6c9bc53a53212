"""bench/prediction/compare.py over the real program. Each class is one test."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

from program import PROGRAM, clean_environment

SCRIPT = pathlib.Path(__file__).parents[2] / "bench" / "prediction" / "compare.py"
SMALL = ["--context", "600", "--decode", "6", "--rounds", "1"]
# A link so slow that a cache pays for itself, even in a program that a sanitizer slows down.
SLOW, FAST = ("4MB/s", "20us"), ("1GB/s", "50us")


def compare(*arguments):
    return subprocess.run([sys.executable, SCRIPT, "--program", PROGRAM, *SMALL, *arguments],
                          env=clean_environment(), check=False, capture_output=True, text=True)


def names(link, *caches):
    return [f"predicted_seconds_per_token_{'_'.join(link)}_{cache}" for cache in caches]


class Prediction(unittest.TestCase):
    def rows(self, *arguments):
        answer = compare("--format", "json", *arguments)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        document = json.loads(answer.stdout)
        self.assertEqual(document["command"], "bench prediction")
        self.assertLessEqual({"terrace", "build", "machine"}, set(document))
        return document["rows"]

    def test_each_link_has_predictions_beside_what_was_measured(self):
        rows = self.rows("--rounds", "2", *[word for link in (SLOW, FAST)
                                            for word in ("--link", ",".join(link))])
        self.assertEqual([row["name"] for row in rows],
                         [name for link in (SLOW, FAST)
                          for name in names(link, "tuned", "other", "none")])
        for row in rows:
            its = row["parameters"]
            self.assertEqual((row["unit"], row["better"], row["samples"]), ("s", "lower", 2))
            self.assertEqual(row["peer"]["name"], "terrace run")
            ratios = [taken / said for taken, said in zip(its["measured"], its["predicted"])]
            self.assertTrue(all(map(math.isfinite, ratios)))
            self.assertAlmostEqual(row["ratio"], sum(ratios) / 2)
            self.assertAlmostEqual(row["spread"], abs(ratios[0] - ratios[1]))
            self.assertAlmostEqual(row["value"], sum(its["predicted"]) / 2)
            self.assertAlmostEqual(row["peer"]["value"], sum(its["measured"]) / 2)
            self.assertGreater(min(its["measured"] + its["predicted"]), 0)
            if its["cache"] == "none":
                self.assertEqual(its["policy"], ["none", "none"])
            elif its["bandwidth"] == SLOW[0]:
                self.assertNotIn("none", its["policy"])
        # The two rows are of the same recorded run: only the link differs.
        slow, fast = rows[2], rows[5]
        self.assertGreater(slow["value"], fast["value"])

    def test_what_is_predicted_is_what_is_run(self):
        with tempfile.TemporaryDirectory() as name:
            log, program = (pathlib.Path(name) / part for part in ("log", "program"))
            program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {PROGRAM} "$@"\n')
            program.chmod(0o755)
            self.rows("--program", program, "--link", ",".join(SLOW))
            record, *others = log.read_text().splitlines()
        self.assertRegex(record, "^run --context 600 --decode 6 .*--policy pqcache .*--trace ")
        self.assertNotIn("--link", record)
        self.assertEqual([line.split()[0] for line in others], ["tune", "run", "run", "run"])
        for line in others:
            self.assertIn(f"--link-bandwidth {SLOW[0]} --link-latency {SLOW[1]}", line)
        tuned, none, _ = others[1:]
        self.assertIn("--set cache.policy=none", none)
        self.assertRegex(tuned, r"--context 600 --decode 6 --config \S+ .*--set cache.tokens=\d+")

    def test_a_trace_of_clusters_has_the_other_unit_too(self):
        rows = self.rows("--policy", "wave", "--cache-granularity", "cluster", "--link",
                         ",".join(SLOW))
        self.assertEqual([row["name"] for row in rows], names(SLOW, "tuned", "other", "none"))
        units = [row["parameters"]["granularity"] for row in rows[:2]]
        self.assertNotEqual(*units)
        self.assertIn(["row"], units)

    def test_a_table_has_a_line_for_each_row(self):
        answer = compare("--link", ",".join(SLOW))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        figures = r" +[\d.]+ ms +[\d.]+ ms +[\d.]+ +[\d.]+$"
        self.assertRegex(answer.stdout, rf"(?m)^{SLOW[0]} {SLOW[1]} +tuned" + figures)
        self.assertRegex(answer.stdout, rf"(?m)^{SLOW[0]} {SLOW[1]} +none" + figures)
        self.assertEqual(len(answer.stdout.splitlines()), 4)

    def test_what_is_wrong_ends_in_one_line(self):
        for word, *arguments in (("fly", "--policy", "fly"), ("12ly", "--link", "1GB/s,12ly"),
                                 ("--link", "--link", "fast"), ("--rounds", "--rounds", "0"),
                                 ("/nowhere", "--program", "/nowhere")):
            answer = compare(*arguments)
            self.assertNotEqual(answer.returncode, 0)
            self.assertEqual(answer.stdout, "")
            self.assertIn(word, answer.stderr.splitlines()[-1])
            self.assertNotIn("Traceback", answer.stderr)


if __name__ == "__main__":
    unittest.main()
