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
    ORIGIN.md                   the versions and what was written
"""

import sys

sys.path.pop(0)  # the folder of this script, where tokenize.py would hide Python's own module

import json
import pathlib
import platform
import shutil

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
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Large enough that attention is uneven and logits differ by whole units.
            weight.normal_(1.0 if "norm" in name else 0.0, 0.25)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="60KB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.chmod(0o644)


def write_llama3_rope_cases() -> None:
    folder = GOLDEN / "llama3_rope_model"
    make_llama3_rope_model(folder)
    tokens = [(i * i * 7 + i * 3 + 11) % 256 for i in range(160)]
    write_cases(GOLDEN / "llama3_rope_logits.json", [
        golden_case(load(folder), tokens, [0, 1, 15, 63, 64, 100, 127, 159]),
    ])


def write_origin() -> None:
    (GOLDEN / "ORIGIN.md").write_text(
        "# Golden logits\n\n"
        "Written by `tools/make_golden_logits.py`, which says how to run it. Logits are f32,\n"
        "rounded to 5 digits; row i belongs to `positions[i]` and follows the tokens up to and\n"
        "with that position. Texts and the model in `llama3_rope_model/` (random weights) are\n"
        "made by the script itself.\n\n"
        f"Versions: Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}.\n")


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    write_tiny_cases()
    write_llama3_rope_cases()
    write_origin()


if __name__ == "__main__":
    main()
