"""Rows of kvpress for bench/peers/retention.py, in an interpreter that has it.

    kvpress_rows.py < case.json

A case is an object of retention.py. The first line of the answer is the library's version, each
other line one row, "dense" first; all is JSON. A row has of each scored token the bits, and which
token was likeliest; how many digits of needles were right; and the tokens generated after each
prompt.

A press prunes the cache once, after the prompt; a decoding press again and again. A sequence keeps
its positions: tokens after a pruned prompt have the same positions as after the whole prompt.
"""

import contextlib
import json
import math
import os
import struct
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import kvpress
import torch
import transformers

TOKENS_AT_ONCE = 256
SCORE_WINDOW = 32  # queries by which SnapKV chooses while decoding; fewer than a flush has


def ratio_of(entries: int, tokens: int) -> float:
    """Returns the share to prune so that, rounded down, so many entries stay."""
    return max(0.0, 1 - (entries + 0.5) / tokens)


def again(press, **options):
    """Prunes by a press after the prompt, and again when a window has been decoded."""
    def make(case: dict, tokens: int):
        decoding = kvpress.DecodingPress(press(**options), target_size=case["entries"],
                                         compression_interval=case["window"])
        first = press(ratio_of(case["entries"], tokens), **options)
        return kvpress.PrefillDecodingPress(first, decoding)

    make.decoding = True
    return make


def once(press, **options):
    def make(case: dict, tokens: int):
        return press(ratio_of(case["entries"], tokens), **options)

    make.decoding = False
    return make


def dense(_case: dict, _tokens: int):
    return lambda _model: contextlib.nullcontext()


dense.decoding = False
# Label, press, attention: scores of all queries need weights, which "eager" alone gives.
ROWS = [
    ("dense", dense, "sdpa"),
    ("SnapKV", once(kvpress.SnapKVPress), "sdpa"),
    ("H2O (ObservedAttention)", once(kvpress.ObservedAttentionPress), "eager"),
    ("TOVA", once(kvpress.TOVAPress), "sdpa"),
    ("random", once(kvpress.RandomPress, seed=0), "sdpa"),
    ("SnapKV, decoding", again(kvpress.SnapKVPress, window_size=SCORE_WINDOW), "sdpa"),
    ("TOVA, decoding", again(kvpress.TOVAPress), "sdpa"),
]


class Sequence:
    """A prompt in a model's cache under a press, and the tokens after it."""

    def __init__(self, model, ids: list) -> None:
        self.model, self.cache, self.length = model, transformers.DynamicCache(), 0
        self.attended, self.steps = 0, 0
        self.logits = self.feed(ids, only_last=True)[-1]
        self.attended, self.steps = 0, 0  # of what follows the prompt

    def feed(self, ids: list, only_last: bool = False):
        """Returns the logits after each token, [tokens, vocabulary]."""
        positions = torch.arange(self.length, self.length + len(ids))[None]
        before = self.cache.get_seq_length()
        self.attended += sum(range(before + 1, before + len(ids) + 1))
        self.steps += len(ids)
        self.length += len(ids)
        return self.model(torch.tensor([ids]), past_key_values=self.cache, position_ids=positions,
                          logits_to_keep=int(only_last)).logits[0]

    def follow(self, ids: list, at_once: int):
        """Yields the logits after each token."""
        for first in range(0, len(ids), at_once):
            yield from self.feed(ids[first:first + at_once])

    def generate(self, count: int) -> list:
        logits, ids = self.logits, []
        while len(ids) < count:
            ids.append(int(logits.argmax()))
            logits = self.feed(ids[-1:])[-1]
        return ids


def bits_of(logits, token: int) -> float:
    return -float(logits.double().log_softmax(-1)[token]) / math.log(2)


def ask(sequence: Sequence, needle: dict, at_once: int) -> tuple:
    """Returns how many digits of the answer are right, and how many there are."""
    fed = needle["question"] + needle["answer"]
    behind = list(sequence.follow(fed, at_once))[len(needle["question"]) - 1:]
    digits = [(logits, token) for logits, token, is_digit
              in zip(behind, needle["answer"], needle["answer_is_digit"]) if is_digit]
    return sum(int(logits.argmax()) == token for logits, token in digits), len(digits)


def score(model, make, case: dict, ids: list) -> dict:
    context, scored = case["context"], case["scored"]
    at_once = 1 if make.decoding else TOKENS_AT_ONCE
    press = make(case, context)(model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(press)
        sequence = Sequence(model, ids[:context])
        if not make.decoding:
            stack.close()
        behind = sequence.follow(ids[context:context + scored], at_once)
        pairs = [(bits_of(logits, token), int(logits.argmax())) for logits, token
                 in zip(behind, ids[context + 1:context + scored + 1])]
        entries = sequence.attended / sequence.steps
        right = [ask(sequence, needle, at_once) for needle in case["needles"]]
    return {"entries": entries, "bits": [bits for bits, _ in pairs],
            "likeliest": [token for _, token in pairs],
            "digits_right": sum(one for one, _ in right), "digits": sum(all for _, all in right)}


def generate(model, make, case: dict, prompt: dict) -> list:
    with make(case, len(prompt["ids"]))(model):
        return Sequence(model, prompt["ids"]).generate(prompt["tokens"])


def read_ids(path: str) -> list:
    with open(path, "rb") as file:
        data = file.read()
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def row_of(label: str, make, model, case: dict, ids: list) -> dict:
    row = {"policy": label}
    try:
        if case["scored"]:
            row |= score(model, make, case, ids)
        row["generated"] = [generate(model, make, case, prompt) for prompt in case["prompts"]]
    except AssertionError as error:  # a press that these sizes do not suit
        return {"policy": label, "reason": str(error)}
    return row


@torch.no_grad()
def main() -> None:
    case = json.load(sys.stdin)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    ids, models = read_ids(case["tokens"]), {}
    print(json.dumps(f"{kvpress_version()} (transformers {transformers.__version__}, "
                     f"torch {torch.__version__})"), flush=True)
    for label, make, attention in ROWS:
        if case["only"] and label not in ("dense", *case["only"]):
            continue
        if attention not in models:
            models[attention] = transformers.AutoModelForCausalLM.from_pretrained(
                case["model"], dtype=torch.float32, attn_implementation=attention).eval()
        print(json.dumps(row_of(label, make, models[attention], case, ids)), flush=True)


def kvpress_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("kvpress")


if __name__ == "__main__":
    main()
