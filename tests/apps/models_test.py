"""Runs models whose files are unlike the bundled one's: right figures, or one clear line."""

import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from program import run_json, terrace

SIZE = ("--context", 64, "--decode", 2)
SHORT = (*SIZE, "--policy", "full")


class ModelTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def copy(self, name="model"):
        """Returns a copy of the bundled model."""
        bundled = run_json("--context", 8, "--decode", 1, "--policy", "streaming")["model"]
        model = self.folder / name
        shutil.copytree(bundled, model)
        for file in (model, *model.iterdir()):
            file.chmod(0o755)
        return model

    def configure(self, model, **values):
        path = model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def fill(self, model, tensor, value):
        """Sets all elements of an F16 tensor."""
        path = model / "model.safetensors"
        raw = bytearray(path.read_bytes())
        size = struct.unpack("<Q", raw[:8])[0]
        begin, end = json.loads(raw[8:8 + size])[tensor]["data_offsets"]
        raw[8 + size + begin:8 + size + end] = struct.pack("<e", value) * ((end - begin) // 2)
        path.write_bytes(raw)

    def fails(self, mentions, *arguments):
        process = terrace("run", *arguments)
        self.assertEqual((process.returncode, process.stdout), (1, ""), process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        for word in mentions.split("|"):
            self.assertIn(word, process.stderr)


class Numbers(ModelTest):
    def test_values_above_f16_name_the_layer_and_the_way_out(self):
        model = self.copy()
        self.fill(model, "model.layers.1.self_attn.v_proj.weight", 60000)
        for more in ((), ("--generate",)):
            self.fails("layer 1|65504|--kv-dtype bf16", "--model", model, *SHORT, *more)
        for policy in ("full", "wave"):
            run = run_json("--model", model, *SIZE, "--policy", policy, "--cache", "none",
                           "--kv-dtype", "bf16")
            self.assertGreater(run["runs"][0]["bits_per_byte"], 0)

    def test_logits_that_are_not_finite_name_the_position(self):
        model = self.copy()
        self.fill(model, "model.norm.weight", float("inf"))
        self.fails("position 63|not finite", "--model", model, *SHORT)


class Links(ModelTest):
    def test_a_link_to_nothing_is_named(self):
        for name in ("config.json", "model.safetensors"):
            model = self.copy(name)
            (model / name).unlink()
            (model / name).symlink_to("../blobs/4e1f")
            self.fails(f"{name}/{name}: is a link to ../blobs/4e1f|not there", "--model", model,
                       *SHORT)
        link = self.folder / "link"
        link.symlink_to("gone")
        for option in ("--text", "--tokens", "--needles-file", "--model"):
            self.fails(f"{link}: is a link to gone, which is not there", *SHORT, option, link)


class Notes(ModelTest):
    def warnings(self, *arguments):
        process = terrace("run", *SHORT, *arguments)
        self.assertEqual(process.returncode, 0, process.stderr)
        return [line for line in process.stderr.splitlines() if not line.startswith("terrace: ker")]

    def add_tensor(self, model, name, element_type, shape, raw):
        path = model / "model.safetensors"
        old = path.read_bytes()
        size = struct.unpack("<Q", old[:8])[0]
        header, data = json.loads(old[8:8 + size]), old[8 + size:]
        header[name] = {"dtype": element_type, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data + raw)

    def test_keys_and_tensors_without_effect_are_named_once(self):
        model = self.copy()
        self.configure(model, future_gate=True, attention_dropout=0.1)
        self.add_tensor(model, "model.layers.0.self_attn.q_norm.weight", "F16", [64], bytes(128))
        path = f"{model}/config.json"
        expected = [f"terrace: warning: {path}: keys that have no effect: future_gate",
                    f"terrace: warning: {model}: tensors that nothing uses: "
                    "model.layers.0.self_attn.q_norm.weight"]
        self.assertEqual(self.warnings("--model", model), expected)
        self.assertEqual(self.warnings("--model", model, "-q"), [])
        for study in (("quality",), ("drift", "--refresh", 8, "--turn-after", 0)):
            process = terrace("bench", *study, "--quick", "--model", model, "--context", 64,
                              "--decode", 4, "--policy", "wave")
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertEqual(process.stderr.splitlines()[:2], expected)

    def test_tensors_that_nothing_needs_are_named_with_verbose(self):
        model = self.copy()
        self.add_tensor(model, "model.layers.0.self_attn.rotary_emb.inv_freq", "I64", [2],
                        bytes(16))
        self.assertEqual(self.warnings("--model", model), [])
        self.assertIn(f"terrace: {model}: tensors that are not needed: "
                      "model.layers.0.self_attn.rotary_emb.inv_freq",
                      self.warnings("--model", model, "-v"))

    def test_keys_that_would_change_the_result_are_refused(self):
        model = self.copy()
        self.configure(model, sliding_window=128)
        self.fails("config.json|sliding_window is 128|without the key", "--model", model, *SHORT)


class EndTokens(ModelTest):
    GENERATE = ("--context", 64, "--decode", 16, "--policy", "full", "--generate")

    def test_generating_stops_at_an_end_token(self):
        whole = run_json(*self.GENERATE)["runs"][0]
        ids = whole["generated"]["ids"]
        self.assertEqual((len(ids), whole["generated"]["ended"]), (16, False))
        end = ids[9]
        count = ids.index(end) + 1
        for file, tokens in (("config.json", [300, end]), ("generation_config.json", end)):
            model = self.copy(file)
            (model / file).touch()
            (model / file).write_text(json.dumps(json.loads((model / file).read_text() or "{}") |
                                                 {"eos_token_id": tokens}))
            run = run_json(*self.GENERATE, "--model", model)["runs"][0]
            self.assertEqual(run["generated"]["ids"], ids[:count])
            self.assertEqual(run["generated"]["text"], whole["generated"]["text"][:count - 1])
            self.assertTrue(run["generated"]["ended"])
            self.assertEqual(run["bytes_per_token"]["offload"],
                             whole["bytes_per_token"]["offload"])
            self.assertAlmostEqual(
                sum(run["seconds"][part] for part in
                    ("select", "fetch", "attend", "wait", "update", "model")),
                run["seconds"]["decode_per_token"], delta=0.02 * run["seconds"]["decode_per_token"])
            text = terrace("run", *self.GENERATE, "--model", model).stdout
            self.assertIn(f"full (ended by token {end} after {count} of 16 tokens):", text)
            self.assertIn("up to 16 decoded", text)

    def test_text_that_is_given_does_not_end(self):
        model = self.copy()
        self.configure(model, eos_token_id=list(range(256)))
        run_json("--model", model, *SHORT)

    def test_a_broken_generation_config_does_not_stop_runs_that_do_not_generate(self):
        model = self.copy()
        (model / "generation_config.json").write_text("{")
        run_json("--model", model, *SHORT)
        self.fails("generation_config.json", "--model", model, *SHORT, "--generate")


class Inputs(ModelTest):
    def test_standard_input_is_a_dash(self):
        text = "The tide follows the morning. " * 10
        expected = self.figures("--text", "/dev/stdin", stdin=text)
        self.assertEqual(self.figures("--text", "-", stdin=text), expected)
        ids = "".join(f"{letter}\0\0\0" for letter in text)
        self.assertEqual(self.figures("--tokens", "-", stdin=ids), expected)
        needles = '{"version": 1, "context_tokens": 64, "needles": []}\r\n\r\n'
        (self.folder / "text").write_text(text)
        self.assertEqual(self.figures("--text", self.folder / "text", "--needles-file", "-",
                                      stdin=needles), expected)
        short = terrace("run", *SHORT, "--text", "-", stdin="x")
        self.assertEqual(short.returncode, 2)
        self.assertIn("terrace: standard input: has 1 tokens", short.stderr)
        both = terrace("run", *SHORT, "--text", "-", "--needles-file", "-", stdin=text)
        self.assertEqual(both.returncode, 2)
        self.assertIn("--needles-file -", both.stderr)

    def figures(self, *arguments, stdin):
        process = terrace("run", *SHORT, "--format", "json", *arguments, stdin=stdin)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return json.loads(process.stdout)["runs"][0]["bits_per_token"]

    def test_files_without_an_end_are_read_as_far_as_needed(self):
        self.assertGreater(self.figures("--text", "/dev/zero", stdin=None), 0)
        self.assertGreater(self.figures("--tokens", "/dev/zero", stdin=None), 0)
        for option in ("--needles-file", "--profile"):
            self.misused("/dev/zero|larger", option, "/dev/zero")

    def misused(self, mentions, *arguments):
        process = terrace("run", *SHORT, *arguments)
        self.assertEqual(process.returncode, 2)
        for word in mentions.split("|"):
            self.assertIn(word, process.stderr)

    def test_read_errors_are_told_as_such(self):
        for option in ("--text", "--tokens", "--needles-file"):
            self.fails(f"{self.folder}: cannot be read: Is a directory", *SHORT, option,
                       self.folder)
            self.fails("/proc/self/mem: cannot be read: Input/output error", *SHORT, option,
                       "/proc/self/mem")


if __name__ == "__main__":
    unittest.main()
