"""The ledger between vLLM's scheduler, which allocates pages, and the side that runs the model.

The two sides may be in one process or in two: they exchange only Orders and Reports, one of each a
pass.
"""

import dataclasses

import numpy as np

from terrace.vllm.shelf import Kept, Shelf


@dataclasses.dataclass(frozen=True)
class Orders:
    """For the model's side, before a pass.

    given_back: how many first tokens of a request have no pages any more. laid_aside: requests that
    lost all their pages, and whose sequences are kept. dropped: sequences that are not kept longer.
    """

    given_back: dict[str, int] = dataclasses.field(default_factory=dict)
    laid_aside: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Report:
    """From the model's side, after a pass.

    held: how many first tokens of a request can be read without pages, where that has changed.
    dropped: sequences that were laid aside, and had to make room.
    """

    held: dict[str, int] = dataclasses.field(default_factory=dict)
    dropped: list[str] = dataclasses.field(default_factory=list)


class Ledger:
    """The scheduler's knowledge of what Terrace holds. shelf: sequences that were laid aside."""

    def __init__(self) -> None:
        self.shelf = Shelf(limit=0)
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

    def end(self, name: str, tokens: np.ndarray | None, salt: str | None) -> None:
        """A request is about to lose its pages for good. tokens: the tokens, if they alone
        determine the rows; None: something else does, too, so that no other request can use
        them."""
        self._ended[name] = tokens, salt

    def free(self, name: str) -> None:
        """A request has no pages any more: it has ended, or will begin anew."""
        rows = self._held.pop(name, 0)
        self._given_back.pop(name, None)
        self._orders.given_back.pop(name, None)
        before = self.shelf.get(name)
        has_ended = name in self._ended
        tokens, salt = self._ended.pop(name, (None, None))
        if rows and self.shelf.limit:
            self._orders.laid_aside.append(name)
        elif before is not None and before.tokens is None:
            rows = before.rows  # it had lost its pages already
        else:
            return
        self.shelf.drop(name)
        if has_ended and tokens is None:
            self._orders.dropped.append(name)
        else:
            kept = Kept(rows, None if tokens is None else tokens[:rows], salt)
            self._orders.dropped.extend(self.shelf.put(name, kept))

    def clear(self) -> None:
        """Drops all sequences that were laid aside."""
        self._orders.dropped.extend(self.shelf.clear())
