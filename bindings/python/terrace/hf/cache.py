"""A cache of transformers that keeps its keys and values in Terrace.

A row of the batch is a sequence; padding is not stored. transformers calls update() and the
attention function layer by layer: a step begins with the first layer and ends with the last.
"""

import dataclasses

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

import terrace
from terrace.hf.attention import NAME
from terrace.hf.columns import Columns
from terrace.hf.new_rows import NewRows
from terrace.hf.prefixes import columns_with, read_held, read_ids, tokens_of
from terrace.hf.settings import settings_of
from terrace.hf.shape import TYPES, dtype_of, refuse_encoder, shape_of
from terrace.identity import rope_text
from terrace.stats import TerraceStats, add_counters


class TerraceLayer(CacheLayerMixin):
    """One layer, with the interface of transformers. The cache has everything that layers share."""

    is_compileable = False  # generate() does not compile the decoding
    is_croppable = True     # crop() restores an earlier state: speculative decoding asks for it
    is_sliding = False

    def __init__(self, cache: "TerraceCache", number: int) -> None:
        super().__init__()
        self.cache = cache
        self.number = number
        self.is_initialized = True

    def lazy_initialization(self, key_states, value_states) -> None:
        """Everything is made by the first step."""

    def update(self, key_states, value_states, *args, **kwargs):
        """Passes on the new rows, which the attention function hands to the cache."""
        return (NewRows.of(key_states, self.cache, self.number),
                NewRows.of(value_states, self.cache, self.number))

    def get_seq_length(self) -> int:
        return self.cache.columns.count

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.columns.count + query_length, 0

    def get_max_length(self) -> int:
        return -1


@dataclasses.dataclass
class _Pass:
    """A step that is open."""

    rows: list[int]                 # those that have a token in it
    new: torch.Tensor               # [batch, columns] bool: which new columns hold tokens
    prompts: list[int | None]       # of rows: tokens of a prompt's piece, or None
    where: tuple | None = None      # rows and columns of tokens; None: all
    step: terrace.Step | None = None  # None: all columns are padding
    layer: int = 0                  # the next one

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """[batch, heads, columns, head_dim] to [tokens, heads, head_dim]."""
        rows = states.detach().resolve_neg().transpose(1, 2)
        return rows.flatten(0, 1) if self.where is None else rows[self.where]


# Policies may need these; no attention function of transformers is given them.
_NOT_GIVEN = {"pre_rope_keys": "keys before RoPE",
              "speculated_query": "queries that the model speculates"}


