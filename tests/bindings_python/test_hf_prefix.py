"""TerraceCache with prefixes that an earlier cache, of another process, has published."""

import os
import subprocess
import sys

import pytest
import torch

import hf_models
import terrace
from hf_models import cache_for, ids, small
from terrace.hf import TerraceCache, model_digest

CHUNK = 32
SMALL = {"policy": "pqcache", "budget": 48, "index_until_ready": "wait", "kv_block_tokens": 8}


def keeping(model, path, **settings):
    """A cache that keeps prefixes in a file."""
    return cache_for(model, tier_nvme_path=path, tier_nvme_bytes="16MiB",
                     tier_model=model_digest(model), tier_chunk_tokens=CHUNK, **settings)


def answer(model, tokens, cache, **inputs):
    return model.generate(tokens, past_key_values=cache, max_new_tokens=12, do_sample=False,
                          pad_token_id=0, eos_token_id=None, **inputs)


def logits(model, tokens, cache, **inputs):
    with torch.no_grad():
        return model(tokens, past_key_values=cache, **inputs).logits


@pytest.fixture
def model():
    return small("llama")


def test_a_prompt_begins_with_it(model, tmp_path):
    prompt = ids(1, 100)
    expected = answer(small("llama"), prompt, None)
    first = keeping(model, tmp_path / "rows")
    assert first.begin(prompt) == 0
    assert torch.equal(answer(model, prompt, first), expected)
    report, = first.publish(expected)
    assert (report.tokens, report.chunks) == (96, 3)  # of 111 tokens
    second = keeping(model, tmp_path / "rows")
    assert second.begin(prompt) == second.get_seq_length() == 96
    assert torch.equal(answer(model, prompt, second), expected)
    assert second.get_seq_length() == first.get_seq_length() == 111


def test_its_rows_and_indexes_give_the_same_logits(model, tmp_path):
    """Few tokens are selected."""
    prompt, more = ids(1, 97), ids(1, 1, seed=3)
    first = keeping(model, tmp_path / "rows", **SMALL)
    logits(model, prompt[:, :-1], first)
    first.publish(prompt)
    second = keeping(model, tmp_path / "rows", **SMALL)
    assert second.begin(prompt) == 96
    first.expect_prompt(1)  # as begin() does: tokens of a prompt attend exactly
    assert torch.equal(logits(model, prompt[:, -1:], second), logits(model, prompt[:, -1:], first))
    assert torch.equal(logits(model, more, second), logits(model, more, first))


def test_the_token_after_it_is_the_models(model, tmp_path):
    prompt = ids(1, 96)
    first = keeping(model, tmp_path / "rows")
    logits(model, prompt, first)
    assert first.publish(prompt)[0].tokens == 96
    assert keeping(model, tmp_path / "rows").begin(prompt) == 64


