#!/usr/bin/env python3
"""A prompt that an earlier process has computed: examples/prefix.py FILE, started twice.

The first process computes all of a prompt's tokens and publishes them to FILE; the second one finds
them there, and computes the rest. The model is made up. Needs the package `terrace` and NumPy.
"""

import sys

import numpy as np
import terrace

LAYERS = 2
prompt = np.arange(1000)  # ids of tokens
# A real model has a digest of its weights here.
runtime = terrace.Runtime({"tier.nvme.path": sys.argv[1], "tier.nvme.bytes": "64MiB",
                           "tier.model": "sha256 of the weights"},
                          layers=LAYERS, query_heads=4, kv_heads=2, head_dim=64, dtype="f32")
# Logits of the last token are wanted, so that the model has to compute it.
sequence = runtime.open_sequence(prompt[:-1], salt="a secret of the user")
found = len(sequence)
missing = len(prompt) - found
sequence.begin_prompt(missing)
with runtime.begin_step([sequence], runtime.wrap_caller(), [missing]) as step:
    for layer in range(LAYERS):
        model = np.random.default_rng(layer)
        query = model.standard_normal((missing, 4, 64), np.float32)
        keys, values = model.standard_normal((2, missing, 2, 64), np.float32)
        step.attend(layer, query, keys, values, np.empty_like(query))
    step.end()
report = sequence.publish(prompt, salt="a secret of the user")
print(f"{found} of {len(prompt)} tokens were found, the file has {report.tokens} of them now")
