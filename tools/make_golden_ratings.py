#!/usr/bin/env python3
"""Writes the golden ratings of tests/engine: the ratings of a few keys by gates of the bundled
model.

    build/venv-models/bin/python tools/make_golden_ratings.py

Needs what tools/train_gates.py needs. Writes tests/engine/golden/tiny_gates.json: of each layer,
keys before RoPE [tokens, kv_heads, head_dim], rounded to 3 digits, and their ratings
[kv_heads, tokens] in double, rounded to 5.
"""

import sys

sys.path.pop(0)  # the folder of this script, where tokenize.py would hide Python's own module

import importlib.util
import json
import pathlib

import safetensors.torch
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "tiny"
GOLDEN = ROOT / "tests" / "engine" / "golden" / "tiny_gates.json"
TEXT = b"The tide holds the morning. A lamp follows seven stones. The tide holds the"
TOKENS = [4, 40, 55]


def load_trainer():
    path = pathlib.Path(__file__).resolve().with_name("train_gates.py")
    spec = importlib.util.spec_from_file_location("train_gates", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, "")  # which it takes the first folder away
    spec.loader.exec_module(module)
    return module


def rate(tensors: dict, layer: int, keys):
    """Rates keys [tokens, kv_heads, head_dim] in double, one network after the other."""
    rows = []
    for head in range(keys.shape[1]):
        values = keys[:, head].double()
        stage = 0
        while f"layers.{layer}.{stage}.weight" in tensors:
            weight = tensors[f"layers.{layer}.{stage}.weight"][head].double()
            bias = tensors[f"layers.{layer}.{stage}.bias"][head].double()
            values = torch.nn.functional.linear(values.relu() if stage else values, weight, bias)
            stage += 1
        rows.append(values[:, 0])
    return torch.stack(rows)


def main() -> None:
    trainer = load_trainer()
    lifespans = trainer.Lifespans(MODEL, 0.05)
    lifespans.read(list(TEXT))
    tensors = safetensors.torch.load_file(MODEL / "gates.safetensors")
    case = {"model_fingerprint": trainer.fingerprint(MODEL), "keys": [], "ratings": []}
    for layer, (keys,) in enumerate(lifespans.keys):
        rounded = [round(x, 3) for x in keys[TOKENS].flatten().tolist()]
        ratings = rate(tensors, layer, torch.tensor(rounded).reshape(keys[TOKENS].shape))
        case["keys"].append(rounded)
        case["ratings"].append([round(x, 5) for x in ratings.flatten().tolist()])
    GOLDEN.write_text(f'{{"cases": [\n{json.dumps(case)}\n]}}\n')


if __name__ == "__main__":
    main()
