"""Which sequences of requests are laid aside, for requests that begin with the same tokens."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Kept:
    """rows: of the sequence. tokens: the tokens of the rows; None while the request may come back.
    salt: only requests with the same salt may share rows."""

    rows: int
    tokens: np.ndarray | None
    salt: str | None = None


class Shelf:
    """Sequences by the names of their requests; those that were of use last are kept longest.

    limit: of rows, of all sequences together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: dict[str, Kept] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, name: str, kept: Kept) -> list[str]:
        """Returns the names of sequences that have to go, which may be this one."""
        if kept.rows > self.limit:
            return [name]
        gone = [owner for owner, other in self._kept.items() if _begins_with(kept, other)]
        for owner in gone:
            del self._kept[owner]
        self._kept[name] = kept
        while sum(one.rows for one in self._kept.values()) > self.limit:
            gone.append(next(iter(self._kept)))
            del self._kept[gone[-1]]
        return gone

    def get(self, name: str) -> Kept | None:
        return self._kept.get(name)

    def drop(self, name: str) -> None:
        self._kept.pop(name, None)

    def clear(self) -> list[str]:
        names = list(self._kept)
        self._kept.clear()
        return names

    def find(self, name: str, tokens: np.ndarray, salt: str | None) -> tuple[str | None, int]:
        """Returns which sequence begins with most of a request's tokens, and with how many.

        A request that lost its pages finds its own sequence, which begins with all tokens it has.
        """
        best, most = None, 0
        for owner, kept in self._kept.items():
            if kept.tokens is None:
                count = min(kept.rows, len(tokens)) if owner == name else 0
            else:
                count = common_prefix(kept.tokens, tokens) if kept.salt == salt else 0
            if count > most:
                best, most = owner, count
        return best, most

    def use(self, name: str) -> None:
        """Has a sequence kept longest."""
        self._kept[name] = self._kept.pop(name)


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    count = min(len(a), len(b))
    different = np.flatnonzero(a[:count] != b[:count])
    return int(different[0]) if len(different) else count


def _begins_with(kept: Kept, other: Kept) -> bool:
    """Whether `other` is of no use beside `kept`, which begins with all its tokens."""
    if kept.tokens is None or other.tokens is None or kept.salt != other.salt:
        return False
    return common_prefix(kept.tokens, other.tokens) == len(other.tokens)
