"""`terrace size`. Each class is one test."""

import json
import pathlib
import re
import unittest

from program import terrace

SIZING = pathlib.Path(__file__).parents[2] / "docs" / "sizing.md"


def row(*arguments):
    answer = terrace("size", "--format", "json", *arguments)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["rows"][0]


class Size(unittest.TestCase):
    def test_as_many_sequences_fit_as_it_says_and_no_more(self):
        limits = ["--context", "32768", "--device-memory", "7GiB", "--host-memory", "40GiB"]
        for tier in ("device", "host"):
            fits = row(*limits)[tier]["fits"]
            self.assertGreater(fits, 1)
            last = row(*limits, "--sequences", str(fits))[tier]
            self.assertLessEqual(last["needed_bytes"], last["limit_bytes"])
            more = row(*limits, "--sequences", str(fits + 1))[tier]
            self.assertGreater(more["needed_bytes"], more["limit_bytes"])

    def test_the_tier_with_room_for_fewer_binds(self):
        wide = ["--context", "32768", "--device-memory", "60GiB", "--host-memory"]
        self.assertEqual(row(*wide, "10GiB")["binds"], "host")
        self.assertEqual(row(*wide, "600GiB")["binds"], "device")
        self.assertIsNone(row("--context", "32768")["binds"])

    def test_a_file_has_the_rows_that_find_no_room_on_the_host(self):
        limits = ["--context", "32768", "--device-memory", "60GiB", "--host-memory", "16GiB"]
        file = ["--set", "tier.nvme.path=/nowhere/rows", "--set", "tier.nvme.bytes=64GiB"]
        above, below = row(*limits), row(*limits, *file)
        self.assertIsNone(above["nvme"])
        self.assertGreater(below["host"]["fits"], 2 * above["host"]["fits"])
        rows = below["sequence"]["host_rows"]
        fits = below["nvme"]["fits"]
        self.assertLessEqual(fits * rows, 12 * 2**30 + 64 * 2**30)
        self.assertGreater((fits + 1) * rows, 12 * 2**30 + 64 * 2**30)
        last = row(*limits, *file, "--sequences", str(below["host"]["fits"]))["host"]
        self.assertLessEqual(last["needed_bytes"], last["limit_bytes"])
        small = [*limits, *file[:3], "tier.nvme.bytes=4GiB", "--sequences", "6"]
        self.assertEqual(row(*small)["binds"], "nvme")
        self.assertIn("tier.nvme.bytes lacks", terrace("size", *small).stdout)

    def test_a_shared_cache_is_counted_once(self):
        cache = ["--context", "32768", "--cache-tokens", "4096"]
        one = row(*cache)["sequence"]["device_cache"]
        four = row(*cache, "--sequences", "4")["sequence"]["device_cache"]
        self.assertLess(four, one / 3)

    def test_a_policy_that_keeps_everything_has_no_rows_on_the_host(self):
        full = row("--policy", "full", "--context", "32768")
        rows = 32768 * 32 * 8 * 128 * 2 * 2
        self.assertGreater(full["device"]["needed_bytes"], rows)
        self.assertLess(full["host"]["needed_bytes"], rows / 100)
        self.assertEqual(full["step"], {"selected_tokens": 0, "index_bytes": 0,
                                        "selected_bytes": 0})

    def test_text_says_what_binds_and_ends_with_a_config(self):
        answer = terrace("size", "--policy", "signs,pqcache", "--sequences", "4",
                             "--device-memory", "16GiB", "--host-memory", "128GiB")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertRegex(answer.stdout, r"signs: \d of 4 sequences fit, device.memory lacks")
        self.assertIn("policy: pqcache", answer.stdout.split("# --config FILE")[1])

    def test_no_config_is_shown_where_nothing_fits(self):
        answer = terrace("size", "--policy", "signs,full", "--device-memory", "100MiB")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("full: 0 of 1 sequences fit", answer.stdout)
        self.assertNotIn("# --config FILE", answer.stdout)

    def test_wrong_usage_names_what_is_known(self):
        answer = terrace("size", "--shape", "gpt")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("known are llama-3.1-8b", answer.stderr)
        self.assertEqual(terrace("size", "--context", "0").returncode, 2)

    def test_the_guide_has_the_figures_of_the_program(self):
        cell = r" \| ([\d.]+)"
        lines = re.findall(r"^\| `([a-z0-9.-]+)` \| ([\d,]+)" + 3 * cell + r" \|$",
                           SIZING.read_text(), re.MULTILINE)
        self.assertGreaterEqual(len(lines), 18)
        for shape, context, *figures in lines:
            found = row("--shape", shape, "--context", context.replace(",", ""))
            expected = [found["device"]["needed_bytes"], found["sequence"]["device_cache"],
                        found["host"]["needed_bytes"]]
            self.assertEqual(figures, [f"{bytes_ / 2**30:.2f}" for bytes_ in expected],
                             f"{shape} {context}")
