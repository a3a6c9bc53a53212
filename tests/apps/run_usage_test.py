"""Checks that what is wrong ends in one clear line and the right exit status."""

import array
import json
import pathlib
import shutil
import tempfile
import unittest

from program import InAFolder, terrace


class StatusTest(InAFolder):
    def check(self, status, mentions, *arguments, environment=None):
        process = terrace(*arguments, environment=environment)
        told = f"{arguments}: {process.stderr!r}"
        self.assertEqual(process.returncode, status, told)
        self.assertEqual(process.stdout, "", told)
        self.assertEqual(process.stderr.count("\n"), 1, told)
        self.assertTrue(process.stderr.startswith("terrace: "), told)
        for word in mentions.split("|"):
            self.assertIn(word, process.stderr)


class WrongUsage(StatusTest):
    def wrong(self, mentions, *arguments, **environment):
        self.check(2, mentions, *arguments, **environment)

    def test_commands_and_options(self):
        self.wrong("command")
        self.wrong("command", "config")
        self.wrong("fly", "fly")
        self.wrong("fly", "config", "fly")
        self.wrong("--frobnicate", "run", "--frobnicate")
        self.wrong("did you mean --context?", "run", "--contxt", "64")
        self.wrong("did you mean explain?", "config", "explian")
        self.wrong("did you mean doctor?", "docter")
        self.wrong("check was not expected (known are validate, explain)", "config", "check")
        self.wrong("--format", "run", "--format", "xml")
        self.wrong("--context", "run", "--context", "many")
        self.wrong("--context", "run", "--context", "0")
        self.wrong("--decode", "run", "--decode", "0")
        self.wrong("--threads", "run", "--threads", "gpu=1")
        self.wrong("--threads|threads.device", "run", "--threads", "device=0")

    def test_options_that_exclude_each_other(self):
        self.wrong("--tokens", "run", "--text", "/etc/hostname", "--tokens", "/etc/hostname")
        self.wrong("--needles", "run", "--needles", "2", "--needles-file", "x.json")

    def test_forms_of_needles(self):
        for form, mentions in (("plian", "plian|{adjective}"), ("", "--needles-form|trained"),
                               ("The {adjective} {noun}.", "--needles-form|{digits} 0 times"),
                               ("{digits} {adjective} {noun}", "--needles-form|before {digits}"),
                               ("{noun} {adjective} {no} {digits}", "--needles-form|braces")):
            for command in (("run",), ("bench", "quality", "--quick")):
                self.wrong(mentions, *command, "--needles", 2, "--needles-form", form)

    def test_how_needles_are_asked_for(self):
        self.wrong("--needles-asked|after|prompt", "run", "--needles", 2, "--needles-asked",
                   "before")
        self.wrong("--needles-asked|--needles N", "run", "--needles-asked", "prompt")
        self.wrong("--needles-form|--needles N", "run", "--needles-form", "plain")
        self.wrong("--needles-form", "run", "--needles-form", "plain", "--needles-file", "x.json")

    def test_an_option_of_a_later_version_is_not_ignored(self):
        self.wrong("--trace|--policy", "run", "--trace", "x")

    def test_values_and_keys(self):
        self.wrong("--budget|retrieval.budget", "run", "--budget", "1.5")
        self.wrong("retrieval.budget", "run", "--set", "budget=0.1")
        self.wrong("KEY=VALUE", "run", "--set", "cache.policy")
        self.wrong("--device-memory", "run", "--device-memory", "lots")
        self.wrong("isa: 'avx512_vnni' is not accepted|amx or neon", "run", "--set",
                   "isa=avx512_vnni")
        self.wrong("TERRACE_KV_DTYPE", "run", environment={"TERRACE_KV_DTYPE": "f8"})
        self.wrong("bad.yaml:1", "run", "--config", self.write("bad.yaml", "cache: {polcy: lru}\n"))

    def test_policies(self):
        self.wrong("guess|full, streaming, oracle, pqcache", "run", "--policy", "full,guess")
        self.wrong("retrieval.policy: 'full,,oracle' has an empty name", "run", "--policy",
                   "full,,oracle")
        self.wrong("retrieval.policy: names no policy", "run", "--policy", "")
        spaced = terrace("run", "--context", 64, "--decode", 1, "--policy", " streaming, full ")
        self.assertEqual((spaced.returncode, spaced.stderr), (0, ""))
        twice = terrace("run", "--context", 64, "--decode", 1, "--policy", "full,streaming,full",
                        "--format", "json")
        self.assertEqual([run["policy"] for run in json.loads(twice.stdout)["runs"]],
                         ["full", "streaming"])
        self.wrong("guess|lru", "run", "--cache", "guess")
        self.wrong("cluster", "run", "--cache-granularity", "cluster")
        self.wrong("sim|auto, host or cuda", "run", "--backend", "sim")
        self.wrong("mass", "run", "--budget", "mass:0.9", "--policy", "pqcache")

    def test_heads_that_are_not_cut_into_equal_parts(self):
        for policy in ("pqcache", "qpq", "full,qpq"):
            for command in (("run",), ("config", "validate")):
                self.wrong("pq.subspaces 3 does not divide head_dim 64", *command, "--set",
                           f"retrieval.policy={policy}", "--set", "pq.subspaces=3")
        self.wrong("pq.subspaces 3 does not divide head_dim 64", "run", "--policy", "qpq", "--set",
                   "pq.subspaces=3")

    def test_configs_that_cannot_be_run_are_not_valid(self):
        validate = ("config", "validate", "--set")
        self.wrong("cluster", *validate, "retrieval.policy=pqcache", "--set",
                   "cache.granularity=cluster")
        self.wrong("guess|full, streaming, oracle, pqcache", *validate,
                   "retrieval.policy=full,guess")
        self.wrong("mass", *validate, "retrieval.policy=pqcache", "--set",
                   "retrieval.budget=mass:0.9")
        self.assertEqual(terrace(*validate, "retrieval.policy=full,pqcache").returncode, 0)
        self.wrong("--set: quest.page_tokens", *validate, "quest.page_tokens=24")

    def test_wrong_keys_of_policies_name_what_set_them(self):
        config = self.write("c.yaml", "# a comment\nquest:\n  page_tokens: 24\n")
        for command in (("config", "validate"), ("run", "--policy", "full,quest")):
            self.wrong("c.yaml:3: quest.page_tokens", *command, "--config", config)
        config.write_text("cache:\n  policy: off\n")
        for command in (("config", "validate"), ("run",)):
            self.wrong("c.yaml:2: cache.policy: unknown policy 'off'; did you mean none?", *command,
                       "--config", config)
        self.wrong("--cache: cache.policy|lfuu|did you mean lfu?|none, lru", "run", "--cache",
                   "lfuu")
        self.wrong("--policy: retrieval.policy: unknown policy 'guess'", "run", "--policy", "guess")

    def test_names_in_other_letters_are_near(self):
        for asked, meant in (("PQCache", "pqcache"), ("H2O", "h2o"), ("snapKV", "snapkv")):
            self.wrong(f"'{asked}'; did you mean {meant}?", "run", "--policy", asked)
        self.wrong("did you mean lru?", "run", "--cache", "LRU")
        config = self.write("c.yaml", "retrieval:\n  policy: PQCACHE\n")
        self.wrong("c.yaml:2: retrieval.policy|did you mean pqcache?", "config", "validate", config)

    def test_a_config_to_validate_needs_no_flag(self):
        config = self.write("c.yaml", "retrieval:\n  polcy: pqcache\n")
        self.wrong("c.yaml:2: |did you mean 'retrieval.policy'?", "config", "validate", config)
        config.write_text("retrieval:\n  policy: pqcache\n")
        self.assertEqual(terrace("config", "validate", config).returncode, 0)
        self.assertIn(f"file {config}:2", terrace("config", "explain", config).stdout)

    def test_profiles(self):
        presets = "pcie4-a100, pcie4-h100, pcie4-h200, pcie5-a100, pcie5-h100, pcie5-h200"
        for command in (("run", "--context", 64, "--decode", 1), ("bench", "kernels", "--quick"),
                        ("bench", "pcie", "--quick"), ("bench", "cache", "--quick"),
                        ("bench", "quality", "--quick"), ("config", "explain"),
                        ("config", "validate")):
            self.wrong(f"/nowhere.yaml|{presets}", *command, "--profile", "/nowhere.yaml")
            self.wrong("did you mean pcie5-h100?", *command, "--profile", "pcie5-h10")

    def test_nothing_is_written_over_a_model(self):
        shard = self.write("model/model-00001-of-00002.safetensors", "weights")
        model = ("--model", shard.parent)
        for command, flag in ((("run",), "--timeline"), (("run", "--policy", "oracle"), "--trace"),
                              (("bench", "quality"), "--report")):
            self.wrong(f"{flag}|model-00001|model's folder", *command, *model, flag, shard)
        self.assertEqual(shard.read_text(), "weights")
        bundled = json.loads(terrace("run", "--format", "json", "--context", 8, "--decode", 1,
                                     "--policy", "streaming").stdout)["model"]
        self.wrong("model's folder", "run", "--timeline", pathlib.Path(bundled) / "config.json")

    def test_explain_names_its_columns(self):
        table = terrace("config", "explain").stdout.splitlines()
        self.assertEqual(table[0].split(), ["key", "value", "set", "by", "meaning"])
        self.assertEqual(table[0].index("meaning"), table[1].index(table[1].split("  ")[-1]))

    def test_explain_shows_main_keys_and_those_that_are_set(self):
        rows = json.loads(terrace("config", "explain", "--format", "json").stdout)["rows"]
        table = terrace("config", "explain", "--set", "cache.horizon=7").stdout.splitlines()
        self.assertEqual(len(table), 12 + 3)  # a head, the main keys, one that is set, the rest
        self.assertTrue(any(line.startswith("cache.horizon") for line in table))
        self.assertEqual(table[-1], f"{len(rows) - 13} more keys have their defaults: "
                                    "--all shows them")
        table = terrace("config", "explain", "--all").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in table[1:]], [row["key"] for row in rows])

    def test_texts(self):
        short = self.write("short.txt", "x" * 100)
        self.wrong("100|141", "run", "--text", short, "--context", "128", "--decode", "12")
        self.wrong("names", "run", "--needles", "100000")
        self.wrong("--context 64", "run", "--needles", "10", "--context", "64")

    def test_ids(self):
        ids = array.array("I", [1, 2, 256, 4])
        path = self.write("ids.u32", ids.tobytes())
        self.wrong("256|position 2", "run", "--tokens", path, "--context", "2", "--decode", "1")
        self.wrong("whole", "run", "--tokens", self.write("half.u32", b"12345"), "--context", "2",
                   "--decode", "1")


