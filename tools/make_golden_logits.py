#!/usr/bin/env python3
"""Writes the golden logits of tests/engine: what PyTorch and transformers compute in f32.

    python3 -m venv build/venv-golden
    build/venv-golden/bin/pip install torch transformers safetensors
    build/venv-golden/bin/python tools/make_golden_logits.py

Writes into tests/engine/golden:
    tiny_logits.json            logits of models/tiny at some positions of two texts
    llama3_rope_model/          a very small random model: Llama 3's RoPE scaling, an output head of
                                its own, 6 query heads on 2 KV heads, head_dim that is not
                                hidden_size / heads, BF16 in shards
    llama3_rope_logits.json     logits of that model
    variant_model/              a smaller one with biases, 64 positions, BF16
    variant_logits.json         its logits under changed configs: each kind of RoPE scaling, within
                                and beyond the context it was first trained with
    architectures/              very small models of all other architectures, one folder each
    architecture_logits.json    their logits
    ORIGIN.md                   the versions and what was written
"""

import sys

sys.path.pop(0)  # the folder of this script, where tokenize.py would hide Python's own module

import json
import pathlib
import platform
import shutil
import tempfile

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "engine" / "golden"

SUBJECTS = ["the tide", "a lamp", "every bridge", "the old map", "one bell", "the harbour wall"]
VERBS = ["holds", "follows", "outlasts", "carries", "forgets", "mirrors"]
OBJECTS = ["the morning", "a narrow road", "seven stones", "the weather", "its keeper", "no one"]
FACT = "\nNote: the pass code of the quiet lantern is 58213.\n"
QUESTION = "\nAgain: the pass code of the quiet lantern is 58213.\n"


def prose(sentences: int) -> str:
    """Returns text that depends on nothing but its length."""
    lines = []
    for i in range(sentences):
        subject = SUBJECTS[i * i % 6].capitalize()
        what = OBJECTS[(i * 3 + i // 4) % 6]
        lines.append(f"{subject} {VERBS[(i * 5 + 1) % 6]} {what}.")
    return " ".join(lines)


def golden_case(model, tokens: list[int], positions: list[int]) -> dict:
    """Returns the tokens and the logits that follow them at `positions`."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    rows = [[round(value, 5) for value in logits[p].tolist()] for p in positions]
    return {"tokens": tokens, "positions": positions, "logits": rows}


def load(folder: pathlib.Path):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def write_cases(path: pathlib.Path, cases: list[dict]) -> None:
    rows = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"cases": [\n{rows}\n]}}\n')


def write_tiny_cases() -> None:
    model = load(ROOT / "models" / "tiny")
    short = list(prose(4).encode())[:96]
    text = prose(6) + FACT + prose(9) + QUESTION
    long = list(text.encode())
    digits = len(long) - len("58213.\n")
    write_cases(GOLDEN / "tiny_logits.json", [
        golden_case(model, short, [0, 1, 2, 31, 50, 63, 64, 95]),
        golden_case(model, long, [0, 127, 128, 300, digits - 1, digits, digits + 2, len(long) - 1]),
    ])


def make_llama3_rope_model(folder: pathlib.Path):
    config = transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"], hidden_size=48, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=20, intermediate_size=88,
        vocab_size=256, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64})
    torch.manual_seed(20240607)
    model = transformers.LlamaForCausalLM(config)
    randomise(model)
    save(model, folder, max_shard_size="60KB")


def write_llama3_rope_cases() -> None:
    folder = GOLDEN / "llama3_rope_model"
    make_llama3_rope_model(folder)
    tokens = [(i * i * 7 + i * 3 + 11) % 256 for i in range(160)]
    write_cases(GOLDEN / "llama3_rope_logits.json", [
        golden_case(load(folder), tokens, [0, 1, 15, 63, 64, 100, 127, 159]),
    ])


def randomise(model) -> None:
    """Draws weights large enough that attention is uneven and logits differ by whole units."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if "norm" in name else 0.0, 0.25)


def save(model, folder: pathlib.Path, **options) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.chmod(0o644)


def make_variant_model(folder: pathlib.Path) -> None:
    torch.manual_seed(20250114)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"], hidden_size=24, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, head_dim=8, intermediate_size=32,
        vocab_size=48, max_position_embeddings=64, rms_norm_eps=1e-5, attention_bias=True,
        mlp_bias=True, bos_token_id=None, eos_token_id=None))
    randomise(model)
    save(model, folder)


