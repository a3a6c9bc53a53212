"""Keys and values on their way from a cache's update() to Terrace's attention.

Terrace's update() returns the new rows alone: any other attention would miss all earlier rows, and
code that changes keys after update() would make Terrace store keys that were meant for one
attention. Therefore operations that make a tensor of them are refused (decision 0105).
"""

import torch

from terrace.errors import Unsupported


class NewRows(torch.Tensor):
    """New rows of a layer. plain: the rows as a tensor; cache and layer: the place that they belong
    to."""

    plain: torch.Tensor
    cache: object
    layer: int

    @classmethod
    def of(cls, states: torch.Tensor, cache, layer: int) -> "NewRows":
        rows = states.as_subclass(cls)
        rows.plain, rows.cache, rows.layer = states, cache, layer
        return rows

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """Answers what asks for a shape, a type or a place."""
        named = {name: _plain(one) for name, one in (kwargs or {}).items()}
        found = function(*_plain(args), **named)
        if not isinstance(found, (torch.Tensor, list, tuple)) or isinstance(found, torch.Size):
            return found
        raise Unsupported(
            f"keys or values came from Terrace's cache to {function.__name__}(), not to Terrace's "
            "attention: call model.set_attn_implementation('terrace') if the model attends by "
            "another function; if it changes keys between cache and attention, use transformers' "
            "own cache for it")


def _plain(thing):
    """Returns tensors in place of new rows, also in lists of arguments."""
    if isinstance(thing, (list, tuple)) and not isinstance(thing, torch.Size):
        return type(thing)(map(_plain, thing))
    return thing.plain if isinstance(thing, NewRows) else thing
