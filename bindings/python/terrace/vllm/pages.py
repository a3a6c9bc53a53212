"""Rows of keys and values in pages of vLLM."""

import dataclasses
from collections.abc import Callable

import torch

_DIGIT = 64  # and twice as many are whole numbers in f16 and bf16


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of a block's numbers, for one head: keys and values are [tokens * head_dim] places
    in [tokens * 2 * head_dim] numbers."""

    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def ask(cls, write: Callable, tokens: int, head_dim: int,
            dtype: torch.dtype) -> "Layout | None":
        """Writes known rows to a block, and finds out where they went.

        vLLM's kernels choose the layout for the processor's instructions, and no function tells it.
        write(keys, values, block) stores keys and values [tokens, 1, head_dim] in a block [1, 1,
        tokens, 2 * head_dim]. Returns None if numbers are not stored one by one.
        """
        count = tokens * head_dim
        numbers = torch.arange(count)
        found = torch.zeros(2 * count, dtype=torch.long)
        place = 1
        while place < count:
            rows = (numbers // place % _DIGIT).to(dtype).view(tokens, 1, head_dim)
            block = torch.full((1, 1, tokens, 2 * head_dim), -1, dtype=dtype)
            write(rows, rows + _DIGIT, block)
            digits = block.flatten().long()
            is_value = digits >= _DIGIT
            found += (digits - _DIGIT * is_value) * place
            place *= _DIGIT
        keys, values = (torch.nonzero(half)[:, 0] for half in (~is_value, is_value))
        for places in (keys, values):
            if not torch.equal(found[places].sort().values, numbers):
                return None
        return cls(keys[found[keys].argsort()], values[found[values].argsort()])


class Pages:
    """Reads and writes rows of all layers.

    cache_of(layer) is vLLM's memory of a layer, [blocks, kv_heads, block_tokens, 2 * head_dim].
    """

    def __init__(self, cache_of: Callable[[int], torch.Tensor], layout: Layout) -> None:
        self.cache_of = cache_of
        self.layout = layout
        _, self.kv_heads, self.block_tokens, width = cache_of(0).shape
        self.head_dim = width // 2

    def read(self, layer: int, blocks: list[int], first: int,
             last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values of positions [first, last), [positions, kv_heads, head_dim]."""
        size = self.block_tokens
        begin = first // size
        wanted = torch.tensor(blocks[begin:(last - 1) // size + 1])
        numbers = self.cache_of(layer)[wanted].flatten(2)
        shape = (len(wanted), self.kv_heads, size, self.head_dim)

        def rows(places: torch.Tensor) -> torch.Tensor:
            of_heads = numbers.index_select(2, places).view(shape)
            packed = of_heads.transpose(1, 2).reshape(-1, self.kv_heads, self.head_dim)
            return packed[first - begin * size:last - begin * size]

        return rows(self.layout.keys), rows(self.layout.values)

    def write(self, layer: int, blocks: list[int], keys: torch.Tensor,
              values: torch.Tensor) -> None:
        """Fills blocks with keys and values [blocks * block_tokens, kv_heads, head_dim]."""
        shape = (len(blocks), self.block_tokens, self.kv_heads, self.head_dim)
        numbers = self.cache_of(layer).new_empty(
            (len(blocks), self.kv_heads, 2 * self.block_tokens * self.head_dim))
        for places, rows in ((self.layout.keys, keys), (self.layout.values, values)):
            numbers[:, :, places] = rows.view(shape).transpose(1, 2).flatten(2)
        cache = self.cache_of(layer)
        cache[torch.tensor(blocks)] = numbers.view(-1, *cache.shape[1:])

    def row(self, layer: int, blocks: list[int], position: int) -> torch.Tensor:
        """Returns key and value of the first head, [2, head_dim]."""
        block, at = divmod(position, self.block_tokens)
        numbers = self.cache_of(layer)[blocks[block], 0].flatten()
        of_token = slice(at * self.head_dim, (at + 1) * self.head_dim)
        return torch.stack([numbers[places[of_token]]
                            for places in (self.layout.keys, self.layout.values)])
