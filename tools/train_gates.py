#!/usr/bin/env python3
"""Trains gates for retention policy smartkv: networks that rate a model's tokens by their keys.

    tools/train_gates.py MODEL_DIR TEXT... --out gates.safetensors
    tools/train_gates.py models/smollm2 *.txt --out smollm2-gates.safetensors --window 2048 --json

The model reads the texts in windows. A query uses a key if its attention weight on it is above
--threshold in any query head of the key's group; a key's lifespan is the distance to the last query
that uses it, at least 1. A gate, one for each layer and KV head, learns the base-4 logarithm of the
lifespan from the key before RoPE, up to 6. Keys of the last quarter of a window are left out: the
window's end cuts their lifespans off. Whole texts are set aside to validate on.

Needs the packages torch, transformers, safetensors and xxhash:

    python3 -m venv build/venv-models
    build/venv-models/bin/pip install torch transformers safetensors xxhash
    build/venv-models/bin/python tools/train_gates.py ...

The file is safetensors, F16. With layer L and stage S of the networks from 0:

    layers.L.S.weight   [kv_heads, outputs, inputs]; inputs of the first stage: head_dim
    layers.L.S.bias     [kv_heads, outputs]; outputs of the last stage: 1
    __metadata__        {"format": "terrace gates 1", "model": name of the model's folder,
                         "model_fingerprint": of its config and weights, as in traces}

Between stages is a ReLU.
"""

import sys

sys.path.pop(0)  # the folder of this script, where tokenize.py would hide Python's own module

import argparse
import functools
import importlib.util
import itertools
import json
import os
import pathlib
import random
import time

HIDDEN = (128, 128, 128)
LABEL_MAX = 6.0
KEYS_WITH_WHOLE_LIVES = 0.75  # share of a window
QUERIES_AT_ONCE = 512
BATCH = 4096


def stop(message: str):
    sys.exit(f"train_gates: {message}")


try:
    import safetensors.torch
    import torch
    import transformers
    import xxhash
except ImportError as error:
    stop(f"needs the package {error.name}: python3 -m venv build/venv-models; "
         "build/venv-models/bin/pip install torch transformers safetensors xxhash")


