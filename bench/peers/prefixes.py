#!/usr/bin/env python3
"""Holds `terrace tune --memory` against kvcache-simulator, on the same requests.

    bench/peers/prefixes.py REQUESTS.jsonl [--sizes 64,256,1024] [--block-tokens 512]
                            [--program build/release/bin/terrace] [--format text|json]

REQUESTS are in Mooncake's format, as conversation_trace.jsonl of its public traces. Both programs
get the requests' whole blocks and no times, so that requests come one after the other: kvcache-
simulator knows no times, and counts the last block of a prompt as whole. It counts the tokens of
the second half of the requests. Terrace's tokens of that half are those of all requests without
those of the first half. --sizes are GiB of one tier, with bytes of Llama 3.1 8B.

The peer has an environment of its own in build/, which is made when it is missing. Ends with 1 if a
size has other tokens: sizes that hold the longest prompt have the same. For a longer prompt the
peer gives up the block that it has just stored, where Terrace refuses the next one.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "environments"))

import environments  # noqa: E402

PEER = environments.Recipe(ROOT / "build" / "venv-kvcache-simulator", "kvcache_sim",
                           ("kvcache-simulator==0.1.3",))
MODEL = "llama-3.1-8b"  # both have it by this name


def whole_blocks(lines, block_tokens: int) -> list:
    """Returns the requests without their times and without what fills no block."""
    requests = []
    for line in filter(str.strip, lines):
        request = json.loads(line)
        blocks = request["input_length"] // block_tokens
        if blocks > 0:
            requests.append({"input_length": blocks * block_tokens,
                             "hash_ids": request["hash_ids"][:blocks]})
    return requests


def write_requests(path: pathlib.Path, requests: list) -> pathlib.Path:
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


def call(*command) -> str:
    process = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"prefixes: {command[0]} ended, status {process.returncode}: "
                 f"{process.stderr.strip()}")
    return process.stdout


class Terrace:
    def __init__(self, program: pathlib.Path, requests: pathlib.Path, block_tokens: int) -> None:
        self.program, self.trace = program, requests.with_suffix(".trace")
        call(program, "trace", "convert", requests, self.trace, "--from", "mooncake",
             "--block-tokens", block_tokens, "-q")

    def tokens(self, size: str) -> int:
        """Returns how many tokens a tier of that size has of all requests."""
        answer = json.loads(call(self.program, "tune", "--trace", self.trace, "--memory", size,
                                 "--shape", MODEL, "--prefill-rate", 10_000, "--format", "json",
                                 "-q"))
        return answer["rows"][0]["hit_tokens"]


def peer_points(python: pathlib.Path, requests: pathlib.Path, sizes: list,
                block_tokens: int) -> dict:
    """Returns the peer's tokens by size. It leaves out sizes that the first half does not fill."""
    answer = json.loads(call(python, "-I", "-m", "kvcache_sim", "run", "--trace", requests,
                             "--model", MODEL, "--block-size", block_tokens, "--policies", "lru",
                             "--budgets-gib", ",".join(map(str, sizes)), "--format", "json"))
    return {point["gib"]: point["results"]["lru"] for point in answer["points"]}


def measure(options, folder: pathlib.Path) -> list:
    with options.requests.open() as lines:
        requests = whole_blocks(lines, options.block_tokens)
    both = write_requests(folder / "all.jsonl", requests)
    first = write_requests(folder / "first.jsonl", requests[:len(requests) // 2])
    environment = environments.make(PEER)
    points = {} if environment.lacks else peer_points(environment.python, both, options.sizes,
                                                      options.block_tokens)
    programs = [Terrace(options.program, file, options.block_tokens) for file in (both, first)]
    rows = []
    for size in options.sizes:
        ours = [program.tokens(f"{size}GiB") for program in programs]
        row = {"gib": size, "terrace_tokens": ours[0] - ours[1], "peer_tokens": None}
        if size in points:
            row |= {"peer_tokens": points[size]["hitTokens"],
                    "tokens": points[size]["totalTokens"]}
        else:
            row["reason"] = environment.lacks or "half of the requests do not fill this size"
        rows.append(row)
    return rows


def table(rows: list) -> str:
    lines = [f"{'GiB':>8} {'terrace':>12} {'kvcache-sim.':>12} {'of tokens':>10}"]
    for row in rows:
        has_peer = row["peer_tokens"] is not None
        ending = (f"{row['peer_tokens']:>12} {row['terrace_tokens'] / row['tokens']:>10.2%}"
                  if has_peer else f"  - {row['reason']}")
        lines.append(f"{row['gib']:>8g} {row['terrace_tokens']:>12} {ending}")
    return "\n".join(lines)


def sizes_of(text: str) -> list:
    return [int(size) for size in text.split(",")]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=pathlib.Path, metavar="REQUESTS.jsonl")
    parser.add_argument("--sizes", type=sizes_of, default="64,256,1024", metavar="LIST")
    parser.add_argument("--block-tokens", type=int, default=512, metavar="N")
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "terrace")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, pathlib.Path(folder))
    print(json.dumps(rows, indent=2) if options.format == "json" else table(rows))
    return int(any(row["peer_tokens"] not in (None, row["terrace_tokens"]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
