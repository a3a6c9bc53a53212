"""Prefixes of a batch's rows: transformers counts columns, Terrace tokens."""

import torch

from terrace.errors import InvalidArgument


def read_ids(input_ids: torch.Tensor) -> torch.Tensor:
    """Returns ids [rows, columns] in memory of the host. Raises InvalidArgument for others."""
    is_ids = isinstance(input_ids, torch.Tensor) and input_ids.dim() == 2
    if not is_ids or input_ids.is_floating_point() or input_ids.is_complex():
        kind = (f"{list(input_ids.shape)} of {input_ids.dtype}"
                if isinstance(input_ids, torch.Tensor) else f"of type {type(input_ids).__name__}")
        raise InvalidArgument(f"input_ids is {kind}: give a tensor of whole numbers, "
                              "[rows, tokens]")
    return input_ids.to("cpu")


def read_held(attention_mask: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor:
    """Returns which columns hold tokens, [rows, columns] bool in memory of the host."""
    if attention_mask is None:
        return torch.ones(ids.shape, dtype=torch.bool)
    if attention_mask.shape != ids.shape:
        raise InvalidArgument(f"attention_mask is {list(attention_mask.shape)}, and input_ids "
                              f"{list(ids.shape)}: give both alike")
    return attention_mask.to("cpu").bool()


def tokens_of(ids: torch.Tensor, held: torch.Tensor) -> list[torch.Tensor]:
    """Returns the tokens of each row, without padding."""
    return [row[mask] for row, mask in zip(ids, held)]


def columns_with(found: list[int], held: torch.Tensor) -> int:
    """Returns how many first columns hold no other tokens than the first found[i] of each row."""
    counts = held.cumsum(1)
    return int((counts <= torch.tensor(found)[:, None]).sum(1).min())
