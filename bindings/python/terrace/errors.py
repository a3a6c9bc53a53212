"""Exceptions, by what a caller can do about them. The message is one line, and says what to do."""


class Error(Exception):
    """The errors that Terrace raises. A call that fails has changed only what its error names."""


class InvalidArgument(Error, ValueError):
    """Mend the input."""


class OutOfMemory(Error, MemoryError):
    """Shrink the request, close a sequence, or raise the limit."""


class NotReady(Error, TimeoutError):
    """Wait and try again; nothing was lost."""


class Unsupported(Error, NotImplementedError):
    """Choose something else; asking again will not help."""


class DeviceError(Error, RuntimeError):
    """An operation of the device failed; the backend goes on."""


class DeviceLost(DeviceError):
    """Close the runtime and all that is of it."""


class StoreError(Error, OSError):
    """A file or store failed."""


class Corrupt(Error):
    """Bytes are not what was written."""


class Cancelled(Error):
    """Stopped on request or at a deadline."""


class InternalError(Error):
    """A fault of Terrace's own: please report it, with the message."""


class SequencesFailed(Error):
    """Some sequences of a step have failed, and are as before the step; the others have ended well.

    failures: an Error for each of them, by its place in the step.
    """

    def __init__(self, failures: dict[int, Error]) -> None:
        first = min(failures)
        super().__init__(f"{len(failures)} of the step's sequences failed; number {first}: "
                         f"{failures[first]}")
        self.failures = failures


# terrace_status of terrace.h.
BY_STATUS = {
    1: InvalidArgument,
    2: OutOfMemory,
    3: NotReady,
    4: Unsupported,
    5: DeviceError,
    6: DeviceLost,
    7: StoreError,
    8: Corrupt,
    9: Cancelled,
    100: InternalError,
}
