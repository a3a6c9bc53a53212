"""TerraceCache where a cache would give wrong logits without a word: right, or refused."""

import sys

import pytest
import torch
import transformers

import array_fuzz
import terrace
from hf_models import cache_for, ids, small
from terrace.hf import TerraceCache
from terrace.hf.settings import settings_of


@pytest.fixture
def model():
    return small("llama")


def logits(model, tokens, cache, **inputs):
    with torch.no_grad():
        return model(tokens, past_key_values=cache, **inputs).logits


def default_cache(model):
    return transformers.DynamicCache(config=model.config)


def assert_close(found, expected, most=2e-5):
    assert torch.allclose(found, expected, atol=most), (found - expected).abs().max()


def refused(call, kind, message):
    with pytest.raises(kind, match=message) as raised:
        call()
    assert isinstance(raised.value, terrace.Error)
    assert "\n" not in str(raised.value)


# ---- Attention that is not the cache's


def test_keys_that_a_model_changes_between_cache_and_attention_are_refused():
    """JetMoe repeats them."""
    config = transformers.AutoConfig.for_model(
        "jetmoe", vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_key_value_heads=2, num_experts_per_tok=2, num_local_experts=2, kv_channels=16)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    cache = cache_for(model)
    refused(lambda: logits(model, ids(1, 20), cache), terrace.Unsupported,
            r"keys or values came from Terrace's cache to repeat\(\)")


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("before", [0, 12])
def test_a_cache_whose_attention_is_not_in_use_says_so(layers, attention, before):
    model, plain = (small("llama", num_hidden_layers=layers) for _ in range(2))
    cache, theirs = cache_for(model), default_cache(plain)
    if before:
        logits(model, ids(1, before), cache), logits(plain, ids(1, before), theirs)
    model.set_attn_implementation(attention)
    refused(lambda: logits(model, ids(1, 3), cache), terrace.Unsupported,
            "call model.set_attn_implementation")
    model.set_attn_implementation("terrace")
    assert_close(logits(model, ids(1, 3), cache), logits(plain, ids(1, 3), theirs))


def test_shapes_and_types_of_new_rows_may_be_asked_for(model):
    rows = cache_for(model).update(torch.zeros(1, 2, 3, 16), torch.ones(1, 2, 3, 16), 0)
    for states in rows:
        assert states.shape == (1, 2, 3, 16) and states.size(2) == 3 and states.dim() == 4
        assert states.dtype == torch.float32 and states.device.type == "cpu"
        for change in (lambda x: x.to(torch.float16), lambda x: x[0], lambda x: torch.cat([x, x]),
                       lambda x: x.mT, lambda x: x.chunk(2)):
            refused(lambda: change(states), terrace.Unsupported, "came from Terrace's cache")


@pytest.mark.parametrize("how", ["config", "argument", "module"])
def test_attention_both_ways_is_refused(model, how):
    cache, more = cache_for(model), {}
    if how == "config":
        model.config.is_causal = False
    elif how == "module":
        model.model.layers[1].self_attn.is_causal = False
    else:
        more = {"is_causal": False}
    refused(lambda: logits(model, ids(1, 8), cache, **more), terrace.Unsupported, "is_causal")


def test_a_model_that_attends_both_ways_by_its_config_gets_no_cache(model):
    model.config.is_causal = False
    refused(lambda: cache_for(model), terrace.Unsupported, "is_causal is False")


@pytest.mark.parametrize("name", ["sliding_window", "softcap", "s_aux", "position_bias", "indices",
                                  "block_indices", "cu_seq_lens_q"])
def test_arguments_that_change_attention_are_refused(model, name):
    given = torch.ones(4) if name not in ("sliding_window", "softcap") else 4
    refused(lambda: logits(model, ids(1, 8), cache_for(model), **{name: given}),
            terrace.Unsupported, rf"layer 0 wants .*\({name}\)")


# ---- Numbers that are not what they seem


