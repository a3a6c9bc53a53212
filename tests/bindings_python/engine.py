"""An engine with a made-up model, which holds outputs against attention of its own."""

import dataclasses

import numpy as np

import terrace

LAYERS, QUERY_HEADS, KV_HEADS, DIM = 3, 4, 2, 32
SHAPE = {"layers": LAYERS, "query_heads": QUERY_HEADS, "kv_heads": KV_HEADS, "head_dim": DIM}
# All tokens fit the budget, so that each step attends exactly.
EXACT = {"backend": "host", "retrieval.policy": "pqcache", "retrieval.budget": 4096}


def open_runtime(settings=None, dtype="f32"):
    return terrace.Runtime({**EXACT, **(settings or {})}, **SHAPE, dtype=dtype)


def attend(queries, keys, values, scale=None):
    """Attention of the last tokens to all up to their own. [tokens, heads, dim], f32. Logits are
    products times `scale`; None: 1 / sqrt(dim)."""
    scale = 1 / np.sqrt(queries.shape[-1]) if scale is None else scale
    keys, values = (np.repeat(rows, QUERY_HEADS // KV_HEADS, axis=1) for rows in (keys, values))
    logits = np.einsum("qhd,khd->hqk", queries, keys) * scale
    last = np.arange(len(keys) - len(queries), len(keys))
    logits[:, np.arange(len(keys))[None] > last[:, None]] = -np.inf
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, values)


@dataclasses.dataclass
class Member:
    """A sequence with all its rows, which a real engine would not have."""

    sequence: terrace.Sequence
    seed: int
    keys: list = dataclasses.field(default_factory=lambda: [[] for _ in range(LAYERS)])
    values: list = dataclasses.field(default_factory=lambda: [[] for _ in range(LAYERS)])


def make_rows(member, layer, tokens, width):
    """Returns queries, keys and values of the next tokens, in the type of `width`."""
    rng = np.random.default_rng([member.seed, layer, len(member.keys[layer])])
    made = [rng.standard_normal((tokens, heads, DIM)).astype(width)
            for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS)]
    member.keys[layer].extend(made[1])
    member.values[layer].extend(made[2])
    return made


def run_step(runtime, queue, members, tokens, width=np.float32):
    """Runs one step. Returns the largest error of its outputs."""
    worst = 0.0
    dtype = "f16" if width == np.float16 else "f32"
    with runtime.begin_step([m.sequence for m in members], queue, tokens, dtype=dtype) as step:
        for layer in range(LAYERS):
            rows = [make_rows(m, layer, t, width) for m, t in zip(members, tokens)]
            query, keys, values = (np.concatenate(parts) for parts in zip(*rows))
            output = np.empty_like(query)
            step.attend(layer, query, keys, values, output)
            queue.drain()
            begin = 0
            for m, t in zip(members, tokens):
                expected = attend(query[begin:begin + t].astype(np.float32),
                                  np.stack(m.keys[layer]).astype(np.float32),
                                  np.stack(m.values[layer]).astype(np.float32))
                worst = max(worst, float(np.abs(expected - output[begin:begin + t]).max()))
                begin += t
        step.end()
    return worst
