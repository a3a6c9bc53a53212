"""`terrace tune --memory` on prefix traffic, as a user would call it."""

import html
import json
import os
import random
import re
import struct
import subprocess

from program import InAFolder, clean_environment, terrace
from terraced_test import RunsDaemons, key

CHUNK = 512
TOKEN_BYTES = 32 * 8 * 128 * 2 * 2  # of llama-3.1-8b
CHUNK_BYTES = CHUNK * TOKEN_BYTES


def requests_of_a_dialogue(turns, others):
    """Each turn has all that came before it and two chunks more; between them come others."""
    lines = []
    for turn in range(turns):
        dialogue = list(range(2 * (turn + 1)))
        single = [10_000 + others * turn + i for i in range(others)]
        for ids in (dialogue, single):
            lines.append({"timestamp": 60_000 * len(lines), "input_length": CHUNK * len(ids) + 7,
                          "output_length": 5, "hash_ids": [*ids, 1_000_000 + len(lines)]})
    return "\n".join(map(json.dumps, lines))


class TunePrefixes(InAFolder):
    def setUp(self):
        super().setUp()
        requests = self.write("m.jsonl", requests_of_a_dialogue(turns=6, others=3))
        self.trace = self.folder / "prefixes"
        process = terrace("trace", "convert", requests, self.trace, "--from", "mooncake", "-q")
        self.assertEqual(process.returncode, 0, process.stderr)

    def tune(self, *arguments):
        return terrace("tune", "--trace", self.trace, "--shape", "llama-3.1-8b",
                       "--prefill-rate", 5000, *arguments)

    def rows(self, *arguments):
        process = self.tune("--format", "json", *arguments)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.document = json.loads(process.stdout)
        return {row["sizes"]: row for row in self.document["rows"]}

    def test_figures(self):
        rows = self.rows("--memory", f"{8 * CHUNK_BYTES},{100 * CHUNK_BYTES}")
        self.assertEqual(list(rows), ["asked", "memory_x2", "nvme_x2", "nvme_alone", "unlimited"])
        tokens = sum(CHUNK * (2 * (turn + 1) + 3) + 14 for turn in range(6))
        self.assertEqual(self.document["requests"], {"count": 12, "timed": 12, "overlapping": 0,
                                                     "tokens": tokens})
        self.assertEqual(self.document["chunk"], {"tokens": CHUNK, "bytes": CHUNK_BYTES})
        for row in rows.values():
            hits = [tier["hit_tokens"] for tier in row["tiers"]]
            self.assertEqual(sum(hits) + row["missed_tokens"], tokens)
            self.assertEqual(row["hit_tokens"], sum(hits))
            self.assertEqual(row["saved_seconds"],
                             sum(tier["saved_seconds"] for tier in row["tiers"]))
        # Each turn finds what the ones before it have stored: two chunks for each of them.
        self.assertEqual(rows["asked"]["hit_tokens"], CHUNK * sum(2 * turn for turn in range(6)))
        nvme = rows["asked"]["tiers"][1]
        self.assertAlmostEqual(nvme["saved_seconds"],
                               nvme["hit_tokens"] * (1 / 5000 - TOKEN_BYTES / 2e9))
        self.assertEqual(nvme["used_bytes"], 27 * CHUNK_BYTES)
        self.assertEqual([load["source"] for load in self.document["loads"]], ["assumed"] * 2)
        self.assertEqual(rows["unlimited"]["tiers"][0]["bytes"], None)
        self.assertIn("Keep these sizes", self.document["recommendation"])

    def test_memory_finds_no_more_than_the_file(self):
        small = f"{11 * CHUNK_BYTES}"
        with_memory = self.rows("--memory", f"{11 * CHUNK_BYTES},{small}")
        alone = self.rows("--memory", small)
        self.assertEqual(list(alone), ["asked", "nvme_x2", "nvme_x4", "unlimited"])
        self.assertEqual(with_memory["asked"]["hit_tokens"], alone["asked"]["hit_tokens"])
        self.assertGreater(with_memory["nvme_alone"]["hit_tokens"], alone["asked"]["hit_tokens"])
        self.assertIn("Make nvme 2 times as large", self.document["recommendation"])
        text = self.tune("--memory", f"{small},{small}").stdout
        self.assertIn("Memory has copies of chunks of the file", text)
        self.assertRegex(text, r"(?m)^nvme_x2 +.* +\d+\.\d\d$")

    def test_load_rates(self):
        sizes = ("--memory", f"{8 * CHUNK_BYTES},{50 * CHUNK_BYTES}")
        profile = self.write("here.yaml", "version: 1\nlink: {bandwidth: 5e9, latency: 1e-5}\n"
                             "nvme: {read: 8e9, write: 1e9, latency: 1e-4}\n")
        self.rows(*sizes, "--profile", profile)
        self.assertEqual([load["bytes_per_second"] for load in self.document["loads"]],
                         [5e9, 5e9], "what is read of the file crosses the link, too")
        self.assertEqual({load["source"] for load in self.document["loads"]}, {str(profile)})
        self.rows(*sizes, "--profile", profile, "--load-rate", "3GB/s, 1GB/s")
        self.assertEqual([load["bytes_per_second"] for load in self.document["loads"]],
                         [3e9, 1e9])
        slow = self.rows(*sizes, "--load-rate", "1GB/s,100MB/s")
        self.assertLess(slow["asked"]["tiers"][1]["saved_seconds"], 0)
        self.assertIn("Take a faster nvme", self.document["recommendation"])

    def test_the_config_is_one_that_programs_take(self):
        config = self.folder / "tuned.yaml"
        process = self.tune("--memory", "512MiB,8GiB", "--write-config", config, "-q")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        keys = re.findall(r"(?m)^([a-z_.]+): (.*)$", config.read_text())
        self.assertEqual(keys, [("tier.chunk_tokens", "512"), ("daemon.memory", "512MiB"),
                                ("tier.nvme.bytes", "8GiB")])
        daemon = subprocess.run(
            [os.environ["TERRACED_PROGRAM"], "--check", "--config", config, "--set",
             f"tier.nvme.path={self.folder / 'chunks'}"], env=clean_environment(), timeout=600,
            capture_output=True, text=True, check=False)
        self.assertEqual(daemon.returncode, 0, daemon.stderr)
        process = terrace("config", "explain", "--config", config)
        self.assertEqual(process.returncode, 0, process.stderr)
        alone = self.folder / "alone.yaml"
        self.tune("--memory", "8GiB", "--write-config", alone, "-q")
        self.assertNotIn("daemon", alone.read_text().split("\n", 2)[2])

    def test_the_page_shows_the_sizes_and_the_recommended_config(self):
        target = self.folder / "page.html"
        rows = self.rows("--memory", "256MiB,512MiB", "--report", target)
        page = target.read_text()
        found = page.split("<figure>")[1]
        for row in rows.values():
            for tier in row["tiers"]:
                percent = f"{100 * tier['hit_ratio']:.4g}"
                self.assertIn(f"<title>{tier['tier']}: {percent} %</title>", found)
        for words in ("asked for", "memory x 2", "nvme x 2", "nvme alone", "no limits"):
            self.assertIn(f">{words}<", found)
        self.assertIn(html.escape(self.document["recommendation"], quote=False), page)
        self.assertIn(f"--report {target}", page)
        self.assertIn(" UTC</dd>", page)
        larger = re.match("Make (memory|nvme) ([0-9]+) times", self.document["recommendation"])
        self.assertIsNotNone(larger, self.document["recommendation"])
        row = rows[f"{larger[1]}_x{larger[2]}"]
        config = self.write("larger.yaml", page.split("<pre>")[2].split("</pre>")[0])
        explained = terrace("config", "explain", "--config", config, "--format", "json")
        self.assertEqual(explained.returncode, 0, explained.stderr)
        sizes = dict(re.findall(r"(?m)^(daemon.memory|tier.nvme.bytes): (.*)$", config.read_text()))
        units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        as_bytes = [int(float(size[:-3]) * units[size[-3:]]) for size in sizes.values()]
        self.assertEqual(as_bytes, [tier["bytes"] for tier in row["tiers"]])
        self.tune("--memory", "1GiB", "--report", target, "-q")
        self.assertNotIn("nvme alone", target.read_text())

    def test_the_shape_is_the_traces_or_a_named_one(self):
        call = ("tune", "--trace", self.trace, "--memory", "1GiB", "--prefill-rate", 5000)
        process = terrace(*call)
        self.assertEqual(process.returncode, 2)
        self.assertEqual(process.stderr, "terrace: tune lacks --shape NAME or --model DIR, for the "
                         "trace names no model\n")
        process = terrace(*call, "--shape", "tiny", "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        half = json.loads(process.stdout)["chunk"]["bytes"]
        process = terrace(*call, "--shape", "tiny", "--set", "kv.dtype=f32", "--format", "json")
        self.assertEqual(json.loads(process.stdout)["chunk"]["bytes"], 2 * half)

    def test_wrong_usage(self):
        run = self.write("run", "")
        for words, *arguments in (
                ("tune lacks --prefill-rate", "--trace", self.trace, "--memory", "1GiB"),
                ("tune lacks --trace", "--memory", "1GiB", "--prefill-rate", 1),
                ("--device-memory: with --memory", "--trace", self.trace, "--memory", "1GiB",
                 "--device-memory", "1GiB"),
                ("--set: with --memory", "--trace", self.trace, "--memory", "1GiB", "--set",
                 "cache.policy=lru"),
                ("--policies does not go with --memory", "--trace", self.trace, "--memory",
                 "1GiB", "--policies", "lru"),
                ("--prefill-rate goes with --memory", "--trace", self.trace, "--prefill-rate", 5),
                ("--shape goes with --memory", "--trace", self.trace, "--shape", "tiny")):
            process = terrace("tune", *arguments)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertIn(words, process.stderr)
        for words, *arguments in (
                ("--memory", "--memory", "much"),
                ("there are two", "--memory", "1GiB,2GiB,3GiB"),
                ("no room for a chunk", "--memory", "2MiB"),
                ("--load-rate has 1 rates, and --memory 2 sizes", "--memory", "1GiB,2GiB",
                 "--load-rate", "1GB/s"),
                ("--load-rate 5: give bytes a second", "--memory", "1GiB", "--load-rate", "5"),
                ("--prefill-rate", "--memory", "1GiB", "--prefill-rate", "-2")):
            process = self.tune(*arguments)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertIn(words, process.stderr)
        run.unlink()
        terrace("run", "--policy", "pqcache", "--context", 256, "--decode", 8, "--trace", run)
        process = terrace("tune", "--trace", run, "--memory", "1GiB", "--prefill-rate", 1,
                          "--shape", "tiny")
        self.assertEqual(process.returncode, 2)
        self.assertIn("is of no prefixes of requests", process.stderr)


LET_GO, RELEASE = 13, 5


class TunedDaemon(RunsDaemons):
    """The prediction beside a daemon that serves the same requests."""

    CHUNK_BYTES = 64 << 10  # a part of it fills a segment of 1 MiB of memory

    def serve(self, client, chunks):
        """Does what an engine does for a prompt: reads what is found, publishes the rest."""
        _, lease, found = client.find(*map(key, chunks))
        for number in range(found):
            client.read(lease, number)
            client.call(LET_GO, struct.pack("<Q", lease))
        if lease:
            client.call(RELEASE, struct.pack("<Q", lease))
        for chunk in chunks[found:]:
            client.publish(key(chunk), bytes([chunk % 251]) * self.CHUNK_BYTES)
        return found

    def test_memory_hits_as_tune_predicts(self):
        draw = random.Random(3)
        documents = [range(100 * i, 100 * i + 6) for i in range(1, 7)]
        prompts = [list(draw.choice(documents))[:draw.randint(1, 6)] for _ in range(200)]
        self.start("--set", "tier.nvme.bytes=64MiB")
        client = self.client()
        found = sum(self.serve(client, chunks) for chunks in prompts)
        counters = client.counters()

        tokens = self.CHUNK_BYTES // 2048  # of the bundled model's shape
        requests = self.write("m.jsonl", "\n".join(
            json.dumps({"input_length": tokens * len(chunks), "hash_ids": chunks})
            for chunks in prompts))
        trace = self.folder / "trace"
        terrace("trace", "convert", requests, trace, "--from", "mooncake", "--block-tokens", tokens,
                "-q")
        process = terrace("tune", "--trace", trace, "--shape", "tiny", "--prefill-rate", 1000,
                          "--memory", "1MiB,64MiB", "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        asked = json.loads(process.stdout)["rows"][0]
        memory, nvme = (tier["hit_tokens"] // tokens for tier in asked["tiers"])
        self.assertEqual(memory + nvme, found)
        self.assertEqual(counters["parts.read"], found)
        self.assertEqual(counters["parts.from_memory"], memory)
        self.assertTrue(0 < memory < found)
        self.assertEqual(asked["tiers"][0]["evicted_chunks"], counters["memory.evicted"])
