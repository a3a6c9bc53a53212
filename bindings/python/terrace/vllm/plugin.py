"""The entry point that vLLM calls in each of its processes (group vllm.general_plugins)."""

import logging
import os

from terrace.vllm.settings import FILE, MIN_TOKENS, Settings

LOG = logging.getLogger("vllm.terrace")
VERSION = "0.32"


def register() -> None:
    """Makes vLLM use Terrace's attention backend, if TERRACE_CONFIG names a file.

    If vLLM has another version, or does not run on a CPU, a warning says so, and vLLM stays
    unchanged. May be called several times.

    Raises StoreError or InvalidArgument for settings: a user who names a file wants it to be used.
    """
    settings = Settings.read()
    if settings is None:
        if MIN_TOKENS in os.environ:
            LOG.warning("%s is set, and %s is not: vLLM goes on with its own attention. Have %s "
                        "name a file of settings, or unset %s", MIN_TOKENS, FILE, FILE, MIN_TOKENS)
        return
    import vllm
    from vllm.platforms import current_platform

    if not vllm.__version__.startswith(VERSION + "."):
        LOG.warning("Terrace's plugin is for vLLM %s, and this is %s: vLLM goes on with its own "
                    "attention. Install vllm==%s.*, or unset %s", VERSION, vllm.__version__,
                    VERSION, FILE)
        return
    if not current_platform.is_cpu():
        LOG.warning("Terrace's plugin knows vLLM's attention on a CPU alone, and this is %s: vLLM "
                    "goes on with its own attention", current_platform.device_name)
        return
    from terrace.vllm import adapter

    adapter.install(settings)
