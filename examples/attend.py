#!/usr/bin/env python3
"""The smallest embedder in Python: a made-up model of one layer with its KV memory in Terrace.

Prints how many tokens the last step attended to. Needs the package `terrace` and NumPy.
"""

import numpy as np
import terrace

runtime = terrace.Runtime({"retrieval.budget": 512}, layers=1, query_heads=4, kv_heads=2,
                          head_dim=64, dtype="f32")
compute, sequence = runtime.wrap_caller(), runtime.open_sequence()
sequence.begin_prompt(1000)
model = np.random.default_rng(0)
for tokens in (1000, 1):  # the prompt, then one token
    query = model.standard_normal((tokens, 4, 64), np.float32)
    keys, values = model.standard_normal((2, tokens, 2, 64), np.float32)
    output = np.empty_like(query)
    with runtime.begin_step([sequence], compute, [tokens]) as step:
        step.attend(0, query, keys, values, output)  # the output is there
        step.end()
    sequence.await_indexes()  # else the next token attends to all tokens until there is an index
counters = sequence.counters()
print(f"one step over {len(sequence)} tokens attended to "
      f"{counters['attended'] / counters['lists']:.0f} of them")
