"""Checks `terrace bench`: every row has a figure, and a profile is what `run` reads."""

import json
import pathlib
import re
import tempfile
import unittest

from program import run_json, terrace

KERNEL_ROWS = {
    "kmeans_l2_n32768_d64_k64_i10", "kmeans_l2_n32768_d64_k256_i10",
    "kmeans_cosine_n32768_d128_k400_i10", "pq_scan_topk_n131072_m2_b6_k1024",
    "pq_scan_topk_n131072_m2_b6_k13107", "pq_scan_topk_n131072_m4_b6_k1024",
    "pq_scan_topk_n131072_m4_b8_k1024", "pq_scan_topk_n131072_m8_b8_k1024",
    "pq_select_g4_n131072_m2_b6_k1024", "pq_select_g4_n131072_m4_b6_k1024",
    "channel_select_g4_n131072_r32", "sign_select_g4_n16384",
    "rests_g4_n16384_k1638", "pq_encode_n32768_d128_m2_b6",
    "cluster_select_g4_n32768_c2048_k1024",
    "decode_attention_g4_d128_f16_contiguous", "decode_attention_g4_d64_f16_gathered",
    "decode_attention_g4_d128_f16_contiguous_two_threads", "tile_attention_t64_n4096_g4_d128",
    "attention_weights_n3300_h8_g4_d128", "tile_weights_t512_n2048_g4_d128",
    "gather_rows_256B", "memory_read"}


class Help(unittest.TestCase):
    def test_each_word_of_a_rows_name_is_explained(self):
        policies = {"lrfu", "sieve", "fifo", "wtinylfu", "arc", "last", "steps", "belady"}
        for suite in ("kernels", "cache", "nvme", "pcie", "serving"):
            helped = terrace("bench", suite, "--help").stdout
            self.assertRegex(helped, "(?s)\nColumns:\n  value .*\n  peer .*\nRows:\n")
            known = set(re.findall("[a-z]+", helped)) | policies | {suite}
            runs = {"serving": [("--shape", "tiny"), ("--shape", "tiny", "--headline")],
                    "kernels": [(), ("--backend", "host")]}
            processes = [terrace("bench", suite, "--quick", "--format", "json", *arguments)
                         for arguments in runs.get(suite, [()])]
            names = [row["name"] for process in processes
                     for row in json.loads(process.stdout)["rows"]]
            words = {word for name in names for word in re.findall("[a-z]{3,}", name)}
            self.assertTrue(names)
            self.assertEqual(words - known, set(), suite)


