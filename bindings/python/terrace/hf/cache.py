"""A cache of transformers whose keys and values Terrace keeps.

A row of the batch is a sequence; padding is not stored. transformers calls update() and the
attention function layer by layer: a step begins with the first layer and ends with the last.
"""

import dataclasses

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

import terrace
from terrace.hf.attention import NAME
from terrace.hf.columns import Columns
from terrace.hf.shape import dtype_of, refuse_encoder, shape_of
from terrace.stats import TerraceStats, add_counters


class TerraceLayer(CacheLayerMixin):
    """One layer, as transformers asks for it. All that layers have in common is the cache's."""

    is_compileable = False  # generate() does not compile the decoding
    is_croppable = True     # crop() restores an earlier state: speculative decoding asks for it
    is_sliding = False

    def __init__(self, cache: "TerraceCache") -> None:
        super().__init__()
        self.cache = cache
        self.is_initialized = True

    def lazy_initialization(self, key_states, value_states) -> None:
        """Everything is made by the first step."""

    def update(self, key_states, value_states, *args, **kwargs):
        """Passes on the new rows, which the attention function hands to the cache."""
        keys = key_states.view_as(key_states)
        keys.terrace_cache = self.cache
        return keys, value_states

    def get_seq_length(self) -> int:
        return self.cache.columns.count

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.columns.count + query_length, 0

    def get_max_length(self) -> int:
        return -1


@dataclasses.dataclass
class _Pass:
    """A step that is open."""

    step: terrace.Step | None       # None: all columns are padding
    rows: list[int]                 # those that have a token in it
    new: torch.Tensor               # [batch, columns] bool: which new columns hold tokens
    prompts: list[int | None]       # of rows: tokens of a prompt's piece, or None
    where: tuple | None = None      # rows and columns of tokens; None: all
    layer: int = 0                  # the next one

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """[batch, heads, columns, head_dim] to [tokens, heads, head_dim]."""
        rows = states.transpose(1, 2)
        return rows.flatten(0, 1) if self.where is None else rows[self.where]


# Policies may need these; no attention function of transformers is given them.
_NOT_GIVEN = {"pre_rope_keys": "keys before RoPE",
              "speculated_query": "queries that the model speculates"}


