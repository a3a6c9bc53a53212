"""The side of vLLM that runs the model, by the interfaces of version 0.32.

vLLM hands its attention backend batches without names: a wrapper around the model runner's
execute_model says which pass is under way. The metadata builder, which is called once a pass, then
chooses the rows that are Terrace's, and forward() attends layer by layer. The scheduler's side is
terrace/vllm/scheduling.py; the two may be in different processes.
"""

import copy
import dataclasses
import functools
import logging

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import (CPUAttentionBackend, CPUAttentionBackendImpl,
                                                 CPUAttentionMetadataBuilder)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

import terrace
from terrace.identity import rope_text
from terrace.vllm import scheduling
from terrace.vllm.ledger import Orders
from terrace.vllm.pages import Layout, Pages
from terrace.vllm.serving import Row, Serving, Turn, more_than_rows
from terrace.vllm.settings import Settings

LOG = logging.getLogger("vllm.terrace")
_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_settings: Settings | None = None


def install(settings: Settings) -> None:
    """Takes the place of vLLM's attention on CPUs. Models that are loaded later have it."""
    global _settings
    _settings = settings
    register_backend(AttentionBackendEnum.CPU_ATTN,
                     f"{__name__}.{TerraceAttentionBackend.__qualname__}")
    scheduling.install()
    if not hasattr(GPUModelRunner.execute_model, "terrace"):
        GPUModelRunner.execute_model = _announcing(GPUModelRunner.execute_model)
        GPUModelRunner.sample_tokens = _reporting(GPUModelRunner.sample_tokens)


def chunk_tokens(config) -> int:
    """Returns the tokens of the chunks that a model's prefixes are kept by; 0: none are kept.

    Heads that are in several processes would need a file each, and names of their own in it.
    """
    return _settings.chunk_tokens if config.parallel_config.world_size == 1 else 0


def trace_chunk_tokens() -> int:
    """Returns the tokens of the chunks that prompts are recorded by, as prefixes would be kept."""
    config = terrace.Config() if _settings is None else _settings.config
    return int(config["tier.chunk_tokens"])


# ---- Which pass is under way


@dataclasses.dataclass(frozen=True)
class _Pass:
    """A call of a model runner, and what its scheduler wants."""

    runner: GPUModelRunner
    scheduled: object  # SchedulerOutput


_pass: _Pass | None = None


def current_serving() -> Serving | None:
    """Returns the keeper of the sequences of the model whose pass is under way."""
    return None if _pass is None else getattr(_pass.runner, "terrace", None)


def _announcing(execute_model):
    """Wraps a model runner's method: requests have names, and the scheduler's orders are obeyed."""

    @functools.wraps(execute_model)
    def announced(self, scheduler_output, *args, **kwargs):
        global _pass
        _obey(self, scheduler_output)
        _pass = _Pass(self, scheduler_output)
        try:
            return _with_report(self, execute_model(self, scheduler_output, *args, **kwargs))
        finally:
            _pass = None
            serving = getattr(self, "terrace", None)
            if serving is not None:
                serving.give_up()  # what failed in the middle

    announced.terrace = True
    return announced


def _reporting(sample_tokens):
    """Wraps a model runner's method, which has a pass's output where execute_model has none."""

    @functools.wraps(sample_tokens)
    def reported(self, *args, **kwargs):
        return _with_report(self, sample_tokens(self, *args, **kwargs))

    return reported


def _obey(runner, scheduled) -> None:
    orders = getattr(scheduled, "terrace", Orders())
    serving = _answering(runner) if orders.asked else getattr(runner, "terrace", None)
    if serving is None:
        return
    gone = {*scheduled.finished_req_ids, *scheduled.scheduled_cached_reqs.resumed_req_ids,
            *(scheduled.preempted_req_ids or ())}
    loads = getattr(scheduled.kv_connector_metadata, "loads", [])
    serving.obey(orders, gone, {load.source for load in loads})


