"""The side of vLLM that allocates pages: version 0.32's scheduler, and its manager of pages.

Pages of rows that Terrace holds are given back. terrace/vllm/adapter.py is the model's side.
"""

import dataclasses
import functools

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from terrace.vllm.ledger import Ledger, Orders


def install() -> None:
    """Takes the place of vLLM's manager for layers with Terrace's attention."""
    KVCacheSpecRegistry.register(TerraceSpec, TerraceManager, FullAttentionSpec)
    if not hasattr(Scheduler.schedule, "terrace"):
        Scheduler.schedule = _ordering(Scheduler.schedule)
        Scheduler.update_from_output = _noting(Scheduler.update_from_output)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TerraceSpec(FullAttentionSpec):
    """Layers whose rows Terrace holds, too. Everything else is inherited from full attention."""

    @classmethod
    def of(cls, spec):
        """Returns the specification of a layer of full attention, any other one unchanged."""
        if type(spec) is not FullAttentionSpec:
            return spec
        return cls(**{field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)})


class TerraceManager(FullAttentionManager):
    """Allocates pages as for full attention, and takes back the pages whose rows Terrace holds."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.ledger = Ledger()

    def remove_skipped_blocks(self, request_id, processed_computed_tokens, num_prompt_tokens=None):
        first = self.ledger.given_back(request_id) // self.block_size
        last = min(self.ledger.held(request_id), processed_computed_tokens) // self.block_size
        if first < last:
            self._remove_blocks_in_range(request_id, first, last)
            self.ledger.give_back(request_id, last * self.block_size)

    def pop_blocks_for_free(self, request_id):
        self.ledger.free(request_id)
        return super().pop_blocks_for_free(request_id)


def ledger_of(kv_cache_manager) -> Ledger | None:
    """Returns the ledger of a model all of whose layers have Terrace's attention, or None."""
    managers = kv_cache_manager.coordinator.single_type_managers
    return getattr(managers[0], "ledger", None) if len(managers) == 1 else None


def _ordering(schedule):
    """Wraps a scheduler's method: what it has scheduled bears orders for the model's side."""

    @functools.wraps(schedule)
    def ordered(self, *args, **kwargs):
        output = schedule(self, *args, **kwargs)
        ledger = ledger_of(self.kv_cache_manager)
        if ledger is not None:
            output.terrace = ledger.take_orders()
        return output

    ordered.terrace = True
    return ordered


def _noting(update_from_output):
    """Wraps a scheduler's method: a model's output may bear a report."""

    @functools.wraps(update_from_output)
    def noted(self, scheduler_output, model_runner_output, *args, **kwargs):
        report = getattr(model_runner_output, "terrace", None)
        ledger = ledger_of(self.kv_cache_manager)
        if report is not None and ledger is not None:
            held = {name: tokens for name, tokens in report.held.items()
                    if _decodes_to_its_end(self.requests.get(name))}
            ledger.note(dataclasses.replace(report, held=held))
        if ledger is not None:
            asked = getattr(scheduler_output, "terrace", Orders()).asked
            ledger.settle(asked, None if report is None else report.found)
        return update_from_output(self, scheduler_output, model_runner_output, *args, **kwargs)

    return noted


def _decodes_to_its_end(request) -> bool:
    """Whether vLLM will not compute several tokens of a request together any more, which needs all
    pages."""
    return request is not None and not request.resumable
