"""The ledger between vLLM's scheduler, which allocates pages, and the side that runs the model.

The two sides may be in one process or in two: they exchange only Orders and Reports, one of each a
pass.
"""

import dataclasses

import numpy as np

from terrace.vllm.shelf import Kept, Shelf


@dataclasses.dataclass(frozen=True)
class Prefix:
    """The first tokens of a request, with the salt of its user.

    known: how many of the tokens vLLM need not compute anyway.
    """

    name: str
    tokens: np.ndarray
    salt: str | None = None
    known: int = 0

    @property
    def source(self) -> str:
        """The name of the sequence that begins with what the file has of these tokens."""
        return f"prefix of {self.name}"


@dataclasses.dataclass(frozen=True)
class Orders:
    """For the model's side, before a pass.

    given_back: how many first tokens of a request have no pages any more. laid_aside: requests that
    lost all their pages, and whose sequences are kept. published: tokens of requests that have
    ended, for the file. dropped: sequences that are not kept longer. asked: tokens that are looked
    for in the file.
    """

    given_back: dict[str, int] = dataclasses.field(default_factory=dict)
    laid_aside: list[str] = dataclasses.field(default_factory=list)
    published: list[Prefix] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    asked: list[Prefix] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Report:
    """From the model's side, after a pass.

    held: how many first tokens of a request can be read without pages, where that has changed.
    dropped: sequences that were laid aside, and had to make room. found: of requests that were
    asked for, how many tokens the sequence has that is laid aside; 0: none is.
    """

    held: dict[str, int] = dataclasses.field(default_factory=dict)
    dropped: list[str] = dataclasses.field(default_factory=list)
    found: dict[str, int] = dataclasses.field(default_factory=dict)


class Ledger:
    """The scheduler's knowledge of what Terrace holds.

    shelf: sequences that were laid aside. chunk_tokens: of the prefixes that a file keeps below
    host memory; 0: no prefixes are kept.
    """

    def __init__(self) -> None:
        self.shelf = Shelf(limit=0)
        self.chunk_tokens = 0
        self._pending: dict[str, bool] = {}  # requests that the file was asked for
        self._held: dict[str, int] = {}
        self._given_back: dict[str, int] = {}
        self._ended: dict[str, tuple[np.ndarray | None, str | None]] = {}
        self._orders = Orders()

    def take_orders(self) -> Orders:
        orders, self._orders = self._orders, Orders()
        return orders

    def note(self, report: Report) -> None:
        self._held.update(report.held)
        for name in report.dropped:
            self.shelf.drop(name)

    def held(self, name: str) -> int:
        """Returns how many of a request's first tokens can be read without pages."""
        return self._held.get(name, 0)

    def given_back(self, name: str) -> int:
        """Returns how many of a request's first tokens have no pages."""
        return self._given_back.get(name, 0)

    def give_back(self, name: str, tokens: int) -> None:
        """The first `tokens` of a request have no pages from now on."""
        self._given_back[name] = self._orders.given_back[name] = tokens

    def asks(self, prefix: Prefix) -> bool:
        """Whether a request has to wait for the file's answer: the file is asked once for each
        request, where it may have a chunk more than is known."""
        if prefix.name in self._pending:
            return self._pending[prefix.name]
        chunks = len(prefix.tokens) // self.chunk_tokens if self.chunk_tokens else 0
        if self.shelf.limit == 0 or chunks * self.chunk_tokens <= prefix.known:
            return False
        self._pending[prefix.name] = True
        self._orders.asked.append(prefix)
        return True

    def settle(self, asked: list[Prefix], found: dict[str, int] | None) -> None:
        """Puts what was found on the shelf, after the pass that the file was asked in.

        found: of a report; None: nobody answers, so that the file is not asked again.
        """
        if asked and found is None:
            self.chunk_tokens = 0
        for prefix in asked:
            if prefix.name in self._pending:
                self._pending[prefix.name] = False
            rows = (found or {}).get(prefix.name, 0)
            if rows and self.chunk_tokens:
                self.shelf.drop(prefix.source)
                kept = Kept(rows, prefix.tokens[:rows], prefix.salt)
                self._orders.dropped.extend(self.shelf.put(prefix.source, kept))
            elif rows:
                self._orders.dropped.append(prefix.source)

    def end(self, name: str, tokens: np.ndarray | None, salt: str | None) -> None:
        """A request is about to lose its pages for good. tokens: the tokens, if they alone
        determine the rows; None: something else does, too, so that no other request can use
        them."""
        self._ended[name] = tokens, salt
        self._pending.pop(name, None)

    def free(self, name: str) -> None:
        """A request has no pages any more: it has ended, or will begin anew."""
        rows = self._held.pop(name, 0)
        self._given_back.pop(name, None)
        self._orders.given_back.pop(name, None)
        before = self.shelf.get(name)
        has_ended = name in self._ended
        tokens, salt = self._ended.pop(name, (None, None))
        has_lost_pages = not rows and before is not None and before.tokens is None
        if has_lost_pages:
            rows = before.rows
        self._publish(name, tokens, salt, rows)
        if rows and self.shelf.limit and not has_lost_pages:
            self._orders.laid_aside.append(name)
        elif not has_lost_pages:
            return
        self.shelf.drop(name)
        if has_ended and tokens is None:
            self._orders.dropped.append(name)
        else:
            kept = Kept(rows, None if tokens is None else tokens[:rows], salt)
            self._orders.dropped.extend(self.shelf.put(name, kept))

    def _publish(self, name: str, tokens: np.ndarray | None, salt: str | None, rows: int) -> None:
        """Has the file keep whole chunks of a request that has ended."""
        if tokens is not None and 0 < self.chunk_tokens <= min(rows, len(tokens)):
            self._orders.published.append(Prefix(name, tokens[:rows], salt))

    def clear(self) -> None:
        """Drops all sequences that were laid aside. The file is left alone from now on: weights may
        have changed, and its name for them with them."""
        self.chunk_tokens = 0
        self._orders.published.clear()
        self._orders.dropped.extend(self.shelf.clear())
