"""Terrace as the cache of Hugging Face transformers.

    from terrace.hf import TerraceCache

    cache = TerraceCache.for_model(model, policy="pqcache", budget=0.1, device_memory="64MiB")
    model.generate(**inputs, past_key_values=cache)
    print(cache.stats())

docs/embedding-transformers.md says what is supported, and how to see that it helps.
"""

from terrace.hf.attention import NAME
from terrace.hf.cache import TerraceCache
from terrace.hf.digest import model_digest
from terrace.stats import TerraceStats

__all__ = ["NAME", "TerraceCache", "TerraceStats", "model_digest"]
