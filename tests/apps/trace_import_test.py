"""`terrace trace convert --from mooncake` as a user would call it."""

import json
import pathlib
import struct
import tempfile
import unittest

from program import run_json, terrace


def hits_of_lru(requests, capacity):
    """Returns how many of these (key, size) a cache of that size finds."""
    held, hits = {}, 0
    for key, size in requests:
        hits += key in held
        held[key] = held.pop(key, size)
        while sum(held.values()) > capacity:
            del held[next(iter(held))]
    return hits


class Import(unittest.TestCase):
    def test_mooncake(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            lines = [{"timestamp": i, "input_length": 512 * 4, "output_length": 10,
                      "hash_ids": [0, 1, 2, 100 + i % 7]} for i in range(50)]
            (folder / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
            trace = folder / "m.trace"
            self.assertEqual(terrace("trace", "convert", folder / "m.jsonl", trace, "--from",
                                     "mooncake").returncode, 0)
            process = terrace("trace", "replay", trace, "--cache", "lru", "--cache-tokens", 5 * 512,
                              "--set", "cache.admission=always", "--format", "json")
            self.assertEqual(process.returncode, 0, process.stderr)
            cache = json.loads(process.stdout)["cache"]
            info = terrace("trace", "info", trace, "--format", "json")
            head = json.loads(info.stdout)["trace"]
            self.assertEqual((head["unit"], head["granularities"]), ("block", ["block"]))
            self.check_that_a_size_is_asked_for(trace)
            # The three that all share hit in 49 of 50 requests; of seven others one fits beside.
            self.assertAlmostEqual(cache["hit_rate_units"], 49 * 3 / 200)
            process = terrace("tune", "--trace", trace, "--device-memory", "16MiB", "--profile",
                              "pcie5-h100", "--format", "json")
            self.assertEqual(process.returncode, 0, process.stderr)
            best = json.loads(process.stdout)["recommended"]
            # All ten blocks fit: each misses once.
            self.assertAlmostEqual(best["hit_rate_units"], 190 / 200)
            self.assertEqual(best["refill_bytes"], 0)

    def test_a_block_after_a_missing_one_is_no_hit(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            # Two blocks are kept. The last request finds block 1, but not block 0, which precedes
            # it.
            requests = ([0, 1], [1], [5], [0, 1])
            (folder / "m.jsonl").write_text("\n".join(
                json.dumps({"input_length": 512 * len(ids), "hash_ids": ids}) for ids in requests))
            trace = folder / "m.trace"
            terrace("trace", "convert", folder / "m.jsonl", trace, "--from", "mooncake", "-q")
            process = terrace("trace", "replay", trace, "--cache", "lru", "--cache-tokens",
                              2 * 512, "--set", "cache.admission=always", "--format", "json")
            document = json.loads(process.stdout)
            self.assertAlmostEqual(document["cache"]["hit_rate_units"], 1 / 6)
            self.assertEqual(document["bytes"]["demand"], 5 * 512 * 256)

    def test_belady_gives_up_the_last_blocks_of_a_request_first(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            document = [*range(10)]
            requests = (document, [20], [20], [20], document)
            (folder / "m.jsonl").write_text("\n".join(
                json.dumps({"input_length": 512 * len(ids), "hash_ids": ids}) for ids in requests))
            trace = folder / "m.trace"
            terrace("trace", "convert", folder / "m.jsonl", trace, "--from", "mooncake", "-q")
            # Block 20 is wanted before the document: one of its ten blocks goes, and not the first.
            process = terrace("trace", "replay", trace, "--cache", "belady", "--cache-tokens",
                              10 * 512, "--set", "cache.admission=always", "--format", "json")
            cache = json.loads(process.stdout)["cache"]
            self.assertAlmostEqual(cache["hit_rate_units"], (2 + 9) / 23)

    def test_blocks_of_another_size(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            requests, trace = folder / "m.jsonl", folder / "m.trace"
            requests.write_text(json.dumps({"input_length": 521, "hash_ids": [*range(33)]}))
            convert = ("trace", "convert", requests, trace, "--from", "mooncake", "-q")
            process = terrace(*convert)
            self.assertEqual(process.returncode, 1)
            self.assertEqual(process.stderr, f"terrace: {requests}:1: input_length 521 has 2 "
                             "blocks of 512 tokens, and hash_ids 33; --block-tokens 16 would fit "
                             "all lines up to here\n")
            self.assertFalse(trace.exists())
            for size in (("--block-tokens", 16), ("--set", "kv.block_tokens=16")):
                process = terrace(*convert, *size)
                self.assertEqual((process.returncode, process.stderr), (0, ""))
                info = json.loads(terrace("trace", "info", trace, "--format", "json").stdout)
                self.assertEqual(info["trace"]["block_tokens"], 16)
                self.assertEqual(info["counts"]["rows"], 521)
                trace.unlink()
            # The block size of runs, in a config file, is not the one of these requests.
            config = folder / "c.yaml"
            config.write_text("kv:\n  block_tokens: 16\n")
            self.assertIn("blocks of 512", terrace(*convert, "--config", config).stderr)

    def test_objects(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            csv, binary = folder / "o.csv", folder / "o.bin"
            rows = [(i * i % 11, 10 + i * i % 11) for i in range(200)]
            csv.write_text("time,obj_id,obj_size\n" +
                           "".join(f"{i},o{key},{size}\n" for i, (key, size) in enumerate(rows)))
            binary.write_bytes(b"".join(struct.pack("<IQIq", i, key, size, -1)
                                        for i, (key, size) in enumerate(rows)))
            for source, form in ((csv, "csv"), (binary, "oraclegeneral")):
                trace = folder / f"{form}.trace"
                process = terrace("trace", "convert", source, trace, "--from", form)
                self.assertEqual(process.returncode, 0, process.stderr)
                self.assertIn("a row counts as 256 bytes", process.stderr)
                self.assertEqual(process.stderr.count("\n"), 1)
                for capacity in (25, 50, 100):
                    self.assertEqual(self.hits(trace, capacity), hits_of_lru(rows, capacity))
            equal = ("trace", "convert", csv, folder / "equal.trace", "--from", "csv", "-q")
            self.assertEqual(terrace(*equal, "--ignore-obj-size").returncode, 0)
            ones = [(key, 1) for key, _ in rows]
            self.assertEqual(self.hits(folder / "equal.trace", 4), hits_of_lru(ones, 4))

    def hits(self, trace, capacity):
        process = terrace("trace", "replay", trace, "--cache", "lru", "--cache-tokens", capacity,
                          "--set", "cache.admission=always", "--format", "json")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return round(200 * json.loads(process.stdout)["cache"]["hit_rate_units"])

    def test_options_that_objects_do_not_have(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            csv = folder / "o.csv"
            csv.write_text("1,a,5\n")
            convert = ("trace", "convert", csv, folder / "t", "--from")
            for words, *arguments in (
                    ("--model does not go with --from csv", "csv", "--model", folder),
                    ("--block-tokens", "csv", "--block-tokens", 16),
                    ("--to csv does not go with --from", "oraclegeneral", "--to", "csv"),
                    ("only csv has columns", "oraclegeneral", "--obj-id-col", 3),
                    ("only csv and oraclegeneral", "mooncake", "--ignore-obj-size"),
                    ("both 2; name two columns", "csv", "--obj-size-col", 2),
                    ("obj-id-col", "csv", "--obj-id-col", 0)):
                process = terrace(*convert, *arguments)
                self.assertEqual(process.returncode, 2, process.stderr)
                self.assertIn(words, process.stderr)
            process = terrace(*convert, "csv", "--obj-id-col", 1, "--obj-size-col", 2)
            self.assertEqual(process.returncode, 1)
            self.assertIn("o.csv:1: obj_size in column 2", process.stderr)
            self.assertFalse((folder / "t").exists())

    def test_requests_from_standard_input(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name) / "m.trace"
            convert = ("trace", "convert", "-", trace, "--from", "mooncake", "-q")
            process = terrace(*convert, stdin='{"input_length": 1024, "hash_ids": [1, 2]}\r\n')
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            info = json.loads(terrace("trace", "info", trace, "--format", "json").stdout)
            self.assertEqual(info["counts"]["rows"], 1024)
            process = terrace(*convert, stdin="no\n")
            self.assertEqual(process.returncode, 1)
            self.assertIn("standard input:1: no JSON: column 2", process.stderr)

    def check_that_a_size_is_asked_for(self, trace):
        replay = ("trace", "replay", trace)
        told = ("terrace: warning: the trace names no size of a cache, and none is given: "
                "no cache; give --cache-tokens, at least 512\n")
        self.assertEqual(terrace(*replay, "--cache", "lru").stderr, told)
        for silent in (("-q",), ("--cache", "none"), ("--cache-tokens", 512)):
            self.assertEqual(terrace(*replay, *silent).stderr, "")

    def test_the_model_whose_prefixes_they_are(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = run_json("--context", 64, "--decode", 1, "--policy", "full")["model"]
            requests, trace = folder / "m.jsonl", folder / "m.trace"
            requests.write_text(json.dumps({"input_length": 1024, "hash_ids": [1, 2]}))
            convert = ("trace", "convert", requests, trace, "--from", "mooncake")
            process = terrace(*convert)
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertIn("give --model DIR", process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1)
            self.assertEqual(terrace(*convert, "-q").stderr, "")
            process = terrace(*convert, "--model", model)
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            process = terrace("trace", "info", trace, "--model", model, "--format", "json")
            self.assertEqual(process.returncode, 0, process.stderr)
            shape = json.loads((pathlib.Path(model) / "config.json").read_text())
            document = json.loads(process.stdout)
            self.assertEqual(document["trace"]["layers"], shape["num_hidden_layers"])
            self.assertEqual(document["trace"]["kv_heads"], shape["num_key_value_heads"])
            self.assertEqual(document["counts"]["selections"], 2 * shape["num_hidden_layers"])
            self.assertEqual(document["counts"]["layer_steps"], shape["num_hidden_layers"])
            self.assertEqual(document["counts"]["rows"], 1024 * shape["num_hidden_layers"] *
                             shape["num_key_value_heads"])
            named_to_wipe_a_screen = folder / "a\x1b[2Jb"
            named_to_wipe_a_screen.symlink_to(model)
            terrace(*convert, "--model", named_to_wipe_a_screen)
            self.assertRegex(terrace("trace", "info", trace).stdout, r"(?m)^model +a\?\[2Jb$")
            trace.unlink()
            for named, *options in (("--to", "--to", "csv"),
                                    ("--cache-granularity", "--cache-granularity", "block")):
                process = terrace(*convert, *options)
                self.assertEqual(process.returncode, 2, process.stderr)
                self.assertIn(named, process.stderr)
                self.assertIn("does not go with --from mooncake", process.stderr)
                self.assertFalse(trace.exists())
            requests.write_text('{"input_length": 1024, "hash_ids": []}')
            process = terrace(*convert)
            self.assertEqual(process.returncode, 1)
            self.assertIn("m.jsonl:1: hash_ids", process.stderr)

    def test_no_cache_is_recommended_where_none_does_better(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            # No request wants a block that another wanted before.
            lines = [{"timestamp": i, "input_length": 512 * 3, "output_length": 10,
                      "hash_ids": [3 * i, 3 * i + 1, 3 * i + 2]} for i in range(30)]
            (folder / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
            trace = folder / "m.trace"
            terrace("trace", "convert", folder / "m.jsonl", trace, "--from", "mooncake")
            process = terrace("tune", "--trace", trace, "--device-memory", "16MiB", "--profile",
                              "pcie5-h100")
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertIn("recommended: no cache: ", process.stdout)

    def test_figures_of_requests_are_named_by_request(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            requests, trace, page = folder / "m.jsonl", folder / "m.trace", folder / "page.html"
            requests.write_text('{"input_length": 1024, "hash_ids": [1, 2]}\n'
                                '{"input_length": 1024, "hash_ids": [1, 3]}\n')
            terrace("trace", "convert", requests, trace, "--from", "mooncake")
            tune = ("tune", "--trace", trace, "--device-memory", "4MiB", "--profile", "pcie5-h100")
            process = terrace(*tune, "--report", page)
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            lines = process.stdout.splitlines()
            self.assertEqual(lines[0], "trace    2 requests of 1 layer, 4 units wanted")
            self.assertRegex(process.stdout, " kB/req +kB/req +ms/request ")
            self.assertRegex(process.stdout, "(?m)^recommended: .* ms a request$")
            info = terrace("trace", "info", trace).stdout
            self.assertRegex(info, "(?m)^step +request$")
            text = page.read_text()
            for words in ("2 requests of 1 layer, 4 units wanted. Costs", "ms a request<",
                          ">fetched and refilled a request, ", "time per request against",
                          "kB are per request"):
                self.assertIn(words, text)
            for said in (process.stdout, text):
                for word in ("a token", "per token,", "kB/tok", "ms/tok", "policy ,", "policy -"):
                    self.assertNotIn(word, said)

    def test_all_that_tuning_lacks_is_named_at_once(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            requests, trace = folder / "m.jsonl", folder / "m.trace"
            requests.write_text('{"input_length": 1024, "hash_ids": [1, 2]}\n')
            terrace("trace", "convert", requests, trace, "--from", "mooncake")
            for words, *given in (
                    ("lacks --device-memory SIZE, .*; --profile PRESET or FILE, for requests", ),
                    ("lacks --profile", "--device-memory", "4MiB"),
                    ("lacks --device-memory [^;]*$", "--profile", "pcie5-h100")):
                process = terrace("tune", "--trace", trace, *given)
                self.assertEqual((process.returncode, process.stdout), (2, ""))
                self.assertRegex(process.stderr, words)
                self.assertEqual(process.stderr.count("\n"), 1)

    def test_no_config_is_written_of_requests(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            requests, trace = folder / "m.jsonl", folder / "m.trace"
            requests.write_text('{"input_length": 1024, "hash_ids": [1, 2]}\n')
            terrace("trace", "convert", requests, trace, "--from", "mooncake")
            process = terrace("tune", "--trace", trace, "--device-memory", "4MiB", "--profile",
                              "pcie5-h100", "--write-config", folder / "c.yaml")
            self.assertEqual((process.returncode, process.stdout), (2, ""))
            self.assertIn("--write-config: the trace is of requests", process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1)
            self.assertFalse((folder / "c.yaml").exists())


if __name__ == "__main__":
    unittest.main()
