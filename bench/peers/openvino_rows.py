"""Rows of OpenVINO GenAI for bench/peers/retention.py, in an interpreter that has it.

    openvino_rows.py < case.json

Case and answer are as in kvpress_rows.py, but there are only generated tokens in a row: the library
scores prompts, which no eviction has touched yet.

OpenVINO evicts whole blocks of 32 tokens, after a prompt and while it generates. KVCrush's blocks
are kept in addition to the cache's size, which therefore is made smaller by them.
"""

import importlib.metadata
import importlib.util
import json
import pathlib
import sys

import numpy
import openvino
import openvino_genai as genai

BLOCK = 32
START = 32  # the published sinks
REPRESENTATIVES = 0.25  # share of the entries between start and window that KVCrush chooses


def blocks(tokens: float) -> int:
    return max(1, round(tokens / BLOCK))


class Sizes:
    """Whole blocks, as near as they come to the entries and the window of a case."""

    def __init__(self, entries: int, window: int) -> None:
        # A block that is not full yet is not counted: half of one, in the mean.
        self.largest = BLOCK * blocks(entries - BLOCK / 2)
        self.window = BLOCK * blocks(window)
        self.middle = self.largest - START - self.window


def eviction(mode: str, score_window: int = 8, crush: bool = False):
    def make(sizes: Sizes):
        kept = BLOCK * blocks(sizes.middle * REPRESENTATIVES) if crush else 0
        if sizes.middle - kept < BLOCK:
            raise ValueError(f"no block for the best of {sizes.largest} entries")
        chosen = genai.KVCrushConfig(kept // BLOCK, genai.KVCrushAnchorPointMode.MEAN)
        return genai.CacheEvictionConfig(
            START, sizes.window, sizes.largest - kept, getattr(genai.AggregationMode, mode), False,
            score_window, chosen if crush else None)

    return make


# A score window of 0 counts all queries of the prompt, as H2O does.
ROWS = [
    ("dense", None),
    ("H2O (SUM, all queries)", eviction("SUM", score_window=0)),
    ("SUM, last 8 queries", eviction("SUM")),
    ("NORM_SUM, last 8 queries", eviction("NORM_SUM")),
    ("KVCrush on SUM, last 8 queries", eviction("SUM", crush=True)),
]


def find_gguf(package: str) -> str:
    """Returns the one GGUF file that a package holds."""
    spec = importlib.util.find_spec(package)
    files = [] if spec is None else list(pathlib.Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"openvino_rows: {package} holds {len(files)} GGUF files; one was expected")
    return str(files[0])


def open_pipeline(gguf: str, config):
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.enable_prefix_caching = False
    if config is not None:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = config
    return genai.ContinuousBatchingPipeline(gguf, scheduler, "CPU", {"INFERENCE_NUM_THREADS": 1})


def generate(pipeline, number: int, prompt: dict) -> list:
    wanted = genai.GenerationConfig()
    wanted.max_new_tokens = prompt["tokens"]
    wanted.do_sample, wanted.ignore_eos, wanted.apply_chat_template = False, True, False
    ids = openvino.Tensor(numpy.array([prompt["ids"]], dtype=numpy.int64))
    handle = pipeline.add_request(number, ids, wanted)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return list(handle.read_all()[0].generated_ids)


def row_of(label: str, make, gguf: str, case: dict, sizes: Sizes) -> dict:
    try:
        config = make(sizes) if make else None
    except ValueError as error:
        return {"policy": label, "reason": str(error)}
    pipeline = open_pipeline(gguf, config)
    return {"policy": label, "entries": sizes.largest + BLOCK / 2 if make else None,
            "generated": [generate(pipeline, *one) for one in enumerate(case["prompts"])]}


def main() -> None:
    case = json.load(sys.stdin)
    print(json.dumps(importlib.metadata.version("openvino-genai")), flush=True)
    gguf = find_gguf(case["gguf_package"])
    sizes = Sizes(case["entries"], case["window"])
    for label, make in ROWS:
        if case["only"] and label not in ("dense", *case["only"]):
            continue
        print(json.dumps(row_of(label, make, gguf, case, sizes)), flush=True)


if __name__ == "__main__":
    main()
