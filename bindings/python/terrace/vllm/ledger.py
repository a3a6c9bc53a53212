"""Which rows of requests Terrace holds, so that vLLM gets their pages back."""

import weakref

from terrace.vllm.shelf import Shelf


class Ledger:
    """Between the side of vLLM that runs the model and the one that hands out pages.

    Both are in one process, and work one after the other. A deep copy is the ledger itself. One
    that is sent to another process is empty there: nothing is given back, and nothing found.
    """

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._given_back: dict[str, int] = {}
        self._serving: weakref.ref | None = None
        self.pages = 0  # that were given back, of all requests
        self.shelf = Shelf(limit=0)

    def __deepcopy__(self, _memo) -> "Ledger":
        return self

    def __reduce__(self):
        return Ledger, ()

    @property
    def serving(self):
        """Who keeps the sequences of requests; None before a model's first pass."""
        return None if self._serving is None else self._serving()

    @serving.setter
    def serving(self, serving) -> None:
        self._serving = weakref.ref(serving)

    def hold(self, name: str, tokens: int) -> None:
        """Notes that the first `tokens` of a request can be read without pages."""
        self._held[name] = tokens

    def held(self, name: str) -> int:
        return self._held.get(name, 0)

    def hold_no_more(self, name: str) -> int:
        """Has no more pages given back. Returns how many tokens have none already."""
        given_back = self.given_back(name)
        self._held[name] = given_back
        return given_back

    def give_back(self, name: str, tokens: int, pages: int) -> None:
        """Notes that the first `tokens` of a request have no pages now, and these fewer pages."""
        self._given_back[name] = tokens
        self.pages += pages

    def given_back(self, name: str) -> int:
        """Returns how many of a request's first tokens have no pages."""
        return self._given_back.get(name, 0)

    def forget(self, name: str) -> None:
        """The request has no pages any more: it has ended, or begins anew."""
        self._held.pop(name, None)
        self._given_back.pop(name, None)
        if self.serving is not None:
            self.serving.shelve(name)
