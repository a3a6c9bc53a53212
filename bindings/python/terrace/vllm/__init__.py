"""Terrace as a general plugin of vLLM: decoding of long sequences attends to what Terrace selects.

    TERRACE_CONFIG=terrace.yaml vllm serve MODEL

The serving program is not changed; if the variable is not set, vLLM stays unchanged.
docs/embedding-vllm.md says what is supported, and how to see that it helps.
"""

from terrace.vllm.plugin import register
from terrace.vllm.stats import VllmStats, stats

__all__ = ["VllmStats", "register", "stats"]
