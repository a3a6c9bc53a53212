"""python -m terrace.bench hf|vllm --model FOLDER --context 2048,4096 --policy pqcache,full

Prints, for the engine's own cache and each policy in the same run: seconds of the prompt and a
token, KV bytes in device memory, bits a token of a text that is fed token by token, how often the
likeliest token is the same, and needles that are found.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys

from terrace.bench.report import table
from terrace.errors import Error

LICENCES = pathlib.Path("/usr/share/common-licenses")
TEXTS = [LICENCES / name for name in ("GPL-3", "MPL-1.1", "Artistic")]


def numbers(text: str) -> list[int]:
    values = [int(word) for word in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError("give 1 token or more")
    return values


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m terrace.bench",
                                     description=__doc__.partition("\n\n")[2])
    parser.add_argument("engine", choices=["hf", "vllm"])
    parser.add_argument("--model", required=True, help="a folder, or a name the hub knows")
    parser.add_argument("--context", type=numbers, default=[2048], help="tokens, as 2048,4096")
    parser.add_argument("--policy", default="pqcache,full",
                        help="retrieval policies, as pqcache,full")
    parser.add_argument("--budget", default="0.1", help="retrieval.budget")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="another setting of the command line")
    parser.add_argument("--tokens", type=int, default=64, help="tokens fed after each prompt")
    parser.add_argument("--needles", type=int, default=4,
                        help="facts planted and asked for; 0: none")
    parser.add_argument("--text", type=pathlib.Path, action="append",
                        help="files fed one after the other (Debian's licences)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    model = pathlib.Path(options.model)
    if model.is_absolute() and not model.is_dir():
        parser.error(f"--model: there is no folder {model}")
    options.text = options.text or TEXTS
    try:
        options.set = dict(one.split("=", 1) for one in options.set)
    except ValueError:
        parser.error("--set: give KEY=VALUE")
    return options


def can_take_back_a_line() -> bool:
    """Terminals that say they are dumb, as an editor's, show the control characters."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def say(what: str) -> None:
    """Progress, on a terminal alone that can take it back."""
    if can_take_back_a_line():
        print(f"\r{what}\033[K", end="", file=sys.stderr, flush=True)


def main() -> None:
    options = parse()
    try:
        engine = importlib.import_module(f"terrace.bench.{options.engine}")
        report = engine.measure(options, say)
    except (Error, OSError, ImportError, ValueError) as error:
        sys.exit(f"terrace.bench: {error}")
    say("")
    print(json.dumps(report) if options.format == "json" else table(report))


if __name__ == "__main__":
    main()
