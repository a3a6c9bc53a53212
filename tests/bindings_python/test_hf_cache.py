"""TerraceCache with small random models: what transformers asks of a cache, and what is refused."""

import gc

import pytest
import torch
import transformers

import terrace
from hf_models import cache_for, ids, small
from terrace.hf import TerraceCache

MODELS = [("llama", {}), ("mistral", {"sliding_window": None}), ("qwen2", {}),
          ("qwen3", {"head_dim": 32}), ("phi3", {}), ("granite", {"attention_multiplier": 0.3}),
          ("llama", {"num_key_value_heads": 1}), ("llama", {"num_key_value_heads": 4}),
          ("olmo2", {}), ("starcoder2", {}), ("smollm3", {"no_rope_layers": [1, 0]})]


@pytest.fixture
def model():
    return small("llama")


def logits(model, tokens, cache, **inputs):
    with torch.no_grad():
        return model(tokens, past_key_values=cache, **inputs).logits


def default_cache(model):
    return transformers.DynamicCache(config=model.config)


def assert_close(found, expected):
    assert torch.allclose(found, expected, atol=2e-5), (found - expected).abs().max()


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_models_of_the_field(kind, changes):
    plain, model = small(kind, **changes), small(kind, **changes)
    ours, theirs = cache_for(model), default_cache(plain)
    for tokens in (40, 1, 1, 5, 30, 1):
        rows = ids(2, tokens, seed=tokens)
        assert_close(logits(model, rows, ours), logits(plain, rows, theirs))
    assert ours.get_seq_length() == theirs.get_seq_length() == 78


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    plain, model = small("llama").to(dtype), small("llama").to(dtype)
    ours, theirs = cache_for(model), default_cache(plain)
    for tokens in (40, 1, 1):
        rows = ids(1, tokens)
        found, expected = logits(model, rows, ours), logits(plain, rows, theirs)
        assert torch.allclose(found.float(), expected.float(), atol=3e-2)


@pytest.mark.parametrize(("dtype", "memory"),
                         [(torch.float32, "4MiB"), (torch.bfloat16, "5600KiB")])
def test_prompts_with_more_rows_than_the_device_has_room_for(dtype, memory):
    plain, model = small("llama").to(dtype), small("llama").to(dtype)
    prompt, token = ids(1, 6000), ids(1, 1, seed=1)
    rows = 2 * 2 * 2 * 16 * 6000 * dtype.itemsize
    ours = cache_for(model, budget=64, device_memory=memory)
    theirs = default_cache(plain)
    tolerance = 2e-5 if dtype == torch.float32 else 3e-2
    found, expected = logits(model, prompt, ours), logits(plain, prompt, theirs)
    assert torch.allclose(found, expected, atol=tolerance), (found - expected).abs().max()
    logits(model, token, ours)
    assert ours.stats().bytes["streamed"] > rows // 2


def test_rows_that_are_reordered_repeated_and_chosen(model):
    ours, theirs = cache_for(model), default_cache(model)
    plain = small("llama")
    logits(model, ids(3, 20), ours), logits(plain, ids(3, 20), theirs)
    for change, argument in (("reorder_cache", torch.tensor([2, 2, 0])),
                             ("batch_repeat_interleave", 2),
                             ("batch_select_indices", torch.tensor([5, 0, 2])),
                             ("crop", -4), ("reorder_cache", torch.tensor([1, 0, 2]))):
        for cache in (ours, theirs):
            getattr(cache, change)(argument)
        rows = ids(ours.columns.held.shape[0], 2, seed=9)
        assert_close(logits(model, rows, ours), logits(plain, rows, theirs))
    assert ours.runtime.sequences == 3


def test_padding_is_not_stored_and_later_rows_may_be_padded_too(model):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    mask = torch.ones((2, 12), dtype=torch.long)
    mask[0, :7] = 0
    rows = ids(2, 12)
    found, expected = (logits(m, rows, cache, attention_mask=mask)
                       for m, cache in ((model, ours), (plain, theirs)))
    assert_close(found[mask.bool()], expected[mask.bool()])
    assert [len(sequence) for sequence in ours.sequences] == [5, 12]
    more = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])  # a second turn of two lengths
    mask = torch.cat([mask, more], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, 12:]
    rows = ids(2, 4)
    found, expected = (logits(m, rows, cache, attention_mask=mask, position_ids=positions)
                       for m, cache in ((model, ours), (plain, theirs)))
    assert_close(found[more.bool()], expected[more.bool()])
    assert [len(sequence) for sequence in ours.sequences] == [7, 16]


