#!/usr/bin/env python3
"""Times a question behind a stored prefix, in one layer of the shape of Llama 3.1 8B.

    bench/peers/stored_prefix.py [--context 32768] [--question 64] [--policy signs] [--folder DIR]
                                 [--engines PYTHON] [--json FILE]

`terrace run` computes all tokens and keeps --context of them in a file; then it begins with these
and computes the --question alone, which attends to all rows by default, and to those that it
selects with `retrieval.prompts: retrieved`. vLLM's `fs` tier and Terrace's store read files of as
many bytes as the kept rows have, in turns, in pages of a chunk.
The layer's weights are random: times and bytes are those of its shape, and what the model says
means nothing, so that rows that a query selects lie anywhere.

vLLM is installed into build/venv-engines first, where --engines names no interpreter that has it.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
from random import Random

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "environments"))

import disk  # noqa: E402
import disk_turns  # noqa: E402
import environments  # noqa: E402

PROGRAM = ROOT / "build" / "release" / "bin" / "terrace"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
          "tie_word_embeddings": True, "torch_dtype": "float16", "attention_bias": False,
          "mlp_bias": False, "bos_token_id": 0, "eos_token_id": 0,
          "max_position_embeddings": 131072 + 8192, "rope_scaling": None, "hidden_size": 4096,
          "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
          "head_dim": 128, "intermediate_size": 14336, "vocab_size": 256,
          "rope_theta": 500000.0, "rms_norm_eps": 1e-05}
ROW_BYTES = 2 * 2 * 8 * 128  # of a token: key and value of each KV head
CHUNK_TOKENS = 256           # tier.chunk_tokens


def tensors_of(config: dict) -> dict:
    """Returns the shapes of a Llama of one layer by name."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    layer = "model.layers.0."
    return {"model.embed_tokens.weight": (config["vocab_size"], hidden),
            "model.norm.weight": (hidden,),
            layer + "input_layernorm.weight": (hidden,),
            layer + "post_attention_layernorm.weight": (hidden,),
            layer + "self_attn.q_proj.weight": (hidden, hidden),
            layer + "self_attn.k_proj.weight": (keys, hidden),
            layer + "self_attn.v_proj.weight": (keys, hidden),
            layer + "self_attn.o_proj.weight": (hidden, hidden),
            layer + "mlp.gate_proj.weight": (inner, hidden),
            layer + "mlp.up_proj.weight": (inner, hidden),
            layer + "mlp.down_proj.weight": (hidden, inner)}


def random_weights(random: Random, count: int) -> bytes:
    """Returns as many weights of F16, of either sign, their sizes from 1/64 to 1/32."""
    sign_and_mantissa, exponent = (int.from_bytes(word * count, "little")
                                   for word in (b"\xff\x83", b"\x00\x24"))
    bits = int.from_bytes(random.randbytes(2 * count), "little")
    return (bits & sign_and_mantissa | exponent).to_bytes(2 * count, "little")


def write_model(folder: pathlib.Path) -> None:
    """Writes config and safetensors: norms of one, other weights random."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = Random(7)
    entries, offset = {}, 0
    for name, shape in tensors_of(CONFIG).items():
        size = 2 * math.prod(shape)
        entries[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for shape in tensors_of(CONFIG).values():
            count = math.prod(shape)
            file.write(b"\x00\x3c" * count if len(shape) == 1 else random_weights(random, count))


class Runs:
    """Runs of `terrace run` over one model and one file for rows."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.options, self.folder = options, folder
        write_model(folder / "model")

    def run(self, *words: str) -> dict:
        """Returns the time to the first token, and the bytes read from the file until then."""
        tokens = self.options.context + self.options.question
        command = [self.options.program, "run", "--model", self.folder / "model", "--context",
                   tokens, "--decode", 2, "--policy", self.options.policy, "--nvme",
                   self.folder / "rows", "--nvme-bytes", 2 * ROW_BYTES * tokens + (64 << 20),
                   "--format", "json", "-q", *words]
        process = subprocess.run(list(map(str, command)), check=False, capture_output=True,
                                 text=True)
        if process.returncode != 0:
            sys.exit(f"stored_prefix: {process.stderr.strip()}")
        (run,) = json.loads(process.stdout)["runs"]
        prefix = run["prefix"]
        kept = (prefix["restored"] or prefix["saved"])["tokens"]
        if kept != self.options.context:
            sys.exit(f"stored_prefix: {kept} tokens were kept")
        return {"seconds": run["seconds"]["prefill"],
                "bytes_read": (prefix["restored"] or {"bytes_read": 0})["bytes_read"]}


