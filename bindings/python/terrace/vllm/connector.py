"""Prompts that were seen before, from Terrace's host memory: vLLM's connector of version 0.32.

    TERRACE_CONFIG=terrace.yaml vllm serve MODEL --kv-transfer-config '{"kv_role": "kv_both",
        "kv_connector": "TerraceConnector", "kv_connector_module_path": "terrace.vllm.connector"}'

Sequences of requests that have ended are kept, and those of requests that lost their pages. A
request that begins with tokens of one gets its rows in its pages, and goes on with a fork of it.

With the settings tier.model and tier.nvme.path, requests that have ended are also published to that
file, which is asked where the sequences do not have all of a request: by this process or a later
one (decision 0122). With daemon.socket in place of the file, the daemon terraced keeps them for all
processes of the machine (decision 0127).

With "trace" in kv_connector_extra_config the prompts of requests are recorded in that file, with
TERRACE_CONFIG or without (terrace/vllm/prefix_log.py).
"""

import dataclasses
import logging

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1,
                                                               KVConnectorMetadata, KVConnectorRole,
                                                               SupportsHMA)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

import terrace
from terrace.vllm import adapter, scheduling
from terrace.vllm.ledger import Ledger, Prefix
from terrace.vllm.prefix_log import PrefixLog
from terrace.vllm.settings import MEMORY, ConnectorSettings

LOG = logging.getLogger("vllm.terrace")


@dataclasses.dataclass(frozen=True)
class Load:
    """Rows [first, last) of a sequence that was laid aside, for the pages `blocks` of a request."""

    name: str
    source: str
    first: int
    last: int
    blocks: list[int]


@dataclasses.dataclass
class Loads(KVConnectorMetadata):
    """The loads of one pass."""

    loads: list[Load] = dataclasses.field(default_factory=list)


class TerraceConnector(KVConnectorBase_V1, SupportsHMA):
    """Made twice: for vLLM's scheduler, which looks for sequences, and for the model's side, which
    has them."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._block_tokens = vllm_config.cache_config.block_size
        settings = ConnectorSettings.read(self._kv_transfer_config.kv_connector_extra_config)
        self._memory = settings.memory
        is_asked = settings.trace is not None and role == KVConnectorRole.SCHEDULER
        self._prefixes = _open_log(settings.trace) if is_asked else None
        self._ledger: Ledger | None = None
        self._found: dict[str, tuple[str, int]] = {}
        self._loads: list[Load] = []
        self._failed: set[int] = set()

    @property
    def requires_kv_delivery(self):
        return False  # a sequence that is not laid aside is computed

    # ---- The scheduler's side

    def bind_kv_cache_manager(self, kv_cache_manager):
        super().bind_kv_cache_manager(kv_cache_manager)
        self._ledger = scheduling.ledger_of(kv_cache_manager)
        if self._ledger is None:
            LOG.warning("Terrace keeps no prompts: TERRACE_CONFIG is not set, or it does not serve "
                        "this model")
            return
        limit = self._ledger.shelf.limit = self._memory // _row_bytes(self._kv_cache_config)
        LOG.info("Terrace keeps up to %d tokens of requests that have ended", limit)
        if limit < self._block_tokens:
            LOG.warning("Terrace keeps no prompts: they need more %s than %d bytes", MEMORY,
                        self._memory)
        self._ledger.chunk_tokens = adapter.chunk_tokens(self._vllm_config)

    def on_new_request(self, request):
        if self._prefixes is None or not _is_of_text(request):
            return
        try:
            self._prefixes.add(request.prompt_token_ids, request.cache_salt, request.arrival_time)
        except terrace.StoreError as error:
            LOG.warning("Terrace records no more requests: %s", error)
            self.shutdown()

    def shutdown(self):
        prefixes, self._prefixes = self._prefixes, None
        if prefixes is not None:
            prefixes.close()

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._found.pop(request.request_id, None)
        if self._ledger is None or not _is_of_text(request):
            return 0, False
        # The last token has to be computed, and pages are filled as a whole.
        tokens = np.array(request.all_token_ids[:request.num_tokens - 1], np.int64)
        source, count = self._ledger.shelf.find(request.request_id, tokens, request.cache_salt)
        last = count // self._block_tokens * self._block_tokens
        known = max(last, num_computed_tokens)
        if self._ledger.asks(Prefix(request.request_id, tokens, request.cache_salt, known)):
            return None, False  # the model's side answers with the next pass
        if last <= num_computed_tokens:
            return 0, False
        self._found[request.request_id] = source, last
        return last - num_computed_tokens, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        source, last = self._found.pop(request.request_id, (None, 0))
        if num_external_tokens == 0:
            return
        self._ledger.shelf.use(source)
        self._loads.append(Load(request.request_id, source, last - num_external_tokens, last,
                                blocks.get_block_ids()[0]))

    def build_connector_meta(self, scheduler_output):
        loads, self._loads = self._loads, []
        return Loads(loads)

    def request_finished_all_groups(self, request, block_ids):
        self._found.pop(request.request_id, None)
        if self._ledger is not None:
            tokens = np.array(request.all_token_ids, np.int64) if _is_of_text(request) else None
            self._ledger.end(request.request_id, tokens, request.cache_salt)
        return False, None

    def reset_cache(self):
        if self._ledger is not None:
            self._ledger.clear()
        return True

    # ---- The model's side

    def start_load_kv(self, forward_context, **kwargs):
        serving = adapter.current_serving()
        for load in self._get_connector_metadata().loads:
            try:
                serving.bring(load.name, load.source, load.first, load.last, load.blocks)
            except (terrace.Error, KeyError) as error:
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


def _open_log(path: str) -> PrefixLog:
    """Opens the file of the setting `trace`. Raises StoreError."""
    chunk_tokens = adapter.trace_chunk_tokens()
    log = PrefixLog(path, chunk_tokens)
    LOG.info("Terrace records requests: terrace trace convert %s PREFIXES --from mooncake "
             "--block-tokens %d makes a trace of them", path, chunk_tokens)
    return log


def _is_of_text(request) -> bool:
    """Whether tokens alone say what a request's rows are."""
    return (request.lora_request is None and request.prompt_embeds is None and
            not request.mm_features)


def _row_bytes(kv_cache_config) -> int:
    """Bytes of a token's rows in all layers."""
    (group,) = kv_cache_config.kv_cache_groups
    spec = group.kv_cache_spec
    return spec.page_size_bytes // spec.block_size * len(group.layer_names)
