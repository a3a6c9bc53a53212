"""`terrace run --trace`, `terrace trace` and `terrace tune` as a user would call them."""

import html
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from program import PROGRAM, clean_environment, ended_by, run_json, terrace

SMALL = ("--context", 1024, "--decode", 24)


class Traced(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="terrace_trace_"))
        cls.trace = cls.folder / "a.trace"
        cls.live = run_json(*SMALL, "--policy", "full,pqcache", "--trace", cls.trace)["runs"][1]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def document(self, *arguments):
        process = terrace(*arguments, "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stderr, "")
        return json.loads(process.stdout)

    def fails(self, code, words, *arguments):
        before = sorted(self.folder.iterdir())
        process = terrace(*arguments)
        self.assertEqual(process.returncode, code, process.stderr)
        self.assertEqual(len(process.stderr.splitlines()), 1, process.stderr)
        self.assertIn(words, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assertEqual(sorted(self.folder.iterdir()), before, "something half-written")


class Traces(Traced):
    def test_replay_gives_the_live_counters(self):
        replayed = self.document("trace", "replay", self.trace)
        self.assertEqual(replayed["cache"], self.live["cache"])
        self.assertEqual(replayed["bytes"], self.live["bytes"])

    def test_a_run_that_lost_something_for_want_of_memory_says_so(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "trace"
            run_json(*SMALL, "--policy", "pqcache", "--cache-tokens", 512, "--set",
                     "cache.admission=always", "--device-memory", "800KiB", "--trace", trace)
            tuned = ("tune", "--trace", trace, "--device-memory", "2MiB", "--link-bandwidth",
                     "1GB/s", "--policies", "lru")
            for command in (("trace", "info", trace), ("trace", "replay", trace), tuned):
                self.assertTrue(self.document(*command)["approximate"], command)
                self.assertIn("approximate: ", terrace(*command).stdout.splitlines()[-1])
        self.assertFalse(self.document("trace", "info", self.trace)["approximate"])
        self.assertNotIn("approximate", terrace("trace", "info", self.trace).stdout)

    def test_replay_for_people_has_the_same_figures(self):
        cache = self.document("trace", "replay", self.trace)["cache"]
        process = terrace("trace", "replay", self.trace)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        lines = process.stdout.splitlines()
        self.assertEqual(lines[0], f"cache    {cache['policy']} of {cache['granularity']}s, "
                                   f"{cache['capacity_tokens']} tokens a layer")
        self.assertEqual(lines[1], f"hits     {cache['hit_rate_tokens']:.4f} of tokens, "
                                   f"{cache['hit_rate_units']:.4f} of units")
        self.assertTrue(lines[2].startswith(f"units    {cache['admitted']} admitted, "))
        self.assertRegex(lines[3], "moved .* on demand, .* refilled")

    def test_replay_predicts_another_cache(self):
        other = ("--cache", "arc", "--cache-tokens", 256, "--set", "cache.admission=always")
        live = run_json(*SMALL, "--policy", "pqcache", *other)["runs"][0]
        replayed = self.document("trace", "replay", self.trace, *other)
        self.assertEqual(replayed["cache"], live["cache"])
        self.assertEqual(replayed["bytes"], live["bytes"])

    def test_a_trace_has_the_rows_of_the_run(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "trace"
            live = run_json(*SMALL, "--policy", "pqcache", "--kv-dtype", "f32", "--trace", trace)
            replayed = self.document("trace", "replay", trace)
            self.assertEqual(replayed["bytes"], live["runs"][0]["bytes"])

    def test_replay_takes_blocks_from_the_config(self):
        asked = self.document("trace", "replay", self.trace, "--block-tokens", 8)
        config = self.folder / "blocks.yaml"
        config.write_text("kv:\n  block_tokens: 8\n")
        replayed = self.document("trace", "replay", self.trace, "--config", config)
        config.unlink()
        self.assertEqual(replayed["cache"], asked["cache"])
        self.assertNotEqual(replayed["cache"], self.live["cache"])

    def test_replay_knows_the_future_where_a_policy_needs_it(self):
        small = ("--cache-tokens", 512, "--set", "cache.admission=always")
        lru = self.document("trace", "replay", self.trace, "--cache", "lru", *small)["cache"]
        best = self.document("trace", "replay", self.trace, "--cache", "belady", *small)["cache"]
        self.assertEqual(best["policy"], "belady")
        self.assertGreater(best["hit_rate_units"], lru["hit_rate_units"])

    def test_a_size_alone_leaves_the_policy(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "trace"
            run_json(*SMALL, "--policy", "pqcache", "--cache", "sieve", "--trace", trace)
            replayed = self.document("trace", "replay", trace, "--cache-tokens", 256)
            self.assertEqual(replayed["cache"]["policy"], "sieve")
            self.assertEqual(replayed["cache"]["capacity_tokens"], 256)
            replayed = self.document("trace", "replay", trace, "--cache-tokens", 0)
            self.assertIsNone(replayed["cache"])

    def test_a_cache_too_small_for_one_block_is_said_to_be_none(self):
        told = ("terrace: warning: cache.tokens 1 holds no block of 32 tokens: no cache; "
                "give at least 32\n")
        for command in (("trace", "replay", self.trace),
                        ("run", *SMALL, "--policy", "streaming,pqcache,oracle")):
            process = terrace(*command, "--cache-tokens", 1)
            self.assertEqual((process.returncode, process.stderr), (0, told))
            self.assertEqual(terrace(*command, "--cache-tokens", 1, "-q").stderr, "")
            self.assertEqual(terrace(*command, "--cache-tokens", 0).stderr, "")
            self.assertEqual(terrace(*command, "--cache-tokens", 32).stderr, "")

    def test_a_block_too_large_for_the_default_cache_is_said_to_leave_none(self):
        replay = ("trace", "replay", self.trace, "--block-tokens", 65536)
        process = terrace(*replay)
        self.assertEqual(process.returncode, 0)
        self.assertIn("holds no block of 65536 tokens: no cache; give --cache-tokens",
                      process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        for silent in (("-q",), ("--cache", "none"), ("--cache-tokens", 65536)):
            self.assertEqual(terrace(*replay, *silent).stderr, "")
        run = ("run", "--context", 256, "--decode", 1, "--policy", "pqcache,oracle")
        process = terrace(*run)
        self.assertEqual(process.returncode, 0)
        self.assertRegex(process.stderr, r"^terrace: warning: .* default size, twice the "
                         r"\d+ tokens .* holds no block of 32 tokens: no cache; .*\n$")
        for silent in (("-q",), ("--cache", "none"), ("--cache-tokens", 32)):
            self.assertEqual(terrace(*run, *silent).stderr, "")

    def test_info_says_what_is_in_it(self):
        document = self.document("trace", "info", self.trace, "--model",
                                 run_json(*SMALL, "--policy", "streaming")["model"])
        self.assertEqual(document["trace"]["policy"], "pqcache")
        self.assertEqual(document["counts"]["steps"], 24)
        self.assertGreater(document["counts"]["selections"], 500)
        self.assertIn("selections", terrace("trace", "info", self.trace).stdout)

    def test_convert(self):
        blocks = self.folder / "blocks"
        self.assertEqual(terrace("trace", "convert", self.trace, blocks).returncode, 0)
        replayed = self.document("trace", "replay", blocks)
        of_tokens = self.document("trace", "replay", self.trace, "--cache-granularity", "block")
        self.assertEqual(replayed["cache"], of_tokens["cache"])
        csv = self.folder / "csv"
        self.assertEqual(terrace("trace", "convert", self.trace, csv, "--to", "csv").returncode, 0)
        self.assertTrue(csv.read_text().startswith("key,sequence,layer,step,unit,rows,slots\n"))
        by_name = self.folder / "by_name.csv"
        self.assertEqual(terrace("trace", "convert", self.trace, by_name).returncode, 0)
        self.assertEqual(by_name.read_text(), csv.read_text())
        by_name.unlink()
        for made in (blocks, csv):
            made.unlink()

    def test_bad_traces(self):
        bad = self.folder / "bad"
        whole = self.trace.read_bytes()
        bad.write_bytes(whole[: len(whole) // 2])
        for command in (("trace", "info"), ("trace", "replay"), ("tune", "--trace")):
            more = ("--device-memory", "4MiB", "--profile", "pcie5-h100",
                    "--write-config", self.folder / "c", "--report", self.folder / "r")
            self.fails(1, "cut", *command, bad, *(more if command[0] == "tune" else ()))
        bad.write_bytes(whole[:3000] + bytes([whole[3000] ^ 4]) + whole[3001:])
        self.fails(1, "checksum", "trace", "replay", bad)
        bad.unlink()
        self.fails(1, "nowhere", "trace", "info", "/nowhere")
        for command in (("info",), ("replay",), ("convert",)):
            more = (self.folder / "csv",) if command == ("convert",) else ()
            self.fails(2, "not from standard input", "trace", *command, "-", *more)
        other = self.folder / "model"
        other.mkdir()
        (other / "config.json").write_text("{}")
        self.fails(2, "another model", "trace", "replay", self.trace, "--model", other)
        self.fails(2, "another model", "tune", "--trace", self.trace, "--model", other,
                   "--device-memory", "4MiB")
        shutil.rmtree(other)

    def test_nothing_is_half_written(self):
        self.fails(2, "same file", "trace", "convert", self.trace, self.trace)
        self.fails(2, "--block-tokens", "trace", "replay", self.trace, "--block-tokens", -1)
        self.fails(1, "/nowhere/r.html", "tune", "--trace", self.trace, "--device-memory", "4MiB",
                   "--write-config", self.folder / "c", "--report", "/nowhere/r.html")
        self.fails(1, "folder", "run", *SMALL, "--policy", "oracle", "--trace", self.folder,
                   "--timeline", self.folder / "t")

    def test_what_is_no_file_is_not_written_over(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        run = ("run", *SMALL, "--policy", "oracle")
        tune = ("tune", "--trace", self.trace, "--device-memory", "4MiB")
        for command in ((*run, "--trace"), (*run, "--timeline"), (*tune, "--report"),
                        (*tune, "--write-config"), ("trace", "convert", self.trace),
                        ("bench", "kernels", "--quick", "--write-profile")):
            self.fails(1, "pipe: cannot be written: it is no regular file", *command, pipe)
        self.assertTrue(pipe.is_fifo())
        pipe.unlink()

    def test_a_file_that_cannot_be_written_costs_neither_the_result_nor_half_of_another(self):
        small, large = self.folder / "small", self.folder / "large"
        before = sorted(self.folder.iterdir())
        run = ("run", "--context", 512, "--decode", 12, "--policy", "oracle", "--trace", large)
        tune = ("tune", "--trace", self.trace, "--device-memory", "1MiB", "--profile",
                "pcie5-h100", "--write-config", small, "--report", large)
        for command in (run, tune):
            process = terrace(*command, "--format", "json", "-q", file_bytes=2500)
            self.assertEqual(process.returncode, 1, process.stderr)
            self.assertIn("large: cannot", process.stderr)
            self.assertIn("File too large", process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
            self.assertTrue(json.loads(process.stdout))
            self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_disk_that_takes_nothing_is_known_before_the_work(self):
        before = sorted(self.folder.iterdir())
        file = self.folder / "new"
        run = ("run", *SMALL, "--policy", "oracle")
        tune = ("tune", "--trace", self.trace, "--device-memory", "4MiB")
        for command in ((*run, "--trace"), (*run, "--timeline"), (*tune, "--report"),
                        (*tune, "--write-config"), ("trace", "convert", self.trace),
                        ("bench", "kernels", "--quick", "--write-profile"),
                        ("bench", "pcie", "--quick", "--report"),
                        ("bench", "quality", "--quick", "--report"), ("calibrate", "--write")):
            process = terrace(*command, file, file_bytes=100)
            self.assertEqual((process.returncode, process.stdout), (1, ""), command)
            self.assertIn("new: cannot be written: File too large", process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
            self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_trace_takes_the_place_of_a_trace_alone(self):
        run = ("run", *SMALL, "--policy", "oracle", "--trace")
        file = self.folder / "mine"
        file.write_text("notes")
        self.fails(2, "is no trace that this program reads", *run, file)
        self.assertEqual(file.read_text(), "notes")
        file.write_text("")
        for told in ("", "will be replaced"):
            process = terrace(*run, file)
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertIn(told, process.stderr)
            self.assertEqual("replaced" in process.stderr, bool(told))
        file.unlink()

    def test_replay_says_where_its_policies_come_from(self):
        self.fails(2, "name a replacement policy by --cache", "trace", "replay", self.trace,
                   "--policy", "lru")

    def test_what_cannot_be_converted_says_why(self):
        before = sorted(self.folder.iterdir())
        for form in ("blocks", "csv"):
            process = terrace("trace", "convert", self.trace, self.folder / "large", "--to", form,
                              file_bytes=2500)
            self.assertEqual(process.returncode, 1, process.stderr)
            self.assertIn("large: cannot", process.stderr)
            self.assertIn("File too large", process.stderr)
            self.assertEqual(sorted(self.folder.iterdir()), before)
        self.fails(1, "/nowhere: cannot be read: No such file", "trace", "convert", "/nowhere",
                   self.folder / "new", "--from", "mooncake")

    def record_and_send(self, number, ignored=False):
        """Sends a signal to a run that is recording; returns its exit status."""
        before = set(self.folder.iterdir())
        disposition = signal.SIG_IGN if ignored else signal.SIG_DFL
        process = subprocess.Popen(
            [PROGRAM, "run", "--policy", "oracle", "--trace", self.folder / "ended"], cwd="/",
            env=clean_environment(), stdout=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(number, disposition))
        while set(self.folder.iterdir()) == before and process.poll() is None:
            time.sleep(0.001)
        self.assertIsNone(process.poll(), "it ended before it recorded")
        process.send_signal(number)
        return process.wait(timeout=1800)

    def test_a_run_that_a_signal_ends_leaves_no_file(self):
        before = sorted(self.folder.iterdir())
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            self.assertEqual(ended_by(self.record_and_send(number)), number)
            self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertEqual(self.record_and_send(signal.SIGHUP, ignored=True), 0)
        (self.folder / "ended").unlink()

    def test_nothing_is_written_over_what_is_read(self):
        whole = self.trace.read_bytes()
        fresh = self.folder / "new"
        tune = ("tune", "--trace", self.trace, "--device-memory", "4MiB")
        for target in (self.trace, self.folder / "." / self.trace.name):
            self.fails(2, "same file as --trace", *tune, "--write-config", target)
            self.fails(2, "same file as --trace", *tune, "--report", target)
        self.fails(2, "same file as --write-config", *tune, "--write-config", fresh,
                   "--report", fresh)
        run = ("run", *SMALL, "--policy", "oracle")
        self.fails(2, "same file as --trace", *run, "--trace", fresh, "--timeline", fresh)
        self.fails(2, "same file as --text", *run, "--text", self.trace, "--timeline", self.trace)
        settings = self.folder / "settings.yaml"
        settings.write_text("seed: 1\n")
        self.fails(2, "same file as --config", *run, "--config", settings, "--trace", settings)
        settings.unlink()
        self.assertEqual(self.trace.read_bytes(), whole)

    def test_runs_that_cannot_be_recorded(self):
        self.fails(2, "name one with --policy", "run", *SMALL, "--trace", self.folder / "t")
        self.fails(2, "selects anything", "run", *SMALL, "--policy", "streaming", "--trace",
                   self.folder / "t")
        self.fails(1, "/no/such", "run", *SMALL, "--policy", "oracle", "--trace",
                   "/no/such/folder/t")
        self.fails(2, "recorded traces", "run", *SMALL, "--policy", "oracle", "--cache", "belady")
        self.fails(2, "did you mean s3fifo?", "run", *SMALL, "--policy", "oracle", "--cache",
                   "s3fif0")


class Tune(Traced):
    def tune(self, *arguments):
        return self.document("tune", "--trace", self.trace, "--profile", "pcie5-h100", *arguments)

    def test_rows_and_their_bound(self):
        document = self.tune("--device-memory", "1MiB")
        self.assertIs(document["offline_left_out"], False)
        fields = {"policy", "parameters", "hit_rate_tokens", "hit_rate_units", "demand_bytes",
                  "refill_bytes", "predicted_seconds_per_token", "optimum_ratio", "tied_with_best"}
        for row in document["rows"]:
            self.assertEqual(set(row), fields)
            self.assertLessEqual(row["optimum_ratio"], 1 + 1e-9)
            self.assertIn(row["parameters"]["granularity"], ("block", "row"))
        self.assertIn("belady", {row["policy"] for row in document["rows"]})
        self.assertIsNone(document["without_cache"]["optimum_ratio"])
        best = document["recommended"]
        self.assertLessEqual(best["demand_bytes"] + best["refill_bytes"],
                             document["without_cache"]["demand_bytes"])
        again = self.tune("--device-memory", "1MiB")
        self.assertEqual(document["rows"], again["rows"])

    def test_the_config_does_what_was_predicted(self):
        for memory in ("900KiB", "1200KiB", "3MiB"):
            config = self.folder / "tuned.yaml"
            report = self.folder / "report.html"
            document = self.tune("--device-memory", memory, "--write-config", config,
                                 "--report", report)
            best = document["recommended"]
            run = run_json(*SMALL, "--config", config)["runs"][0]
            self.assertEqual(run["bytes"]["demand"], best["demand_bytes"], memory)
            self.assertEqual(run["bytes"]["refill"], best["refill_bytes"], memory)
            self.assertEqual(run["cache"]["hit_rate_tokens"], best["hit_rate_tokens"], memory)
            page = report.read_text()
            self.assertIn("<svg", page)
            shown = self.folder / "shown.yaml"
            shown.write_text(html.unescape(page.split("<pre>")[1].split("</pre>")[0]))
            same = run_json(*SMALL, "--config", shown)["runs"][0]
            self.assertEqual(same["bytes"], run["bytes"], memory)
            self.assertIn(f"--device-memory {memory} ", page)
            self.assertIn(" UTC</dd>", page)
            self.assertNotIn("<script", page)
            self.assertNotIn("href=", page)
            config.unlink()
            report.unlink()

    def test_the_config_says_what_it_was_tuned_for(self):
        config = self.folder / "tuned.yaml"
        process = terrace("tune", "--trace", self.trace, "--device-memory", "3MiB", "--policies",
                          "lru", "--link-bandwidth", "25GB/s", "--link-latency", "10us",
                          "--write-config", config)
        self.assertEqual(process.returncode, 0, process.stderr)
        memory, trace = config.read_text().splitlines()[:2]
        self.assertEqual(memory, "# Tuned for 3 MiB of device memory and the machine that recorded "
                         "the trace, link imitated 25GB/s 10us.")
        self.assertRegex(trace, f"^# Trace {self.trace}: 24 steps of 4 layers, .*, policy pqcache, "
                         "budget 0.1, model tiny[.]$")
        config.unlink()

    def test_all_policies_have_a_name(self):
        rows = self.tune("--device-memory", "1MiB")["rows"]
        for named in ("all", "lru, all", "all,all"):
            self.assertEqual(self.tune("--device-memory", "1MiB", "--policies", named)["rows"],
                             rows)
        once, twice = (self.tune("--device-memory", "1MiB", "--policies", named)["rows"]
                       for named in ("lru", "lru,lru"))
        self.assertEqual(twice, once)
        process = terrace("tune", "--trace", self.trace, "--device-memory", "1MiB",
                          "--policies", "all,lruu")
        self.assertEqual(process.returncode, 2)
        self.assertRegex(process.stderr, "did you mean lru")

    def expect_recommended_runs(self, memory, *recorded):
        trace, config = self.folder / "other.trace", self.folder / "tuned.yaml"
        run_json(*SMALL, *recorded, "--trace", trace)
        best = self.document("tune", "--trace", trace, "--device-memory", memory,
                             "--profile", "pcie5-h100", "--write-config", config)["recommended"]
        run = run_json(*SMALL, "--config", config)["runs"][0]
        self.assertGreater(run["cache"]["hit_rate_tokens"], 0.2)
        self.assertEqual(run["bytes"]["demand"], best["demand_bytes"])
        self.assertEqual(run["bytes"]["refill"], best["refill_bytes"])
        self.assertEqual(run["cache"]["hit_rate_tokens"], best["hit_rate_tokens"])
        trace.unlink()
        config.unlink()

    def test_a_budget_of_mass_runs_with_what_was_recommended(self):
        self.expect_recommended_runs("2MiB", "--policy", "wave", "--budget", "mass:0.9")

    def test_layers_that_attend_everything_have_their_memory(self):
        self.expect_recommended_runs("1300KiB", "--policy", "pqcache", "--set",
                                     "retrieval.dense_layers=1")

    def test_what_was_resident_is_tuned_for_as_offloaded(self):
        resident = ("--policy", "pqcache", "--placement", "resident_first")
        self.expect_recommended_runs("1240KiB", *resident, "--device-memory", "2MiB")
        self.expect_recommended_runs("1240KiB", *resident)
        clusters = ("--policy", "wave", "--cache-granularity", "cluster")
        self.expect_recommended_runs("1200KiB", *clusters, *resident[2:])

    def test_blocks_that_were_missing_alone_are_not_tuned_for(self):
        trace, blocks = self.folder / "resident.trace", self.folder / "blocks.trace"
        run_json(*SMALL, "--policy", "pqcache", "--placement", "resident_first", "--trace", trace)
        self.assertEqual(terrace("trace", "convert", trace, "--to", "blocks", blocks).returncode, 0)
        self.fails(2, "record one", "tune", "--trace", blocks, "--device-memory", "1MiB",
                   "--profile", "pcie5-h100")
        trace.unlink()
        blocks.unlink()

    def test_the_link_of_a_measured_machine(self):
        profile = self.folder / "profile.yaml"
        profile.write_text("version: 1\nlink: {bandwidth: 2e+5, latency: 1e-05}\n")
        slow = self.document("tune", "--trace", self.trace, "--device-memory", "1MiB",
                             "--profile", profile)
        none = slow["without_cache"]
        # A link so slow that fetching takes most of the time, on a busy machine, too.
        fetching = none["demand_bytes"] / 24 / 2e5
        self.assertGreater(none["predicted_seconds_per_token"], fetching)
        self.assertLess(none["predicted_seconds_per_token"], 2 * fetching)
        profile.write_text("version: 1\n")
        self.fails(2, "no link", "tune", "--trace", self.trace, "--device-memory", "1MiB",
                   "--profile", profile)
        profile.unlink()

    def test_a_measured_machine_and_a_trace_without_times(self):
        lines = [{"timestamp": i, "input_length": 512 * 4, "output_length": 10,
                  "hash_ids": [0, 1, 2, 100 + i % 7]} for i in range(20)]
        requests = self.folder / "m.jsonl"
        requests.write_text("\n".join(map(json.dumps, lines)))
        trace = self.folder / "m.trace"
        terrace("trace", "convert", requests, trace, "--from", "mooncake")
        profile = self.folder / "profile.yaml"
        profile.write_text("version: 1\nlink: {bandwidth: 1e+9, latency: 1e-05}\n")
        tune = ("tune", "--trace", trace, "--device-memory", "16MiB")
        self.fails(2, "--profile", *tune)
        self.fails(2, "bench kernels --write-profile", *tune, "--profile", profile)
        profile.write_text(profile.read_text() + "host: {memory_read: 2e+10}\n")
        none = self.document(*tune, "--profile", profile)["without_cache"]
        # Fetching takes nearly all of a step's time.
        fetching = none["demand_bytes"] / 20 / 1e9
        self.assertGreater(none["predicted_seconds_per_token"], fetching)
        self.assertLess(none["predicted_seconds_per_token"], 1.1 * fetching)
        for made in (requests, trace, profile):
            made.unlink()

    def test_wrong_usage(self):
        tune = ("tune", "--trace", self.trace)
        self.fails(2, "tune lacks --device-memory SIZE", *tune)
        self.fails(2, "tune lacks --trace FILE, what to tune for; --device-memory SIZE", "tune")
        self.fails(2, "tune lacks --trace FILE", "tune", "--device-memory", "4MiB")
        self.fails(2, "give at least", *tune, "--device-memory", "1KiB")
        refused = terrace(*tune, "--device-memory", "1KiB").stderr
        least = refused.split("give at least ")[1].strip().replace(" ", "")
        self.assertEqual(terrace(*tune, "--device-memory", least).returncode, 0, refused)
        self.fails(2, "did you mean lru?", *tune, "--device-memory", "4MiB", "--policies", "lruu")
        self.fails(2, "--policies: cache.policy", *tune, "--device-memory", "4MiB", "--policies",
                   "none")
        self.fails(2, "--policies: 'lru,,arc' has an empty name", *tune, "--device-memory", "4MiB",
                   "--policies", "lru,,arc")
        for key in ("retrieval.budget=64", "cache.tokens=512", "kv.block_tokens=32"):
            self.fails(2, f"--set {key.split('=')[0]}: tune does not take it", *tune,
                       "--device-memory", "4MiB", "--set", key)
        spaced = terrace(*tune, "--device-memory", "1MiB", "--policies", "lru, arc")
        self.assertEqual((spaced.returncode, spaced.stderr), (0, ""))
        self.fails(2, "says what the link is like", *tune, "--device-memory", "4MiB", "--profile",
                   "pcie5-h100", "--link-bandwidth", "1GB/s")
        self.fails(2, "nothing to search", *tune, "--device-memory", "4MiB", "--policies", "belady")
        self.fails(2, "did you mean pcie5-h100?", *tune, "--device-memory", "4MiB", "--profile",
                   "pcie5-h10")
        self.fails(1, "cannot be written", *tune, "--device-memory", "4MiB", "--report",
                   "/no/such/folder/r.html")


if __name__ == "__main__":
    unittest.main()
