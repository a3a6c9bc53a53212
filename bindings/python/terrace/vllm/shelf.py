"""Sequences of requests that have ended, for requests that begin with the same tokens."""

import dataclasses

import numpy as np

import terrace


@dataclasses.dataclass
class Kept:
    """tokens: those whose rows the sequence has, or None while its request may come back. salt:
    requests of another one have nothing in common with it."""

    sequence: terrace.Sequence
    rows: int
    tokens: np.ndarray | None
    salt: str | None = None


class Shelf:
    """Sequences by the names of their requests; those that were of use last are kept longest.

    limit: of rows, of all sequences together. Whoever holds one that was taken from the shelf can
    go on with it: memory goes with the last who does.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: dict[str, Kept] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, name: str, kept: Kept) -> None:
        self._kept.pop(name, None)
        self._kept[name] = kept
        while sum(one.rows for one in self._kept.values()) > self.limit:
            self.drop_oldest()

    def take(self, name: str) -> Kept | None:
        return self._kept.pop(name, None)

    def drop_oldest(self) -> bool:
        """Returns whether there was one."""
        if not self._kept:
            return False
        del self._kept[next(iter(self._kept))]
        return True

    def clear(self) -> None:
        self._kept.clear()

    def find(self, name: str, tokens: np.ndarray, salt: str | None) -> tuple[Kept | None, int]:
        """Returns which sequence begins with most of a request's tokens, and with how many.

        The request's own, from before it was taken its pages, begins with all it has.
        """
        best, most = None, 0
        for of, kept in self._kept.items():
            count = 0
            if of == name:
                count = min(kept.rows, len(tokens))
            elif kept.tokens is not None and kept.salt == salt:
                count = common_prefix(kept.tokens, tokens)
            if count > most:
                best, most = of, count
        if best is None:
            return None, 0
        self._kept[best] = kept = self._kept.pop(best)  # now the newest
        return kept, most


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    count = min(len(a), len(b))
    different = np.flatnonzero(a[:count] != b[:count])
    return int(different[0]) if len(different) else count
