"""Prompts that were seen before, from Terrace's host memory: vLLM's connector of version 0.32.

    TERRACE_CONFIG=terrace.yaml vllm serve MODEL --kv-transfer-config '{"kv_role": "kv_both",
        "kv_connector": "TerraceConnector", "kv_connector_module_path": "terrace.vllm.connector"}'

Sequences of requests that have ended are kept, and those of requests that lost their pages. A
request that begins with tokens of one gets its rows in its pages, and goes on with a fork of it.
"""

import dataclasses
import logging
import re

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1,
                                                               KVConnectorMetadata, SupportsHMA)

import terrace
from terrace.vllm.ledger import Ledger
from terrace.vllm.shelf import Kept

LOG = logging.getLogger("vllm.terrace")
MEMORY = "memory"
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclasses.dataclass(frozen=True)
class Load:
    """Rows [first, last) of a sequence, for the pages `blocks` of a request."""

    name: str
    kept: Kept
    first: int
    last: int
    blocks: list[int]


@dataclasses.dataclass
class Loads(KVConnectorMetadata):
    """Of one pass. Never sent: both sides are in one process, or there are none."""

    all: list[Load] = dataclasses.field(default_factory=list)


def bytes_of(text: str) -> int:
    """Raises InvalidArgument."""
    found = re.fullmatch(r"(\d+) ?([KMGT]iB)", text)
    if found is None:
        raise terrace.InvalidArgument(f"kv_connector_extra_config: {MEMORY} is {text!r}: give a "
                                      "number and its unit, as in 8GiB")
    return int(found[1]) * _UNITS[found[2]]


class TerraceConnector(KVConnectorBase_V1, SupportsHMA):
    """Made twice: for vLLM's scheduler and for the side that runs the model. The ledger that both
    find on the specification of layers leads to the sequences."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._block_tokens = vllm_config.cache_config.block_size
        self._found: dict[str, tuple[Kept, int]] = {}
        self._loads: list[Load] = []
        self._failed: set[int] = set()
        groups = kv_cache_config.kv_cache_groups
        ledgers = [getattr(group.kv_cache_spec, "ledger", None) for group in groups]
        if len(groups) != 1 or ledgers[0] is None:
            LOG.warning("Terrace keeps no prompts: TERRACE_CONFIG is not set, or it does not serve "
                        "this model")
            ledgers = [Ledger()]
        self._ledger = ledgers[0]
        memory = self._kv_transfer_config.get_from_extra_config(MEMORY, "4GiB")
        self._ledger.shelf.limit = bytes_of(memory) // _row_bytes(groups)

    # ---- The scheduler's side

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._found.pop(request.request_id, None)
        if not _is_of_text(request):
            return 0, False
        # The last token has to be computed, and pages are filled as a whole.
        tokens = np.array(request.all_token_ids[:request.num_tokens - 1], np.int64)
        kept, count = self._ledger.shelf.find(request.request_id, tokens, request.cache_salt)
        last = count // self._block_tokens * self._block_tokens
        if last <= num_computed_tokens:
            return 0, False
        self._found[request.request_id] = kept, last
        return last - num_computed_tokens, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        found = self._found.pop(request.request_id, None)
        if num_external_tokens == 0:
            return
        kept, last = found
        self._loads.append(Load(request.request_id, kept, last - num_external_tokens, last,
                                blocks.get_block_ids()[0]))

    def build_connector_meta(self, scheduler_output):
        loads, self._loads = self._loads, []
        return Loads(loads)

    def request_finished_all_groups(self, request, block_ids):
        serving = self._ledger.serving
        if serving is not None and _is_of_text(request):
            serving.shelve(request.request_id, np.array(request.all_token_ids, np.int64),
                         request.cache_salt)
        return False, None

    def reset_cache(self):
        self._ledger.shelf.clear()
        return True

    # ---- The model's side

    def start_load_kv(self, forward_context, **kwargs):
        for load in self._get_connector_metadata().all:
            try:
                self._ledger.serving.bring(load.name, load.kept.sequence, load.first, load.last,
                                           load.blocks)
            except terrace.Error as error:
                LOG.warning("Terrace: the beginning of request %s is lost: %s", load.name, error)
                size = self._block_tokens
                self._failed.update(load.blocks[load.first // size:load.last // size])

    def get_block_ids_with_load_errors(self):
        failed, self._failed = self._failed, set()
        return failed

    def wait_for_layer_load(self, layer_name):
        pass  # start_load_kv has loaded all

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass  # rows are Terrace's when tokens are decoded

    def wait_for_save(self):
        pass


def _is_of_text(request) -> bool:
    """Whether tokens alone say what a request's rows are."""
    return (request.lora_request is None and request.prompt_embeds is None and
            not request.mm_features)


def _row_bytes(groups) -> int:
    """Bytes of a token's rows in all layers."""
    return sum(group.kv_cache_spec.page_size_bytes // group.kv_cache_spec.block_size *
               len(group.layer_names) for group in groups)