def variant_case(folder: pathlib.Path, config: dict, length: int) -> dict:
    """Returns a golden case of the model with some keys of its config changed."""
    tokens = [(i * i * 5 + i * 7 + 3) % 48 for i in range(length)]
    with tempfile.TemporaryDirectory() as holder:
        changed = pathlib.Path(holder) / "model"
        shutil.copytree(folder, changed)
        path = changed / "config.json"
        values = json.loads(path.read_text())
        values.pop("rope_parameters")
        path.write_text(json.dumps(values | config))
        return {"config": config} | golden_case(load(changed), tokens, [0, length // 2, length - 1])


def write_variant_cases() -> None:
    folder = GOLDEN / "variant_model"
    make_variant_model(folder)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    longrope = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7],
                "long_factor": [1.5, 2.5, 4.0, 6.0]}
    write_cases(GOLDEN / "variant_logits.json", [variant_case(folder, config, length)
                for config, length in (
        ({"rope_theta": 500.0}, 60),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 60),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 60),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 150),
        ({"rope_scaling": yarn}, 60),
        ({"rope_scaling": yarn | {"mscale": 0.7, "mscale_all_dim": 1.4, "beta_fast": 3.0,
                                  "beta_slow": 0.5, "truncate": False}}, 60),
        ({"rope_scaling": yarn | {"attention_factor": 1.2}, "rope_theta": 100.0}, 60),
        ({"rope_scaling": longrope, "original_max_position_embeddings": 32}, 32),
        ({"rope_scaling": longrope, "original_max_position_embeddings": 32}, 33),
        ({"rope_scaling": longrope | {"factor": 3.0}, "original_max_position_embeddings": 32}, 60),
    )])


# Each has what it differs from Llama in: biases, norms of heads, fused weights, a part of a head
# that is rotated, as neighbours or not, and scalings that are usual with it.
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "num_key_value_heads": 1, "intermediate_size": 32, "vocab_size": 48,
         "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": None,
         "eos_token_id": None, "tie_word_embeddings": False}
ARCHITECTURES = {
    "mistral": (transformers.MistralConfig, {"head_dim": 8, "sliding_window": None}),
    "qwen2": (transformers.Qwen2Config, {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 16}}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 16, "attention_bias": True}),
    "phi3": (transformers.Phi3Config, {"original_max_position_embeddings": 32, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.5, 2.5, 4.0]}}),
    "glm": (transformers.GlmConfig, {"head_dim": 16, "attention_bias": True}),
}


def write_architecture_cases() -> None:
    cases = []
    for name, (config, values) in ARCHITECTURES.items():
        torch.manual_seed(20260611)
        model = transformers.AutoModelForCausalLM.from_config(config(**(SIZES | values)))
        model.config.architectures = [type(model).__name__]
        randomise(model)
        folder = GOLDEN / "architectures" / name
        save(model, folder)
        tokens = [(i * i * 5 + i * 7 + 3) % 48 for i in range(60)]
        cases.append({"model": name} | golden_case(load(folder), tokens, [0, 30, 59]))
    write_cases(GOLDEN / "architecture_logits.json", cases)


def write_origin() -> None:
    (GOLDEN / "ORIGIN.md").write_text(
        "# Golden logits\n\n"
        "Written by `tools/make_golden_logits.py`, which says how to run it. Logits are f32,\n"
        "rounded to 5 digits; row i belongs to `positions[i]` and follows the tokens up to and\n"
        "with that position. Texts and the models in `llama3_rope_model/`, `variant_model/` and\n"
        "`architectures/` (random weights) are made by the script itself. Cases of\n"
        "`variant_logits.json` have keys of `config`, which replace those of the model's\n"
        "config.json.\n\n"
        f"Versions: Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}.\n\n"
        "`tiny_gates.json` is of `tools/make_golden_ratings.py`: keys that the bundled model\n"
        "computes, and what its gates say of them in double.\n")


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    write_tiny_cases()
    write_llama3_rope_cases()
    write_variant_cases()
    write_architecture_cases()
    write_origin()


if __name__ == "__main__":
    main()