def test_an_exception_in_the_model_loses_nothing(model):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    logits(model, ids(1, 20), ours), logits(plain, ids(1, 20), theirs)

    def fail(*_):
        raise ZeroDivisionError

    hook = model.model.layers[1].register_forward_pre_hook(fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            logits(model, ids(1, 3), ours)
    hook.remove()
    assert ours.get_seq_length() == len(ours.sequences[0]) == 20
    assert_close(logits(model, ids(1, 3), ours), logits(plain, ids(1, 3), theirs))


def test_a_prompt_in_chunks_is_one_prompt_where_it_is_said(model):
    ours = cache_for(model, budget=16, retrieval_dense_layers=0)
    ours.expect_prompt(48)
    for begin in range(0, 48, 16):
        logits(model, ids(1, 48)[:, begin:begin + 16], ours)
    ours.await_indexes()
    assert ours.sequences[0].counters()["builds"] == 2  # one a layer
    logits(model, ids(1, 1), ours)
    assert ours.stats().attended == 16


def test_the_attentions_mass_is_sampled_where_it_is_asked_for(model):
    def stats_of(**settings):
        cache = cache_for(model, retrieval_dense_layers=0, **settings)
        logits(model, ids(2, 200), cache)
        cache.await_indexes()
        for i in range(4):
            logits(model, ids(2, 1, seed=i), cache)
        return cache.stats()

    without, few = stats_of(budget=32), stats_of(budget=32, stats_mass_every=2)
    everything = stats_of(budget=400, stats_mass_every=1)
    assert (without.attention_mass, without.mass_samples) == (None, 0)
    assert few.mass_samples == 2 * 2 and 0 < few.attention_mass < 0.9
    assert everything.mass_samples == 2 * 4
    assert everything.attention_mass == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("policy", ["qpq", "infllm", "wave", "signs", "quest", "clusterkv", "full",
                                    "streaming", "oracle"])
def test_each_policy_runs_and_selects_what_it_may(policy):
    model = small("llama")
    cache = cache_for(model, policy=policy, budget=32, retrieval_dense_layers=0)
    logits(model, ids(2, 200), cache)
    cache.await_indexes()
    for i in range(4):
        logits(model, ids(2, 1, seed=i), cache)
    stats = cache.stats()
    assert (stats.rows, stats.tokens) == (2, 204)
    assert stats.attended > 200 if policy == "full" else stats.attended <= 33


def test_compiled_models_break_at_the_attention(model):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    compiled = torch.compile(model, backend="eager")
    for tokens in (8, 1, 1):
        rows = ids(1, tokens)
        assert_close(logits(compiled, rows, ours), logits(plain, rows, theirs))


def test_dropped_caches_leave_nothing(model):
    cache = cache_for(model)
    logits(model, ids(2, 20), cache)
    runtime = cache.runtime
    assert runtime.sequences == 2
    del cache
    gc.collect()
    assert runtime.sequences == 0


def refused(call, kind, message):
    with pytest.raises(kind, match=message) as raised:
        call()
    assert isinstance(raised.value, terrace.Error)


@pytest.mark.parametrize(("kind", "changes", "message"), [
    ("mistral", {"sliding_window": 16}, "a window of 16 tokens"),
    ("gemma2", {"head_dim": 16}, "sliding_attention"),
    ("qwen3_next", {}, "linear_attention"),
])
def test_models_that_cannot_be_served_are_refused(kind, changes, message):
    refused(lambda: TerraceCache.for_model(small(kind, **changes)), terrace.Unsupported, message)


def test_encoder_decoder_models_are_refused():
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2,
                                   vocab_size=32)
    model = transformers.T5ForConditionalGeneration(config)
    refused(lambda: TerraceCache.for_model(model), terrace.Unsupported, "encoder")


def test_encoders_are_refused():
    config = transformers.BertConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                     num_attention_heads=2, vocab_size=32)
    refused(lambda: TerraceCache.for_model(transformers.BertModel(config)), terrace.Unsupported,
            "later ones")


def test_policies_that_need_what_transformers_does_not_give_are_refused():
    refused(lambda: TerraceCache.for_model(small("llama"), policy="infinigen"),
            terrace.Unsupported, "speculates")


def test_what_cannot_be_right_is_refused_and_the_cache_goes_on(model):
    plain = small("llama")
    cache, theirs = cache_for(model), default_cache(plain)
    logits(model, ids(2, 10), cache), logits(plain, ids(2, 10), theirs)
    mask = torch.ones((2, 11), dtype=torch.long)
    mask[1, 4] = 0
    refused(lambda: logits(model, ids(2, 1), cache, attention_mask=mask), terrace.Unsupported,
            "leaves out tokens")
    refused(lambda: logits(model, ids(3, 1), cache), terrace.InvalidArgument, "batch has 3")
    refused(lambda: model(ids(2, 1), past_key_values=cache), terrace.Unsupported, "no_grad")
    refused(lambda: logits(model, ids(2, 1), cache, output_attentions=True), terrace.Unsupported,
            "attention weights")
    assert_close(logits(model, ids(2, 1), cache), logits(plain, ids(2, 1), theirs))
    refused(lambda: TerraceCache.for_model(model, budgte=3), terrace.InvalidArgument, "budgte")


def test_settings_come_from_a_file_and_by_name(model, tmp_path):
    file = tmp_path / "tuned.yaml"
    # The file has the form of `terrace tune`, which does not depend on the model's dtype.
    file.write_text("retrieval.policy: oracle\nretrieval.budget: 64\ncache.policy: lfu\n"
                    "kv.dtype: f16\n")
    cache = TerraceCache.for_model(model, config=file, budget=32)
    assert cache.runtime.traits()["retrieval"] == "oracle"
    logits(model, ids(1, 100), cache)
    logits(model, ids(1, 1), cache)
    assert cache.stats().budget_tokens == 32
