"""The models of the tests of transformers, and what Terrace is compared with."""

import os

import torch
import transformers

from terrace.hf import TerraceCache

torch.set_num_threads(1)
FOLDER = os.environ["TERRACE_TEST_MODEL"]
# More tokens than any test has: each token attends to all.
EXACT = {"policy": "pqcache", "budget": 8192}


def load():
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def load_tokenizer():
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def small(kind: str, **changes):
    """A model of two layers with random weights, and a cache for it."""
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(kind, **{**sizes, **changes})
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def ids(rows: int, tokens: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 128, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def cache_for(model, **settings) -> TerraceCache:
    return TerraceCache.for_model(model, **{**EXACT, **settings})
