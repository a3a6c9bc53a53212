#!/usr/bin/env python3
"""Turns text into the token ids of a model, for `terrace run --tokens`, and back.

    tools/tokenize.py MODEL_DIR TEXT OUT.u32
    tools/tokenize.py MODEL_DIR TEXT OUT.u32 --needles 20 --seed 1 --context 4096
    tools/tokenize.py MODEL_DIR --decode IN.u32

Ids are little-endian 32-bit integers; nothing is put before the text, and each of its bytes
counts: line ends and byte order marks are kept. TEXT and IN.u32 may be "-", standard input. Needs
the package transformers (tools/fetch_model.py makes an environment that has it), but for models of
256 tokens without a tokenizer, whose tokens are bytes.

If --needles is given, facts such as "\\nNote: the pass code of the amber anchor is 4821.\\n" are
planted at evenly spread depths of the first --context tokens, and OUT.needles.json says what to
ask, for `terrace run --needles-file`:

    {"version": 1, "context_tokens": 4096, "needles": [
      {"depth": 0.025,                  planned place, as a share of the context
       "position": 101,                 of the statement's first token in OUT.u32
       "statement": [ids],              as planted: "\\nNote: ... is" and the answer
       "question": [ids],               "\\nAgain: the pass code of the amber anchor is"
       "answer": [ids],                 " 4821.\\n"
       "answer_is_digit": [bools]}]}    which ids of the answer are digits, to be scored

Questions are not in OUT.u32: they are asked after the scored text, the true answers fed.
"""

import sys

sys.path.pop(0)  # the folder of this script: the script's name hides Python's module tokenize

import argparse
import array
import errno
import json
import os
import pathlib
import random

ADJECTIVES = """amber brisk calm dusty eager faint gentle hollow icy jolly keen lucid mellow narrow
olive proud quiet rusty silent tidy urban vivid wary young zesty bitter clever distant early
frozen""".split()
NOUNS = """anchor bridge canyon desert engine falcon garden harbor island jacket kettle
lantern meadow needle orchard pepper quarry river saddle temple uncle valley window yonder
zipper bakery cottage dragon forest glacier""".split()

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


TEXT_BYTES_MAX = 1 << 30  # more than any context takes; a device may never end


class ByteTokenizer:
    """The tokenizer of models with the 256 bytes as their tokens."""

    def encode(self, text: bytes) -> list[int]:
        return list(text)

    def decode(self, ids: list[int]) -> bytes:
        outside = next((i for i in ids if i > 255), None)
        if outside is not None:
            stop(f"id {outside} is outside the model's vocabulary of 256")
        return bytes(ids)


class HuggingFaceTokenizer:
    def __init__(self, folder: pathlib.Path):
        try:
            import transformers
        except ImportError:
            sys.exit("tokenize: needs the package transformers; tools/fetch_model.py smollm2 makes "
                     "an environment with it: build/venv-models/bin/python tools/tokenize.py")
        transformers.logging.set_verbosity_error()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def encode(self, text: bytes) -> list[int]:
        return self.tokenizer.encode(text.decode(), add_special_tokens=False)

    def decode(self, ids: list[int]) -> bytes:
        return self.tokenizer.decode(ids).encode(errors="replace")


def stop(message: str):
    sys.exit(f"tokenize: {message}")


def why(path: str, error: OSError) -> str:
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"is a link to {os.readlink(path)}, which is not there; get that file again"
    return error.strerror


