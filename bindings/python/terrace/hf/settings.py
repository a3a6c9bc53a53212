"""Settings of a cache, from all places that a program may give them in."""

import os
from collections.abc import Mapping

import terrace


def settings_of(config, named: dict, settings: dict, device) -> terrace.Config:
    """Returns settings for a model on a device, a torch.device.

    config: a mapping of keys to values, the path of a file, or None; named and settings win over
    it: values by their keys, and by their keys with _ for the dots. None leaves a key unchanged.

    Raises InvalidArgument for settings that would have no effect.
    """
    chosen = terrace.Config()
    if isinstance(config, (str, bytes, os.PathLike)):
        chosen.load(config)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            chosen[key] = value
    elif config is not None:
        raise terrace.InvalidArgument(f"config is of type {type(config).__name__}: give a mapping "
                                      "of keys to values, or the path of a file")
    known = {key["name"].replace(".", "_"): key["name"] for key in chosen.describe()}
    for name, value in settings.items():
        key = known.get(name, name)
        if named.get(key) is not None and value is not None:
            raise terrace.InvalidArgument(f"{name} and {key.rpartition('.')[2]} both set {key}: "
                                          "give one of them")
        if value is not None:
            named[key] = value
    for key, value in named.items():
        if value is not None:
            chosen[key] = value
    _place(chosen, device)
    return chosen


def _place(chosen: terrace.Config, device) -> None:
    if device.type not in ("cpu", "cuda") or (device.index or 0) != 0:
        raise terrace.Unsupported(f"the model is on {device}: Terrace knows cpu and cuda:0")
    backend = "cuda" if device.type == "cuda" else "host"
    if chosen["backend"] not in ("auto", backend):
        raise terrace.InvalidArgument(f"backend is {chosen['backend']}, and a model on {device} "
                                      f"needs {backend}: leave backend out")
    chosen["backend"] = backend
