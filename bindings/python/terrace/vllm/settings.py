"""Settings of the plugin, from the environment: processes of vLLM inherit nothing else."""

import dataclasses
import logging
import os
from collections.abc import Mapping

import terrace

LOG = logging.getLogger("vllm.terrace")
FILE = "TERRACE_CONFIG"
MIN_TOKENS = "TERRACE_VLLM_MIN_TOKENS"
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