def rows_of_runs(runs: Runs) -> list:
    restore = ("--restore", "document")
    ways = [("computes all", ("--save", "document")),
            ("begins with what was kept", restore),
            ("the same, prompts select", (*restore, "--set", "retrieval.prompts=retrieved"))]
    rows = []
    for name, words in ways:
        print(f"stored_prefix: {name}", file=sys.stderr)
        rows.append({"name": name} | runs.run(*words))
    return rows


def readers_of(options: argparse.Namespace) -> types.SimpleNamespace:
    """Returns what bench/peers/disk.py is asked for."""
    return types.SimpleNamespace(
        contenders=[one for one in disk.CONTENDERS if one.name in ("Terrace", "vLLM fs")],
        engines=options.engines, folder=options.folder, program=disk.PROGRAM,
        mib=ROW_BYTES * options.context >> 20, rounds=2, reads=5, batch=8, batches=8)


def rows_of_readers(asked: types.SimpleNamespace, context: int) -> list:
    """Returns how long readers of files take for as many bytes as the kept rows have."""
    load = disk_turns.Load(ROW_BYTES * CHUNK_TOKENS, context // CHUNK_TOKENS, asked.batch,
                           asked.batches, asked.reads)
    found = disk.make_environments(asked)
    return [{"name": f"{row['name']} reads as many bytes", "version": row["version"],
             "bytes_read": load.bytes}
            | ({"seconds": 1e-9 * load.bytes / row["read"]["median"]} if "read" in row
               else {"seconds": None, "reason": row["reason"]})
            for row in disk.measure(load, asked, found)]


def table(rows: list) -> str:
    lines = [f"{'':42} {'seconds':>9} {'of computing':>12} {'MB read':>9}"]
    for row in rows:
        if row["seconds"] is None:
            lines.append(f"{row['name']:42}   - {row['reason']}")
        else:
            lines.append(f"{row['name']:42} {row['seconds']:9.3f} {row['of_computing']:12.4f} "
                         f"{1e-6 * row['bytes_read']:9.1f}")
    return "\n".join(lines)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--context", type=int, default=32768, help="tokens that are kept")
    parser.add_argument("--question", type=int, default=64, help="tokens behind them")
    parser.add_argument("--policy", default="signs")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()),
                        help="on the disk to be measured")
    parser.add_argument("--engines", type=pathlib.Path, metavar="PYTHON")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if options.context % CHUNK_TOKENS != 0 or options.context < CHUNK_TOKENS:
        sys.exit(f"stored_prefix: --context is a multiple of {CHUNK_TOKENS}")
    for program in (options.program, disk.PROGRAM):
        if not program.exists():
            sys.exit(f"stored_prefix: {program} is not there; run cmake --build --preset release "
                     "--target all disk_terrace")
    return options


def main() -> None:
    options = read_options()
    readers = readers_of(options)
    document = disk.surroundings(readers)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="stored-prefix-") as name:
        rows = rows_of_runs(Runs(options, pathlib.Path(name)))
    rows += rows_of_readers(readers, options.context)
    document["load_after"] = os.getloadavg()[0]
    for row in rows:
        if row["seconds"] is not None:
            row["of_computing"] = row["seconds"] / rows[0]["seconds"]
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(document | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