def _with_report(runner, output):
    serving = getattr(runner, "terrace", None)
    if serving is None or not isinstance(output, ModelRunnerOutput):
        return output
    if output is EMPTY_MODEL_RUNNER_OUTPUT:
        if not serving.has_answers:
            return output
        output = copy.copy(output)
    output.terrace = serving.report()
    return output


# ---- Models


def _refusal(config, layers: dict[str, Attention]) -> str | None:
    """Returns why a model cannot be served, or None."""
    if config.speculative_config is not None:
        return "it decodes speculatively"
    if config.scheduler_config.async_scheduling:
        return "its passes are scheduled ahead"
    if config.parallel_config.decode_context_parallel_size > 1:
        return "its context is spread over processes"
    if config.parallel_config.pipeline_parallel_size > 1:
        return "its layers are spread over processes"
    if len(layers) != len(config.compilation_config.static_forward_context):
        return "its layers keep different things"
    return next(filter(None, map(_refusal_of_layer, layers.values())), None)


def _refusal_of_layer(layer: Attention) -> str | None:
    impl = layer.impl
    if not isinstance(impl, TerraceAttentionImpl):
        return f"layer {layer.layer_name} attends by {type(impl).__name__}"
    wants = {"attention that is no decoder's": impl.attn_type != AttentionType.DECODER,
             "a sliding window": impl.sliding_window != -1,
             "ALiBi": impl.alibi_slopes is not None,
             "capped logits": bool(impl.logits_soft_cap),
             "attention sinks": impl.sinks is not None,
             "keys of another layer": impl.kv_sharing_target_layer_name is not None,
             "values of another width": layer.head_size_v != layer.head_size,
             "quantized keys and values": impl.is_fp8_kv_cache,
             f"keys of {layer.kv_cache.dtype}": layer.kv_cache.dtype not in _DTYPES}
    wanted = [name for name, is_wanted in wants.items() if is_wanted]
    return f"layer {layer.layer_name} has {wanted[0]}" if wanted else None


