"""Checks prompts in pieces and later prompts of `terrace run`, on the bundled model."""

import json
import pathlib
import unittest

from program import InAFolder, run_json, terrace
from run_usage_test import StatusTest

# Fields that no cut of a prompt may change. The rows in a cache do depend on it.
SAME_BITS = ("budget_tokens", "selected_tokens", "attended_tokens_mean", "bits_per_token",
             "bits_delta_vs_full", "top1_agreement", "recall", "attention_mass",
             "pseudo_entries_mean", "needles", "index_bytes")


def same_bits(document):
    return [{field: run[field] for field in SAME_BITS} | {"offload": run["bytes"]["offload"]}
            for run in document["runs"]]


class PromptPieces(unittest.TestCase):
    JOB = ("--context", 600, "--decode", 8, "--needles", 2, "--policy",
           "full,streaming,pqcache,qpq,wave", "--budget", 128)

    def test_no_bit_depends_on_how_the_prompt_is_cut(self):
        whole = run_json(*self.JOB)
        self.assertNotIn("prefill_chunk", whole["text"])
        for chunk in (37, 128, 512, 100_000):
            pieces = run_json(*self.JOB, "--prefill-chunk", chunk)
            self.assertEqual(pieces["text"]["prefill_chunk"], chunk)
            self.assertEqual(same_bits(pieces), same_bits(whole), chunk)
        single = ("--context", 150, "--decode", 4, "--policy", "qpq", "--budget", 64)
        self.assertEqual(same_bits(run_json(*single, "--prefill-chunk", 1)),
                         same_bits(run_json(*single, "--prefill-chunk", 150)))

    def test_a_piece_takes_the_memory_of_a_piece(self):
        job = ("--context", 1536, "--decode", 2, "--policy", "streaming", "--prefill-chunk")
        small, large = (run_json(*job, chunk)["runs"][0]["memory"]["prompt_device_peak_bytes"]
                        for chunk in (128, 1536))
        self.assertLess(small, large)


