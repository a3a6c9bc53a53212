"""Tensors of PyTorch that mean something else than their memory says."""

import pytest
import torch

import engine
import terrace
from array_fuzz import negated_lazily
from engine import DIM, KV_HEADS, QUERY_HEADS

TOKENS = 16


def good_layer():
    torch.manual_seed(0)
    query, keys, values = (torch.randn(TOKENS, heads, DIM)
                           for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS))
    return {"query": query, "keys": keys, "values": values, "output": torch.zeros_like(query)}


def freed(tensor):
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize("name", ["query", "keys", "values", "output"])
@pytest.mark.parametrize(("change", "message"), [
    (lambda x: torch.zeros(1, *x.shape[1:]).expand(TOKENS, -1, -1),
     "has tokens that share memory, with 0 numbers from one to the next: give a contiguous copy"),
    (negated_lazily,
     "has the sign of its numbers in a bit of its own (is_neg()): give its resolve_neg()"),
    (torch._neg_view,
     "has the sign of its numbers in a bit of its own (is_neg()): give its resolve_neg()"),
    (lambda x: x.requires_grad_(),
     "requires gradients, which Terrace does not compute: give its detach()"),
    (freed, "has no memory: give one that has"),
    (lambda x: x.to(torch.complex64).conj(), "is of complex64: give f32"),
    (lambda x: x.to("meta"), "cannot be read: "),
    (lambda x: x.to_sparse(), "cannot be read: "),
])
def test_a_tensor_that_is_not_what_its_memory_says_is_refused_by_name(name, change, message):
    runtime = engine.open_runtime()
    sequence = runtime.open_sequence()
    sequence.begin_prompt(TOKENS)
    with runtime.begin_step([sequence], runtime.wrap_caller(), [TOKENS]) as step:
        layer = good_layer()
        with pytest.raises(terrace.InvalidArgument) as raised:
            step.attend(0, **{**layer, name: change(good_layer()[name])})
        text = str(raised.value)
        assert text.startswith(f"{name} {message}") and "\n" not in text, text
        step.attend(0, **layer)
    expected = engine.attend(*(layer[one].numpy() for one in ("query", "keys", "values")))
    assert abs(layer["output"].numpy() - expected).max() < 1e-5


def test_an_output_in_which_tokens_share_memory_is_not_written():
    memory = torch.zeros(TOKENS * QUERY_HEADS * DIM)
    output = memory[:QUERY_HEADS * DIM].view(1, QUERY_HEADS, DIM).expand(TOKENS, -1, -1)
    runtime = engine.open_runtime()
    sequence = runtime.open_sequence()
    sequence.begin_prompt(TOKENS)
    with runtime.begin_step([sequence], runtime.wrap_caller(), [TOKENS]) as step:
        with pytest.raises(terrace.InvalidArgument, match="output has tokens that share memory"):
            step.attend(0, **{**good_layer(), "output": output})
    assert int((memory != 0).sum()) == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_token_ids_may_be_tensors(tmp_path, dtype):
    runtime = engine.open_runtime({"tier.nvme.path": tmp_path / "rows", "tier.model": "weights",
                                   "tier.nvme.bytes": "8MiB", "tier.chunk_tokens": 32})
    member = engine.Member(runtime.open_sequence(), 0)
    member.sequence.begin_prompt(70)
    engine.run_step(runtime, runtime.wrap_caller(), [member], [70])
    tokens = torch.arange(70).to(dtype)
    assert member.sequence.publish(tokens).tokens == 64
    assert len(runtime.open_sequence(tokens.tolist())) == 64
    assert len(runtime.open_sequence(torch.stack([tokens, tokens], 1)[:, 0])) == 64


@pytest.mark.parametrize(("tokens", "message"), [
    (torch.tensor([1, -5]), r"tokens[1] is -5: give a whole number from 0 to 4294967295"),
    (torch.tensor([2**32]), r"tokens[0] is 4294967296: give a whole number from 0 to 4294967295"),
    (torch.ones(3), "tokens is of f32: give whole numbers"),
    (torch.ones(1, 3).long(), "tokens has 2 dimensions: give one, the tokens of one sequence"),
])
def test_tensors_that_are_no_token_ids_are_refused(tokens, message):
    with pytest.raises(terrace.InvalidArgument) as raised:
        engine.open_runtime().open_sequence(tokens)
    assert str(raised.value) == message