def load_tokens_module():
    """Returns tools/tokenize.py as a module: Python has a module of the same name."""
    path = pathlib.Path(__file__).resolve().with_name("tokenize.py")
    spec = importlib.util.spec_from_file_location("token_files", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fingerprint(folder: pathlib.Path) -> str:
    """Returns what tuning/src/model_fingerprint.cpp makes of a model's folder."""
    def add(seed: int, data: bytes) -> int:
        return xxhash.xxh64_intdigest(data, seed)

    total = add(0, (folder / "config.json").read_bytes())
    for path in sorted(folder.glob("model*.safetensors")):
        size = path.stat().st_size
        total = add(total, f"{path.name} {size}".encode())
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            total = add(total, file.read(min(header_bytes, 1 << 24, size)))
            for place in range(256):
                file.seek(size // 256 * place)
                total = add(total, file.read(64))
    return f"{total:016x}"


class Lifespans:
    """Runs a model over windows and keeps, of each layer, keys before RoPE and their labels."""

    def __init__(self, folder: pathlib.Path, threshold: float):
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        transformers.AttentionInterface.register("lifespans", self.attend)
        self.threshold = threshold
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="lifespans").eval()
        config = self.model.config
        self.layers, self.kv_heads = config.num_hidden_layers, config.num_key_value_heads
        self.keys = [[] for _ in range(self.layers)]  # each [tokens, kv_heads, head_dim], F16
        self.labels = [[] for _ in range(self.layers)]  # each [tokens, kv_heads]
        for layer in self.model.model.layers:
            index = layer.self_attn.layer_idx
            layer.self_attn.k_proj.register_forward_hook(functools.partial(self.keep_keys, index))

    def keep_keys(self, layer: int, _module, _inputs, keys) -> None:
        whole = int(keys.shape[1] * KEYS_WITH_WHOLE_LIVES)
        self.keys[layer].append(keys[0, :whole].reshape(whole, self.kv_heads, -1).half())

    def attend(self, module, query, key, value, _mask, scaling, **_):
        """Is the model's attention; notes when each key was used last."""
        group = query.shape[1] // key.shape[1]
        tokens = key.shape[2]
        positions = torch.arange(tokens)
        last = positions.repeat(key.shape[1], 1)
        outputs = []
        keys, values = (x.repeat_interleave(group, dim=1)[0] for x in (key, value))
        for first in range(0, tokens, QUERIES_AT_ONCE):
            queries = query[0, :, first:first + QUERIES_AT_ONCE]
            end = first + queries.shape[1]
            logits = queries @ keys[:, :end].transpose(1, 2) * scaling
            logits.masked_fill_(positions[:end] > positions[first:end, None], -torch.inf)
            weights = logits.softmax(-1)
            outputs.append(weights @ values[:, :end])
            used = (weights > self.threshold).unflatten(0, (-1, group)).any(1)
            newest = (used * positions[first:end, None]).amax(1)
            last[:, :end] = torch.maximum(last[:, :end], newest)
        lives = (last - positions).clamp(min=1)[:, :int(tokens * KEYS_WITH_WHOLE_LIVES)]
        labels = (lives.double().log2() / 2).clamp(max=LABEL_MAX).float()
        self.labels[module.layer_idx].append(labels.T)
        return torch.cat(outputs, 1).transpose(0, 1)[None], None

    @torch.no_grad()
    def read(self, window: list[int]) -> None:
        self.model.model(torch.tensor([window]), use_cache=False)


class Gate(torch.nn.Module):
    """The networks of one layer, of all KV heads at once."""

    def __init__(self, kv_heads: int, widths: tuple[int, ...]):
        super().__init__()
        stages = list(itertools.pairwise(widths))
        self.weights = torch.nn.ParameterList(
            torch.empty(kv_heads, outputs, inputs).uniform_(-1, 1) * (3 / inputs) ** 0.5
            for inputs, outputs in stages)
        self.biases = torch.nn.ParameterList(
            torch.zeros(kv_heads, outputs) for _, outputs in stages)

    def forward(self, keys):
        """Rates keys [tokens, kv_heads, head_dim]: [tokens, kv_heads]."""
        values = keys.transpose(0, 1)
        for stage, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            values = torch.baddbmm(bias[:, None], values.relu() if stage else values,
                                   weight.transpose(1, 2))
        return values[:, :, 0].T


def train(gate: Gate, keys, labels, epochs: int) -> None:
    optimizer = torch.optim.AdamW(gate.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(keys)).split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(gate(keys[batch].float()), labels[batch])
            loss.backward()
            optimizer.step()


@torch.no_grad()
def judge(gate: Gate, keys, labels) -> dict:
    """Compares ratings with labels, a KV head at a time."""
    ratings = torch.cat([gate(part.float()) for part in keys.split(BATCH)])
    heads = range(labels.shape[1])
    pairs = [torch.corrcoef(torch.stack([ratings[:, h], labels[:, h]]))[0, 1] for h in heads]
    return {"label_mean": round(labels.mean().item(), 3),
            "label_deviation": round(labels.std().item(), 3),
            "error": round((ratings - labels).square().mean().sqrt().item(), 3),
            "correlation": [round(pair.item(), 3) for pair in pairs]}


def windows_of(options) -> list[tuple[str, list[list[int]]]]:
    """Returns each text's windows; tokens that do not fill a window are left out."""
    token_files = load_tokens_module()
    tokenizer = token_files.load_tokenizer(options.model)
    texts = []
    for path in options.texts:
        ids = tokenizer.encode(token_files.read_text(path, tokenizer))
        starts = range(0, len(ids) - options.window + 1, options.window)
        if starts:
            texts.append((str(path), [ids[start:start + options.window] for start in starts]))
    if len(texts) < 2:
        stop(f"{len(texts)} texts have {options.window} tokens or more; give two at least: one is "
             "set aside to validate on")
    return texts


def set_aside(texts, share: float):
    """Returns the texts for training and those for validation, chosen by the random seed."""
    order = random.sample(texts, len(texts))
    wanted = share * sum(len(windows) for _, windows in texts)
    count, windows = 0, 0
    while count < len(order) - 1 and (count == 0 or windows < wanted):
        windows += len(order[count][1])
        count += 1
    return order[count:], order[:count]


def collect(options, texts, say):
    """Returns a layer's (keys, labels), of all windows of the texts."""
    lifespans = Lifespans(options.model, options.threshold)
    total = sum(len(windows) for _, windows in texts)
    for done, window in enumerate((w for _, windows in texts for w in windows), 1):
        lifespans.read(window)
        say(f"\r{done} of {total} windows", end="", flush=True)
    say()
    return [(torch.cat(keys), torch.cat(labels))
            for keys, labels in zip(lifespans.keys, lifespans.labels)]


def write(options, gates: list[Gate]) -> None:
    tensors = {}
    for layer, gate in enumerate(gates):
        for stage, (weight, bias) in enumerate(zip(gate.weights, gate.biases)):
            tensors[f"layers.{layer}.{stage}.weight"] = weight.detach().half()
            tensors[f"layers.{layer}.{stage}.bias"] = bias.detach().half()
    metadata = {"format": "terrace gates 1", "model": options.model.resolve().name,
                "model_fingerprint": fingerprint(options.model)}
    unfinished = options.out.with_name(f"{options.out.name}.{os.getpid()}.unfinished")
    try:
        unfinished.write_bytes(safetensors.torch.save(tensors, metadata))
        unfinished.replace(options.out)
    except OSError as error:
        stop(f"{options.out}: cannot be written: {error.strerror}")
    finally:
        unfinished.unlink(missing_ok=True)


def report_of(options, training, validation, layers: list[dict], seconds: float) -> dict:
    def sizes(texts):
        return {name: len(windows) for name, windows in texts}

    return {"out": str(options.out), "model": str(options.model), "window": options.window,
            "threshold": options.threshold, "epochs": options.epochs, "seed": options.seed,
            "training_windows": sizes(training), "validation_windows": sizes(validation),
            "layers": layers, "seconds": round(seconds, 1)}


def run(options) -> None:
    began = time.monotonic()
    say = print if not options.json else lambda *_, **__: None
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    training, validation = set_aside(windows_of(options), options.validation)
    say(f"validation: {', '.join(name for name, _ in validation)}")
    learnt, checked = collect(options, training, say), collect(options, validation, say)
    say("layer  mean label  deviation  error  correlation of each KV head")
    gates, layers = [], []
    for layer, ((keys, labels), (held_keys, held_labels)) in enumerate(zip(learnt, checked)):
        gate = Gate(keys.shape[1], (keys.shape[2], *HIDDEN, 1))
        train(gate, keys, labels, options.epochs)
        gates.append(gate)
        layers.append(judge(gate, held_keys, held_labels))
        found = layers[-1]
        say(f"{layer:5}  {found['label_mean']:10.3f}  {found['label_deviation']:9.3f}  "
            f"{found['error']:5.3f}  {' '.join(f'{c:.3f}' for c in found['correlation'])}")
    write(options, gates)
    report = report_of(options, training, validation, layers, time.monotonic() - began)
    print(json.dumps(report) if options.json else f"{options.out}: {report['seconds']} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL_DIR", type=pathlib.Path)
    parser.add_argument("texts", metavar="TEXT", type=pathlib.Path, nargs="+")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--window", type=int, default=4096, help="tokens (4096)")
    parser.add_argument("--threshold", type=float, default=0.05, help="attention weight (0.05)")
    parser.add_argument("--validation", type=float, default=0.1, help="share of windows (0.1)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object alone")
    options = parser.parse_args()
    if options.window < 4 or options.epochs < 1 or options.threads < 1:
        parser.error("--window takes 4 and more, --epochs and --threads 1 and more")
    if not 0 < options.validation < 1 or not 0 < options.threshold < 1:
        parser.error("--validation and --threshold lie between 0 and 1")
    if options.out.name.startswith("model") and \
            options.out.resolve().parent == options.model.resolve():
        parser.error("--out: files model*.safetensors of MODEL_DIR are taken for its weights")
    run(options)


if __name__ == "__main__":
    main()
