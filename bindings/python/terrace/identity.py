"""The parts of an engine's configuration that rows depend on, besides weights."""

import json

_FIELDS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")


def rope_text(config) -> str:
    """Returns all parameters of RoPE in a configuration of transformers, for the setting
    tier.rope."""
    text = config.get_text_config(decoder=True)
    given = {name: getattr(text, name) for name in _FIELDS if getattr(text, name, None) is not None}
    return json.dumps(given, sort_keys=True, default=str) if given else ""
