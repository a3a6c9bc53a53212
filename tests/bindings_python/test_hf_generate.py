"""generate() of SmolLM2 with Terrace's cache: each mode gives the text of the default cache, and
another text where Terrace's rows are spoilt."""

import copy
import pathlib

import pytest
import torch

from hf_models import cache_for, load, load_tokenizer

TOKENIZER = load_tokenizer()
LICENCE = pathlib.Path(__file__).parents[2].joinpath("LICENSE").read_text()
CAPITAL = "The capital of France is"
STORY = "Once upon a time there was a small girl who"


def encode(text, tokens=None):
    encoded = TOKENIZER(text, return_tensors="pt", padding=isinstance(text, list))
    return {name: values[:, :tokens] for name, values in encoded.items()}


MODES = {
    "one row": (encode(CAPITAL), {}),
    "a long prompt": (encode(LICENCE, 400), {"max_new_tokens": 12}),
    "left padding": (encode([CAPITAL, STORY]), {}),
    "beams": (encode([CAPITAL, STORY]), {"num_beams": 3, "max_new_tokens": 12}),
    "beams that are sampled": (encode(CAPITAL), {"num_beams": 2, "do_sample": True}),
    "several answers": (encode(CAPITAL), {"do_sample": True, "num_return_sequences": 3}),
    "prompt lookup": (encode("one two three four one two three four one two"),
                      {"prompt_lookup_num_tokens": 4}),
    "a prompt in chunks": (encode(LICENCE, 300), {"prefill_chunk_size": 128, "max_new_tokens": 8}),
    "repetition penalty": (encode(CAPITAL), {"repetition_penalty": 1.3}),
}


@pytest.fixture(scope="module")
def models():
    return {"default": load(), "terrace": load(), "assistant": load()}


@pytest.fixture(params=["right", "spoilt"])
def rows(request, monkeypatch):
    """Spoilt: Terrace is handed the values of two layers with the wrong sign."""
    if request.param == "spoilt":
        from terrace.hf import TerraceCache

        attend = TerraceCache.attend

        def spoil(self, layer, query, key, value, mask):
            return attend(self, layer, query, key, -value if layer in (3, 20) else value, mask)

        monkeypatch.setattr(TerraceCache, "attend", spoil)
    return request.param


def generate(model, inputs, **options):
    torch.manual_seed(5)
    return model.generate(**inputs, **{"max_new_tokens": 16, "do_sample": False, **options})


def check(expected, found, rows):
    same = expected.shape == found.shape and bool((expected == found).all())
    texts = TOKENIZER.batch_decode(expected), TOKENIZER.batch_decode(found)
    assert same == (rows == "right"), texts


@pytest.mark.parametrize("mode", MODES)
def test_text_is_that_of_the_default_cache(models, mode, rows):
    inputs, options = MODES[mode]
    cache = cache_for(models["terrace"])
    found = generate(models["terrace"], inputs, past_key_values=cache, **options)
    check(generate(models["default"], inputs, **options), found, rows)
    assert cache.stats().tokens > 0


def test_assisted_decoding(models, rows):
    inputs = encode(STORY)
    options = {"assistant_model": models["assistant"], "max_new_tokens": 16}
    found = generate(models["terrace"], inputs, past_key_values=cache_for(models["terrace"]),
                     **options)
    check(generate(models["default"], inputs, **options), found, rows)


def test_turns_and_reset(models, rows):
    cache = cache_for(models["terrace"])
    expected = generate(models["default"], encode("My name is Anna and I live in Paris."))
    found = generate(models["terrace"], encode("My name is Anna and I live in Paris."),
                     past_key_values=cache)
    check(expected, found, rows)
    question = TOKENIZER(" What is my name?", return_tensors="pt").input_ids
    second = torch.cat([found, question], 1)
    turn = {"input_ids": second, "attention_mask": torch.ones_like(second)}
    check(generate(models["default"], turn),
          generate(models["terrace"], turn, past_key_values=cache), rows)
    cache.reset()
    assert cache.get_seq_length() == 0
    check(generate(models["default"], encode(CAPITAL)),
          generate(models["terrace"], encode(CAPITAL), past_key_values=cache), rows)


def test_a_prompt_that_several_answers_begin_with(models, rows):
    inputs = encode(LICENCE, 100)
    prompt = cache_for(models["terrace"])
    with torch.no_grad():
        models["terrace"](**{name: values[:, :90] for name, values in inputs.items()},
                          past_key_values=prompt)
    for _ in range(2):
        found = generate(models["terrace"], inputs, past_key_values=copy.deepcopy(prompt))
        check(generate(models["default"], inputs), found, rows)
    assert prompt.get_seq_length() == 90


def test_without_terraces_cache_the_model_attends_as_before(models):
    cache_for(models["terrace"])  # sets the model's attention
    for inputs in (encode(CAPITAL), encode([CAPITAL, STORY])):
        check(generate(models["default"], inputs), generate(models["terrace"], inputs), "right")
        check(generate(models["default"], inputs, use_cache=False),
              generate(models["terrace"], inputs, use_cache=False), "right")
