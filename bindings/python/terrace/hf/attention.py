"""The attention function that models call once `set_attn_implementation("terrace")` was called.

transformers passes it queries, keys and values, not the cache: NewRows name the cache that they are
of. PyTorch attends to keys that are not NewRows.
"""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from terrace.errors import Unsupported
from terrace.hf.new_rows import NewRows

NAME = "terrace"
# Arguments that change what attention is, and that Terrace would have to know.
_REFUSED = {"sliding_window": "a sliding window", "softcap": "capped logits",
            "s_aux": "attention sinks", "position_bias": "a bias of positions",
            "output_attentions": "attention weights", "indices": "chosen tokens",
            "block_indices": "chosen blocks", "cu_seq_lens_q": "several texts in one row",
            "cu_seq_lens_k": "several texts in one row"}


@torch.compiler.disable
def terrace_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0,
                      **kwargs):
    """Attends by the cache that the keys came through.

    query: [batch, query_heads, tokens, head_dim]; key, value: those of the new tokens alone.
    Returns [batch, tokens, query_heads, head_dim], and None for the weights.
    """
    if not isinstance(key, NewRows) and not isinstance(value, NewRows):
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling,
                                      dropout=dropout, **kwargs)
    cache, layer = _owner(key, value)
    _refuse_other_attention(module, layer, kwargs)
    if dropout or (torch.is_grad_enabled() and query.requires_grad):
        raise Unsupported("Terrace neither drops out nor computes gradients: call model.eval(), "
                          "and the model under torch.no_grad()")
    if scaling is not None:
        # Terrace divides logits by the square root of head_dim.
        factor = scaling * query.shape[-1] ** 0.5
        if abs(factor - 1) > 1e-6:
            query = query * factor
    return cache.attend(layer, query, key.plain, value.plain, attention_mask), None


def _owner(key, value) -> tuple:
    """Returns the cache and the layer that both are of."""
    owners = [(one.cache, one.layer) if isinstance(one, NewRows) else (None, None)
              for one in (key, value)]
    if owners[0][0] is not owners[1][0] or owners[0][1] != owners[1][1]:
        raise Unsupported("keys and values do not come from one update() of one cache: use "
                          "transformers' own cache for this model")
    return owners[0]


def _refuse_other_attention(module, layer: int, kwargs: dict) -> None:
    for name, what in _REFUSED.items():
        given = kwargs.get(name)
        if isinstance(given, torch.Tensor) or given:
            raise Unsupported(f"layer {layer} wants {what} ({name}), which Terrace has not: use "
                              "transformers' own cache for this model")
    said = [kwargs.get("is_causal"), getattr(module, "is_causal", None),
            getattr(getattr(module, "config", None), "is_causal", None)]
    if any(one is False for one in said):
        raise Unsupported(f"layer {layer} attends to later tokens, too (is_causal is False), and "
                          "Terrace to earlier ones alone: use transformers' own cache")


AttentionInterface.register(NAME, terrace_attention)
# If no mask function has this name, models pass no mask, and padding is attended to.
AttentionMaskInterface.register(NAME, sdpa_mask)
