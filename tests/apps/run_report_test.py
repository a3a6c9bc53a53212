"""Checks what `terrace run` reports on the bundled model: its shape, its figures, its limits."""

import copy
import json
import math
import pathlib
import re
import tempfile
import unittest

from program import InAFolder, run_json, terrace

NUMBER, COUNT, TEXT = (int, float), int, str
PARTS = ("select", "fetch", "attend", "wait", "update", "model")
BYTES = {"offload": NUMBER, "demand": NUMBER, "refill": NUMBER, "index": NUMBER}
DOCUMENT = {
    "terrace": TEXT, "command": TEXT,
    "build": {"commit": TEXT, "compiler": TEXT, "cuda": TEXT},
    "machine": {"cpu": TEXT, "isa": TEXT, "cores": COUNT, "numa_nodes": COUNT,
                "gpu": (TEXT, type(None)), "link": TEXT},
    "config": dict, "seed": COUNT, "model": TEXT,
    "text": {"path": TEXT, "context_tokens": COUNT, "scored_tokens": COUNT},
    "backend": {"name": TEXT, "reason": TEXT},
    "runs": list,
}
WAITS = ("rows", "compute", "refill", "index", "upload", "copy", "rest", "retention")
RUN = {
    "policy": TEXT, "placement": TEXT, "gemm": TEXT, "budget_tokens": COUNT,
    "selected_tokens": COUNT, "attended_tokens_mean": NUMBER, "bits_per_token": NUMBER,
    "bits_per_byte": NUMBER,
    "bits_delta_vs_full": {"mean": NUMBER, "standard_error": NUMBER},
    "top1_agreement": NUMBER, "recall": NUMBER, "attention_mass": NUMBER,
    "attention_error": NUMBER, "mass_bounds": None,
    "pseudo_entries_mean": NUMBER, "entries_mean": NUMBER, "retention": None,
    "needles": {"asked": COUNT, "asked_at": str, "form": str, "digits_right_ratio": NUMBER,
                "by_depth": list},
    "cache": {"policy": TEXT, "granularity": TEXT, "capacity_tokens": COUNT,
              "hit_rate_tokens": NUMBER, "hit_rate_units": NUMBER, "admitted": COUNT,
              "evicted": COUNT, "refused": COUNT},
    "index_bytes": COUNT,
    "bytes": BYTES, "bytes_per_token": BYTES, "tiers": {"nvme": None},
    "prefix": None,
    "seconds": {"prefill": NUMBER, "prefill_without_clustering": NUMBER,
                "decode_per_token": NUMBER} | {part: NUMBER for part in PARTS},
    "attend_bytes_per_second": NUMBER,
    "cache_upkeep_ratio": NUMBER, "cache_upkeep_waited_ratio": NUMBER,
    "clustering": {"iterations": list, "planned": bool, "costs": None, "late_layers": COUNT,
                   "hidden_ratio": NUMBER},
    "waits": {reason: NUMBER for reason in WAITS},
    "memory": {"device_peak_bytes": COUNT, "prompt_device_peak_bytes": COUNT,
               "host_peak_bytes": COUNT},
}
NULL_FOR = {
    "full": {"recall", "cache"}, "streaming": {"recall", "cache"},
    "oracle": set(), "pqcache": set(), "signs": set()}
ROW_BYTES, LAYERS, KV_HEADS = 256, 4, 2  # of the bundled model at f16


class ReportTest(unittest.TestCase):
    def check_shape(self, value, shape, place):
        """Every field of `shape`, of its type, and no other."""
        if isinstance(shape, dict):
            self.assertIsInstance(value, dict, place)
            self.assertEqual(list(value), list(shape), place)
            for key, part in shape.items():
                self.check_shape(value[key], part, f"{place}.{key}")
        elif shape is None:
            self.assertIsNone(value, place)
        else:
            self.assertIsInstance(value, shape, place)
            if shape is not bool:
                self.assertNotIsInstance(value, bool, place)


RETENTION = {"policy": TEXT, "kept_mean": NUMBER, "merged_mean": NUMBER, "dropped": NUMBER,
             "flushes": COUNT, "flush_seconds": NUMBER}


