"""Checks `terrace bench serving`: each row has a figure, and outputs were right."""

import json
import pathlib
import tempfile
import unittest

from program import run_json, terrace


class Serving(unittest.TestCase):
    def bench(self, *arguments):
        process = terrace("bench", "serving", "--quick", "--format", "json", *arguments)
        self.assertEqual(process.returncode, 0, process.stderr + process.stdout)
        self.document = json.loads(process.stdout)
        self.assertEqual(self.document["command"], "bench serving")
        return {row["name"]: row for row in self.document["rows"]}

    def test_every_row_has_a_figure(self):
        rows = self.bench("--policy", "pqcache,wave", "--sequences", "1,8", "--context", 800)
        expected = {"serving_threads_b1", "serving_threads_b3"}  # as many as are measured
        for policy in ("pqcache", "wave"):
            expected |= {f"serving_prompt_n600_{policy}", f"serving_step_beside_a_piece_{policy}",
                         f"serving_step_while_indexing_{policy}"}
            for what in ("step", "device_bytes", "outside_kernels"):
                expected |= {f"serving_{what}_b{count}_n600_{policy}" for count in (1, 3)}
        self.assertEqual(set(rows), expected)
        for name, row in rows.items():
            # A quick index may be there before a step beside it has ended.
            if "while_indexing" in name and row["value"] is None:
                self.assertIn("before a step", row["reason"])
                continue
            self.assertGreater(row["value"], 0, row)
            self.assertEqual(row["better"], "lower")
            self.assertEqual(row["ratio"] is None, row["peer"] is None)
        step = rows["serving_step_b3_n600_wave"]
        self.assertEqual((step["unit"], step["peer"]["name"]), ("s", "one sequence alone"))
        self.assertAlmostEqual(step["ratio"], step["peer"]["value"] / step["value"])
        for key, value in (("shape", "llama-3.1-8b"), ("layers", 1), ("query_heads", 32),
                           ("policy", "wave"), ("sequences", 3), ("context", 600), ("steps", 4)):
            self.assertEqual(step["parameters"][key], value)
        self.assertEqual(rows["serving_prompt_n600_wave"]["peer"]["name"], "one piece")
        beside = rows["serving_step_beside_a_piece_wave"]
        self.assertEqual((beside["unit"], beside["parameters"]["sequences"]), ("ratio", 3))
        self.assertEqual(beside["samples"], 9)  # three prompts of three pieces
        for part in ("seconds_beside", "seconds_step", "seconds_piece"):
            self.assertGreater(beside["parameters"][part], 0)

    def test_quick_rows_are_named_by_what_is_measured(self):
        sizes = ("--sequences", "1,8,64", "--only", "device_bytes", "--shape", "tiny")
        long = self.bench("--context", 131072, *sizes)
        self.assertEqual(list(long), [f"serving_device_bytes_b{count}_n600_signs"
                                      for count in (1, 3)])
        for name, row in long.items():
            self.assertIn(f"_b{row['parameters']['sequences']}_n{row['parameters']['context']}_",
                          name)
        short = self.bench("--context", 500, *sizes)
        self.assertIn("serving_device_bytes_b3_n500_signs", short)
        table = terrace("bench", "serving", "--quick", "--context", 131072, *sizes).stdout
        self.assertIn("serving_device_bytes_b3_n600_signs (quick)", table)
        self.assertNotIn("131072", table)

    def test_given_prompts_have_no_attention(self):
        rows = self.bench("--prompt", "given", "--policy", "pqcache", "--sequences", "1,3",
                          "--shape", "tiny")
        self.assertEqual({row["parameters"]["prompt"] for row in rows.values()}, {"given"})
        beside = rows.pop("serving_step_beside_a_piece_pqcache")
        self.assertIsNone(beside["value"])
        self.assertIn("prompts are given", beside["reason"])
        for name in ("serving_prompt_n600_pqcache", "serving_step_b3_n600_pqcache"):
            self.assertGreater(rows[name]["value"], 0)

    def test_a_question_behind_a_prefix_that_is_kept(self):
        name = "serving_question_behind_prefix_n600_pqcache"
        common = ("--prefix", "--shape", "tiny", "--sequences", "1", "--only", "prefix")
        with tempfile.TemporaryDirectory() as folder:
            kept = ("--set", "tier.model=weights", "--set", f"tier.nvme.path={folder}/rows",
                    "--set", "tier.nvme.bytes=64MiB")
            for prompt in ("computed", "given"):
                row = self.bench(*common, *kept, "--policy", "pqcache", "--prompt", prompt)[name]
                self.assertGreater(row["value"], 0, row)
                self.assertEqual(row["peer"]["name"], "without the prefix")
                parameters = row["parameters"]
                self.assertEqual(parameters["found"], 512)
                self.assertGreater(parameters["bytes_read"], 0)
                self.assertGreater(parameters["publish_seconds"], 0)
            full = self.bench("--policy", "full", *common, *kept)
            self.assertIn("no prefixes are kept", full[name.replace("pqcache", "full")]["reason"])
        none = terrace("bench", "serving", "--quick", *common)
        self.assertIn("--prefix: no prompt is kept; name tier.model", none.stderr)

    def test_threads_do_not_grow_with_sequences(self):
        rows = self.bench("--sequences", "1,3", "--only", "threads", "--shape", "tiny")
        one, three = (rows[f"serving_threads_b{count}"] for count in (1, 3))
        self.assertEqual(three["parameters"]["sequences"], 3)
        self.assertEqual(one["value"], three["value"])
        self.assertLessEqual(three["value"], 8)

    def test_a_models_folder_has_its_shape(self):
        model = run_json("--context", 64, "--decode", 1, "--policy", "full")["model"]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)  # without weights
            (folder / "config.json").write_text((pathlib.Path(model) / "config.json").read_text())
            only = ("--only", "step_b2", "--sequences", 2, "--layers", 3, "--policy", "streaming")
            of_folder = self.bench("--model", folder, *only)["serving_step_b2_n600_streaming"]
            of_shape = self.bench("--shape", "tiny", *only)["serving_step_b2_n600_streaming"]
        for row in (of_folder, of_shape):
            row["parameters"].pop("shape")
            row["parameters"].pop("one_by_one_seconds")
        self.assertEqual(of_folder["parameters"], of_shape["parameters"])
        self.assertEqual(of_shape["parameters"]["layers"], 3)

    def test_the_table_names_the_shape(self):
        process = terrace("bench", "serving", "--quick", "--only", "step_b1", "--shape",
                          "qwen3-0.6b", "--budget", 128)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("qwen3-0.6b: 16 query heads, 8 KV heads of 128, f16", process.stdout)
        self.assertIn("one sequence alone", process.stdout)

    def test_what_fails_says_why(self):
        process = terrace("bench", "serving", "--quick", "--only", "step_b1", "--device-memory",
                          "1MiB", "--format", "json")
        self.assertEqual(process.returncode, 1, process.stderr)
        row = json.loads(process.stdout)["rows"][0]
        self.assertIsNone(row["value"])
        self.assertIn("memory", row["reason"])

    def test_what_is_wrong_ends_in_one_line(self):
        for words, arguments in (
                ("known are llama-3.1-8b", ("--shape", "llama-9")),
                ("--layers 33", ("--layers", 33)), ("--layers 0", ("--layers", 0)),
                ("1,64", ("--sequences", "1,x")), ("1,64", ("--sequences", "0")),
                ("--context 0", ("--context", 0)), ("--steps 0", ("--steps", 0)),
                ("--prefill-chunk 0", ("--prefill-chunk", 0)),
                ("--prompt", ("--prompt", "guessed")),
                ("known are", ("--policy", "pqcash")), ("--only", ("--only", "fly")),
                ("config.json", ("--model", "/nowhere"))):
            process = terrace("bench", "serving", "--quick", *arguments)
            self.assertIn(process.returncode, (1, 2), arguments)
            self.assertEqual(process.returncode, 1 if "--model" in arguments else 2, arguments)
            self.assertEqual((process.stdout, process.stderr.count("\n")), ("", 1), process.stderr)
            self.assertIn(words, process.stderr)


if __name__ == "__main__":
    unittest.main()