class Failures(StatusTest):
    def fails(self, mentions, *arguments):
        self.check(1, mentions, *arguments)

    def test_backends_that_are_not_built_in(self):
        self.fails("cuda", "run", "--backend", "cuda")

    def test_files_that_are_not_there(self):
        self.fails("/nowhere", "run", "--model", "/nowhere")
        self.fails("/nowhere", "run", "--text", "/nowhere")
        self.fails("/nowhere", "run", "--tokens", "/nowhere")
        self.fails("/nowhere", "run", "--needles-file", "/nowhere")
        self.fails("/nowhere", "run", "--config", "/nowhere")

    def test_models_that_are_none(self):
        self.fails("config.json", "run", "--model", self.write("m1/config.json", "garbage").parent)
        self.fails("config.json", "run", "--model", self.write("m2/config.json", "{}").parent)
        empty = self.write("m4/readme", "").parent
        for command in (("run",), ("bench", "quality"), ("bench", "serving"), ("calibrate",)):
            self.fails("m4: holds no config.json; name the folder of a Hugging Face model",
                       *command, "--model", empty)
        document = json.loads(terrace("run", "--format", "json", "--context", 8, "--decode", 1,
                                      "--policy", "streaming").stdout)
        model = self.folder / "m3"
        shutil.copytree(document["model"], model)
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:100_000])
        self.fails("model.safetensors", "run", "--model", model)
        weights.write_bytes(b"\xff" * 4096)
        self.fails("model.safetensors", "run", "--model", model)

    def test_results_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = terrace("config", "explain", stdout=full)
        self.assertEqual(process.returncode, 1)
        self.assertIn("cannot write", process.stderr)


