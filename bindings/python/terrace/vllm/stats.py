"""Counts of what the plugin has done in this process."""

import dataclasses
import weakref

from terrace.stats import TerraceStats


@dataclasses.dataclass
class VllmStats:
    """Counts of the process that runs the model: with VLLM_ENABLE_V1_MULTIPROCESSING=0 the calling
    process.

    requests: sequences that were opened, anew after preemption. tokens: decoded with Terrace's
    attention; vllm_tokens: with vLLM's, of sequences that are short or were refused, and of passes
    that broke off; exact_tokens: of such, where pages had been given back, exactly and slowly.
    rows_taken: tokens whose rows were copied from vLLM's pages; rows_brought: to them, by the
    connector, so that vLLM need not compute them. rows_found: tokens of prefixes that were found in
    the file below host memory; bytes_published: written to it. mismatches: sequences that no longer
    matched the pages, and were copied again. pages_given_back: pages that vLLM got back before a
    request ended, because Terrace holds their rows. device_bytes: the most device memory that one
    sequence took, without pages. refused: requests that were left to vLLM, by the reason.
    of_sequences: the counters of their sequences.
    """

    requests: int = 0
    tokens: int = 0
    vllm_tokens: int = 0
    exact_tokens: int = 0
    rows_taken: int = 0
    rows_brought: int = 0
    rows_found: int = 0
    bytes_published: int = 0
    mismatches: int = 0
    pages_given_back: int = 0
    device_bytes: int = 0
    refused: dict[str, int] = dataclasses.field(default_factory=dict)
    of_sequences: TerraceStats = dataclasses.field(default_factory=TerraceStats)

    def note_refused(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def __str__(self) -> str:
        text = (f"{self.requests} requests, {self.tokens} tokens decoded by Terrace and "
                f"{self.vllm_tokens} by vLLM, {self.pages_given_back} pages given back, "
                f"{self.rows_brought} tokens brought; {self.of_sequences}")
        if self.rows_found or self.bytes_published:
            text += (f"; {self.rows_found} tokens found in the file, and "
                     f"{self.bytes_published / 2**20:.1f} MiB published")
        refused = "".join(f"; {count} refused: {reason}" for reason, count in self.refused.items())
        return text + refused


# All objects that serve a model in this process.
servings: weakref.WeakSet = weakref.WeakSet()


def stats() -> VllmStats:
    """Returns what was done in this process, by the model that was opened last.

    All are zero in a process that runs no model: see VllmStats.
    """
    last = max(servings, key=lambda serving: serving.number, default=None)
    return VllmStats() if last is None else last.stats()
