"""The parts of a model's configuration that Terrace needs, and the models that it cannot serve."""

import torch

from terrace.errors import Unsupported

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
TYPES = {name: dtype for dtype, name in DTYPES.items()}


def refuse(what: str) -> None:
    raise Unsupported(f"{what}: use transformers' own cache for this model")


def shape_of(config) -> dict[str, int]:
    """Returns layers, query_heads, kv_heads and head_dim of a configuration.

    Raises Unsupported for models whose layers keep something else than all keys and values.
    """
    if getattr(config, "is_encoder_decoder", False):
        refuse("the model has an encoder, whose keys are no part of a cache of Terrace's")
    text = config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or []) - {"full_attention"}
    if kinds:
        refuse(f"the model has layers of {', '.join(sorted(kinds))}; Terrace knows full_attention")
    if getattr(text, "sliding_window", None) and not getattr(text, "layer_types", None):
        refuse(f"the model's layers attend to a window of {text.sliding_window} tokens")
    if getattr(text, "num_kv_shared_layers", 0):
        refuse("layers of the model share keys and values")
    if getattr(text, "kv_lora_rank", None):
        refuse("the model keeps compressed keys and values (MLA)")
    if getattr(text, "is_causal", None) is False:
        refuse("the model's tokens attend to later ones (is_causal is False)")
    heads = text.num_attention_heads
    return {"layers": text.num_hidden_layers, "query_heads": heads,
            "kv_heads": getattr(text, "num_key_value_heads", None) or heads,
            "head_dim": getattr(text, "head_dim", None) or text.hidden_size // heads}


def refuse_encoder(model) -> None:
    """Raises Unsupported for a model whose tokens all attend to later ones, as Bert's."""
    if not any(getattr(module, "is_causal", False) for module in model.modules()):
        refuse("the model's tokens attend to later ones, so that it decodes nothing")


def dtype_of(dtype: torch.dtype) -> str:
    if dtype not in DTYPES:
        refuse(f"the model's tensors are of {dtype}; Terrace takes float32, float16 and bfloat16")
    return DTYPES[dtype]
