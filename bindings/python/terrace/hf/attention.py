"""The attention function that models call once `set_attn_implementation("terrace")` was called.

transformers hands it queries, keys and values, not the cache: the cache rides on the keys that its
update() returned. Keys that come from elsewhere are attended to by PyTorch.
"""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from terrace.errors import Unsupported

NAME = "terrace"
# Arguments that change what attention is, and that Terrace would have to know.
_REFUSED = {"sliding_window": "a sliding window", "softcap": "capped logits",
            "s_aux": "attention sinks", "position_bias": "a bias of positions",
            "output_attentions": "attention weights"}


@torch.compiler.disable
def terrace_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0,
                      **kwargs):
    """Attends by the cache that the keys came through.

    query: [batch, query_heads, tokens, head_dim]; key, value: those of the new tokens alone.
    Returns [batch, tokens, query_heads, head_dim], and None for the weights.
    """
    cache = getattr(key, "terrace_cache", None)
    if cache is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling,
                                      dropout=dropout, **kwargs)
    for name, what in _REFUSED.items():
        if kwargs.get(name):
            raise Unsupported(f"layer {module.layer_idx} wants {what} ({name}), which Terrace has "
                              "not: use transformers' own cache for this model")
    if dropout or (torch.is_grad_enabled() and query.requires_grad):
        raise Unsupported("Terrace neither drops out nor computes gradients: call model.eval(), "
                          "and the model under torch.no_grad()")
    if scaling is not None:
        # Terrace divides logits by the square root of head_dim.
        factor = scaling * query.shape[-1] ** 0.5
        if abs(factor - 1) > 1e-6:
            query = query * factor
    return cache.attend(module.layer_idx, query, key, value, attention_mask), None


AttentionInterface.register(NAME, terrace_attention)
# Without a mask function of the same name models pass no mask, and padding is attended to.
AttentionMaskInterface.register(NAME, sdpa_mask)
