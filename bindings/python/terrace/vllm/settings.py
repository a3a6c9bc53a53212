"""Settings of the plugin, from the environment: processes of vLLM inherit nothing else. Settings of
its connector, as vLLM hands them on."""

import dataclasses
import logging
import os
import re
from collections.abc import Mapping

import terrace

LOG = logging.getLogger("vllm.terrace")
FILE = "TERRACE_CONFIG"
MIN_TOKENS = "TERRACE_VLLM_MIN_TOKENS"
EXTRA = "kv_connector_extra_config"
MEMORY = "memory"
TRACE = "trace"
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# The settings that the plugin needs. vLLM computes prompts: their rows are taken unchanged.
_FIXED = {"backend": "host", "retrieval.prompts": "exact"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """config: keys of the command line; min_tokens: shorter sequences are vLLM's.

    model, rope: the keys tier.model and tier.rope as they were given, because a model's runtime
    gets others. chunk_tokens: of the chunks that prefixes are kept by; 0: the settings keep none.
    """

    config: terrace.Config
    min_tokens: int = 2048
    model: str = ""
    rope: str = ""
    chunk_tokens: int = 0

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> "Settings | None":
        """Returns the settings, or None if no file is named: the plugin is off.

        Raises StoreError or InvalidArgument for a file or a variable that cannot be read.
        """
        path = environment.get(FILE)
        if not path:
            return None
        config = terrace.Config()
        config.load(path)
        config.load_environment()
        for key, value in _FIXED.items():
            if config[key] not in ("auto", value):
                LOG.warning("%s is %s, and %s with vLLM: leave it out", key, config[key], value)
            config[key] = value
        given = environment.get(MIN_TOKENS, str(cls.min_tokens))
        if not given.isdecimal() or int(given) < 2:
            raise terrace.InvalidArgument(f"{MIN_TOKENS} is {given!r}: give a number of tokens "
                                          "from 2, or nothing")
        keeps = config["tier.model"] and (config["tier.nvme.path"] or config["daemon.socket"])
        return cls(config, int(given), config["tier.model"], config["tier.rope"],
                   int(config["tier.chunk_tokens"]) if keeps else 0)


@dataclasses.dataclass(frozen=True)
class ConnectorSettings:
    """memory: bytes of the sequences that are kept. trace: the file that requests are recorded in,
    or None."""

    memory: int = 4 * 2**30
    trace: str | None = None

    @classmethod
    def read(cls, extra_config: Mapping[str, object]) -> "ConnectorSettings":
        """Returns a user's settings of the connector. Raises InvalidArgument."""
        unknown = ", ".join(sorted(extra_config.keys() - {MEMORY, TRACE}))
        if unknown:
            raise terrace.InvalidArgument(f"{EXTRA}: {unknown} is not known; there are {MEMORY} "
                                          f"and {TRACE}")
        memory = _bytes_of(extra_config[MEMORY]) if MEMORY in extra_config else cls.memory
        trace = extra_config.get(TRACE)
        if trace is not None and (not isinstance(trace, str) or not trace):
            raise terrace.InvalidArgument(f"{EXTRA}: {TRACE} is {trace!r}: give the name of a file "
                                          "that requests are recorded in")
        return cls(memory, trace)


def _bytes_of(memory: object) -> int:
    found = re.fullmatch(r"(\d+) ?([KMGT]iB)", str(memory))
    if found is None:
        raise terrace.InvalidArgument(f"{EXTRA}: {MEMORY} is {str(memory)!r}: give a number and "
                                      "its unit, as in 8GiB")
    return int(found[1]) * _UNITS[found[2]]
