"""Arrays of a GPU, through PyTorch: steps on a stream of its own, and transformers there."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)

import terrace  # noqa: E402

LAYERS, QUERY_HEADS, KV_HEADS, DIM = 2, 8, 2, 64
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def open_runtime(dtype, **settings):
    return terrace.Runtime(
        {"backend": "cuda", "device.memory": "256MiB", "retrieval.budget": 4096, **settings},
        layers=LAYERS, query_heads=QUERY_HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype)


def make_rows(tokens, dtype):
    return [torch.randn(tokens, heads, DIM, device="cuda").to(dtype)
            for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS)]


def attend(query, keys, values):
    """Causal attention of the last tokens, in f64: [tokens, heads, dim]."""
    keys, values = (rows.double().repeat_interleave(QUERY_HEADS // KV_HEADS, 1)
                    for rows in (keys, values))
    logits = torch.einsum("qhd,khd->hqk", query.double(), keys) / DIM**0.5
    last = torch.arange(len(keys) - len(query), len(keys), device="cuda")
    later = torch.arange(len(keys), device="cuda")[None] > last[:, None]
    return torch.einsum("hqk,khd->qhd", logits.masked_fill(later, -torch.inf).softmax(-1), values)


def decode(runtime, stream, dtype, prompt=300, steps=6):
    """Returns the largest error of the outputs, and the sequence's counters."""
    queue = runtime.wrap_stream(stream.cuda_stream)
    sequence = runtime.open_sequence()
    sequence.begin_prompt(prompt)
    kept = [([], []) for _ in range(LAYERS)]
    worst = 0.0
    with torch.cuda.stream(stream):
        for tokens in [prompt] + [1] * steps:
            results = []
            with runtime.begin_step([sequence], queue, [tokens]) as step:
                for layer in range(LAYERS):
                    query, keys, values = make_rows(tokens, dtype)
                    output = torch.empty_like(query)
                    step.attend(layer, query, keys, values, output)
                    kept[layer][0].append(keys)
                    kept[layer][1].append(values)
                    results.append((query, output))
                step.end()
            queue.drain()
            for (query, output), rows in zip(results, kept):
                expected = attend(query, *(torch.cat(parts) for parts in rows))
                worst = max(worst, float((expected - output.double()).abs().max()))
    counters = sequence.counters()
    sequence.close()
    return worst, counters


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_on_a_stream_attend_as_torch_does(dtype):
    torch.manual_seed(1)
    runtime = open_runtime(dtype, **{"retrieval.policy": "signs"})
    worst, _ = decode(runtime, torch.cuda.Stream(), DTYPES[dtype])
    assert worst < {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}[dtype]
    runtime.close()


def test_a_selection_fetches_rows():
    runtime = open_runtime("f16", **{"retrieval.policy": "signs", "retrieval.budget": 64,
                                     "index.until_ready": "wait"})
    _, counters = decode(runtime, torch.cuda.current_stream(), torch.float16, prompt=900)
    assert counters["bytes"]["demand"] > 0
    runtime.close()


def test_an_array_of_the_host_is_refused():
    runtime = open_runtime("f16")
    queue = runtime.wrap_stream(torch.cuda.current_stream().cuda_stream)
    query, keys, values = make_rows(1, torch.float16)
    with runtime.begin_step([runtime.open_sequence()], queue) as step:
        with pytest.raises(terrace.InvalidArgument, match="keys lies in memory of the host"):
            step.attend(0, query, keys.cpu(), values, torch.empty_like(query))
    runtime.close()


@pytest.mark.parametrize("spoilt", [False, True])
def test_generate_gives_the_text_of_the_default_cache(spoilt, monkeypatch):
    pytest.importorskip("transformers")
    from hf_models import cache_for, ids, small
    from terrace.hf import TerraceCache

    if spoilt:
        whole = TerraceCache.attend
        monkeypatch.setattr(TerraceCache, "attend", lambda self, layer, query, key, value, mask:
                            whole(self, layer, query, key, -value, mask))
    prompt = ids(2, 40).cuda()
    plain = small("llama").cuda().generate(prompt, max_new_tokens=24, do_sample=False)
    model = small("llama").cuda()
    cache = cache_for(model, device_memory="64MiB")
    text = model.generate(prompt, past_key_values=cache, max_new_tokens=24, do_sample=False)
    assert torch.equal(plain, text) != spoilt