class Turns(InAFolder):
    JOB = ("--context", 400, "--decode", 6, "--budget", 64, "--policy", "full,pqcache,wave")

    def turns(self, turns):
        path = self.folder / "turns.json"
        path.write_text(json.dumps(turns), encoding="utf-8")
        return ("--turns", path)

    def test_prompts_are_recorded_for_tune(self):
        trace = self.folder / "prompts"
        turns = self.turns(["x" * 100, "y" * 30])
        document = run_json(*self.JOB, *turns, "--set", "tier.chunk_tokens=64", "--trace", trace)
        info = json.loads(terrace("trace", "info", trace, "--format", "json").stdout)
        self.assertEqual(info["trace"]["model"], pathlib.Path(document["model"]).name)
        self.assertEqual((info["trace"]["step"], info["trace"]["block_tokens"]), ("request", 64))
        process = terrace("tune", "--trace", trace, "--memory", "1GiB", "--prefill-rate", 1000,
                          "--format", "json", "--model", document["model"])
        self.assertEqual(process.returncode, 0, process.stderr)
        tuned = json.loads(process.stdout)
        prompts = [400, 400 + 6 + 100, 400 + 6 + 100 + 6 + 30]
        self.assertEqual(tuned["requests"], {"count": 3, "timed": 0, "overlapping": 0,
                                             "tokens": sum(prompts)})
        # Each prompt finds the whole chunks of the one before it.
        self.assertEqual(tuned["rows"][0]["hit_tokens"],
                         sum(tokens // 64 * 64 for tokens in prompts[:2]))

    def test_each_turn_is_followed_by_decoded_tokens(self):
        first, second = "\nAnd what is said of the licence?", [65 + i % 26 for i in range(300)]
        document = run_json(*self.JOB, *self.turns([first, second]))
        for run in document["runs"]:
            with self.subTest(policy=run["policy"]):
                self.assertEqual([turn["prompt_tokens"] for turn in run["turns"]],
                                 [len(first), 300])
                for turn in run["turns"]:
                    self.assertEqual(list(turn), ["prompt_tokens", "decoded_tokens", "seconds",
                                                  "streamed_bytes", "bits_per_token"])
                    self.assertEqual(list(turn["seconds"]), ["prompt", "decode_per_token"])
                    self.assertEqual(turn["decoded_tokens"], 6)
                    self.assertGreater(turn["seconds"]["prompt"], 0)
                    self.assertGreater(turn["seconds"]["decode_per_token"], 0)
                    self.assertGreater(turn["bits_per_token"], 0)
                    self.assertEqual(turn["streamed_bytes"] > 0, run["policy"] != "full")

    def test_no_bit_depends_on_how_turns_are_cut(self):
        turns = self.turns(["a question " * 20, "another"])
        runs = [run_json(*self.JOB, *turns, "--prefill-chunk", chunk)["runs"]
                for chunk in (33, 512)]
        bits = [[[turn["bits_per_token"] for turn in run["turns"]] for run in one] for one in runs]
        self.assertEqual(bits[0], bits[1])

    def test_figures_of_the_context_are_those_without_turns(self):
        alone = run_json(*self.JOB, "--needles", 0)
        followed = run_json(*self.JOB, *self.turns(["x" * 500]))
        self.assertNotIn("turns", alone["runs"][0])
        self.assertEqual(same_bits(followed), same_bits(alone))

    def test_the_text_says_what_each_turn_took(self):
        process = terrace("run", *self.JOB, *self.turns(["x" * 300, "abc"]))
        self.assertEqual(process.returncode, 0, process.stderr)
        figures = r"\d+\.\d{3} ms/token, \d+\.\d{3} bits/byte\n"
        took = r"tokens in \d+\.\d{3} s,"
        self.assertRegex(process.stdout,
                         rf"\nturn 1   full: 300 {took} 0 streamed; {figures}")
        self.assertRegex(process.stdout,
                         rf"\nturn 2   wave: 3 {took} [\d.]+[KM] streamed; {figures}")

    def test_the_text_goes_on_after_a_turn(self):
        # If a turn equals the next tokens of the text, the rest of the text follows it: the same
        # sequence, cut differently.
        text = self.folder / "text"
        text.write_bytes(b"".join(b"%d apples and %d pears.\n" % (i, i + 1) for i in range(99)))
        taken = text.read_bytes()
        job = ("--decode", 6, "--policy", "full", "--prefill-chunk", 512, "--kv-dtype", "f32")
        turn = taken[206:406].decode()
        left = self.write("left", taken[:206] + taken[406:])
        (run,) = run_json("--text", left, "--context", 200, *job, *self.turns([turn]))["runs"]
        (other,) = run_json("--text", text, "--context", 406, *job)["runs"]
        self.assertAlmostEqual(run["turns"][0]["bits_per_token"], other["bits_per_token"], places=3)

    def test_a_budget_of_more_than_all_tokens_counts_those_of_turns(self):
        (run,) = run_json("--context", 300, "--decode", 4, "--policy", "pqcache", "--budget", 10**9,
                          *self.turns(["x" * 50, "y"]))["runs"]
        self.assertEqual(run["budget_tokens"], 300 + 50 + 1 + 3 * 4)

    def test_generated_text_follows_each_turn(self):
        job = ("--context", 256, "--decode", 12, "--generate", "--policy", "full,pqcache", "-q")
        turns = self.turns(["\nQuestion: ", [66] * 20])
        for run in run_json(*job, *turns)["runs"]:
            for turn in run["turns"]:
                self.assertIsNone(turn["bits_per_token"])
                self.assertEqual(len(turn["generated"]["ids"]), 12)
                self.assertEqual(len(turn["generated"]["text"]), 12)
                self.assertFalse(turn["generated"]["ended"])
        process = terrace("run", *job, *turns)
        self.assertRegex(process.stdout,
                         r"\nturn 2   pqcache: 20 tokens in .* ms/token\n.{12}")

    def test_needles_are_asked_for_after_turns(self):
        runs = run_json("--context", 2048, "--decode", 4, "--needles", 4, "--seed", 1, "--policy",
                        "full", *self.turns(["and so on " * 10]))["runs"]
        self.assertEqual(runs[0]["needles"]["asked"], 4)
        self.assertGreater(runs[0]["needles"]["digits_right_ratio"], 0.5)

    def test_turns_come_from_standard_input_too(self):
        process = terrace("run", "--format", "json", "--context", 64, "--decode", 2, "--policy",
                          "streaming", "--turns", "-", stdin='["abc"]')
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(json.loads(process.stdout)["runs"][0]["turns"][0]["prompt_tokens"], 3)


class TurnsUsage(StatusTest):
    def wrong(self, mentions, *arguments):
        self.check(2, mentions, "run", "--context", 64, "--decode", 2, *arguments)

    def test_files_that_are_no_turns(self):
        for content, mentions in (
                ("", "no JSON"), ("[", "no JSON"), ("[1] 2", "no JSON"),
                ('["\xff"]'.encode("latin-1"), "no JSON, from byte 3 on"),
                ("{}", "is no list"), ("[1]", "turn 1 is neither"), ("[[-1]]", "turn 1 is neither"),
                ('[[0], ["a"]]', "turn 2 is neither"), ("[[1.5]]", "turn 1 is neither"),
                ("[1e999]", "no JSON"),
                ("\ufeff[]", "byte order mark"), ("[]", "no turn"), ('["a", ""]', "turn 2|no tok"),
                ("[[]]", "turn 1|no tokens"), ("[[1], [256]]", "turn 2|256|vocabulary of 256")):
            self.wrong(f"turns.json|{mentions}", "--turns", self.write("turns.json", content))

    def test_a_file_that_is_not_there(self):
        self.check(1, "/nowhere", "run", "--turns", "/nowhere")

    def test_texts_for_a_model_of_other_tokens(self):
        golden = pathlib.Path(__file__).parents[1] / "engine/golden/variant_model"
        vocabulary = json.loads((golden / "config.json").read_text())["vocab_size"]
        ids = self.write("ids.u32", bytes(4 * 100))
        self.wrong(f"turns.json: turn 1|{vocabulary}|tools/tokenize.py", "--model", golden,
                   "--tokens", ids, "--turns", self.write("turns.json", '["a"]'))

    def test_what_does_not_go_together(self):
        turns = self.write("turns.json", '["a"]')
        trace = ("--policy", "oracle", "--trace", self.folder / "trace")
        self.wrong("--trace|--prefill-chunk", *trace, "--prefill-chunk", 8)
        self.assertFalse((self.folder / "trace").exists())
        self.wrong("--turns -|--text", "--text", "-", "--turns", "-")
        self.wrong("--prefill-chunk", "--prefill-chunk", "many")
        self.wrong("--prefill-chunk", "--prefill-chunk", 1 << 40)

    def test_a_text_that_is_too_short_for_its_turns(self):
        text = self.write("text", "x" * 70)
        self.wrong("70|71", "--text", text, "--turns", self.write("turns.json", '["a", "b"]'))

    def test_nothing_is_written_over_turns(self):
        turns = self.write("turns.json", '["a"]')
        self.wrong("--timeline|--turns", "--turns", turns, "--timeline", turns)


if __name__ == "__main__":
    unittest.main()
