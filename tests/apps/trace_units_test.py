"""Traces of caches of clusters and rows: replayed as recorded and as the other units, and tuned."""

import json
import pathlib
import shutil
import tempfile
import unittest

from program import run_json, terrace

SMALL = ("--context", 1024, "--decode", 24)


class Units(unittest.TestCase):
    """Runs of a policy with clusters: whichever unit is cached, the trace serves both."""

    OPTIONS = (*SMALL, "--policy", "clusterkv", "--set", "cache.admission=always")

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="terrace_clusters_"))
        cls.traces, cls.live = {}, {}
        for unit in ("block", "cluster"):
            cls.traces[unit] = cls.folder / f"{unit}.trace"
            cls.live[unit] = run_json(*cls.OPTIONS, "--cache-granularity", unit, "--trace",
                                      cls.traces[unit])["runs"][0]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def document(self, *arguments):
        process = terrace(*arguments, "--format", "json")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return json.loads(process.stdout)

    def refused(self, words, *arguments):
        process = terrace(*arguments)
        self.assertEqual((process.returncode, process.stdout), (2, ""))
        self.assertIn(words, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1)

    def test_a_trace_replays_the_run_and_one_of_the_other_granularity(self):
        for recorded, trace in self.traces.items():
            self.assertEqual(self.live[recorded]["cache"]["granularity"], recorded)
            self.assertGreater(self.live[recorded]["cache"]["hit_rate_tokens"], 0)
            as_it_was = self.document("trace", "replay", trace)
            self.assertEqual(as_it_was["cache"], self.live[recorded]["cache"])
            for asked, live in self.live.items():
                replayed = self.document("trace", "replay", trace, "--cache-granularity", asked)
                self.assertEqual(replayed["cache"], live["cache"])
                self.assertEqual(replayed["bytes"], live["bytes"])

    def test_what_a_trace_serves(self):
        for recorded, trace in self.traces.items():
            head = self.document("trace", "info", trace)["trace"]
            self.assertEqual(head["unit"], "token")
            self.assertEqual(head["granularities"], ["block", "cluster", "row"])
            self.assertEqual(head["cache_granularity"], recorded)
            blocks = self.folder / "blocks"
            self.assertEqual(terrace("trace", "convert", trace, blocks).returncode, 0)
            self.assertEqual(self.document("trace", "replay", blocks)["cache"],
                             self.live["block"]["cache"])
            head = self.document("trace", "info", blocks)["trace"]
            self.assertEqual((head["unit"], head["granularities"]), ("block", ["block"]))
            self.refused("no clusters to cache", "trace", "replay", blocks,
                         "--cache-granularity", "cluster")
            self.refused("clusters in blocks of 16", "trace", "replay", trace, "--block-tokens",
                         16, "--cache-granularity", "cluster")
            self.refused("--to csv", "trace", "convert", trace, self.folder / "more",
                         "--cache-granularity", "cluster")
            csv = self.folder / "csv"
            lines = {}
            for unit in self.traces:
                terrace("trace", "convert", trace, csv, "--to", "csv", "--cache-granularity", unit)
                lines[unit] = csv.read_text().count("\n")
            self.assertNotEqual(lines["block"], lines["cluster"])

    @staticmethod
    def tuning(trace, memory):
        return ("tune", "--trace", trace, "--device-memory", f"{memory}KiB", "--profile",
                "pcie5-h100")

    def test_tuning_finds_rows_and_its_config_does_what_was_predicted(self):
        for trace in self.traces.values():
            self.expect_prediction(self.tuning(trace, 1200), "row", {"block", "cluster", "row"})

    def test_tuning_searches_both_and_its_config_does_what_was_predicted(self):
        for trace in self.traces.values():
            # Each granularity is the better one with some amount of memory.
            tried = set()
            for memory in range(800, 1700, 50):
                # Rows are not for policies that choose among units.
                tune = (*self.tuning(trace, memory), "--policies", "lfu,lrfu,arc,s3fifo")
                better = self.document(*tune)["recommended"]["parameters"]["granularity"]
                if better not in tried:
                    self.expect_prediction(tune, better, {"block", "cluster"})
                    tried.add(better)
            self.assertEqual(tried, {"block", "cluster"})

    def expect_prediction(self, tune, better, searched):
        config = self.folder / "tuned.yaml"
        document = self.document(*tune, "--write-config", config)
        found = {row["parameters"]["granularity"] for row in document["rows"]}
        self.assertEqual(found, searched)
        best = document["recommended"]
        run = run_json(*SMALL, "--config", config)["runs"][0]
        self.assertEqual(run["cache"]["granularity"], better)
        self.assertEqual(run["cache"]["capacity_tokens"], best["parameters"]["cache_tokens"])
        self.assertEqual(run["bytes"]["demand"], best["demand_bytes"])
        self.assertEqual(run["bytes"]["refill"], best["refill_bytes"])
        self.assertEqual(run["cache"]["hit_rate_tokens"], best["hit_rate_tokens"])
        without = document["without_cache"]
        size = without["parameters"]["block_tokens"]
        run = run_json(*SMALL, "--config", config, "--set", "cache.policy=none", "--set",
                       "cache.granularity=block", "--set", f"kv.block_tokens={size}")["runs"][0]
        self.assertEqual(run["bytes"]["demand"], without["demand_bytes"])
        # The index lies on the device, as when the trace was recorded.
        self.assertEqual(run["bytes"]["index"], self.live["block"]["bytes"]["index"])
        named = {"cluster": ", clusters, ", "row": ", rows, ", "block": ", blocks of "}[better]
        self.assertRegex(terrace(*tune).stdout, f"(?m)^recommended: .*{named}.* ms a token$")


if __name__ == "__main__":
    unittest.main()