class TerraceCache(Cache):
    """Keeps the keys and values of a batch in Terrace's tiers.

    Made by for_model, or of a Runtime of the model's shape. draft_tokens: passes of up to so many
    tokens behind a prompt are decoded token by token, as speculative decoding wants them; longer
    ones are prompts, whose tokens attend to everything. One thread at a time.
    """

    def __init__(self, runtime: terrace.Runtime, *, draft_tokens: int = 16) -> None:
        needs = runtime.traits()["needs"]
        for need, what in _NOT_GIVEN.items():
            if needs[need]:
                raise terrace.Unsupported(f"the policy needs {what}, which transformers does not "
                                          "give: choose another one")
        super().__init__(layers=[TerraceLayer(self) for _ in range(runtime.layers)])
        self.runtime = runtime
        self.draft_tokens = draft_tokens
        self.sequences: list[terrace.Sequence] = []
        self.columns = Columns(0)
        self._queue = None
        self._stream = None
        self._pass: _Pass | None = None
        # Columns of a prompt that comes in chunks and are not there yet; whether it was announced.
        self._expected, self._expected_begun = 0, False
        self._window = needs["query_window_tokens"]
        self._dropped: dict = {}

    @classmethod
    def for_model(cls, model, *, policy: str | None = None, budget: float | int | str | None = None,
                  device_memory: str | None = None, config=None, draft_tokens: int = 16,
                  **settings) -> "TerraceCache":
        """Makes a cache for a model, and sets the model's attention to Terrace's.

        policy, budget, device_memory: the keys retrieval.policy, retrieval.budget and
        device.memory; settings: others, with _ for the dots: cache_policy="lfu". config: a mapping
        of keys to values, or the path of a file that `terrace tune --write-config` wrote, over
        which the others win. With another cache, or none, the model then attends as by "sdpa".

        Raises Unsupported for models and policies that cannot be served, InvalidArgument for
        settings.
        """
        shape = shape_of(model.config)
        refuse_encoder(model)
        chosen = terrace.Config()
        if isinstance(config, (str, bytes)) or hasattr(config, "__fspath__"):
            chosen.load(config)
        for key, value in (config.items() if hasattr(config, "items") else ()):
            chosen[key] = value
        named = {"retrieval.policy": policy, "retrieval.budget": budget,
                 "device.memory": device_memory,
                 "backend": "cuda" if model.device.type == "cuda" else "host"}
        for key, value in (*named.items(), *_with_dots(chosen, settings)):
            if value is not None:
                chosen[key] = value
        runtime = terrace.Runtime(chosen, **shape, dtype=dtype_of(model.dtype))
        cache = cls(runtime, draft_tokens=draft_tokens)
        model.set_attn_implementation(NAME)
        return cache

    # ---- Attention

    def attend(self, layer: int, query, key, value, mask) -> torch.Tensor:
        """Appends a layer's rows and attends. The attention function calls it.

        query: [batch, query_heads, columns, head_dim]; key, value: [batch, kv_heads, ...]. Returns
        [batch, columns, query_heads, head_dim], zero where a column is padding.
        """
        if layer == 0:
            self._begin(query, mask)
        current = self._pass
        if current is None or current.layer != layer:
            raise terrace.InvalidArgument(f"layer {layer} came out of order: run the model from "
                                          "its first layer")
        try:
            output = self._attend(current, query, key, value)
            if current.layer == self.runtime.layers:
                self._end(current)
        except BaseException:
            self._give_up()
            raise
        return output

    def _attend(self, current: _Pass, query, key, value) -> torch.Tensor:
        layer, current.layer = current.layer, current.layer + 1
        batch, heads, columns, width = query.shape
        output = query.new_zeros((batch, columns, heads, width))
        if not current.rows:
            return output
        queries = current.pack(query).contiguous()
        keys, values = current.pack(key), current.pack(value)
        if keys.stride() != values.stride():
            keys, values = keys.contiguous(), values.contiguous()
        packed = output.flatten(0, 1) if current.where is None else torch.empty_like(queries)
        current.step.attend(layer, queries.detach(), keys.detach(), values.detach(), packed,
                            hints=self._hints(current, queries))
        if current.where is not None:
            output[current.where] = packed
        return output

    def _begin(self, query, mask) -> None:
        self._give_up()
        batch, columns = query.shape[0], query.shape[2]
        if not self.sequences:
            self.columns = Columns(batch)
            self.sequences = [self.runtime.open_sequence() for _ in range(batch)]
        if batch != len(self.sequences):
            raise terrace.InvalidArgument(f"the cache holds {len(self.sequences)} rows, and the "
                                          f"batch has {batch}: use another cache, or reset() it")
        new = self.columns.read(mask, columns)
        tokens = new.sum(1).tolist()
        prompts = self._announce(tokens, columns)
        rows = [row for row, count in enumerate(tokens) if count > 0]
        where = None
        if not bool(new.all()):
            where = tuple(index.to(query.device) for index in new.nonzero(as_tuple=True))
        step = None
        if rows:
            step = self.runtime.begin_step([self.sequences[row] for row in rows],
                                           self._queue_of(query), [tokens[row] for row in rows],
                                           dtype=dtype_of(query.dtype))
        self._pass = _Pass(step, rows, new, [prompts[row] for row in rows], where)

    def expect_prompt(self, columns: int) -> None:
        """Says that the next `columns` columns are one prompt, which comes in chunks.

        It is indexed once, when all of it is there; else each chunk is a prompt of its own.
        """
        self._expected, self._expected_begun = columns, False

    def _announce(self, tokens: list[int], columns: int) -> list[int | None]:
        """Announces prompts. Returns how many tokens of one each row brings, None of those that
        decode."""
        expected = self._expected
        prompts = [count if expected or len(sequence) == 0 or count > self.draft_tokens else None
                   for sequence, count in zip(self.sequences, tokens)]
        for sequence, count in zip(self.sequences, prompts):
            if count and not (expected and self._expected_begun):
                sequence.begin_prompt(count + max(expected - columns, 0))
        self._expected_begun = expected > 0
        return prompts

    def _hints(self, current: _Pass, queries) -> list | None:
        """Returns the queries of prompts' last tokens where the policy asks for them."""
        if self._window == 0 or not any(current.prompts):
            return None
        hints, begin = [], 0
        for count, all_of_row in zip(current.prompts, self._counts(current)):
            end = begin + all_of_row
            first = max(begin, end - self._window)
            hints.append(None if not count else terrace.Hints(
                query_window=queries[first:end].detach().float().cpu().contiguous()))
            begin = end
        return hints

    @staticmethod
    def _counts(current: _Pass) -> list[int]:
        return current.new[current.rows].sum(1).tolist()

    def _queue_of(self, tensor: torch.Tensor) -> terrace.Queue:
        """The queue that work on a tensor belongs to: this thread, or the device's stream."""
        stream = None
        if tensor.device.type == "cuda":
            stream = torch.cuda.current_stream(tensor.device).cuda_stream
        if self._queue is None or stream != self._stream:
            self._stream = stream
            self._queue = (self.runtime.wrap_caller() if stream is None
                           else self.runtime.wrap_stream(stream))
        return self._queue

    def _end(self, current: _Pass) -> None:
        if current.step is not None:
            try:
                current.step.end()
            except terrace.SequencesFailed as failed:
                self._take_back(current, failed.failures)
                raise
            current.step.close()
        self._expected = max(self._expected - current.new.shape[1], 0)
        self.columns.append(current.new)
        self._pass = None

    def _take_back(self, current: _Pass, failures: dict) -> None:
        """Makes the rows that ended well as long as they were, so that the pass can be repeated."""
        lengths = self.columns.lengths()
        for place, row in enumerate(current.rows):
            if place not in failures:
                self.sequences[row].truncate(lengths[row])

    def _give_up(self) -> None:
        """Leaves all rows as they were before a pass that has not come to its end."""
        current, self._pass = self._pass, None
        if current is not None and current.step is not None:
            current.step.close()

    # ---- Changes of the batch

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the last columns away: abs(tokens_to_remove), or down to a positive number."""
        self._give_up()
        count = self.columns.count
        kept = min(tokens_to_remove, count) if tokens_to_remove > 0 else count + tokens_to_remove
        if kept >= count:
            return
        self.columns.crop(max(kept, 0))
        for sequence, length in zip(self.sequences, self.columns.lengths()):
            if length < len(sequence):
                sequence.truncate(length)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes what row beam_idx[i] was."""
        self._take_rows(beam_idx.tolist())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps the rows of these indices, or those where a mask is True."""
        if indices.dtype == torch.bool:
            indices = indices.nonzero()[:, 0]
        self._take_rows(indices.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows, one behind the other."""
        self._take_rows([row for row in range(len(self.sequences)) for _ in range(repeats)])

    def _take_rows(self, rows: list[int]) -> None:
        """Rows that are wanted several times are forked: forks share memory of the host."""
        if not self.sequences:
            return
        self._give_up()
        before = self.sequences
        taken, after = set(), []
        for row in rows:
            after.append(before[row].fork() if row in taken else before[row])
            taken.add(row)
        for row in set(range(len(before))) - taken:
            self._drop(before[row])
        self.sequences = after
        self.columns.select(rows)

    def reset(self) -> None:
        """Empties the cache; the next batch may have another size."""
        self._give_up()
        for sequence in self.sequences:
            self._drop(sequence)
        self.sequences, self.columns = [], Columns(0)
        self._expected = 0

    def _drop(self, sequence: terrace.Sequence) -> None:
        add_counters(self._dropped, sequence.counters())
        sequence.close()

    def __deepcopy__(self, memo: dict) -> "TerraceCache":
        """A cache with the same tokens, as for a prompt that many answers begin with."""
        self._give_up()
        twin = TerraceCache(self.runtime, draft_tokens=self.draft_tokens)
        twin.sequences = [sequence.fork() for sequence in self.sequences]
        twin.columns.held = self.columns.held
        return twin

    # ---- Queries

    def stats(self) -> TerraceStats:
        """Sums what the rows have done and moved."""
        return TerraceStats.of([sequence.counters() for sequence in self.sequences], self._dropped)

    def await_indexes(self) -> None:
        """Waits until prompts are indexed; until then tokens attend exactly."""
        for sequence in self.sequences:
            sequence.await_indexes()


def _with_dots(config: terrace.Config, settings: dict) -> list[tuple[str, object]]:
    """Turns cache_policy into cache.policy, by the keys that there are."""
    known = {key["name"].replace(".", "_"): key["name"] for key in config.describe()}
    return [(known.get(name, name), value) for name, value in settings.items()]
