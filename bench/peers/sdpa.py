#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention beside `terrace bench serving --headline`.

    terrace bench serving --headline --backend cuda --format json > headline.json
    bench/peers/sdpa.py headline.json

An engine that keeps all rows in device memory and attends to them with PyTorch, at the sizes and
with as many sequences as policy full has room for. Layers are captured in a CUDA graph, so that no
launch is waited for, and each has rows of its own, so that no layer finds its rows in a cache.
Queries come in both forms that give the same result, and the faster one counts: those of a KV head
as rows of one matrix, and PyTorch's enable_gqa. Needs PyTorch with a CUDA device. The answer is
JSON, with rows as those of `terrace bench`.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys

LAYERS = 3
REPLAYS, WARM_UP = 20, 3


@dataclasses.dataclass(frozen=True)
class Point:
    """A batch that fits, of policy full."""

    context: int
    sequences: int
    query_heads: int
    kv_heads: int
    head_dim: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Headline:
    """The rows of one length in a document of the headline."""

    points: list
    fits: int
    model_layers: int


def read_headlines(document: dict) -> list:
    """Returns a Headline for each length that has a batch of policy full in device memory."""
    headlines = {}
    for row in document["rows"]:
        parameters = row["parameters"]
        if parameters["policy"] != "full":
            continue
        context = parameters["context"]
        headline = headlines.setdefault(context, {"points": []})
        if row["name"].startswith("headline_fits_"):
            headline |= {"fits": int(row["value"]), "layers": parameters["model_layers"]}
        elif row["name"].startswith("headline_step_b") and parameters.get("rows") == "in place":
            headline["points"].append(Point(context, parameters["sequences"], *(
                parameters[key] for key in ("query_heads", "kv_heads", "head_dim", "dtype"))))
        headlines[context] = headline
    return [Headline(one["points"], one["fits"], one["layers"]) for one in headlines.values()
            if one["points"] and one.get("fits")]


def forms_of(torch, point: Point) -> dict:
    """Returns functions that attend in all layers, by name."""
    attend = torch.nn.functional.scaled_dot_product_attention
    options = {"device": "cuda", "dtype": {"f16": torch.float16, "bf16": torch.bfloat16,
                                           "f32": torch.float32}[point.dtype]}
    group = point.query_heads // point.kv_heads
    rows = (point.sequences, point.kv_heads, point.context, point.head_dim)
    keys, values = ([torch.randn(rows, **options) for _ in range(LAYERS)] for _ in range(2))
    query = torch.randn(point.sequences, point.kv_heads, group, point.head_dim, **options)
    single = query.view(point.sequences, point.query_heads, 1, point.head_dim)
    return {
        "queries as rows": lambda: [attend(query, k, v) for k, v in zip(keys, values)],
        "enable_gqa": lambda: [attend(single, k, v, enable_gqa=True)
                               for k, v in zip(keys, values)]}


def replay_seconds(torch, step) -> list:
    """Captures a step in a CUDA graph, and returns the seconds of each of its replays."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for i in range(WARM_UP + REPLAYS):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= WARM_UP:
            times.append(begin.elapsed_time(end) * 1e-3)
    return times


def measure(torch, point: Point) -> tuple:
    """Returns the seconds of a layer, for the whole batch, and the form that took them."""
    seconds, reasons = {}, []
    for name, step in forms_of(torch, point).items():
        try:
            seconds[name] = statistics.median(replay_seconds(torch, step)) / LAYERS
        except (TypeError, RuntimeError) as error:  # an older PyTorch; no kernel for the form
            reasons.append(f"{name}: {str(error).splitlines()[0]}")
    if not seconds:
        sys.exit("sdpa.py: no form of the queries runs: " + "; ".join(reasons))
    best = min(seconds, key=seconds.get)
    return seconds[best], best


def rows_of(headline: Headline, take) -> list:
    """Returns the rows of one length; `take` measures a point. As many sequences as fit take a
    step in proportion to the largest batch measured."""
    rows = []
    for point in headline.points:
        seconds, form = take(point)
        rows.append({"name": f"sdpa_step_b{point.sequences}_n{point.context}",
                     "parameters": dataclasses.asdict(point) | {"form": form},
                     "value": seconds / point.sequences, "unit": "s", "better": "lower",
                     "samples": REPLAYS})
    last = max(rows, key=lambda row: row["parameters"]["sequences"])
    rows.append({"name": f"sdpa_tokens_per_second_n{last['parameters']['context']}",
                 "parameters": {"fits": headline.fits, "model_layers": headline.model_layers,
                                "batch": last["parameters"]["sequences"]},
                 "value": 1 / (headline.model_layers * last["value"]), "unit": "1/s",
                 "better": "higher", "samples": REPLAYS})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("headlines", nargs="+", type=pathlib.Path, metavar="HEADLINE.json")
    options = parser.parse_args()
    headlines = []
    for path in options.headlines:
        try:
            headlines += read_headlines(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"sdpa.py: {path} is no JSON of terrace bench serving --headline: {error!r}")
    if not headlines:
        sys.exit("sdpa.py: policy full has no batch in device memory there")
    try:
        import torch
    except ImportError:
        sys.exit("sdpa.py: this Python has no PyTorch")
    if not torch.cuda.is_available():
        sys.exit("sdpa.py: PyTorch finds no CUDA device")
    rows = [row for headline in headlines
            for row in rows_of(headline, lambda point: measure(torch, point))]
    print(json.dumps({"command": "sdpa", "version": f"PyTorch {torch.__version__}",
                      "device": torch.cuda.get_device_name(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
