"""Terrace: the KV cache of long-context inference, over the tiers of one device.

    runtime = terrace.Runtime({"retrieval.budget": 0.1}, layers=30, query_heads=9, kv_heads=3,
                              head_dim=64, dtype="f32")
    compute = runtime.wrap_caller()
    sequence = runtime.open_sequence()
    sequence.begin_prompt(tokens)
    with runtime.begin_step([sequence], compute, [tokens]) as step:
        for layer in range(runtime.layers):
            step.attend(layer, query, keys, values, output)
        step.end()

Arrays are NumPy's, PyTorch's or of any library that speaks DLPack or the buffer protocol; no
library is required. Calls let other threads of Python run. Objects may be closed or dropped in any
order. A process that is forked cannot use what was opened before.

terrace.hf is the cache for Hugging Face transformers.
"""

import atexit

from terrace import _core
from terrace._core import (Config, Hints, PublishReport, Queue, Runtime, Sequence, Step,
                           __version__)
from terrace.errors import (Cancelled, Corrupt, DeviceError, DeviceLost, Error, InternalError,
                            InvalidArgument, NotReady, OutOfMemory, SequencesFailed, StoreError,
                            Unsupported)

atexit.register(_core.close_handles)

__all__ = ["Cancelled", "Config", "Corrupt", "DeviceError", "DeviceLost", "Error", "Hints",
           "InternalError", "InvalidArgument", "NotReady", "OutOfMemory", "PublishReport", "Queue",
           "Runtime", "Sequence", "SequencesFailed", "Step", "StoreError", "Unsupported",
           "__version__"]
