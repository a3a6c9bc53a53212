"""The measurements in transformers: the same model, once with its own cache and attention, once
with Terrace's."""

import math
import time

import torch
import transformers

import terrace
from terrace.bench import needles, texts
from terrace.hf import TerraceCache
from terrace.stats import device_bytes

OWN = "transformers"


def load(options):
    """Returns tokenizer and model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype)).eval()
    return tokenizer, model


def make_cache(options, model, policy: str):
    if policy == OWN:
        model.set_attn_implementation("sdpa")
        return transformers.DynamicCache(config=model.config)
    return TerraceCache.for_model(model, policy=policy, budget=options.budget, config=options.set)


def kv_bytes(cache) -> int:
    """KV memory of the device that a row takes."""
    if not isinstance(cache, TerraceCache):
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    return max(device_bytes(cache.runtime, one.counters()) for one in cache.sequences)


@torch.no_grad()
def feed(model, cache, tokens: torch.Tensor, context: int) -> dict:
    """Gives a prompt, then the following tokens one by one. Returns seconds, and the logits after
    each decoded token, as `terrace run` scores them."""
    begin, logits = time.perf_counter(), []
    model(tokens[:, :context], past_key_values=cache, logits_to_keep=1)
    prompt = time.perf_counter() - begin
    if isinstance(cache, TerraceCache):
        cache.await_indexes()
    begin = time.perf_counter()
    for i in range(context, tokens.shape[1] - 1):
        logits.append(model(tokens[:, i:i + 1], past_key_values=cache).logits[0, -1])
    taken = time.perf_counter() - begin
    return {"prompt": prompt, "token": taken / len(logits), "logits": torch.stack(logits)}


def measure_row(options, model, tokens: list[int], context: int, policy: str) -> tuple:
    """Returns the row, and the likeliest token at each place."""
    cache = make_cache(options, model, policy)
    text = torch.tensor([tokens[:context + options.tokens + 1]])
    fed = feed(model, cache, text, context)
    targets = text[0, context + 1:]
    nats = torch.nn.functional.cross_entropy(fed["logits"].float(), targets)
    ours = isinstance(cache, TerraceCache)
    row = {"context": context, "cache": policy, "prompt_seconds": fed["prompt"],
           "token_ms": 1e3 * fed["token"], "bits": float(nats) / math.log(2),
           "device_kv_bytes": kv_bytes(cache),
           "hit_rate": cache.stats().hit_rate if ours else None,
           "attended": cache.stats().attended if ours else float(context + options.tokens / 2)}
    return row, fed["logits"].argmax(-1)


@torch.no_grad()
def answer(options, tokenizer, model, policy: str, prompt: list[int], count: int) -> str:
    tokens = torch.tensor([prompt])
    made = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                          max_new_tokens=count, pad_token_id=tokenizer.eos_token_id,
                          past_key_values=make_cache(options, model, policy))
    return tokenizer.decode(made[0, len(prompt):])


def measure(options, say) -> dict:
    """Returns the report: a row for each context and cache, transformers' own first."""
    torch.set_num_threads(options.threads)
    tokenizer, model = load(options)
    tokens = texts.read(options, tokenizer)
    rows = []
    for context in options.context:
        likeliest = None
        for policy in (OWN, *options.policy.split(",")):
            say(f"{context} tokens, {policy}")
            row, best = measure_row(options, model, tokens, context, policy)
            likeliest = best if likeliest is None else likeliest
            row["agreement"] = float((best == likeliest).float().mean())
            row["needles"] = needles.ask(
                options.needles, tokenizer, tokens[:context],
                lambda prompt, count, policy=policy: answer(options, tokenizer, model, policy,
                                                            prompt, count))
            rows.append(row)
    return {"engine": f"transformers {transformers.__version__}", "torch": torch.__version__,
            "terrace": terrace.__version__, "model": str(options.model), "dtype": options.dtype,
            "budget": options.budget, "settings": options.set, "tokens": options.tokens,
            "threads": options.threads, "rows": rows}