def _ask_layout(layer: Attention) -> Layout | None:
    """Has vLLM's kernel for a layer's pages write a block."""
    _, _, tokens, width = layer.kv_cache.shape
    slots = torch.arange(tokens)

    def write(keys, values, block):
        halves = block.view(1, 1, 2 * tokens, width // 2).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(keys, values, *halves, slots, layer.isa, k_scale=1.0,
                                       v_scale=1.0, kv_cache_dtype="auto")

    return Layout.ask(write, tokens, width // 2, layer.kv_cache.dtype)


def _keys_for(config) -> terrace.Config:
    """Returns the settings of a model's runtime."""
    keys = _settings.config
    keys["tier.model"] = _settings.model if chunk_tokens(config) else ""
    keys["tier.rope"] = _settings.rope or rope_text(config.model_config.hf_config)
    return keys


def _answering(runner: GPUModelRunner) -> Serving | None:
    """Returns the runner's Serving for requests that the file is asked for before any pass."""
    context = runner.vllm_config.compilation_config.static_forward_context
    layers = {name: layer for name, layer in context.items() if isinstance(layer, Attention)}
    return _serving_of(runner, layers)


def _serving_of(runner: GPUModelRunner, layers: dict[str, Attention]) -> Serving | None:
    """Returns the runner's Serving, made when it is first wanted, for pages are there only then."""
    if not hasattr(runner, "terrace"):
        runner.terrace = _open_serving(runner.vllm_config, layers)
    return runner.terrace


def _open_serving(config, layers: dict[str, Attention]) -> Serving | None:
    """Returns the Serving of a model, or None, and logs why."""
    reason = _refusal(config, layers)
    ordered = [layers[name] for name in sorted(layers, key=extract_layer_index)]
    layout = None if reason else _ask_layout(ordered[0])
    if layout is None:
        LOG.warning("Terrace does not serve this model, for %s: vLLM goes on with its own "
                    "attention, and no prompts are kept", reason or "its pages hold no plain rows")
        return None
    first = ordered[0]
    try:
        runtime = terrace.Runtime(_keys_for(config), layers=len(ordered),
                                  query_heads=first.num_heads, kv_heads=first.num_kv_heads,
                                  head_dim=first.head_size, dtype=_DTYPES[first.kv_cache.dtype])
    except terrace.Error as error:
        LOG.error("Terrace does not serve this model: %s. vLLM goes on with its own attention",
                  error)
        return None
    wanted = more_than_rows(runtime)
    if wanted:
        LOG.warning("Terrace does not serve this model: vLLM's pages hold rows alone, and the "
                    "policy needs %s. vLLM goes on with its own attention, and no prompts are "
                    "kept. Choose another retrieval.policy, and retention.policy none", wanted)
        return None
    LOG.info("Terrace serves this model by %s with a budget of %s, from %d tokens on",
             runtime.traits()["retrieval"], _settings.config["retrieval.budget"],
             _settings.min_tokens)
    # Heads that are in several processes would have to agree on what is given back.
    return Serving(runtime, Pages(lambda layer: ordered[layer].kv_cache, layout),
                   lends=config.parallel_config.world_size == 1)


# ---- Passes


@dataclasses.dataclass(frozen=True)
class _Place:
    """A long row that decodes: token is its place in the batch's tensors."""

    token: int
    row: Row


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Says which attention serves which rows of a pass.

    turn attends to the rows of `taken`, which are the tokens taken_tokens; None: Terrace attends to
    no row. rest is vLLM's metadata of all other rows, which are rest_tokens; None: no other rows,
    or no turn.
    """

    serving: Serving
    layers: dict[str, int]
    turn: Turn | None
    taken: list[_Place]
    left: list[_Place]
    taken_tokens: torch.Tensor
    rest_tokens: torch.Tensor | None = None
    rest: object = None


class TerraceMetadataBuilder(CPUAttentionMetadataBuilder):
    """Chooses a pass's rows for Terrace: those that decode one token, and are long."""

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        if vllm_config.use_v2_model_runner:
            _warn_of_v2_runner()
        names = sorted(layer_names, key=extract_layer_index)
        self._layers = {name: number for number, name in enumerate(names)}

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        metadata = super().build(common_prefix_len, common_attn_metadata, fast_build)
        metadata.terrace = None
        if _pass is not None and metadata.causal:
            metadata.terrace = self._plan(common_prefix_len, common_attn_metadata)
        return metadata

    def _plan(self, common_prefix_len, common) -> _Plan | None:
        context = self.vllm_config.compilation_config.static_forward_context
        serving = _serving_of(_pass.runner, {name: context[name] for name in self._layers})
        names = _pass.runner.input_batch.req_ids
        if serving is None or not _is_batch_of(common, _pass, names):
            return None
        decodes = (common.naive_query_lens() == 1) & ~common.is_prefilling
        serving.count(int(decodes.sum()))
        long = torch.nonzero(decodes & (common.seq_lens >= _settings.min_tokens))[:, 0].tolist()
        for row in set(range(len(names))) - set(long):
            serving.check_pages(names[row], "does not decode")
        if not long:
            return None
        size = serving.pages.block_tokens
        places = [_Place(int(common.query_start_loc[row]), _row_of(common, names, row, size))
                  for row in long]
        turn = serving.begin([place.row for place in places])
        chosen = turn.places if turn else []
        taken = [places[at] for at in chosen]
        left = [places[at] for at in sorted(set(range(len(places))) - set(chosen))]
        plan = _Plan(serving, self._layers, turn, taken, left,
                     torch.tensor([place.token for place in taken]))
        rest = sorted(set(range(common.num_reqs)) - {long[at] for at in chosen})
        if turn is None or not rest:
            return plan
        part, tokens = _part_of(common, rest)
        return dataclasses.replace(plan, rest_tokens=tokens,
                                   rest=super().build(common_prefix_len, part))


@functools.cache
def _warn_of_v2_runner() -> None:
    LOG.warning("Terrace's plugin knows vLLM's first model runner: vLLM goes on with its own "
                "attention. Set VLLM_USE_V2_MODEL_RUNNER=0")


def _is_batch_of(common, of: _Pass, names: list[str]) -> bool:
    """Whether metadata are of the pass's requests, in that order, and not of some trial run."""
    wanted = of.scheduled.num_scheduled_tokens
    counts = [wanted.get(name) for name in names]
    return common.is_prefilling is not None and counts == common.naive_query_lens().tolist()


def _row_of(common, names: list[str], row: int, block_tokens: int) -> Row:
    length = int(common.seq_lens[row])
    blocks = common.block_table_tensor[row, :-(-length // block_tokens)].tolist()
    return Row(names[row], length, blocks)


def _part_of(common, rows: list[int]):
    """Returns the metadata of some rows, and the places of their tokens."""
    begins = common.query_start_loc.tolist()
    ranges = [torch.arange(begins[row], begins[row + 1]) for row in rows]
    tokens = torch.cat(ranges)
    counts = torch.tensor([len(one) for one in ranges], dtype=torch.int32)
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32)
    starts[1:] = counts.cumsum(0)
    lengths = common.seq_lens[rows]
    part = common.replace(
        query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=len(rows),
        num_actual_tokens=len(tokens), max_query_len=int(counts.max()),
        max_seq_len=int(lengths.max()), block_table_tensor=common.block_table_tensor[rows],
        slot_mapping=common.slot_mapping[tokens])
    return part, tokens


class TerraceAttentionImpl(CPUAttentionBackendImpl):
    """Attention of one layer: Terrace's for the rows of the plan, vLLM's for all others."""

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output,
                output_scale=None, output_block_scale=None):
        plan = getattr(attn_metadata, "terrace", None)
        vllm = functools.partial(super().forward, layer, kv_cache=kv_cache,
                                 output_scale=output_scale, output_block_scale=output_block_scale)
        is_quantized = output_scale is not None or output_block_scale is not None
        if plan is None or is_quantized:  # which vLLM refuses
            return vllm(query=query, key=key, value=value, attn_metadata=attn_metadata,
                        output=output)
        attended = self._attend(plan, layer, query, key, value, output)
        if not attended:
            vllm(query=query, key=key, value=value, attn_metadata=attn_metadata, output=output)
        elif plan.rest is not None:
            tokens = plan.rest_tokens
            rest = torch.empty_like(output[tokens])
            vllm(query=query[tokens], key=key[tokens], value=value[tokens],
                 attn_metadata=plan.rest, output=rest)
            output[tokens] = rest
        for place in plan.left if attended else plan.taken + plan.left:
            if plan.serving.lacks_pages(place.row.name):
                found = plan.serving.attend_exactly(plan.layers[layer.layer_name], place.row,
                                                    self._scaled(query[place.token]))
                output[place.token] = found.view_as(output[place.token])
        return output

    def _attend(self, plan: _Plan, layer, query, key, value, output) -> bool:
        """Attends to the rows of the plan's turn. Returns whether they have their output."""
        if plan.turn is None:
            return False
        tokens = plan.taken_tokens
        queries = self._scaled(query[tokens])
        attended = torch.empty_like(queries)
        done = plan.turn.attend(plan.layers[layer.layer_name], queries, key[tokens], value[tokens],
                                attended)
        if done:
            output[tokens] = attended.to(output.dtype)
        return done

    def _scaled(self, queries: torch.Tensor) -> torch.Tensor:
        """Terrace divides logits by the square root of head_dim."""
        factor = self.scale * self.head_size ** 0.5
        return queries * factor if abs(factor - 1) > 1e-6 else queries


class TerraceAttentionBackend(CPUAttentionBackend):
    """CPU_ATTN: vLLM knows the backend by this name."""

    @staticmethod
    def get_impl_cls():
        return TerraceAttentionImpl

    @staticmethod
    def get_builder_cls():
        return TerraceMetadataBuilder

    @classmethod
    def customize_spec(cls, spec):
        return scheduling.TerraceSpec.of(spec)
