"""Checks `terrace bench serving --headline`: its figures agree with each other, and with `size`."""

import json
import unittest

from program import terrace

ROW_BYTES, KV_HEADS, LAYERS = 2 * 64 * 2, 2, 4  # of shape tiny
SMALL = ("--shape", "tiny", "--quick", "--batches", "1,3", "--budget", 128)


class Headline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Room for one sequence of full: with three, its rows are streamed.
        cls.memory, cls.model_layers = 3_400_000, 7
        cls.rows = cls.headline("--policy", "full,pqcache,signs", "--model-layers",
                                cls.model_layers, "--model-device-memory", cls.memory)

    @staticmethod
    def headline(*arguments):
        process = terrace("bench", "serving", "--headline", *SMALL, "--format", "json", *arguments)
        assert process.returncode == 0, process.stderr + process.stdout
        return {row["name"].removeprefix("headline_"): row
                for row in json.loads(process.stdout)["rows"]}

    def points(self):
        """Each policy and batch, with its rows."""
        for policy in ("full", "pqcache", "signs"):
            for batch in (1, 3):
                yield policy, batch, {
                    kind: self.rows[f"{kind}_b{batch}_n600_{policy}"]
                    for kind in ("step", "step_fixed", "step_marginal", "cpu", "hit_rate",
                                 "link_bytes")}

    def test_as_many_sequences_fit_as_size_says(self):
        for policy in ("full", "pqcache", "signs"):
            row = self.rows[f"fits_n600_{policy}"]
            parameters = row["parameters"]
            room = self.memory - parameters["device_bytes_shared"]
            self.assertEqual(row["value"], room // parameters["device_bytes_sequence"], policy)
            for layers in (4, 2):
                self.assert_size_agrees(policy, layers)
        self.assertEqual(self.rows["fits_n600_full"]["value"], 1)
        self.assertGreater(self.rows["fits_n600_pqcache"]["value"], 1)

    def assert_size_agrees(self, policy, layers):
        only = ("--policy", policy, "--only", "fits", "--layers", layers)
        memory = ("--model-device-memory", self.memory, "--model-layers", LAYERS)
        rows = self.headline(*only, *memory)
        process = terrace("size", "--shape", "tiny", "--policy", policy, "--context", 600,
                          "--sequences", 1, "--prefill-chunk", 1, "--budget", 128,
                          "--device-memory", self.memory, "--format", "json")
        (sized,) = json.loads(process.stdout)["rows"]
        self.assertEqual(rows[f"fits_n600_{policy}"]["value"], sized["device"]["fits"])

    def test_fixed_and_marginal_cost_add_up_to_steps(self):
        for policy, batch, rows in self.points():
            marginal, fixed = (rows[f"step_{kind}"]["value"] for kind in ("marginal", "fixed"))
            step = rows["step"]
            few = step["parameters"]["few_layers"]
            self.assertEqual((few["layers"], step["parameters"]["layers"]), (1, LAYERS))
            self.assertAlmostEqual(fixed + LAYERS * marginal, step["value"] * batch * LAYERS, 9)
            self.assertAlmostEqual(fixed + marginal, few["p50"] * batch, 9, policy)
            self.assertGreaterEqual(step["parameters"]["p95"], step["value"])

    def test_tokens_follow_from_the_cost_of_as_many_sequences_as_fit(self):
        full = self.rows["tokens_per_second_n600_full"]
        for policy in ("full", "pqcache", "signs"):
            row = self.rows[f"tokens_per_second_n600_{policy}"]
            batch = min(int(self.rows[f"fits_n600_{policy}"]["value"]), 3)
            self.assertEqual(row["parameters"]["batch"], batch)
            fixed, marginal = (self.rows[f"step_{kind}_b{batch}_n600_{policy}"]["value"]
                               for kind in ("fixed", "marginal"))
            step = marginal * self.model_layers + fixed
            if step <= 0:  # steps of microseconds vary by more than a layer costs
                self.assertIsNone(row["value"])
                continue
            self.assertAlmostEqual(row["value"] * step / batch, 1)
            if policy != "full" and full["value"] is not None:
                self.assertEqual(row["peer"]["value"], full["value"])
                self.assertAlmostEqual(row["ratio"], row["value"] / full["value"])

    def test_bytes_of_the_link_are_those_of_the_rows_missed(self):
        for policy, batch, rows in self.points():
            link = rows["link_bytes"]["parameters"]
            parts = ("offload", "demand", "refill", "streamed", "index")
            self.assertAlmostEqual(rows["link_bytes"]["value"], sum(link[part] for part in parts))
            if policy == "full":
                self.assertIsNone(rows["hit_rate"]["value"])
                self.assertIn("no step", rows["hit_rate"]["reason"])
                continue
            hits = rows["hit_rate"]["parameters"]
            wanted = hits["rows_hit"] + hits["rows_missed"]
            self.assertAlmostEqual(rows["hit_rate"]["value"], hits["rows_hit"] / wanted)
            self.assertTrue(0 < rows["hit_rate"]["value"] < 1)
            tokens = batch * hits["steps"] * LAYERS
            self.assertAlmostEqual(link["demand"] * tokens, hits["rows_missed"] * ROW_BYTES)
            self.assertEqual(link["offload"], KV_HEADS * ROW_BYTES)
            self.assertGreater(link["index"], 0)
            self.assertEqual(link["streamed"], 0)

    def test_full_streams_what_does_not_fit(self):
        for batch, rows in ((1, "in place"), (3, "streamed")):
            step = self.rows[f"step_b{batch}_n600_full"]["parameters"]
            self.assertEqual((step["rows"], step["fits"]), (rows, batch == 1))
            link = self.rows[f"link_bytes_b{batch}_n600_full"]["parameters"]
            every_row = 600 * KV_HEADS * ROW_BYTES
            if batch == 1:
                self.assertEqual(link["streamed"], 0)
            else:
                self.assertTrue(0.5 * every_row < link["streamed"] < 1.1 * every_row, link)

    def test_times_and_bytes_have_their_parts(self):
        for policy, _, rows in self.points():
            cpu = rows["cpu"]["parameters"]
            self.assertAlmostEqual(rows["cpu"]["value"], cpu["attend"] + cpu["end"])
            self.assertLess(0, min(cpu["attend"], cpu["end"], cpu["begin"]))
            waits = rows["step"]["parameters"]["wait_seconds"]
            self.assertEqual(set(waits), {"rows", "compute", "refill", "index", "upload", "copy",
                                          "rest", "retention"})
            device = self.rows[f"device_bytes_n600_{policy}"]
            self.assertTrue(0.5 < device["value"] / device["parameters"]["predicted"] < 2, device)
            first = self.rows[f"ttft_n600_{policy}"]
            self.assertGreater(first["value"], first["parameters"]["prompt_seconds"] / 2)
            self.assertEqual(first["peer"] is None, policy == "full")
        self.assertGreater(
            self.rows["device_bytes_n600_signs"]["parameters"]["steps_until_window_passed"], 40)

    def test_nothing_fits_into_no_memory(self):
        rows = self.headline("--policy", "full,pqcache", "--only", "tokens_per_second",
                             "--model-device-memory", "64KiB")
        full, pqcache = (rows[f"tokens_per_second_n600_{policy}"] for policy in ("full", "pqcache"))
        self.assertEqual((full["parameters"]["fits"], full["parameters"]["rows"]), (0, "streamed"))
        self.assertIsNone(pqcache["value"])
        self.assertIn("not one sequence fits", pqcache["reason"])

    def test_what_is_wrong_ends_in_one_line(self):
        for words, arguments in (
                ("--headline", ("--model-layers", 3)), ("--headline", ("--context", "300,600")),
                ("--layers 1", ("--headline", "--layers", 1)),
                ("--layers 5", ("--headline", "--layers", 5)),
                ("--model-device-memory", ("--headline", "--model-device-memory", "much")),
                ("--context 600,x", ("--headline", "--context", "600,x")),
                ("--model-layers 2000", ("--headline", "--model-layers", 2000))):
            process = terrace("bench", "serving", "--shape", "tiny", "--quick", *arguments)
            self.assertEqual((process.returncode, process.stdout), (2, ""), arguments)
            self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
            self.assertIn(words, process.stderr)


if __name__ == "__main__":
    unittest.main()
