"""Columns of a batch: transformers gives each row as many, and masks those that are padding."""

import torch

from terrace.errors import Unsupported

_ADVICE = ("Terrace knows causal attention with padding: give a mask of [batch, tokens], or use "
           "transformers' own cache")


class Columns:
    """Says which columns of each row hold tokens. Never changes.

    held: [rows, columns] bool, memory of the host.
    """

    def __init__(self, rows: int) -> None:
        self.held = torch.ones((rows, 0), dtype=torch.bool)

    @classmethod
    def of(cls, held: torch.Tensor) -> "Columns":
        made = cls(0)
        made.held = held
        return made

    @property
    def count(self) -> int:
        return self.held.shape[1]

    def read(self, mask: torch.Tensor | None, new: int) -> torch.Tensor:
        """Returns which of the `new` next columns hold tokens, [rows, new].

        mask: [batch or 1, 1, new, all columns with the new ones] bool, True where a token attends;
        None: causal. Raises Unsupported for another mask than causal with padding.
        """
        rows = self.held.shape[0]
        if mask is None:
            if not bool(self.held.all()):
                raise Unsupported(f"earlier tokens were padded, and no mask says so. {_ADVICE}")
            return torch.ones((rows, new), dtype=torch.bool)
        if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1:
            raise Unsupported(f"the mask is {list(mask.shape)} of {mask.dtype}. {_ADVICE}")
        mask = mask[:, 0].to("cpu").expand(rows, -1, -1)
        held = torch.cat([self.held, mask[:, -1, self.count:]], 1)  # as the last token sees it
        columns = torch.arange(held.shape[1])
        causal = columns[None] <= torch.arange(self.count, held.shape[1])[:, None]
        padding = ~held[:, self.count:, None]  # what tokens of padding attend to is of no use
        if not bool(((mask == (causal & held[:, None])) | padding).all()):
            raise Unsupported(f"the mask leaves out tokens. {_ADVICE}")
        return held[:, self.count:]

    def with_new(self, new: torch.Tensor) -> "Columns":
        return Columns.of(torch.cat([self.held, new], 1))

    def first(self, columns: int) -> "Columns":
        return Columns.of(self.held[:, :columns])

    def selected(self, rows: list[int]) -> "Columns":
        return Columns.of(self.held[rows])

    def lengths(self) -> list[int]:
        """Returns how many tokens each row has."""
        return self.held.sum(1).tolist()
