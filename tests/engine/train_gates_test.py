"""tools/train_gates.py on a very small model: labels, the file, and what is refused."""

import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL, MODEL = map(pathlib.Path, sys.argv[1:3])
NO_PACKAGES = 77  # a skip, as CMakeLists.txt says

try:
    import safetensors.torch
    import torch
    import transformers
    import xxhash  # noqa: F401
except ImportError as error:
    print(f"skipped: no package {error.name}")
    sys.exit(NO_PACKAGES)


def load_tool():
    spec = importlib.util.spec_from_file_location("train_gates", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, "")  # which it takes away
    spec.loader.exec_module(module)
    return module


class Labels(unittest.TestCase):
    THRESHOLD = 0.03

    def setUp(self):
        self.tokens = [(i * i * 5 + i * 7 + 3) % 48 for i in range(60)]
        self.lifespans = load_tool().Lifespans(MODEL, self.THRESHOLD)
        self.lifespans.read(self.tokens)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            MODEL, dtype=torch.float32, attn_implementation="eager").eval()

    def test_are_lifespans_in_words(self):
        with torch.no_grad():
            attentions = self.model(torch.tensor([self.tokens]), output_attentions=True).attentions
        for layer, attention in enumerate(attentions):
            labels = self.lifespans.labels[layer][0]
            self.assertEqual(labels.shape, (45, 1))  # three quarters of a window
            for key in range(45):
                users = [query for query in range(key, 60)
                         if max(attention[0, :, query, key]) > self.THRESHOLD]
                life = max([1] + [query - key for query in users])
                self.assertAlmostEqual(labels[key, 0].item(), math.log(life, 4), places=5)
            self.assertGreater(labels.std(), 0.1)

    def test_belong_to_keys_before_rope(self):
        with torch.no_grad():
            layer = self.model.model.layers[0]
            inputs = self.model.model.embed_tokens(torch.tensor(self.tokens))
            keys = layer.self_attn.k_proj(layer.input_layernorm(inputs))[:45]
        kept = self.lifespans.keys[0][0][:, 0].float()
        self.assertLess((kept - keys).abs().max(), 1e-2)


class Tool(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.texts = []
        for seed in range(3):
            self.texts.append(self.folder / f"{seed}.txt")
            self.texts[-1].write_bytes(bytes((i * i * (seed + 3) + i) % 251 for i in range(300)))

    def train(self, *arguments, model):
        return subprocess.run([sys.executable, TOOL, model, *map(str, arguments)],
                              capture_output=True, text=True)

    def test_writes_gates_of_each_layer(self):
        tiny = TOOL.parent.parent / "models" / "tiny"
        out = self.folder / "gates.safetensors"
        done = self.train(*self.texts, "--out", out, "--window", 64, "--epochs", 1, "--json",
                          model=tiny)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        windows = report["training_windows"] | report["validation_windows"]
        self.assertEqual(windows, {str(text): 4 for text in self.texts})
        self.assertEqual(len(report["validation_windows"]), 1)
        self.assertEqual(len(report["layers"]), 4)
        tensors = safetensors.torch.load_file(out)
        self.assertEqual(len(tensors), 4 * 8)
        self.assertEqual(tensors["layers.3.0.weight"].shape, (2, 128, 64))
        self.assertEqual(tensors["layers.3.3.bias"].shape, (2, 1))
        self.assertEqual(sorted(self.folder.iterdir()), sorted([*self.texts, out]))

    def test_one_text_is_one_line_of_error(self):
        failed = self.train(self.texts[0], "--out", self.folder / "out", "--window", 64,
                            model=TOOL.parent.parent / "models" / "tiny")
        self.assertEqual(failed.returncode, 1)
        self.assertEqual(failed.stderr.count("\n"), 1, failed.stderr)
        self.assertIn("give two at least", failed.stderr)


unittest.main(argv=sys.argv[:1])