class TerraceCache(Cache):
    """Keeps the keys and values of a batch in Terrace's tiers.

    Made by for_model, or of a Runtime of the model's shape. draft_tokens: passes of up to so many
    tokens after a prompt are decoded token by token, as speculative decoding needs; longer passes
    are prompts, whose tokens attend to everything. One thread at a time.
    """

    def __init__(self, runtime: terrace.Runtime, *, draft_tokens: int = 16) -> None:
        needs = runtime.traits()["needs"]
        for need, what in _NOT_GIVEN.items():
            if needs[need]:
                raise terrace.Unsupported(f"the policy needs {what}, which transformers does not "
                                          "give: choose another one")
        if draft_tokens < 1:
            raise terrace.InvalidArgument(f"draft_tokens is {draft_tokens}: give 1 or more; with 1 "
                                          "each pass of several tokens is a prompt")
        super().__init__(layers=[TerraceLayer(self, i) for i in range(runtime.layers)])
        self.runtime = runtime
        self.draft_tokens = draft_tokens
        self.sequences: list[terrace.Sequence] = []
        self.columns = Columns(0)
        self._queue = None
        self._stream = None
        self._pass: _Pass | None = None
        # The columns of a chunked prompt that have not come yet; the rows that were notified of it.
        self._expected, self._told = 0, frozenset()
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
        which the others win. If the model then runs with another cache, or without one, it attends
        as by "sdpa". With tier_nvme_path or daemon_socket, and tier_model, a digest of the
        weights (model_digest computes one), begin and publish keep prefixes.

        Raises Unsupported for models and policies that cannot be served, InvalidArgument for
        settings.
        """
        shape = shape_of(model.config)
        refuse_encoder(model)
        named = {"retrieval.policy": policy, "retrieval.budget": budget,
                 "device.memory": device_memory}
        chosen = settings_of(config, named, settings, model.device)
        chosen["tier.rope"] = chosen["tier.rope"] or rope_text(model.config)
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
        try:
            if layer == 0:
                self._begin(query, mask)
            current = self._pass
            if current is None or current.layer != layer:
                raise terrace.InvalidArgument(f"layer {layer} came out of order: run the model "
                                              "from its first layer")
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
        keys, values = (self._as_stored(layer, current.pack(states)) for states in (key, value))
        if keys.stride() != values.stride() or keys.stride(2) != 1 or keys.stride(0) < width:
            keys, values = keys.contiguous(), values.contiguous()
        packed = output.flatten(0, 1) if current.where is None else torch.empty_like(queries)
        current.step.attend(layer, queries, keys, values, packed,
                            hints=self._hints(current, queries))
        if current.where is not None:
            output[current.where] = packed
        return output

    def _as_stored(self, layer: int, rows: torch.Tensor) -> torch.Tensor:
        """Returns rows in the cache's type: under torch.autocast models mix types."""
        own = TYPES[self.runtime.dtype]
        if rows.dtype == own:
            return rows
        if torch.promote_types(rows.dtype, own) != own:
            raise terrace.Unsupported(
                f"layer {layer} has keys or values of {rows.dtype}, and the cache stores {own}, "
                "which has not room for all of them: use the model without torch.autocast, or load "
                "it in float32")
        return rows.to(own)

    def _begin(self, query, mask) -> None:
        self._give_up()
        batch, columns = query.shape[0], query.shape[2]
        is_empty = self.columns.count == 0
        if not is_empty and batch != len(self.sequences):
            raise terrace.InvalidArgument(f"the cache holds {len(self.sequences)} rows, and the "
                                          f"batch has {batch}: use another cache, or reset() it")
        new = (Columns(batch) if is_empty else self.columns).read(mask, columns)
        tokens = new.sum(1).tolist()
        self._check_room(tokens, columns)
        if is_empty:
            self._open(batch)
        rows = [row for row, count in enumerate(tokens) if count > 0]
        where = None
        if not bool(new.all()):
            where = tuple(index.to(query.device) for index in new.nonzero(as_tuple=True))
        prompts = self._prompts_of(tokens)
        # From here on the pass can be given up, with all that it has begun.
        current = self._pass = _Pass(rows, new, [prompts[row] for row in rows], where)
        self._announce(prompts, columns)
        if rows:
            current.step = self.runtime.begin_step(
                [self.sequences[row] for row in rows], self._queue_of(query),
                [tokens[row] for row in rows], dtype=dtype_of(query.dtype))

    def _check_room(self, tokens: list[int], columns: int) -> None:
        """Raises OutOfMemory if rows would not fit in the granted device memory. Called before a
        prompt is computed, whose rows go to the host. tokens: new ones of each row."""
        if max(tokens, default=0) <= 1:
            return
        traits = self.runtime.traits()
        if not traits["offloads"] or traits["device_memory"] is None:
            return
        before = self.columns.lengths() if self.sequences else [0] * len(tokens)
        lengths = [old + new + max(self._expected - columns, 0)
                   for old, new in zip(before, tokens)]
        wanted = sum(map(self.runtime.device_bytes, lengths))
        if wanted > traits["device_memory"]:
            raise terrace.OutOfMemory(
                f"{len(lengths)} rows of up to {max(lengths)} tokens take {wanted} bytes of device "
                f"memory, and device_memory is {traits['device_memory']}: raise it, lower the "
                "budget, or give fewer rows at once")

    def _open(self, rows: int) -> None:
        self._drop_all()
        sequences = [self.runtime.open_sequence() for _ in range(rows)]
        self.sequences, self.columns = sequences, Columns(rows)

    def expect_prompt(self, columns: int) -> None:
        """Says that the next `columns` columns are one prompt, which comes in chunks.

        The prompt is indexed once, after its last chunk. Unless this is called, each chunk is a
        prompt of its own.
        """
        if columns < 0:
            raise terrace.InvalidArgument(f"columns is {columns}: give a number of tokens, or 0 to "
                                          "end a prompt that will not come whole")
        self._give_up()
        self._end_prompts()
        self._expected = columns

    def _prompts_of(self, tokens: list[int]) -> list[int | None]:
        """Returns how many tokens of a prompt each row brings, None for rows that decode."""
        return [count if self._expected or len(sequence) == 0 or count > self.draft_tokens else None
                for sequence, count in zip(self.sequences, tokens)]

    def _announce(self, prompts: list[int | None], columns: int) -> None:
        for row, (sequence, count) in enumerate(zip(self.sequences, prompts)):
            if count and row not in self._told:
                sequence.begin_prompt(count + max(self._expected - columns, 0))
                if self._expected:
                    self._told |= {row}

    def _end_prompts(self) -> None:
        """Ends those prompts in chunks that have not come whole: rows that are padded have less."""
        for row in self._told:
            self.sequences[row].begin_prompt(0)
        self._expected, self._told = 0, frozenset()

    def _hints(self, current: _Pass, queries) -> list | None:
        """Returns the queries of prompts' last tokens where the policy asks for them."""
        if self._window == 0 or not any(current.prompts):
            return None
        hints, begin = [], 0
        for count, all_of_row in zip(current.prompts, self._counts(current)):
            end = begin + all_of_row
            first = max(begin, end - self._window)
            hints.append(None if not count else terrace.Hints(
                query_window=queries[first:end].float().cpu().contiguous()))
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
            current.step.end()
            current.step.close()
        expected = max(self._expected - current.new.shape[1], 0)
        grown = self.columns.with_new(current.new)
        # No call is between these: an interrupt finds the pass given up, or done.
        self.columns, self._expected, self._pass = grown, expected, None
        if expected == 0:
            self._end_prompts()

    def _give_up(self) -> None:
        """Restores all rows to their state before an unfinished pass: also rows that ended well
        beside others, or before an interrupt."""
        current, self._pass = self._pass, None
        if current is None:
            return
        if current.step is not None:
            current.step.close()
        self._told -= set(current.rows)
        lengths = self.columns.lengths()
        for row, prompt in zip(current.rows, current.prompts):
            sequence = self.sequences[row]
            is_as_before = len(sequence) == lengths[row] and prompt is None
            if not is_as_before and sequence.phase == "idle":
                sequence.truncate(lengths[row])  # which ends a prompt, too

    # ---- Prefixes

    def begin(self, input_ids: torch.Tensor, *, attention_mask: torch.Tensor | None = None,
              salt: str | bytes | None = None) -> int:
        """Has the empty cache begin with the longest prefix of a prompt that was published.

        input_ids: [rows, columns], the prompts that follow; attention_mask: the same, 0 where a
        column is padding. salt: a tenant's secret. Returns how many columns were found in all rows;
        the last one is always left to the model. generate() with the same input_ids computes the
        others, as one prompt.

        Raises InvalidArgument: the cache is not empty, or other tensors; OutOfMemory.
        """
        ids = read_ids(input_ids)
        held = read_held(attention_mask, ids)
        if self.columns.count:
            raise terrace.InvalidArgument(f"the cache has {self.columns.count} columns: reset() it "
                                          "before it begins with a prefix")
        self.reset()
        sequences = [self.runtime.open_sequence(tokens, salt=salt)
                     for tokens in tokens_of(ids[:, :-1], held[:, :-1])]
        if not any(map(len, sequences)):
            return 0
        count = columns_with([len(one) for one in sequences], held[:, :-1])
        columns = Columns.of(held[:, :count])
        for sequence, length in zip(sequences, columns.lengths()):
            if length < len(sequence):
                sequence.truncate(length)
        self.sequences, self.columns = sequences, columns
        self.expect_prompt(ids.shape[1] - count)
        return count

    def publish(self, input_ids: torch.Tensor, *,
                salt: str | bytes | None = None) -> list[terrace.PublishReport]:
        """Keeps the first columns of all rows as prefixes that begin() finds, in later processes,
        too.

        input_ids: [rows, columns], the tokens that the cache was given, as generate() returns them;
        columns that the cache has not are left out. Terrace cannot check them. Returns a report of
        each row.

        Raises Unsupported: no prefixes are kept, which needs tier_nvme_path or daemon_socket,
        tier_model and a policy that keeps rows on the host; OutOfMemory: the file is full.
        """
        ids = read_ids(input_ids)
        self._give_up()
        if len(ids) != len(self.sequences):
            raise terrace.InvalidArgument(f"input_ids has {len(ids)} rows, and the cache "
                                          f"{len(self.sequences)}: give the tokens of all rows")
        count = min(ids.shape[1], self.columns.count)
        tokens = tokens_of(ids[:, :count], self.columns.held[:, :count])
        return [sequence.publish(one, salt=salt) for sequence, one in zip(self.sequences, tokens)]

    # ---- Changes of the batch

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the last columns away: abs(tokens_to_remove), or down to a positive number."""
        self._give_up()
        count = self.columns.count
        kept = min(tokens_to_remove, count) if tokens_to_remove > 0 else count + tokens_to_remove
        if kept >= count:
            return
        self.columns = self.columns.first(max(kept, 0))
        for sequence, length in zip(self.sequences, self.columns.lengths()):
            if length < len(sequence):
                sequence.truncate(length)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes what row beam_idx[i] was."""
        self._take_rows(self._rows_of("beam_idx", beam_idx))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps the rows of these indices, or those where a mask is True."""
        self._take_rows(self._rows_of("indices", indices))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows, one after the other."""
        if repeats < 1:
            raise terrace.InvalidArgument(f"repeats is {repeats}: give 1 or more")
        self._take_rows([row for row in range(len(self.sequences)) for _ in range(repeats)])

    def _rows_of(self, name: str, indices: torch.Tensor) -> list[int]:
        """Returns the rows that indices name: negative ones count from the last row on."""
        count = len(self.sequences)
        if indices.dim() != 1 or indices.is_floating_point() or indices.is_complex():
            raise terrace.InvalidArgument(f"{name} is {list(indices.shape)} of {indices.dtype}: "
                                          "give one dimension of whole numbers, or of bool")
        if indices.dtype == torch.bool:
            if count and len(indices) != count:
                raise terrace.InvalidArgument(f"{name} has {len(indices)} entries, and the cache "
                                              f"{count} rows: give one for each row")
            indices = indices.nonzero()[:, 0]
        rows = indices.tolist()
        wrong = [row for row in rows if not -count <= row < count]
        if count and wrong:
            raise terrace.InvalidArgument(f"{name} has {wrong[0]}, and the cache {count} rows: "
                                          f"give numbers from {-count} to {count - 1}")
        return [row % count for row in rows] if count else []

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
        columns = self.columns.selected(rows)
        # No call is between these, as in _end().
        self.sequences, self.columns = after, columns
        for row in set(range(len(before))) - taken:
            self._drop(before[row])

    def reset(self) -> None:
        """Empties the cache; the next batch may have another size."""
        self._give_up()
        self._drop_all()
        self._expected, self._told = 0, frozenset()

    def _drop_all(self) -> None:
        sequences, self.sequences, self.columns = self.sequences, [], Columns(0)
        for sequence in sequences:
            self._drop(sequence)

    def _drop(self, sequence: terrace.Sequence) -> None:
        add_counters(self._dropped, sequence.counters())
        sequence.close()

    def __deepcopy__(self, memo: dict) -> "TerraceCache":
        """A cache with the same tokens, as for a prompt that many answers begin with."""
        self._give_up()
        twin = TerraceCache(self.runtime, draft_tokens=self.draft_tokens)
        twin.sequences = [sequence.fork() for sequence in self.sequences]
        twin.columns = self.columns
        return twin

    # ---- Queries

    def stats(self) -> TerraceStats:
        """Sums what the rows have done and moved."""
        return TerraceStats.of([sequence.counters() for sequence in self.sequences], self._dropped)

    def await_indexes(self) -> None:
        """Waits until prompts are indexed; until then tokens attend exactly."""
        for sequence in self.sequences:
            sequence.await_indexes()