class Retention(ReportTest):
    """Policies that drop or merge tokens. A budget of 102 has 32 sinks, 34 of the window, and 35
    entries; the token itself is one more. The window shrinks to its size after the prompt."""

    JOB = ("--context", 512, "--decode", 8, "--budget", "0.2")

    def test_is_named_in_a_list_of_policies(self):
        names = ["streaming", "recent", "h2o", "snapkv", "pyramidkv", "kvcrush", "chelsea",
                 "smartkv"]
        runs = run_json(*self.JOB, "--policy", ",".join(names))["runs"]
        self.assertEqual([run["policy"] for run in runs], names)
        self.assertIsNone(runs[0]["retention"])
        for run in runs[1:]:
            retention = run["retention"]
            self.check_shape(retention, RETENTION, run["policy"])
            self.assertEqual(retention["policy"], run["policy"])
            self.assertEqual(retention["flushes"], 1)
            self.assertEqual(retention["kept_mean"] + retention["merged_mean"], 35)
            merges = run["policy"] == "chelsea"
            self.assertEqual(retention["dropped"], 0 if merges else 512 - 32 - 34 - 35)
            self.assertEqual(run["entries_mean"], 32 + 34 + 35 + (8 + 1) / 2)
            self.assertGreater(run["attention_error"], 0)

    def test_recalls_nothing_beside_a_policy_that_selects(self):
        process = terrace("run", *self.JOB, "--policy", "pqcache", "--set",
                          "retention.policy=snapkv")
        self.assertEqual(process.returncode, 2)
        self.assertIn("set retrieval.policy to streaming", process.stderr)

    def test_holds_entries_beside_a_policy_that_selects(self):
        held = ("--set", "retention.policy=snapkv", "--set", "retention.dropped=keep")
        run = run_json(*self.JOB, "--policy", "pqcache", *held)["runs"][0]
        self.assertEqual(run["policy"], "pqcache")
        self.assertEqual(run["retention"]["kept_mean"], 35 // 2)
        self.assertEqual(run["retention"]["dropped"], 0)
        self.assertEqual(run["selected_tokens"], 35 - 35 // 2)
        self.assertEqual(run["entries_mean"], 102)
        for policy, setting, said in (
                ("wave", "retention.hold=0.5", "use pqcache, qpq, oracle"),
                ("pqcache", "retention.policy=h2o", "use recent, snapkv"),
                ("pqcache", "retention.hold=1", "between 0 and 1")):
            process = terrace("run", *self.JOB, "--policy", policy, *held, "--set", setting)
            self.assertEqual(process.returncode, 2, said)
            self.assertIn(said, process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1)

    def test_gates_of_another_model_are_refused_by_name(self):
        gates = ("--policy", "smartkv", "--set", "retention.gates=/nowhere/gates.safetensors")
        process = terrace("run", *self.JOB, *gates)
        self.assertEqual(process.returncode, 2)
        self.assertIn("retention.gates: /nowhere/gates.safetensors is not there", process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1)


class Fields(ReportTest):
    @classmethod
    def setUpClass(cls):
        cls.document = run_json("--context", 512, "--decode", 8, "--needles", 3, "--seed", 5,
                                "--budget", "0.5")
        cls.runs = {run["policy"]: run for run in cls.document["runs"]}

    def test_document_has_every_field_in_order(self):
        self.check_shape(self.document, DOCUMENT, "document")
        self.assertEqual(self.document["command"], "run")
        self.assertEqual(self.document["seed"], 5)
        self.assertEqual(self.document["config"]["cache.policy"], "lru")
        self.assertEqual(self.document["text"]["context_tokens"], 512)
        self.assertEqual(self.document["text"]["scored_tokens"], 8)

    def test_the_backend_that_was_taken_has_a_name_and_a_reason(self):
        backend = self.document["backend"]
        self.assertTrue(backend["reason"].startswith("auto: "), backend)
        self.assertEqual(self.document["machine"]["gpu"] is None, backend["name"] == "host")
        asked = run_json("--context", 64, "--decode", 1, "--policy", "full", "--backend", "host")
        self.assertEqual(asked["backend"], {"name": "host", "reason": "asked for"})
        self.assertIsNone(asked["machine"]["gpu"])
        text = terrace("run", "--context", 64, "--decode", 1, "--policy", "full", "-q").stdout
        self.assertIn(f"backend  {backend['name']}", text)
        self.assertIn(backend["reason"], text)

    def test_runs_have_every_field_or_null_where_it_does_not_apply(self):
        self.assertEqual(list(self.runs), ["full", "streaming", "oracle", "pqcache", "signs"])
        for policy, run in self.runs.items():
            shape = RUN | {field: None for field in NULL_FOR[policy]}
            if policy != "pqcache":
                shape = shape | {"clustering": RUN["clustering"] | {"hidden_ratio": None}}
            self.check_shape(run, shape, policy)

    def test_seconds_add_up(self):
        for policy, run in self.runs.items():
            seconds = run["seconds"]
            parts = math.fsum(seconds[part] for part in PARTS)
            self.assertLessEqual(abs(parts - seconds["decode_per_token"]),
                                 0.02 * seconds["decode_per_token"], policy)

    def test_no_policy_attends_to_more_than_its_budget(self):
        for policy, run in self.runs.items():
            if policy == "full":
                continue
            self.assertEqual(run["budget_tokens"], 256)
            self.assertLessEqual(run["attended_tokens_mean"], run["budget_tokens"], policy)

    def test_full_attention_is_what_it_is_compared_with(self):
        full = self.runs["full"]
        self.assertEqual(full["bits_delta_vs_full"], {"mean": 0, "standard_error": 0})
        self.assertEqual(full["top1_agreement"], 1)
        self.assertAlmostEqual(full["attention_mass"], 1, places=9)
        self.assertAlmostEqual(full["attention_error"], 0, places=4)
        self.assertAlmostEqual(full["attended_tokens_mean"], 512 + (8 + 1) / 2)

    def test_oracle_finds_everything(self):
        self.assertEqual(self.runs["oracle"]["recall"], 1)
        self.assertLessEqual(self.runs["streaming"]["attention_mass"],
                             self.runs["oracle"]["attention_mass"])

    def test_bytes_are_whole_rows(self):
        for policy, run in self.runs.items():
            self.assertEqual(run["bytes"]["demand"] % ROW_BYTES, 0, policy)
            self.assertEqual(run["bytes_per_token"]["demand"], run["bytes"]["demand"] / 8)
            rows = 0 if policy == "full" else (512 + 8) * LAYERS * KV_HEADS
            self.assertEqual(run["bytes"]["offload"], rows * ROW_BYTES, policy)

    def test_clustering_names_its_iterations(self):
        clustering = self.runs["pqcache"]["clustering"]
        self.assertEqual(len(clustering["iterations"]), LAYERS)
        self.assertTrue(all(1 <= n <= 10 for n in clustering["iterations"]))
        self.assertFalse(clustering["planned"])

    def test_needles_are_counted_by_depth(self):
        for run in self.runs.values():
            needles = run["needles"]
            self.assertEqual(needles["asked"], 3)
            self.assertEqual(len(needles["by_depth"]), 3)
            digits = sum(one["digits"] for one in needles["by_depth"])
            right = sum(one["right"] for one in needles["by_depth"])
            self.assertAlmostEqual(needles["digits_right_ratio"], right / digits)


def without_times(document):
    """Returns the parts that must repeat: all but times and the thread counts asked for."""
    document = copy.deepcopy(document)
    for key in ("threads.device", "threads.host"):
        del document["config"][key]
    for run in document["runs"]:
        del run["seconds"], run["attend_bytes_per_second"]
        del run["waits"], run["cache_upkeep_ratio"], run["cache_upkeep_waited_ratio"]
        del run["clustering"]["hidden_ratio"], run["clustering"]["late_layers"]
    return document


class Page(InAFolder):
    def test_shows_each_policy_in_its_colour_and_the_config_that_errs_least(self):
        target = self.folder / "page.html"
        document = run_json("--context", 256, "--decode", 8, "--policy", "full,snapkv,signs",
                            "--budget", "0.5", "--report", target)
        page = target.read_text()
        for words in ("<h1>Policies on one text</h1>", f"--report {target}</code>",
                      f"commit {document['build']['commit']}<", " UTC<", "<td>snapkv</td>"):
            self.assertIn(words, page)
        self.assertNotIn("(quick)", page)
        figures = page.split("<figure>")[1:]
        self.assertEqual(len(figures), 6)
        colours = [re.findall('<rect [^>]*fill="([^"]*)"', figures[i]) for i in (0, 1, 2, 5)]
        self.assertEqual(len(set(colours[0])), 3)
        self.assertEqual(colours, 4 * [colours[0]])
        errors = {run["policy"]: run["attention_error"] for run in document["runs"]}
        least = min(("snapkv", "signs"), key=errors.get)
        keys = {"signs": "retrieval.policy: signs",
                "snapkv": "retrieval.policy: streaming\nretention.policy: snapkv"}[least]
        config = self.write("least.yaml", f"{keys}\nretrieval.budget: 0.5\n")
        self.assertIn(f"<pre>{config.read_text()}</pre>", page)
        process = terrace("config", "explain", "--config", config)
        self.assertEqual(process.returncode, 0, process.stderr)

    def test_of_generated_text_says_nothing_of_bits(self):
        target = self.folder / "page.html"
        terrace("run", "--context", 64, "--decode", 4, "--policy", "signs", "--generate",
                "--report", target)
        self.assertNotIn("Bits over full", target.read_text())
        self.assertIn("Bytes moved for a token", target.read_text())


class TimelineTest(unittest.TestCase):
    def test_timeline_shows_every_queue_of_every_policy(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "timeline.json"
            run_json("--context", "300", "--decode", "4", "--policy", "full,pqcache",
                     "--timeline", str(file), "-q")
            events = json.loads(file.read_text())["traceEvents"]
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], [file.name])
        names = {event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertLessEqual({"full", "pqcache", "compute", "offload", "cluster"}, names)
        work = [event for event in events if event["ph"] == "X"]
        self.assertLessEqual({"model", "select", "fetch", "attend", "offload", "cluster"},
                             {event["name"] for event in work})
        self.assertTrue(all(event["dur"] >= 0 for event in work))


class Determinism(unittest.TestCase):
    def test_two_runs_on_different_threads_say_the_same(self):
        job = ("--context", 700, "--decode", 12, "--needles", 2)
        first = run_json(*job, "--threads", "device=1,host=1")
        second = run_json(*job, "--threads", "device=2,host=2")
        self.assertEqual(without_times(first), without_times(second))


class Limits(unittest.TestCase):
    def test_device_memory_is_a_limit(self):
        job = ("--context", 4096, "--decode", 4)
        full = run_json(*job, "--policy", "full")["runs"][0]
        kv_bytes = (4096 + 4) * LAYERS * KV_HEADS * ROW_BYTES
        self.assertGreaterEqual(full["memory"]["device_peak_bytes"], kv_bytes)
        limit = kv_bytes // 4
        run = run_json(*job, "--policy", "pqcache", "--device-memory", limit)["runs"][0]
        self.assertLessEqual(run["memory"]["device_peak_bytes"], limit)
        self.assertLessEqual(run["memory"]["prompt_device_peak_bytes"], limit)

    def test_a_budget_of_more_than_all_tokens_takes_no_more_memory(self):
        job = ("--context", 600, "--decode", 4, "--policy", "pqcache", "--budget")
        whole, beyond = (run_json(*job, budget)["runs"][0] for budget in (604, 1_000_000_000))
        self.assertEqual(beyond["budget_tokens"], 604)
        self.assertEqual(beyond["memory"], whole["memory"])
        self.assertEqual(beyond["bits_per_token"], whole["bits_per_token"])

    def test_full_attention_that_does_not_fit_fails(self):
        process = terrace("run", "--context", 2048, "--decode", 4, "--policy", "full",
                          "--device-memory", "1MiB")
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        self.assertIn("memory", process.stderr)

    def test_an_imitated_link_costs_time_and_changes_nothing_else(self):
        job = ("--context", 512, "--decode", 4, "--policy", "oracle", "--cache", "none")
        quick = run_json(*job)
        slow = run_json(*job, "--link-latency", "20ms")
        self.assertGreater(slow["runs"][0]["seconds"]["fetch"] + slow["runs"][0]["seconds"]["wait"],
                           quick["runs"][0]["seconds"]["fetch"])
        self.assertTrue(slow["machine"]["link"].startswith("imitated"))
        self.assertIsNone(slow["runs"][0]["cache"])
        for field in ("bytes", "bits_per_token", "recall"):
            self.assertEqual(quick["runs"][0][field], slow["runs"][0][field])


POLICIES = {"full", "streaming", "oracle", "pqcache", "qpq", "clusterkv", "wave", "quest", "infllm",
            "sparq", "infinigen", "signs"}


class Prompts(unittest.TestCase):
    def test_any_length_runs_under_every_policy(self):
        for context in (1, 5, 33):
            for budget in ("0.1", "8", "1.0"):
                with self.subTest(context=context, budget=budget):
                    document = run_json("--context", context, "--decode", 3, "--budget", budget,
                                        "--policy", "all", "-q")
                    ran = {run["policy"] for run in document["runs"]}
                    self.assertLessEqual(POLICIES, ran)

    def test_one_step_has_no_standard_error(self):
        document = run_json("--context", 64, "--decode", 1, "--policy", "streaming")
        delta = document["runs"][0]["bits_delta_vs_full"]
        self.assertIsNone(delta["standard_error"])

    def test_the_text_says_what_looking_after_caches_takes(self):
        job = ("run", "--context", 1024, "--decode", 4, "--policy", "full,oracle,pqcache")
        share = r"\d+\.\d \(\d+\.\d waited for\)"
        self.assertRegex(terrace(*job).stdout,
                         r"\nupkeep   of the cache, % of decode time: "
                         rf"oracle {share}, pqcache {share}\n")
        self.assertNotIn("upkeep", terrace(*job, "--cache", "none").stdout)

    def test_a_context_beyond_the_models_positions_warns_once(self):
        process = terrace("run", "--context", 8192, "--decode", 1, "--policy", "streaming")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        self.assertIn("8192", process.stderr)

    def test_generating_prints_text_and_scores_nothing(self):
        job = ("--context", 256, "--decode", 16, "--generate", "--policy", "full,pqcache", "-q")
        for run in run_json(*job)["runs"]:
            self.assertEqual(len(run["generated"]["ids"]), 16)
            self.assertEqual(len(run["generated"]["text"]), 16)
            self.assertIsNone(run["bits_per_token"])
            self.assertIsNone(run["top1_agreement"])
        process = terrace("run", *job)
        self.assertIn("pqcache:\n", process.stdout)

    def test_the_table_fits_a_terminal(self):
        process = terrace("run", "--context", 256, "--decode", 4)
        self.assertEqual(process.returncode, 0, process.stderr)
        for line in process.stdout.splitlines()[5:]:
            self.assertLessEqual(len(line), 110, line)


class Needles(unittest.TestCase):
    def test_full_attention_finds_what_streaming_cannot_see(self):
        runs = run_json("--context", 2048, "--decode", 4, "--needles", 4, "--seed", 1,
                        "--policy", "full,streaming", "--budget", "0.1")["runs"]
        full, streaming = (run["needles"]["digits_right_ratio"] for run in runs)
        self.assertGreater(full, 0.7)
        self.assertLess(streaming, full)

    def asked(self, place, *more):
        runs = run_json("--context", 2048, "--decode", 4, "--needles", 6, "--budget", "0.1",
                        "--needles-asked", place, *more)["runs"]
        for run in runs:
            self.assertEqual(run["needles"]["asked_at"], place)
        return {run["policy"]: run["needles"] for run in runs}

    def test_a_question_in_the_prompt_is_seen_by_the_policy(self):
        # The question's last bytes look back at the fact; those before them, at all the facts.
        job = ("--policy", "full,snapkv", "--set", "retention.pool=15", "--set",
               "retention.score_window=4")
        after, prompt = self.asked("after", *job), self.asked("prompt", *job)
        self.assertGreater(prompt["full"]["digits_right_ratio"], 0.7)
        self.assertGreater(prompt["snapkv"]["digits_right_ratio"],
                           after["snapkv"]["digits_right_ratio"] + 0.2)
        self.assertEqual(prompt["full"]["asked"], 6)
        self.assertEqual(prompt, self.asked("prompt", *job))

    def test_questions_in_prompts_change_no_other_figure(self):
        job = ("--context", 512, "--decode", 8, "--needles", 2, "--cache", "none", "--policy",
               "pqcache,h2o,wave")
        seen = []
        for place in ("after", "prompt"):
            runs = run_json(*job, "--needles-asked", place)["runs"]
            for run in runs:
                for name in ("needles", "seconds", "waits", "attend_bytes_per_second",
                             "cache_upkeep_ratio", "cache_upkeep_waited_ratio", "clustering"):
                    del run[name]
                if run["retention"]:
                    del run["retention"]["flush_seconds"]
            seen.append(runs)
        self.assertEqual(*seen)

    def test_plain_facts_are_found_without_training(self):
        needles = self.asked("prompt", "--policy", "full,streaming", "--needles-form", "plain")
        self.assertEqual(needles["full"]["form"], "plain")
        self.assertGreater(needles["full"]["digits_right_ratio"],
                           needles["streaming"]["digits_right_ratio"] + 0.2)

    def test_own_wording(self):
        form = "Note: the {noun} weighs {digits}, {adjective}.|{adjective} {noun}: weighs{digits}"
        needles = self.asked("prompt", "--policy", "full", "--needles-form", form)
        self.assertEqual(needles["full"]["form"], form)
        self.assertEqual(needles["full"]["asked"], 6)


class MassBudget(ReportTest):
    def run_of(self, budget, *more):
        (run,) = run_json("--context", 1024, "--decode", 8, "--policy", "wave", "--budget", budget,
                          *more)["runs"]
        return run

    def test_more_mass_takes_more_rows_and_keeps_what_was_asked_for(self):
        attended = []
        for wanted in (0.8, 0.95):
            run = self.run_of(f"mass:{wanted}")
            attended.append(run["attended_tokens_mean"])
            # An estimate: on the mean it may be a little wrong.
            self.assertGreater(run["attention_mass"], wanted - 0.03)
            self.assertLess(run["attended_tokens_mean"], 1024)
            self.assertGreater(run["pseudo_entries_mean"], 0)
        self.assertLess(*attended)


if __name__ == "__main__":
    unittest.main()