def test_values_with_a_lazy_sign_are_stored_with_it(model):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    for layer in model.model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda *call: torch._neg_view(-call[2]))
    for tokens in (20, 1):
        assert_close(logits(model, ids(1, tokens), ours), logits(plain, ids(1, tokens), theirs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_as_with_the_own_cache(model, dtype):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    with torch.autocast("cpu", dtype=dtype):
        for tokens in (20, 1, 3):
            found, expected = (logits(one, ids(1, tokens), cache).float()
                               for one, cache in ((model, ours), (plain, theirs)))
            assert_close(found, expected, 2e-2)


def test_autocast_to_more_than_the_cache_stores_is_refused():
    model = small("llama").to(torch.float16)
    cache = cache_for(model)

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits(model, ids(1, 8), cache)

    refused(run, terrace.Unsupported, "without torch.autocast")


# ---- Rows


@pytest.mark.parametrize("indices", [[-1], [-3, 2], [0, -2, -2]])
def test_negative_indices_count_from_the_last_row(model, indices):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    logits(model, ids(3, 10), ours), logits(plain, ids(3, 10), theirs)
    for cache in (ours, theirs):
        cache.batch_select_indices(torch.tensor(indices))
    tokens = ids(len(indices), 2)
    assert_close(logits(model, tokens, ours), logits(plain, tokens, theirs))
    assert ours.runtime.sequences == len(indices)


def test_rows_that_are_not_there_are_refused_and_nothing_is_lost(model):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    logits(model, ids(3, 10), ours), logits(plain, ids(3, 10), theirs)
    for call, message in (
            (lambda: ours.batch_select_indices(torch.tensor([0, 3])), "indices has 3, and"),
            (lambda: ours.reorder_cache(torch.tensor([-4])), "beam_idx has -4"),
            (lambda: ours.batch_select_indices(torch.tensor([True, False])), "has 2 entries"),
            (lambda: ours.batch_select_indices(torch.tensor([0.0])), "whole numbers"),
            (lambda: ours.batch_select_indices(torch.tensor([[0]])), "one dimension"),
            (lambda: ours.batch_repeat_interleave(0), "repeats is 0")):
        refused(call, terrace.InvalidArgument, message)
    assert_close(logits(model, ids(3, 2), ours), logits(plain, ids(3, 2), theirs))


def test_a_cache_that_is_empty_again_takes_a_batch_of_another_size(model):
    cache = cache_for(model)
    with pytest.raises(ZeroDivisionError):
        hook = model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
        logits(model, ids(2, 5), cache)
    hook.remove()
    plain = small("llama")
    assert_close(logits(model, ids(3, 5), cache), logits(plain, ids(3, 5), default_cache(plain)))
    assert cache.runtime.sequences == 3


# ---- Interrupts


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line that the adapter runs."""

    def __init__(self, number):
        self.left = number

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def trace(self, frame, event, _):
        if "terrace/hf/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.parametrize("piece", [24, 1])  # of a prompt; a token that decodes
def test_an_interrupt_finds_a_pass_given_up_or_done(piece):
    """Interrupts at every fourth line of the adapter."""
    model, plain = small("llama"), small("llama")
    done = given_up = 0
    for number in range(1 + array_fuzz.seed() % 4, 10_000, 4):
        ours, theirs = cache_for(model), default_cache(plain)
        logits(model, ids(2, 6), ours), logits(plain, ids(2, 6), theirs)
        with Interrupter(number) as interrupter:
            try:
                logits(model, ids(2, piece, seed=1), ours)
            except KeyboardInterrupt:
                pass
        if interrupter.left > 0:
            break
        if ours.get_seq_length() > 6:
            logits(plain, ids(2, piece, seed=1), theirs)
            done += 1
        else:
            given_up += 1
        assert ours.get_seq_length() == theirs.get_seq_length()
        for tokens in (20, 1):
            rows = ids(2, tokens, seed=2)
            assert_close(logits(model, rows, ours), logits(plain, rows, theirs))
        assert [len(sequence) for sequence in ours.sequences] == [theirs.get_seq_length()] * 2
    assert min(done, given_up) > 0


class Ends:
    """A runtime whose steps are interrupted directly after their end."""

    def __init__(self, wrapped):
        self._wrapped = wrapped

    def __getattr__(self, name):
        return getattr(self._wrapped, name)

    def begin_step(self, *args, **options):
        return Ends(self._wrapped.begin_step(*args, **options))

    def end(self):
        self._wrapped.end()
        raise KeyboardInterrupt


@pytest.mark.parametrize("tokens", [24, 1])
def test_an_interrupt_inside_the_end_of_a_step_gives_the_pass_up(model, tokens):
    plain = small("llama")
    ours, theirs = cache_for(model), default_cache(plain)
    logits(model, ids(2, 6), ours), logits(plain, ids(2, 6), theirs)
    runtime, ours.runtime = ours.runtime, Ends(ours.runtime)
    with pytest.raises(KeyboardInterrupt):
        logits(model, ids(2, tokens), ours)
    ours.runtime = runtime
    assert ours.get_seq_length() == len(ours.sequences[0]) == 6
    assert_close(logits(model, ids(2, 3, seed=1), ours), logits(plain, ids(2, 3, seed=1), theirs))


# ---- Prompts


def test_a_prompt_in_chunks_may_begin_with_padding(model):
    plain = small("llama")
    ours, theirs = cache_for(model, budget=16, retrieval_dense_layers=0), default_cache(plain)
    mask = torch.ones((2, 48), dtype=torch.long)
    mask[0, :20] = 0  # more than the first chunk
    rows, positions = ids(2, 48), (mask.cumsum(1) - 1).clamp(min=0)
    ours.expect_prompt(48)
    for begin in range(0, 48, 16):
        now = slice(begin, begin + 16)
        more = {"attention_mask": mask[:, :begin + 16], "position_ids": positions[:, now]}
        found, expected = (logits(one, rows[:, now], cache, **more)
                           for one, cache in ((model, ours), (plain, theirs)))
        held = mask[:, now].bool()
        assert_close(found[held], expected[held])
    ours.await_indexes()
    assert [sequence.counters()["builds"] for sequence in ours.sequences] == [2, 2]


def test_an_expected_prompt_may_be_ended(model):
    ours = cache_for(model, budget=16, retrieval_dense_layers=0)
    refused(lambda: ours.expect_prompt(-1), terrace.InvalidArgument, "columns is -1")
    ours.expect_prompt(100)
    logits(model, ids(1, 48), ours)
    ours.expect_prompt(0)
    ours.await_indexes()
    logits(model, ids(1, 1), ours)
    assert ours.stats().attended == 16


@pytest.mark.parametrize(("rows", "settings"), [
    (1, {"budget": 20_000, "device_memory": "2MiB"}),   # more than prompt and memory have
    (1, {"budget": 2_500, "device_memory": "1MiB"}),
    (8, {"budget": 500, "device_memory": "2MiB"}),      # one would have room
])
def test_a_budget_without_room_is_refused_before_the_first_layer(model, rows, settings):
    cache, layers = cache_for(model, **settings), []
    model.model.layers[0].register_forward_hook(lambda *_: layers.append(0))
    refused(lambda: logits(model, ids(rows, 3000), cache), terrace.OutOfMemory,
            rf"{rows} rows of up to 3000 tokens take \d+ bytes of device memory")
    assert not layers
    assert cache.get_seq_length() == 0 and cache.runtime.sequences == 0


def test_a_second_turn_without_room_is_refused_before_its_first_layer(model):
    cache = cache_for(model, policy="signs", budget=0.9, device_memory="3MiB")
    logits(model, ids(1, 200), cache)
    refused(lambda: logits(model, ids(1, 9_000), cache), terrace.OutOfMemory, "9200 tokens")
    assert cache.get_seq_length() == 200
    logits(model, ids(1, 1), cache)


# ---- Settings


@pytest.mark.parametrize("device", ["cuda:1", "meta"])
def test_devices_that_terrace_does_not_know_are_refused(device):
    refused(lambda: settings_of(None, {}, {}, torch.device(device)), terrace.Unsupported,
            f"the model is on {device}: Terrace knows cpu and cuda:0")


@pytest.mark.parametrize(("settings", "message"), [
    ({"config": terrace.Config()}, "config is of type Config"),
    ({"config": ["retrieval.budget"]}, "config is of type list"),
    ({"config": {"backend": "cuda"}}, "backend is cuda, and a model on cpu needs host"),
    ({"policy": "quest", "retrieval_policy": "wave"}, "retrieval_policy and policy both set"),
    ({"draft_tokens": 0}, "draft_tokens is 0"),
])
def test_settings_that_would_have_no_effect_are_refused(model, settings, message):
    refused(lambda: TerraceCache.for_model(model, **settings), terrace.InvalidArgument, message)
