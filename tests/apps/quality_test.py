"""Checks `terrace bench quality` and `terrace bench drift` on the bundled model."""

import html.parser
import json
import pathlib
import re
import tempfile
import unittest

from program import run_json, terrace

FIGURES = {"budget_tokens", "selected_tokens", "attended_tokens_mean", "pseudo_entries_mean",
           "index_bytes", "bits_per_token", "bits_per_byte", "bits_delta_vs_full",
           "top1_agreement", "recall", "attention_mass", "attention_error", "entries_mean",
           "retention", "needles"}
ROW = ["name", "parameters", "value", "unit", "better", "samples", "spread", "peer", "ratio"]


class Page(html.parser.HTMLParser):
    """Counts elements, and says what a browser would fetch."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.fetched, self.open = {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements[tag] = self.elements.get(tag, 0) + 1
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements[tag] = self.elements.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def rows_of(*arguments):
    process = terrace("bench", *arguments, "--quick", "--format", "json")
    assert process.returncode == 0, process.stderr
    assert process.stderr == "", process.stderr
    return json.loads(process.stdout)


class Quality(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.page = pathlib.Path(cls.folder.name) / "page.html"
        cls.document = rows_of("quality", "--budget", "0.5,0.7", "--report", cls.page)
        cls.rows = {row["name"]: row for row in cls.document["rows"]}
        cls.text = pathlib.Path(cls.document["rows"][0]["parameters"]["text"]).name

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_has_a_row_for_every_policy_and_budget(self):
        self.assertEqual(self.document["command"], "bench quality")
        ran = run_json("--context", 64, "--decode", 1, "--policy", "all", "--cache",
                       "none")["runs"]
        for policy in {run["policy"] for run in ran} - {"full"} | {"snapkv", "chelsea"}:
            for budget in ("0.5", "0.7"):
                self.assertIn(f"quality_{policy}_{budget}_rows_{self.text}", self.rows)
        for row in self.rows.values():
            self.assertEqual(list(row)[:len(ROW)], ROW)
            self.assertEqual(row["better"], "lower")
            self.assertEqual(row["unit"], "bits/byte")
            self.assertEqual(row["samples"], 8)
            self.assertEqual(set(row["figures"]), FIGURES)
            self.assertEqual(row["peer"]["name"], "full")

    def test_says_what_run_says(self):
        runs = run_json("--context", 512, "--decode", 8, "--needles", 2, "--budget", "0.5",
                        "--policy", "pqcache,wave")["runs"]
        for run in runs:
            figures = self.rows[f"quality_{run['policy']}_0.5_rows_{self.text}"]["figures"]
            self.assertEqual(figures, {name: run[name] for name in figures})

    def test_rows_of_several_texts_have_names_of_their_own(self):
        words = pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes()
        texts = []
        for place in ("a/same", "b/same", "a/other"):
            texts.append(pathlib.Path(self.folder.name) / place)
            texts[-1].parent.mkdir(exist_ok=True)
            texts[-1].write_bytes(words)
        asked = [argument for text in texts for argument in ("--text", text)]
        rows = rows_of("quality", "--policy", "streaming", *asked)["rows"]
        self.assertEqual([row["name"] for row in rows],
                         [f"quality_streaming_0.5_rows_{label}"
                          for label in (texts[0], texts[1], "other")])

    def test_full_attention_is_the_peer(self):
        for row in self.rows.values():
            delta = row["figures"]["bits_delta_vs_full"]
            self.assertAlmostEqual(row["value"] - row["peer"]["value"], delta["mean"])
            self.assertAlmostEqual(row["spread"] * row["value"], delta["standard_error"])

    def test_the_table_ends_with_the_policy_that_errs_least_within_each_budget(self):
        asked = ("--policy", "full,streaming,oracle,quest", "--budget", "0.5,0.7", "--needles", 0)
        errors = {(row["parameters"]["budget"], row["parameters"]["policy"]):
                  row["figures"]["attention_error"] for row in rows_of("quality", *asked)["rows"]
                  if row["parameters"]["policy"] in ("streaming", "quest")}
        lines = terrace("bench", "quality", *asked, "--quick").stdout.splitlines()[-2:]
        for line, budget in zip(lines, ("0.5", "0.7")):
            best = min(("streaming", "quest"), key=lambda name, b=budget: errors[b, name])
            self.assertIn(f"recommended within budget {budget}: --policy {best}, ", line)

    def test_compares_at_equal_entries_what_gives_others_than_rows(self):
        equal = [row for row in self.rows.values() if row["parameters"]["counted"] == "entries"]
        self.assertEqual({row["parameters"]["policy"] for row in equal},
                         {"wave", "signs", "snapkv", "chelsea"})
        self.assertEqual(len(equal), 8)
        for row in equal:
            figures = row["figures"]
            share = float(row["parameters"]["budget"])
            if row["parameters"]["policy"] in ("wave", "signs"):
                self.assertLess(figures["attended_tokens_mean"], share * 512)
            entries = figures["attended_tokens_mean"] + figures["pseudo_entries_mean"]
            self.assertLess(abs(entries - share * 512), 0.03 * 512)

    def test_retention_is_compared_at_a_lower_budget_with_as_many_entries_in_the_mean(self):
        rows, entries = rows_of("quality", "--policy", "snapkv", "--context", 1024, "--decode",
                                200, "--needles", 0)["rows"]
        wanted = rows["figures"]["budget_tokens"]
        self.assertGreater(rows["figures"]["entries_mean"], 1.05 * wanted)
        self.assertEqual(entries["entries_wanted"], wanted)
        self.assertLess(entries["figures"]["budget_tokens"], wanted)
        self.assertTrue(entries["on_target"])
        self.assertLess(abs(entries["figures"]["entries_mean"] - wanted), 0.01 * wanted)

    def test_the_list_of_policies_has_lifespans_where_the_model_has_gates(self):
        bundled = pathlib.Path(self.document["rows"][0]["parameters"]["model"])
        bare = pathlib.Path(self.folder.name) / "bare"
        bare.mkdir()
        for name in ("config.json", "model.safetensors"):
            (bare / name).symlink_to(bundled / name)
        for model, gates in ((bundled, True), (bare, False)):
            process = terrace("bench", "quality", "--model", model, "--context", 64, "--decode",
                              1, "--budget", "0.5", "--set", "cache.policy=none", "--format",
                              "json")
            self.assertEqual(process.returncode, 0, process.stderr)
            ran = {row["parameters"]["policy"] for row in json.loads(process.stdout)["rows"]}
            self.assertLess({"wave", "h2o", "snapkv", "chelsea"}, ran)
            self.assertEqual("smartkv" in ran, gates)

    def test_estimates_less_where_estimates_alone_would_fill_the_budget(self):
        arguments = ("quality", "--policy", "wave", "--budget", "0.05")
        rows, entries = rows_of(*arguments)["rows"]
        wanted = rows["figures"]["budget_tokens"]
        self.assertGreater(rows["figures"]["pseudo_entries_mean"], wanted)
        self.assertEqual(entries["entries_wanted"], wanted)
        self.assertTrue(0 < entries["estimated_share"] < 1, entries)
        figures = entries["figures"]
        self.assertLess(figures["pseudo_entries_mean"], 0.75 * wanted)
        self.assertGreater(figures["attended_tokens_mean"], 0.25 * wanted)
        filled = figures["attended_tokens_mean"] + figures["pseudo_entries_mean"]
        self.assertLess(abs(filled - wanted), 0.2 * wanted)
        self.assertEqual(entries["on_target"], abs(filled - wanted) <= 0.01 * wanted)
        table = terrace("bench", *arguments, "--quick").stdout
        self.assertIn(f"estimates {entries['estimated_share']:.2f} of the clusters", table)
        self.assertEqual(f"its entries are {filled:.1f}, not {wanted}" in table,
                         not entries["on_target"])

    def test_page_is_whole_and_needs_nothing_else(self):
        page = Page(self.page.read_text())
        self.assertEqual(page.open, [])
        self.assertEqual(page.fetched, [])
        self.assertEqual(page.elements["figure"], 5)
        self.assertEqual(page.elements["tr"], 1 + len(self.rows))
        self.assertNotIn("script", page.elements)
        text = self.page.read_text()
        self.assertNotRegex(text, r"\bnan\b")
        self.assertIn("small sizes, which say only that it works</p>", text)
        self.assertIn("<title>Quality of policies (quick)</title>", text)
        self.assertIn(f"bench quality --budget 0.5,0.7 --report {self.page} --quick", text)
        self.assertIn(f"commit {self.document['build']['commit']}<", text)
        self.assertTrue(all(row["parameters"]["quick"] for row in self.rows.values()))

    def test_a_policy_has_one_colour_on_the_page(self):
        items = re.findall('r="4" [^/]*?(?:fill|stroke)="(#[^"]*)"[^/]*/></svg>([^<]*)</li>',
                           self.page.read_text())
        colours = {}
        for colour, names in items:
            policy = names.split(" = ")[0].split(", ")[0]
            self.assertEqual(colours.setdefault(policy, colour), colour, policy)
        self.assertGreater(len(colours), 5)
        self.assertEqual(len(set(colours.values())), len(colours))

    def test_the_page_names_what_errs_least(self):
        cells = [row for row in self.rows.values() if row["parameters"]["policy"] != "oracle"
                 and row["parameters"]["counted"] == "rows" and row["figures"]]
        for budget in ("0.5", "0.7"):
            least = min((row for row in cells if row["parameters"]["budget"] == budget),
                        key=lambda row: row["figures"]["attention_error"])
            policy = least["parameters"]["policy"]
            self.assertIn(f"<li>budget {budget}: <b>{policy}</b>, ", self.page.read_text())
        self.assertIn("retrieval.budget: 0.7\n</pre>", self.page.read_text())

    def test_prints_a_table(self):
        process = terrace("bench", "quality", "--quick", "--policy", "streaming,wave")
        self.assertEqual(process.returncode, 0, process.stderr)
        for word in ("streaming", "wave, all entries", "recall", "± s.e.",
                     "Entries are the mean of a step"):
            self.assertIn(word, process.stdout)

    def test_a_budget_has_its_entries_beside_a_policy_that_keeps_everything(self):
        arguments = ("quality", "--policy", "full,streaming", "--budget", "0.5")
        full, streaming = (row["figures"]["budget_tokens"] for row in rows_of(*arguments)["rows"])
        self.assertLess(streaming, full)
        lines = terrace("bench", *arguments, "--quick").stdout.splitlines()
        self.assertIn(f"budget 0.5 ({streaming} entries)", lines)

    def test_table_has_policies_side_by_side_for_each_budget(self):
        arguments = ("quality", "--policy", "streaming,chelsea", "--budget", "0.5,0.7")
        rows = rows_of(*arguments)["rows"]
        lines = terrace("bench", *arguments, "--quick").stdout.splitlines()
        heading = next(line for line in lines if line.startswith("policy"))
        places = {name: heading.index(name) + len(name)
                  for name in ("bits", "error", "mass", "digits", "entries")}
        for budget in ("0.5", "0.7"):
            group = [row for row in rows if row["parameters"]["budget"] == budget]
            at = lines.index(f"budget {budget} ({group[0]['figures']['budget_tokens']} entries)")
            self.assertEqual([row["parameters"]["policy"] for row in group],
                             ["streaming", "chelsea", "chelsea"])
            for row, line in zip(group, lines[at + 1:], strict=False):
                self.assertTrue(line.startswith(row["parameters"]["policy"]), line)
                figures = row["figures"]
                shown = {"bits": f"{row['value']:.4f}",
                         "error": f"{figures['attention_error']:.3f}",
                         "mass": f"{figures['attention_mass']:.3f}",
                         "digits": f"{figures['needles']['digits_right_ratio']:.3f}",
                         "entries": f"{figures['entries_mean']:.1f}"}
                for name, end in places.items():
                    self.assertTrue(line[:end].endswith(" " + shown[name]), (name, line))

    def test_table_shows_needles_by_depth(self):
        arguments = ("quality", "--policy", "streaming", "--needles", 4, "--context", 1024)
        (row,) = rows_of(*arguments)["rows"]
        table = terrace("bench", *arguments, "--quick").stdout
        heading, line, asked = table[table.index("digits right, % from depth"):].splitlines()[:3]
        self.assertEqual(asked, "facts were asked for after the text")
        asked = terrace("bench", *arguments, "--quick", "--needles-asked", "prompt").stdout
        self.assertIn("facts were asked for in the prompt", asked)
        self.assertEqual(heading.split()[-10:], [f"0.{tenth}" for tenth in range(10)])
        expected = ["-"] * 10
        for needle in row["figures"]["needles"]["by_depth"]:
            band = int(10 * needle["depth"])
            self.assertEqual(expected[band], "-", "one needle in each band")
            expected[band] = str(100 * needle["right"] // needle["digits"])
        self.assertEqual(line.split(), ["0.5", "streaming", *expected])
        without = terrace("bench", *arguments[:3], "--needles", 0, "--quick").stdout
        self.assertNotIn("depth", without)

    def test_a_policy_that_cannot_says_so_in_its_row(self):
        document = rows_of("quality", "--policy", "oracle,wave", "--budget", "mass:0.9")
        oracle, wave = document["rows"]
        self.assertIsNone(oracle["value"])
        self.assertIn("attention mass", oracle["reason"])
        self.assertGreater(wave["value"], 0)

    def test_what_is_wrong_ends_in_one_line(self):
        for arguments in (("--budget", "much"), ("--policy", "fly"), ("--budget", ""),
                          ("--text", "/nowhere")):
            process = terrace("bench", "quality", "--quick", *arguments)
            self.assertIn(process.returncode, (1, 2), arguments)
            self.assertEqual(process.stderr.count("\n"), 1, process.stderr)


class Drift(unittest.TestCase):
    def test_has_recall_over_time_with_and_without_refresh(self):
        rows = {row["name"]: row for row in rows_of("drift")["rows"]}
        self.assertEqual(set(rows), {f"drift_{policy}_{kind}" for kind in ("grown", "anew")
                                     for policy in ("pqcache", "qpq", "clusterkv", "wave")})
        for name, row in rows.items():
            figures = row["figures"]
            self.assertEqual(len(figures["recall"]), 6)
            self.assertTrue(all(0 <= value <= 1 for value in figures["recall"]), name)
            self.assertTrue(0 <= row["value"] <= 1, name)
            if row["parameters"]["policy"] in ("pqcache", "qpq"):
                self.assertGreater(row["value"], 0, name)
            if name.endswith("grown"):
                self.assertEqual(figures["refreshes"], 0)
            step = figures["step_seconds"]
            self.assertTrue(0 < step["median"] <= step["p99"] <= step["longest"] < 60, name)

    def test_compares_with_none_where_the_config_has_refreshes(self):
        rows = rows_of("drift", "--policy", "pqcache", "--set", "index.refresh_tokens=8")["rows"]
        self.assertEqual([row["parameters"]["refresh_tokens"] for row in rows], [0, 16])
        self.assertEqual(rows[0]["figures"]["refreshes"], 0)
        process = terrace("bench", "drift", "--quick", "--refresh", 0)
        self.assertEqual((process.returncode, process.stderr.count("\n")), (2, 1))
        self.assertIn("--refresh", process.stderr)

    def test_must_turn_before_it_ends(self):
        process = terrace("bench", "drift", "--quick", "--turn-after", 60)
        self.assertEqual(process.returncode, 2)
        self.assertIn("--turn-after", process.stderr)


if __name__ == "__main__":
    unittest.main()
