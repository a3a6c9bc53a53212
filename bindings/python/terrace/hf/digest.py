"""A digest of a model, for the setting tier.model."""

import hashlib
import json

import torch

# Fields of a configuration that say where a model comes from, not what it computes.
_ORIGIN = ("_name_or_path", "transformers_version")


def model_digest(model) -> str:
    """Returns a SHA-256 of a model's configuration and of all its weights, adapters included.

    Reads all weights: about a second for each GB. Two models with the same digest compute the same
    rows.
    """
    config = {name: value for name, value in model.config.to_dict().items() if name not in _ORIGIN}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
