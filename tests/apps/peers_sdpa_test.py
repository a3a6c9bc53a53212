"""bench/peers/sdpa.py without PyTorch: which batches it asks for, and what it makes of their time.
Each class is one test."""

import json
import pathlib
import subprocess
import sys

from program import InAFolder, assert_refuses, terrace

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"
sys.path.insert(0, str(PEERS))
import sdpa  # noqa: E402


class SdpaPeer(InAFolder):
    @classmethod
    def setUpClass(cls):
        process = terrace("bench", "serving", "--headline", "--quick", "--shape", "tiny",
                          "--batches", "1,2,3", "--policy", "full,streaming", "--format", "json",
                          "--model-device-memory", 3_000_000)
        cls.text = process.stdout

    def test_batches_are_those_that_full_has_in_device_memory(self):
        (headline,) = sdpa.read_headlines(json.loads(self.text))
        self.assertEqual((headline.fits, headline.model_layers), (2, 4))
        self.assertEqual(headline.points, [sdpa.Point(600, batch, 4, 2, 64, "f16")
                                           for batch in (1, 2)])

    def test_tokens_are_those_of_as_many_sequences_as_fit(self):
        headline = sdpa.Headline([sdpa.Point(600, batch, 4, 2, 64, "f16") for batch in (1, 4)],
                                 fits=8, model_layers=32)
        one, four, tokens = sdpa.rows_of(headline, lambda point: (point.sequences * 1e-3 + 1e-3,
                                                                  "a form"))
        self.assertAlmostEqual(one["value"], 2e-3)
        self.assertAlmostEqual(four["value"], 5e-3 / 4)
        self.assertEqual(four["parameters"]["form"], "a form")
        self.assertAlmostEqual(tokens["value"], 8 / (32 * 2 * 5e-3))
        self.assertEqual(tokens["name"], "sdpa_tokens_per_second_n600")

    def test_what_is_wrong_ends_in_one_line(self):
        script = str(PEERS / "sdpa.py")
        assert_refuses(self, script, "is no JSON of", str(self.write("words", "words")))
        assert_refuses(self, script, "is no JSON of", "/nowhere")
        assert_refuses(self, script, "no batch", str(self.write("rows", '{"rows": []}')))
        without = self.write("no/torch.py", "raise ImportError")
        answer = subprocess.run([sys.executable, script, str(self.write("good", self.text))],
                                env={"PYTHONPATH": str(without.parent)}, text=True,
                                capture_output=True, check=False)
        self.assertEqual(answer.stderr, "sdpa.py: this Python has no PyTorch\n")
