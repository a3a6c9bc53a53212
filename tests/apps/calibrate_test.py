"""Checks `terrace calibrate`, and outlier heads in `terrace run`, on the bundled model."""

import json
import pathlib

from program import InAFolder, run_json, terrace

SMALL = ("--window", 256, "--windows", 3)


class Calibrate(InAFolder):
    def calibrate(self, *arguments):
        process = terrace("calibrate", *SMALL, "--format", "json", *arguments)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stderr, "")
        return json.loads(process.stdout)

    def test_says_the_share_of_each_head_and_writes_the_largest(self):
        target = self.folder / "heads.json"
        document = self.calibrate("--write", target)
        self.assertEqual(document["command"], "calibrate")
        self.assertEqual(document["text"]["windows"], 3)
        self.assertEqual(document["text"]["window_tokens"], 256)
        rows = document["rows"]
        self.assertEqual([(row["layer"], row["head"]) for row in rows],
                         [(layer, head) for layer in range(4) for head in range(2)])
        # Windows are equal, so that a quarter of all keys finds no match.
        self.assertAlmostEqual(sum(row["share"] for row in rows) / 8, document["quantile"],
                               delta=0.002)
        self.assertGreater(document["threshold"], 0)
        self.assertLess(document["threshold"], 1)
        (outlier,) = [row for row in rows if row["outlier"]]
        self.assertEqual(outlier["share"], max(row["share"] for row in rows))
        written = json.loads(target.read_text())
        self.assertEqual(written, {
            "format": "terrace outlier heads 1", "layers": 4, "kv_heads": 2,
            "threshold": document["threshold"],
            "heads": [{name: outlier[name] for name in ("layer", "head", "share")}]})

    def test_does_as_its_options_say(self):
        document = self.calibrate("--outlier-share", 0.4, "--quantile", 0.5)
        self.assertEqual(sum(row["outlier"] for row in document["rows"]), 3)
        self.assertAlmostEqual(sum(row["share"] for row in document["rows"]) / 8, 0.5, delta=0.002)
        chunks = self.calibrate("--quantile", 0.5, "--set", "retention.merge_chunk=16")
        self.assertLess(chunks["threshold"], document["threshold"])

    def test_prints_a_table(self):
        process = terrace("calibrate", *SMALL)
        self.assertEqual(process.returncode, 0, process.stderr)
        lines = process.stdout.splitlines()
        self.assertEqual(lines[-9].split(), ["layer", "head", "share"])
        self.assertEqual(sum(line.endswith("outlier") for line in lines[-8:]), 1)
        self.assertIn("3 windows of 256 tokens", process.stdout)

    def test_refuses_what_it_cannot_do_in_a_line(self):
        text = self.write("short.txt", "too short")
        for arguments, reason in (
                (("--window", 1), "--window 1: give 2 to"),
                (("--windows", 0), "--windows 0: give 1 to"),
                (("--quantile", 1), "--quantile 1: give a number between 0 and 1"),
                (("--outlier-share", "nan"), "--outlier-share nan: give a number"),
                (("--text", text), "give a longer text, or less --windows or --window"),
                (("--text", text, "--write", text), "--write"),
                (("--write", "/nowhere/heads.json"), "/nowhere")):
            process = terrace("calibrate", *arguments)
            self.assertNotEqual(process.returncode, 0, arguments)
            self.assertEqual(len(process.stderr.splitlines()), 1, process.stderr)
            self.assertIn(reason, process.stderr)

    def test_run_keeps_all_tokens_of_outlier_heads_and_no_more_entries(self):
        heads = self.folder / "heads.json"
        self.calibrate("--write", heads)
        job = ("--context", 512, "--decode", 4, "--policy", "chelsea", "--budget", 0.25, "--set",
               "retrieval.window_share=0.25")
        (plain,) = run_json(*job)["runs"]
        (with_outliers,) = run_json(*job, "--set", f"retention.outlier_heads={heads}")["runs"]
        self.assertAlmostEqual(with_outliers["entries_mean"], plain["entries_mean"], delta=1)
        kept = [run["retention"]["kept_mean"] for run in (plain, with_outliers)]
        # One of eight heads keeps some hundred tokens unchanged.
        self.assertGreater(kept[1], kept[0] + 20)

    def test_run_refuses_a_file_of_another_model(self):
        heads = self.write("heads.json", json.dumps(
            {"format": "terrace outlier heads 1", "layers": 32, "kv_heads": 8, "heads": []}))
        process = terrace("run", "--context", 64, "--decode", 1, "--policy", "chelsea", "--set",
                          f"retention.outlier_heads={heads}")
        self.assertEqual(process.returncode, 2)
        self.assertEqual(process.stderr.splitlines(), [
            f"terrace: retention.outlier_heads: {pathlib.Path(heads)}: is of a model with 32 "
            "layers of 8 KV heads, this one has 4 of 2: run terrace calibrate on it"])