class OtherCommands(unittest.TestCase):
    def rows(self, *arguments, status=0):
        process = terrace(*arguments, "--format", "json")
        self.assertEqual(process.returncode, status, process.stderr)
        document = json.loads(process.stdout)
        self.assertEqual(list(document)[:6],
                         ["terrace", "command", "build", "machine", "config", "seed"])
        return document["rows"]

    def test_help_and_version(self):
        self.assertIn("terrace", terrace("--version").stdout)
        for command in ([], ["run"], ["doctor"], ["config"], ["config", "explain"],
                        ["config", "validate"]):
            process = terrace(*command, "--help")
            self.assertEqual(process.returncode, 0)
            self.assertIn("--help", process.stdout)
            self.assertEqual(process.stderr, "")

    def test_explain_says_where_values_come_from(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("cache:\n  policy: lfu\n")
            file.flush()
            process = terrace("config", "explain", "--format", "json", "--config", file.name,
                              "--set", "kv.dtype=f32", environment={"TERRACE_SEED": "9"})
        rows = {row["key"]: row for row in json.loads(process.stdout)["rows"]}
        self.assertEqual(rows["cache.policy"]["origin"], "file")
        self.assertEqual(rows["cache.policy"]["value"], "lfu")
        self.assertEqual(rows["kv.dtype"]["origin"], "flag")
        self.assertEqual((rows["seed"]["origin"], rows["seed"]["value"]), ("environment", 9))
        self.assertEqual(rows["deadline"]["origin"], "default")
        self.assertTrue(all(row["meaning"] for row in rows.values()))

    def test_verbose_says_who_set_what(self):
        process = terrace("config", "validate", "-v", "--set", "cache.policy=lfu")
        self.assertEqual(process.returncode, 0)
        lines = process.stderr.splitlines()
        self.assertEqual(lines[0], "terrace: cache.policy = lfu (--set)")
        self.assertRegex(lines[1], "terrace: kernels use [a-z0-9_]+")

    def test_validate_knows_policies(self):
        self.assertEqual(terrace("config", "validate").returncode, 0)
        process = terrace("config", "validate", "--set", "cache.policy=guess")
        self.assertEqual(process.returncode, 2)
        self.assertIn("lru", process.stderr)

    def test_a_preset_is_a_profile(self):
        self.assertEqual(terrace("run", "--context", 64, "--decode", 1, "--policy", "full",
                                 "--profile", "pcie5-h100").returncode, 0)
        rows = {row["check"]: row for row in self.rows("doctor", "--profile", "pcie5-h100")}
        self.assertEqual(rows["profile"]["status"], "ok")
        self.assertIn("H100 on PCIe 5", rows["profile"]["found"])
        self.assertIn("H100 on PCIe 5",
                      terrace("config", "explain", "--profile", "pcie5-h100").stdout)
        explained = terrace("config", "explain", "--set", "profile=pcie4-a100", "--format", "json")
        self.assertEqual(json.loads(explained.stdout)["profile"]["link"]["bandwidth"], 26e9)

    def test_a_profile_from_a_pipe_is_read_once(self):
        profile = "version: 1\nlink: {bandwidth: 2.5e+10, latency: 1e-05}\n"
        explained = terrace("config", "explain", "--profile", "/dev/stdin", "--format", "json",
                            stdin=profile)
        self.assertEqual(explained.returncode, 0, explained.stderr)
        self.assertEqual(json.loads(explained.stdout)["profile"]["link"]["bandwidth"], 2.5e10)
        for command in (("run", "--context", 64, "--decode", 1, "--policy", "full"),
                        ("bench", "kernels", "--quick", "--only", "memory_read"),
                        ("doctor",)):
            process = terrace(*command, "--profile", "/dev/stdin", stdin=profile)
            self.assertEqual((process.returncode, process.stderr), (0, ""), command)

    def test_doctor_gives_rows_and_fails_when_one_fails(self):
        rows = self.rows("doctor")
        self.assertEqual([row["check"] for row in rows],
                         ["cpu", "numa", "container", "huge_pages", "pinned_memory", "io_uring",
                          "direct_io", "nvme", "remote", "daemon", "cuda_driver", "cuda_toolkit",
                          "cuda_device", "backend", "profile", "config", "variables"])
        self.assertEqual({key for row in rows for key in row},
                         {"check", "status", "found", "advice"})
        self.assertLessEqual({row["status"] for row in rows}, {"ok", "warn", "skip"})
        rows = self.rows("doctor", "--set", "profile=/nowhere.yaml", status=1)
        self.assertIn("fail", {row["status"] for row in rows})


if __name__ == "__main__":
    unittest.main()