@pytest.mark.parametrize("padded", [0, 7, 40, 90])
def test_rows_of_a_batch_begin_with_what_all_of_them_have(model, tmp_path, padded):
    """Left padding; each row has a prompt of its own, and other chunks."""
    rows, mask = ids(2, 100), torch.ones((2, 100), dtype=torch.long)
    rows[0, :padded], mask[0, :padded] = 0, 0
    plain = answer(small("llama"), rows, None, attention_mask=mask)
    first = keeping(model, tmp_path / "rows")
    answer(model, rows, first, attention_mask=mask)
    first.publish(plain)
    second = keeping(model, tmp_path / "rows")
    held = [(100 - 1 - padded) // CHUNK * CHUNK, 96]
    assert second.begin(rows, attention_mask=mask) == min(held[0] + padded, held[1])
    assert torch.equal(answer(model, rows, second, attention_mask=mask), plain)


def test_salts_keep_users_apart(model, tmp_path):
    prompt = ids(1, 100)
    first = keeping(model, tmp_path / "rows")
    logits(model, prompt, first)
    first.publish(prompt, salt="a")
    assert keeping(model, tmp_path / "rows").begin(prompt) == 0
    assert keeping(model, tmp_path / "rows").begin(prompt, salt="b") == 0
    assert keeping(model, tmp_path / "rows").begin(prompt, salt="a") == 96


def test_rows_of_another_rope_are_not_found(model, tmp_path):
    prompt = ids(1, 100)
    first = keeping(model, tmp_path / "rows")
    logits(model, prompt, first)
    first.publish(prompt)
    other = small("llama")
    other.config.rope_parameters["rope_theta"] = 5e5
    settings = {"tier_nvme_path": tmp_path / "rows", "tier_chunk_tokens": CHUNK}
    assert cache_for(model, tier_model=model_digest(model), **settings).begin(prompt) == 96
    assert cache_for(other, tier_model=model_digest(model), **settings).begin(prompt) == 0


def test_a_digest_is_of_weights_and_configuration():
    model, same = small("llama"), small("llama")
    digest = model_digest(model)
    assert digest == model_digest(same) and len(digest) == 64
    TerraceCache.for_model(same)
    assert digest == model_digest(same), "the attention is no part of it"
    with torch.no_grad():
        next(reversed(list(same.parameters())))[0] += 1
    assert digest != model_digest(same)
    assert digest != model_digest(small("llama").half())
    changed = small("llama")
    changed.config.rms_norm_eps = 1e-3
    assert digest != model_digest(changed)


@pytest.mark.parametrize(("tokens", "message"), [
    (torch.ones(1, 5), r"input_ids is \[1, 5\] of torch.float32: give a tensor of whole"),
    (torch.ones(5, dtype=torch.long), r"input_ids is \[5\] of torch.int64: give a tensor"),
    ([[1, 2]], "input_ids is of type list: give a tensor of whole numbers"),
    (-torch.ones((1, 5), dtype=torch.long), r"tokens\[0\] is -1: give a whole number from 0"),
])
def test_other_tokens_are_refused(model, tokens, message):
    cache = cache_for(model)
    logits(model, ids(1, 5), cache)
    for call in (cache_for(model).begin, cache.publish):
        with pytest.raises(terrace.InvalidArgument, match=message):
            call(tokens)


def test_what_cannot_be_meant_is_refused(model, tmp_path):
    cache = keeping(model, tmp_path / "rows")
    with pytest.raises(terrace.InvalidArgument, match=r"attention_mask is \[1, 4\], and input_ids"):
        cache.begin(ids(1, 5), attention_mask=torch.ones(1, 4))
    logits(model, ids(1, 20), cache)
    with pytest.raises(terrace.InvalidArgument, match="the cache has 20 columns: reset"):
        cache.begin(ids(1, 20))
    with pytest.raises(terrace.InvalidArgument, match="input_ids has 2 rows, and the cache 1"):
        cache.publish(ids(2, 20))
    with pytest.raises(terrace.Unsupported, match="tier.model"):
        without = cache_for(model)
        logits(model, ids(1, 20), without)
        without.publish(ids(1, 20))
    assert cache_for(model).begin(ids(1, 20)) == 0


PROGRAM = """
import sys, torch, hf_models
from terrace.hf import TerraceCache, model_digest
model, prompt = hf_models.load(), torch.load(sys.argv[2])
cache = hf_models.cache_for(model, tier_nvme_path=sys.argv[1], tier_nvme_bytes="512MiB",
                            tier_model=model_digest(model))
found = cache.begin(prompt, salt="user")
text = model.generate(prompt, past_key_values=cache, max_new_tokens=8, do_sample=False)
cache.publish(text, salt="user")
print(found, text[0, prompt.shape[1]:].tolist())
"""


def test_a_real_model_in_a_second_process(tmp_path):
    tokenizer = hf_models.load_tokenizer()
    text = open(os.path.join(os.path.dirname(__file__), "..", "..", "LICENSE")).read()
    prompt = tokenizer(text, return_tensors="pt")["input_ids"][:, :600]
    torch.save(prompt, tmp_path / "prompt.pt")
    expected = hf_models.load().generate(prompt, max_new_tokens=8, do_sample=False)
    said = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "rows",
                               tmp_path / "prompt.pt"], capture_output=True, text=True,
                              cwd=os.path.dirname(__file__))
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip().splitlines()[-1])
    answer_of_both = str(expected[0, 600:].tolist())
    assert said == [f"0 {answer_of_both}", f"512 {answer_of_both}"]
