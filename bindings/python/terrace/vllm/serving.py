"""Sequences of the requests that a model serves, each with the rows that vLLM's pages have.

Nothing here knows vLLM: requests have names, lengths, and blocks of pages.
"""

import dataclasses
import itertools
import logging
import time

import torch

import terrace
from terrace.stats import TerraceStats, add_counters, device_bytes
from terrace.vllm.ledger import Orders, Prefix, Report
from terrace.vllm.pages import Pages
from terrace.vllm.stats import VllmStats, servings

LOG = logging.getLogger("vllm.terrace")
_PIECE_TOKENS = 1024  # that are copied together: memory for copies of one layer
_REPORT_SECONDS = 60.0
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Row:
    """A request that decodes one token. length: with the token; blocks: of its pages, in order."""

    name: str
    length: int
    blocks: list[int]


@dataclasses.dataclass
class _Held:
    sequence: terrace.Sequence
    blocks: list[int]


def more_than_rows(runtime: terrace.Runtime) -> str | None:
    """Returns the hints that a runtime's policies need of prompts in addition to rows, or None."""
    traits = runtime.traits()
    if traits["retention"]:
        return "to see all queries"
    return next((name for name, value in traits["needs"].items() if value), None)


class Serving:
    """Keeps a sequence for each request. One thread at a time.

    lends: whether vLLM may have back the pages of rows that a sequence has.
    """

    def __init__(self, runtime: terrace.Runtime, pages: Pages, *, lends: bool = True) -> None:
        self.runtime = runtime
        self.pages = pages
        self.lends = lends
        self.queue = runtime.wrap_caller()
        self.number = next(_numbers)
        self._held: dict[str, _Held] = {}
        self._laid_aside: dict[str, terrace.Sequence] = {}  # in order of use, the latest last
        self._wanted: set[str] = set()
        self._given_back: dict[str, int] = {}
        self._lent: dict[str, int] = {}  # not reported yet, as those that were dropped
        self._dropped: list[str] = []
        self._found: dict[str, int] = {}
        self._publishes = True
        self._refused: set[str] = set()
        self._turn: Turn | None = None
        self._stats = VllmStats()
        self._decoded = 0
        self._closed: dict = {}
        self._reported = -_REPORT_SECONDS
        servings.add(self)

    # ---- The scheduler's orders, and the reports to it

    def obey(self, orders: Orders, gone: set[str], wanted: set[str]) -> None:
        """Before a pass. gone: requests that have ended, or lost their pages. wanted: sequences
        laid aside whose rows the pass will bring."""
        self._wanted = wanted
        for name in orders.laid_aside:
            held = self._held.pop(name, None)
            if held is not None:
                self._count(held.sequence)
                self._laid_aside[name] = held.sequence
        for prefix in orders.published:
            self._publish(prefix)
        for name in orders.dropped:
            self._laid_aside.pop(name, None)
        self._forget(gone)
        for name, tokens in orders.given_back.items():
            newly = tokens - self._given_back.get(name, 0)
            self._stats.pages_given_back += newly // self.pages.block_tokens
            self._given_back[name] = tokens
        for prefix in orders.asked:
            self._found[prefix.name] = self._look_for(prefix)

    @property
    def has_answers(self) -> bool:
        """Whether a report is due even if the pass had no tokens."""
        return bool(self._found)

    def report(self) -> Report:
        """Called after a pass."""
        report = Report(self._lent, self._dropped, self._found)
        self._lent, self._dropped, self._found = {}, [], {}
        return report

    def _forget(self, names: set[str]) -> None:
        for name in names:
            self._refused.discard(name)
            self._given_back.pop(name, None)
            self._close(name)
        if names and time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            LOG.info("Terrace: %s", self.stats())

    # ---- Passes

    def begin(self, rows: list[Row]) -> "Turn | None":
        """Begins a pass of the rows' new tokens. Returns None if no row is left."""
        self.give_up()
        taken, sequences = [], []
        for place, row in enumerate(rows):
            sequence = self._follow(row)
            if sequence is not None:
                taken.append(place)
                sequences.append(sequence)
        if not taken:
            return None
        names = [rows[place].name for place in taken]
        try:
            step = self._begin_step(sequences)
        except terrace.Error as error:
            self.refuse(names, error)
            return None
        self._turn = Turn(self, step, taken, names)
        return self._turn if self._turn.check() else None

    def give_up(self) -> None:
        """Ends a pass that came to no end: sequences are as before it."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.give_up()

    def _begin_step(self, sequences: list[terrace.Sequence]) -> terrace.Step:
        # Queries are of the type of vLLM's pages, unless vLLM was told otherwise.
        dtype = self.runtime.dtype
        while True:
            step = self._with_room(
                lambda: self.runtime.begin_step(sequences, self.queue, dtype=dtype))
            short = any(isinstance(error, terrace.OutOfMemory) for error in step.failures.values())
            if not short or not self._make_room():
                return step
            step.close()

    def _with_room(self, act):
        """Returns the result of act(). If memory is short, this closes sequences that were laid
        aside."""
        while True:
            try:
                return act()
            except terrace.OutOfMemory:
                if not self._make_room():
                    raise

    def _make_room(self) -> bool:
        """Drops the sequence laid aside that is of use least. Returns whether there was one."""
        for name in self._laid_aside:
            if name not in self._wanted:
                self._drop(name)
                return True
        return False

    def _drop(self, name: str) -> None:
        del self._laid_aside[name]
        self._dropped.append(name)

    def _follow(self, row: Row) -> terrace.Sequence | None:
        """Returns the request's sequence, with all rows before the new token; None: refused."""
        if row.name in self._refused:
            return None
        try:
            return self._with_room(lambda: self._brought_up(row))
        except terrace.Error as error:
            self.refuse([row.name], error)
            return None

    def _brought_up(self, row: Row) -> terrace.Sequence:
        held = self._held.get(row.name)
        if held is not None and not self._matches(held, row):
            self.check_pages(row.name, "is not what its pages are")
            self._stats.mismatches += 1
            self._close(row.name)
            held = None
        if held is None:
            opened = self.runtime.open_sequence(expected_tokens=row.length)
            held = self._hold(row.name, opened, [])
        try:
            self._take_rows(held.sequence, row)
        except terrace.OutOfMemory:
            if not self.lacks_pages(row.name):
                self._close(row.name)  # with the part of the rows that there was room for
            raise
        held.blocks = row.blocks
        return held.sequence

    def _hold(self, name: str, sequence: terrace.Sequence, blocks: list[int]) -> _Held:
        self._held[name] = held = _Held(sequence, blocks)
        self._stats.requests += 1
        return held

    def _matches(self, held: _Held, row: Row) -> bool:
        """Whether a sequence still is the beginning of what the pages have.

        Blocks must be the same, and the newest row bit by bit. The last layer's row is compared,
        because rows of the first layer are alike if tokens are. Names alone would trust that vLLM
        never uses one twice.
        """
        last = len(held.sequence) - 1
        count = last // self.pages.block_tokens + 1
        if last + 1 >= row.length or held.blocks[:count] != row.blocks[:count]:
            return False
        if last < 0:
            return True
        layer = self.runtime.layers - 1
        in_pages = self.pages.row(layer, row.blocks, last)
        own = torch.empty_like(in_pages)[None]
        held.sequence.read_rows(layer, 0, [last], own)
        return torch.equal(in_pages.view(torch.uint8), own[0].view(torch.uint8))

    def _take_rows(self, sequence: terrace.Sequence, row: Row) -> None:
        """Copies rows that the sequence lacks: prompts, and what vLLM has decoded by itself."""
        begin, end = len(sequence), row.length - 1
        if begin == end:
            return
        sequence.begin_prompt(end - begin)
        for first in range(begin, end, _PIECE_TOKENS):
            last = min(first + _PIECE_TOKENS, end)
            with self.runtime.begin_step([sequence], self.queue, [last - first]) as step:
                for failure in step.failures.values():
                    raise failure
                for layer in range(self.runtime.layers):
                    step.append(layer, *self.pages.read(layer, row.blocks, first, last))
                step.end()
        self._stats.rows_taken += end - begin

    # ---- Rows without pages

    def lend(self, names: list[str]) -> None:
        """Lets vLLM have the pages of all rows but the newest, by which sequences are known."""
        for name in names if self.lends else []:
            held = self._held.get(name)
            if held is not None and name not in self._refused:
                self._lent[name] = max(0, len(held.sequence) - 1)

    def lacks_pages(self, name: str) -> bool:
        """Whether vLLM cannot attend to a request by itself."""
        return self._given_back.get(name, 0) > 0

    def check_pages(self, name: str, why: str) -> None:
        """Raises RuntimeError where a request's rows have to be in its pages, and are not."""
        if self.lacks_pages(name):
            raise RuntimeError(f"request {name} {why}, and its first pages were given back: please "
                               "report this")

    def attend_exactly(self, layer: int, row: Row, query: torch.Tensor) -> torch.Tensor:
        """Attends to all rows of a request that no step can serve, [query_heads, head_dim].

        The request's sequence has the rows that lack pages. Slow: each row is copied.
        """
        if layer == 0:
            self._stats.exact_tokens += 1
        sequence = self._held[row.name].sequence
        held, dim = len(sequence), self.pages.head_dim
        rows = self._read(sequence, layer, 0, held)
        newer = torch.stack(self.pages.read(layer, row.blocks, held, row.length), 2)
        keys, values = torch.cat([rows, newer.transpose(0, 1)], 1).float().unbind(2)
        grouped = query.float().view(self.pages.kv_heads, -1, dim)
        weights = torch.softmax(grouped @ keys.transpose(1, 2) / dim ** 0.5, -1)
        return (weights @ values).view_as(query).to(query.dtype)

    def _read(self, sequence: terrace.Sequence, layer: int, first: int, last: int) -> torch.Tensor:
        """Returns rows of a sequence, [kv_heads, rows, 2, head_dim]."""
        shape = (self.pages.kv_heads, last - first, 2, self.pages.head_dim)
        rows = torch.empty(shape, dtype=self.pages.cache_of(layer).dtype)
        for head in range(self.pages.kv_heads):
            sequence.read_rows(layer, head, range(first, last), rows[head])
        return rows

    # ---- Rows of requests that have ended

    def bring(self, name: str, source: str, first: int, last: int, blocks: list[int]) -> None:
        """Fills pages of a request with rows [first, last) of a sequence that was laid aside.

        The request and the sequence begin with the same tokens; first and last are multiples of a
        page. blocks: all of the request. Raises KeyError or Error if the rows cannot be read.
        """
        sequence = self._laid_aside[source]
        size = self.pages.block_tokens
        try:
            for layer in range(self.runtime.layers):
                rows = self._read(sequence, layer, first, last).transpose(0, 1)
                self.pages.write(layer, blocks[first // size:last // size], rows[:, :, 0],
                                 rows[:, :, 1])
        except terrace.Error:
            self._drop(source)
            raise
        self._laid_aside[source] = self._laid_aside.pop(source)
        self._stats.rows_brought += last - first
        try:
            twin = sequence.fork()
            twin.truncate(last)
            self._hold(name, twin, blocks)
        except terrace.Error as error:  # the rows will be taken from the pages, as others are
            LOG.debug("Terrace: request %s begins without a fork: %s", name, error)

    # ---- Prefixes that the file below host memory keeps

    def _look_for(self, prefix: Prefix) -> int:
        """Lays a sequence aside that begins with tokens which the file has. Returns how many they
        are; 0: no more than are known."""
        try:
            sequence = self._with_room(
                lambda: self.runtime.open_sequence(prefix.tokens, salt=prefix.salt))
        except terrace.Error as error:
            LOG.warning("Terrace: the beginning of request %s cannot be looked for: %s",
                        prefix.name, error)
            return 0
        found = len(sequence)
        if found <= prefix.known:
            sequence.close()
            return 0
        self._laid_aside[prefix.source] = sequence
        self._stats.rows_found += found
        return found

    def _publish(self, prefix: Prefix) -> None:
        """Has the file keep whole chunks of a request that has ended."""
        held = self._held.get(prefix.name)
        sequence = self._laid_aside.get(prefix.name, held.sequence if held else None)
        if sequence is None or not self._publishes:
            return
        try:
            done = sequence.publish(prefix.tokens[:len(sequence)], salt=prefix.salt)
            self._stats.bytes_published += done.bytes
        except terrace.Unsupported as error:
            self._publishes = False
            LOG.warning("Terrace publishes no more prefixes: %s", error)
        except terrace.Error as error:
            LOG.warning("Terrace: request %s is not published: %s", prefix.name, error)

    # ---- Ends of requests

    def _close(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._count(held.sequence)
            held.sequence.close()

    def _count(self, sequence: terrace.Sequence) -> None:
        try:
            counters = sequence.counters()
        except terrace.Error:  # one that was lost says nothing more
            return
        add_counters(self._closed, counters)
        self._stats.device_bytes = max(self._stats.device_bytes,
                                       device_bytes(self.runtime, counters))

    def refuse(self, names: list[str], error: terrace.Error) -> None:
        """Leaves requests to vLLM until they end: sequences are kept where pages are not."""
        for name in names:
            self._stats.note_refused(type(error).__name__)
            self._refused.add(name)
            given_back = self._given_back.get(name, 0)
            if self.lends:
                self._lent[name] = given_back  # and no more
            if not given_back:
                self._close(name)
            LOG.warning("Terrace: request %s goes on with %s: %s", name,
                        "exact attention, which is slow" if given_back else "vLLM's attention",
                        error)

    # ---- Queries

    def count(self, tokens: int) -> None:
        """Notes that so many tokens are decoded, by Terrace or by vLLM."""
        self._decoded += tokens

    def note_ended(self, tokens: int) -> None:
        """Notes that so many tokens were attended to in all layers."""
        self._stats.tokens += tokens

    def stats(self) -> VllmStats:
        """Sums what was done so far, by requests that have ended, too."""
        alive = [held.sequence.counters() for held in self._held.values()
                 if held.sequence.phase == "idle"]
        summed = TerraceStats.of(alive, self._closed)
        return dataclasses.replace(self._stats, refused=dict(self._stats.refused),
                                   vllm_tokens=(self._decoded - self._stats.tokens -
                                                self._stats.exact_tokens),
                                   device_bytes=max([self._stats.device_bytes] + [
                                       device_bytes(self.runtime, one) for one in alive]),
                                   of_sequences=summed)


class Turn:
    """One pass: a token of each of some rows, layer by layer.

    places: of the rows that take part, among those that the pass was begun with.
    """

    def __init__(self, serving: Serving, step: terrace.Step, places: list[int],
                 names: list[str]) -> None:
        self.serving = serving
        self.places = places
        self._names = names
        self._step: terrace.Step | None = step
        self._layer = 0

    def attend(self, layer: int, query, keys, values, output) -> bool:
        """Attends in a layer: tensors [rows, heads, head_dim]. Returns whether `output` was
        computed.

        If not, the engine computes this layer and all later ones, for all rows (see lacks_pages):
        outputs of earlier layers stay valid, and the sequences miss a token, which they take from
        the pages later.
        """
        if self._step is None:
            return False
        if layer != self._layer:
            self.give_up()
            return False
        try:
            self._step.attend(layer, query, keys, values, output)
        except terrace.Error as error:
            self._blame(self._names, error)
            return False
        self._layer += 1
        if not self.check():
            return False
        if self._layer == self.serving.runtime.layers:
            self._end()
        return True

    def check(self) -> bool:
        """Whether all rows go on. Gives up otherwise."""
        failures = self._step.failures
        for place, error in failures.items():
            self._blame([self._names[place]], error)
        return not failures

    def give_up(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.close()

    def _end(self) -> None:
        """Ends the pass after all outputs. A request that cannot keep the token's rows continues
        without Terrace."""
        self.serving.note_ended(len(self._names))
        try:
            self._step.end()
        except terrace.SequencesFailed as failed:
            for place, error in failed.failures.items():
                self._blame([self._names[place]], error)
        except terrace.Error as error:
            self._blame(self._names, error)
        self.give_up()
        self.serving.lend(self._names)

    def _blame(self, names: list[str], error: terrace.Error) -> None:
        self.give_up()
        self.serving.refuse(names, error)