class Kernels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.profile = pathlib.Path(folder.name) / "profile.yaml"

    def bench(self, *arguments):
        process = terrace("bench", "kernels", "--quick", "--format", "json", *arguments)
        self.assertEqual(process.returncode, 0, process.stderr)
        return json.loads(process.stdout)

    measured = None  # text of a profile: to measure one takes long

    def write_measured_profile(self):
        if Kernels.measured is None:
            self.bench("--only", "memory_read", "--write-profile", str(self.profile))
            Kernels.measured = self.profile.read_text()
        self.profile.write_text(Kernels.measured)

    def test_every_row_has_a_figure(self):
        document = self.bench()
        self.assertEqual(document["command"], "bench kernels")
        rows = {row["name"]: row for row in document["rows"]}
        self.assertLessEqual(KERNEL_ROWS, set(rows))
        for row in rows.values():
            self.assertGreater(row["value"], 0, row)
            self.assertIn(row["unit"], ("s", "B/s"))
            self.assertEqual(row["better"], "lower" if row["unit"] == "s" else "higher")
            self.assertEqual(row["ratio"] is None, row["peer"] is None)

    def test_ops_of_a_backend_have_figures_of_their_own(self):
        rows = {row["name"]: row for row in self.bench("--backend", "host")["rows"]}
        expected = {f"device_{op}_n{tokens}" for tokens in (16384, 131072)
                    for op in ("attend", "attend_selected", "attend_with_estimates", "pq_select",
                               "sign_select", "fetch")}
        self.assertEqual(set(rows), expected)
        for row in rows.values():
            self.assertGreater(row["value"], 0, row)
            self.assertEqual((row["unit"], row["better"]), ("B/s", "higher"))
        refused = terrace("bench", "kernels", "--backend", "host", "--write-profile",
                          str(self.profile))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("leave --backend out", refused.stderr)

    def test_a_profile_keeps_its_other_sections(self):
        self.profile.write_text("version: 1\nlink: {bandwidth: 2.5e+10, latency: 1e-05}\n")
        self.bench("--only", "memory_read", "--write-profile", str(self.profile))
        text = self.profile.read_text()
        for word in ("memory_read", "compute", "pqcache", "qpq", "clusterkv", "wave", "latency"):
            self.assertIn(word, text)
        self.assertEqual([path.name for path in self.profile.parent.iterdir()], ["profile.yaml"])

    def test_a_profile_of_another_machine_is_begun_anew(self):
        self.profile.write_text("version: 1\ncpu: another\nhost: {gather_rows_256B: 1.0e+9}\n"
                                "link: {bandwidth: 2.5e+10, latency: 1e-05}\n")
        self.bench("--only", "memory_read", "--write-profile", str(self.profile))
        text = self.profile.read_text()
        self.assertIn("memory_read", text)
        for word in ("another", "gather_rows", "latency"):
            self.assertNotIn(word, text)

    def test_a_profile_of_quick_figures_is_warned_of(self):
        self.profile.touch()  # as mktemp does: there is nothing in it to lose
        write = ("bench", "kernels", "--quick", "--only", "memory_read", "--write-profile",
                 self.profile)
        self.assertIn("warning: the kernels' figures in", terrace(*write).stderr)
        self.assertEqual(terrace(*write, "-q").stderr, "")

    def test_run_plans_by_the_profile(self):
        self.write_measured_profile()
        hour = re.sub(r"kmeans_iteration: \[.*\]", "kmeans_iteration: [3600, 0, 0]",
                      self.profile.read_text())
        self.profile.write_text(hour)
        process = terrace("run", "--context", "600", "--decode", "2", "--policy", "pqcache",
                          "--set", "planning.iterations=auto", "--profile", str(self.profile),
                          "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        clustering = json.loads(process.stdout)["runs"][0]["clustering"]
        self.assertTrue(clustering["planned"])
        # The fewest that auto may choose, or less where the prefill ended sooner.
        self.assertLessEqual(max(clustering["iterations"]), 3)
        self.assertEqual(clustering["costs"]["kmeans_iteration"][0], 3600)
        table = terrace("run", "--context", "600", "--decode", "2", "--policy", "pqcache",
                        "--set", "planning.iterations=auto", "--profile", str(self.profile), "-q")
        self.assertRegex(table.stdout, r"planned  pqcache: \d+, \d+, \d+, \d+ iterations, by\n")
        self.assertRegex(table.stdout, r"T_kmeans\(n, i\) = .* i \(3\.6e\+03 .*samples within")
        explained = terrace("config", "explain", "--set", f"profile={self.profile}",
                            "--format", "json")
        settings = json.loads(explained.stdout)["profile"]["settings"]
        self.assertIn(clustering["costs"], [setting["costs"] for setting in settings])
        self.assertEqual({plan["iterations"] for setting in settings
                          for plan in setting["plans"]}, {3})

    def test_a_plan_by_loose_fits_is_warned_of(self):
        self.write_measured_profile()
        text = re.sub(r"kmeans_iteration: \[.*\]", "kmeans_iteration: [3600, 0, 0]",
                      self.profile.read_text())
        run = ("run", "--context", "600", "--decode", "2", "--policy", "pqcache", "--profile",
               str(self.profile), "--set", "cache.policy=none")
        auto = (*run, "--set", "planning.iterations=auto")
        explain = ("config", "explain", "--profile", str(self.profile))

        def residuals(compute, offload, kmeans):
            self.profile.write_text(re.sub(
                r"residuals: \{.*\}",
                f"residuals: {{compute: {compute}, offload: {offload}, kmeans: {kmeans}}}", text))

        residuals(0.24, 0.31, 0.79)
        line = (r"terrace: warning: pqcache\S*: fits are loose, .*: T_offload within 31 %, "
                r"T_kmeans within 79 % of its samples; .*bench kernels --write-profile FILE\n")
        self.assertRegex(terrace(*auto).stderr, "^" + line + "$")
        said = terrace(*explain).stderr
        self.assertRegex(said, line.replace(r"pqcache\S*", "[^\n]*pqcache[^\n]*"))
        self.assertEqual(said.count("within 79 %"), said.count("\n"), "a line for each setting")
        for bench in (("quality", "--budget", "0.5,0.6", "--needles", "0"),
                      ("drift", "--turn-after", "4")):
            process = terrace("bench", *bench, "--context", "600", "--decode", "8", *auto[5:])
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertRegex(process.stderr, "^" + line + "$", "once")
        for silent in ((*auto, "-q"), (*explain, "-q"), run):
            self.assertEqual(terrace(*silent).stderr, "")
        residuals(0.25, 0.25, 0.25)
        for command in (auto, explain):
            self.assertEqual(terrace(*command).stderr, "")

    @staticmethod
    def another_level(isa):
        """Returns one that build and CPU have, too: where there is a choice, one that is fast."""
        for level in ("avx2", "avx512", "scalar"):
            brief = ("--context", "64", "--decode", "1", "--policy", "full")
            if level != isa and terrace("run", "--set", f"isa={level}", *brief).returncode == 0:
                return level
        return None

    def test_only_this_cpu_goes_by_the_profile(self):
        self.write_measured_profile()
        text = re.sub(r"kmeans_iteration: \[.*\]", "kmeans_iteration: [3600, 0, 0]",
                      self.profile.read_text())

        def run(profile):
            self.profile.write_text(profile)
            process = terrace("run", "--context", "600", "--decode", "2", "--policy", "pqcache",
                              "--set", "planning.iterations=auto", "--profile", str(self.profile),
                              "--format", "json")
            self.assertEqual(process.returncode, 0, process.stderr)
            document = json.loads(process.stdout)
            costs = document["runs"][0]["clustering"]["costs"]
            return document["machine"]["isa"], costs["kmeans_iteration"][0]

        isa, iteration = run(text)
        self.assertEqual(iteration, 3600)
        other = self.another_level(isa)
        if other is None:
            self.skipTest(f"this build has no level but {isa}")
        other_level = re.sub(r"\nisa: .*", f"\nisa: {other}", text)
        # The file's level is used, although the file has no fits for it.
        level, iteration = run(other_level)
        self.assertEqual(level, other)
        self.assertLess(iteration, 3600)
        level, _ = run(re.sub(r"\nisa: .*", "\nisa: none_such", text))
        self.assertEqual(level, isa)
        other_cpu = re.sub(r"\ncpu: .*", "\ncpu: another", other_level)
        level, iteration = run(other_cpu)
        self.assertEqual(level, isa)
        self.assertLess(iteration, 3600)

    def test_another_file_is_not_overwritten(self):
        self.profile.write_text("shopping: [milk]\n")
        process = terrace("bench", "kernels", "--quick", "--only", "memory_read",
                          "--write-profile", str(self.profile))
        self.assertEqual(process.returncode, 2)
        self.assertIn("shopping", process.stderr)
        self.assertEqual(self.profile.read_text(), "shopping: [milk]\n")

    def test_what_is_wrong_ends_in_one_line(self):
        for arguments in (("bench",), ("bench", "fly"), ("bench", "kernels", "--only", "fly"),
                          ("bench", "kernels", "--model", "nowhere")):
            process = terrace(*arguments)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1)


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The program says which policies there are: one that is new is checked, too.
        answer = terrace("run", "--policy", "oracle", "--cache", "unheard-of")
        known = re.search(r"\(known are none, (.*)\)", answer.stderr)[1].split(", ")
        cls.policies = [*known, "belady"]  # which no run can have

    def bench(self, *arguments):
        process = terrace("bench", "cache", "--quick", "--format", "json", *arguments)
        self.assertEqual(process.returncode, 0, process.stderr)
        return {row["name"]: row for row in json.loads(process.stdout)["rows"]}

    def test_every_policy_has_its_rows(self):
        rows = self.bench()
        for policy in self.policies:
            if policy == "belady":
                continue
            touch = rows[f"cache_touch_{policy}"]
            self.assertGreater(touch["value"], 0)
            self.assertGreater(touch["parameters"]["state_bytes_per_key"], 0)
            # The cache keeps 16 bytes of its own for a unit, admission by refill as many.
            memory = rows[f"cache_memory_{policy}"]
            self.assertGreater(memory["value"],
                               touch["parameters"]["state_bytes_per_key"] + 32)
            replayed = rows[f"cache_replay_{policy}"]
            self.assertIs(replayed["parameters"]["truncated"], False)
            self.assertGreater(replayed["value"], 0)
            self.assertGreater(replayed["parameters"]["hit_rate_units"], 0.3)
        self.assertIsNotNone(rows["cache_touch_lru"]["ratio"])
        self.assertNotIn("cache_touch_belady", rows)

    def test_hit_rates_stand_beside_the_textbook_and_below_the_bound(self):
        rows = self.bench("--only", "hit_rate")
        for times in ("1x", "2x", "1x_selected", "2x_selected"):
            lru = rows[f"cache_hit_rate_lru_{times}"]
            itemwise = rows[f"cache_hit_rate_itemwise_lru_{times}"]
            belady = rows[f"cache_hit_rate_belady_{times}"]
            self.assertEqual(lru["peer"]["value"], itemwise["value"])
            # A cache of one step's units is where taking them one after the other hurts.
            self.assertGreater(lru["value"], itemwise["value"] + (0.1 if times == "1x" else 0))
            # A step wants a few tokens of each of its blocks.
            self.assertLessEqual(rows[f"cache_hit_rate_lru_{times[:2]}_selected"]["parameters"]
                                 ["cache_tokens"], lru["parameters"]["cache_tokens"])
            self.assertTrue(belady["parameters"]["offline"])
            bound = belady["parameters"]["hit_rate_tokens_bound"]
            wanted = None
            for name in (*self.policies, "itemwise_lru"):
                row = rows[f"cache_hit_rate_{name}_{times}"]
                self.assertEqual((row["unit"], row["better"]), ("share", "higher"))
                self.assertLessEqual(row["parameters"]["hit_rate_units"],
                                     belady["parameters"]["hit_rate_units"])
                self.assertLessEqual(row["value"], bound + 1e-9)
                # All want the same rows: what they miss is fetched.
                total = row["parameters"]["demand_bytes"] / (1 - row["value"])
                self.assertAlmostEqual(total / (wanted or total), 1)
                wanted = total
                self.assertGreater(row["parameters"]["refill_bytes"], 0)
            self.assertGreater(rows["cache_hit_rate_lru_2x"]["value"],
                               rows["cache_hit_rate_lru_1x"]["value"])

    def test_no_policy_passes_the_bound_of_clusters(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "t"
            process = terrace("run", "--context", 600, "--decode", 12, "--policy", "wave",
                              "--cache-granularity", "cluster", "--trace", trace)
            self.assertEqual(process.returncode, 0, process.stderr)
            rows = self.bench("--only", "hit_rate", "--trace", trace)
            for times in ("1x", "2x"):
                belady = rows[f"cache_hit_rate_belady_{times}"]
                for policy in self.policies:
                    self.assertLessEqual(rows[f"cache_hit_rate_{policy}_{times}"]["value"],
                                         belady["parameters"]["hit_rate_tokens_bound"] + 1e-9)

    def test_a_trace(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "t"
            process = terrace("run", "--context", 600, "--decode", 4, "--policy", "oracle",
                              "--trace", trace)
            self.assertEqual(process.returncode, 0, process.stderr)
            row = self.bench("--trace", trace, "--only", "replay_lru")["cache_replay_lru"]
            self.assertEqual(row["parameters"]["trace"], str(trace))
            self.check_a_capacity(trace)
            self.check_the_model(trace)
        self.assertEqual(terrace("bench", "cache", "--trace", "/nowhere").returncode, 1)

    def check_the_model(self, trace):
        model = run_json("--context", 64, "--decode", 1, "--policy", "full")["model"]
        self.bench("--only", "replay_lru", "--trace", trace, "--model", model)
        other = trace.parent / "model"
        other.mkdir()
        (other / "config.json").write_text("{}")
        for words, options in (("another model", ("--trace", trace, "--model", other)),
                               ("--model goes with --trace", ("--model", model))):
            refused = terrace("bench", "cache", "--quick", *options)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertIn(words, refused.stderr)
            self.assertEqual(refused.stderr.count("\n"), 1)

    def check_a_capacity(self, trace):
        hit_rates = ("--trace", trace, "--only", "hit_rate", "--cache-tokens")
        small, large = (self.bench(*hit_rates, tokens) for tokens in (64, 256))
        self.assertEqual({name.removeprefix("cache_hit_rate_") for name in small},
                         {f"{name}_64_tokens" for name in (*self.policies, "itemwise_lru")})
        for name, row in small.items():
            self.assertEqual(row["parameters"]["cache_tokens"], 64)
            self.assertEqual(row["parameters"]["slots"], 2)
            self.assertLess(row["value"], large[name.replace("_64_", "_256_")]["value"])
        replayed = terrace("trace", "replay", trace, "--cache", "sieve", "--cache-tokens", 64,
                           "--set", "cache.admission=always", "--format", "json")
        self.assertAlmostEqual(json.loads(replayed.stdout)["cache"]["hit_rate_tokens"],
                               small["cache_hit_rate_sieve_64_tokens"]["value"])
        refused = terrace("bench", "cache", *hit_rates, 31)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("give at least 32", refused.stderr)


if __name__ == "__main__":
    unittest.main()