def read_bytes(path: pathlib.Path, most: int = TEXT_BYTES_MAX) -> bytes:
    """Returns what is in a file, or in standard input for "-"."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(most + 1)
    except OSError as error:
        stop(f"{name}: cannot be read: {why(name, error)}")
    if len(data) > most:
        stop(f"{name}: is larger than {most} bytes; cut it")
    return data


def read_text(path: pathlib.Path, tokenizer) -> bytes:
    text = read_bytes(path)
    try:
        # Bytes that are no characters have tokens in models of bytes alone.
        if not isinstance(tokenizer, ByteTokenizer):
            text.decode()
    except UnicodeDecodeError as error:
        stop(f"{path}: byte {error.start} begins no character of UTF-8; convert the text first")
    return text


def load_tokenizer(folder: pathlib.Path):
    config = folder / "config.json"
    text = read_bytes(config, 100_000_000)
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        return HuggingFaceTokenizer(folder)
    try:
        vocabulary = json.loads(text).get("vocab_size")
    except (ValueError, AttributeError):
        stop(f"{config}: holds no JSON object; MODEL_DIR must be a Hugging Face model folder")
    if vocabulary == 256:
        return ByteTokenizer()
    stop(f"{folder}: has none of {', '.join(TOKENIZER_FILES)}")


def read_ids(path: pathlib.Path) -> list[int]:
    data = read_bytes(path)
    if len(data) % 4 != 0:
        stop(f"{path}: {len(data)} bytes are no whole number of 32-bit ids")
    ids = array.array("I", data)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def write_ids(path: pathlib.Path, ids: list[int]) -> None:
    data = array.array("I", ids)
    if sys.byteorder == "big":
        data.byteswap()
    path.write_bytes(data.tobytes())


def make_needles(tokenizer, count: int, seed: int) -> list[dict]:
    """Returns facts about distinct things; values depend on the seed alone."""
    generator = random.Random(seed)
    names = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
    if count > len(names):
        stop(f"--needles {count}: there are {len(names)} distinct names")
    needles = []
    for i, name in enumerate(generator.sample(names, count)):
        digits = generator.randint(4, 6)
        value = generator.randint(10 ** (digits - 1), 10**digits - 1)
        # Encoded apart from its statement, so that the ids asked for are the planted ones.
        answer = tokenizer.encode(f" {value}.\n".encode())
        needles.append({
            "depth": round((i + 0.5) / count, 6),
            "statement": tokenizer.encode(
                f"\nNote: the pass code of the {name} is".encode()) + answer,
            "question": tokenizer.encode(
                f"\nAgain: the pass code of the {name} is".encode()),
            "answer": answer,
            "answer_is_digit": [tokenizer.decode([t]).strip().isdigit() for t in answer],
        })
    return needles


def plant(needles: list[dict], text: list[int], context: int) -> list[int]:
    """Returns the text with the statements in its first `context` ids, and notes where."""
    room = context - sum(len(needle["statement"]) for needle in needles)
    if room < len(needles):
        stop(f"--context {context}: too short for {len(needles)} needles")
    if len(text) < room:
        stop(f"the text has {len(text)} tokens; --context {context} needs {room} of them")
    ids, taken = [], 0
    for needle in needles:
        upto = int(needle["depth"] * room)
        ids += text[taken:upto]
        taken = upto
        needle["position"] = len(ids)
        ids += needle["statement"]
    return ids + text[taken:]


def encode(options) -> None:
    tokenizer = load_tokenizer(options.model)
    ids = tokenizer.encode(read_text(options.text, tokenizer))
    if options.needles:
        needles = make_needles(tokenizer, options.needles, options.seed)
        ids = plant(needles, ids, options.context)
        sidecar = options.out.with_suffix(".needles.json")
        sidecar.write_text(json.dumps(
            {"version": 1, "context_tokens": options.context, "needles": needles}) + "\n")
        print(f"{len(needles)} needles -> {sidecar}")
    write_ids(options.out, ids)
    print(f"{len(ids)} tokens -> {options.out}")


def decode(options) -> None:
    ids = read_ids(options.decode)
    sys.stdout.buffer.write(load_tokenizer(options.model).decode(ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL_DIR", type=pathlib.Path)
    parser.add_argument("text", metavar="TEXT", type=pathlib.Path, nargs="?")
    parser.add_argument("out", metavar="OUT.u32", type=pathlib.Path, nargs="?")
    parser.add_argument("--decode", metavar="IN.u32", type=pathlib.Path)
    parser.add_argument("--needles", metavar="N", type=int, default=0)
    parser.add_argument("--seed", metavar="S", type=int, default=1)
    parser.add_argument("--context", metavar="C", type=int, default=4096)
    options = parser.parse_args()
    if options.decode is not None:
        decode(options)
    elif options.text is None or options.out is None:
        parser.error("give TEXT and OUT.u32, or --decode IN.u32")
    elif options.needles < 0 or options.context < 1:
        parser.error("--needles and --context must be positive")
    else:
        encode(options)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        stop(f"{error.filename}: {why(error.filename, error)}" if error.filename else str(error))
