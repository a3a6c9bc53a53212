#!/usr/bin/env python3
"""Times a step of 8 sequences and 30 layers through C++, C and Python, by turns.

    PYTHONPATH=build/release/bindings/python build/venv-bindings/bin/python \\
        bench/bindings/step_cost.py --program build/release/bench/bindings/bench_step_cost

The figure is microseconds a layer, begin and end included: the median over steps, and over rounds.
Needs NumPy, or with --torch PyTorch. Prints a table, or JSON with --format json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import terrace

BATCH, LAYERS, QUERY_HEADS, KV_HEADS, DIM, STEPS = 8, 30, 9, 3, 64, 200
SETTINGS = {"backend": "host", "retrieval.policy": "pqcache", "retrieval.budget": 4096}


def make_rows(use_torch: bool) -> list:
    if use_torch:
        import torch
        return [torch.full((BATCH, heads, DIM), 0.5) for heads in
                (QUERY_HEADS, KV_HEADS, KV_HEADS, QUERY_HEADS)]
    import numpy
    return [numpy.full((BATCH, heads, DIM), 0.5, numpy.float32) for heads in
            (QUERY_HEADS, KV_HEADS, KV_HEADS, QUERY_HEADS)]


def through_python(use_torch: bool) -> list:
    runtime = terrace.Runtime(SETTINGS, layers=LAYERS, query_heads=QUERY_HEADS, kv_heads=KV_HEADS,
                              head_dim=DIM, dtype="f32")
    compute = runtime.wrap_caller()
    sequences = [runtime.open_sequence() for _ in range(BATCH)]
    query, keys, values, output = make_rows(use_torch)
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        with runtime.begin_step(sequences, compute) as step:
            for layer in range(LAYERS):
                step.attend(layer, query, keys, values, output)
            step.end()
        times.append((time.perf_counter() - begin) * 1e6 / LAYERS)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rounds = {"cpp": [], "c": [], "python": []}
    for number in range(options.rounds):
        done = subprocess.run([options.program], check=True, capture_output=True, text=True)
        for name, times in {**json.loads(done.stdout),
                            "python": through_python(options.torch)}.items():
            rounds[name].append(statistics.median(times))
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {options.rounds}", end="", file=sys.stderr)
    figures = {name: {"us_per_layer": statistics.median(times), "min": min(times),
                      "max": max(times)} for name, times in rounds.items()}
    for name in ("c", "python"):
        figures[name]["above_cpp"] = statistics.median(
            ours - cpp for ours, cpp in zip(rounds[name], rounds["cpp"]))
    if options.format == "json":
        print(json.dumps({"version": terrace.__version__, "sequences": BATCH, "layers": LAYERS,
                          "arrays": "torch" if options.torch else "numpy",
                          "rounds": options.rounds, "figures": figures}))
        return
    print(f"\n{'through':8} {'us a layer':>11} {'min':>7} {'max':>7} {'above C++':>10}")
    for name, row in figures.items():
        above = "" if "above_cpp" not in row else f"{row['above_cpp']:10.2f}"
        print(f"{name:8} {row['us_per_layer']:11.2f} {row['min']:7.2f} {row['max']:7.2f} {above}")


if __name__ == "__main__":
    main()
