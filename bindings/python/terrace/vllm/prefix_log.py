"""The prompts of requests, for `terrace tune --memory`: a line a request, in Mooncake's format.

    log = PrefixLog("requests.jsonl", chunk_tokens=256)
    log.add(tokens, salt=None, arrival=time.time())

`terrace trace convert requests.jsonl prefixes --from mooncake --block-tokens 256` makes a trace of
it. A line has a number for each chunk, made of all tokens up to its end and of the salt, and no
token.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Sequence

import numpy as np

import terrace


class PrefixLog:
    """A file that requests are appended to, as they come; several processes may have it open.

    A line is written by one call, so that processes that end at any time leave whole lines. One
    thread at a time may call.
    """

    def __init__(self, path: str, chunk_tokens: int) -> None:
        """Opens the file, or makes one that only its user reads. Raises StoreError."""
        self._path = path
        self._chunk_tokens = chunk_tokens
        self._file = None
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags, 0o600)
            self._end_line()
        except OSError as error:
            self.close()
            raise self._failed(error) from error

    def add(self, tokens: Sequence[int], salt: str | None, arrival: float) -> None:
        """Appends a request. salt: requests of other salts share no chunk with it. arrival: in
        seconds, of a clock that all requests of the file have. Raises StoreError."""
        line = json.dumps({"timestamp": int(arrival * 1000), "input_length": len(tokens),
                           "hash_ids": chunk_numbers(tokens, self._chunk_tokens, salt)})
        try:
            self._write(line + "\n")
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Closes the file. May be called several times."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _end_line(self) -> None:
        """Lets no line go on with one that was cut."""
        state = os.fstat(self._file)
        if not stat.S_ISREG(state.st_mode) or state.st_size == 0:
            return
        if os.pread(self._file, 1, state.st_size - 1) != b"\n":
            self._write("\n")

    def _write(self, text: str) -> None:
        bytes_ = text.encode()
        if os.write(self._file, bytes_) < len(bytes_):
            raise OSError(errno.ENOSPC, "no room for a line, which was cut")

    def _failed(self, error: OSError) -> terrace.StoreError:
        return terrace.StoreError(f"{self._path}: {error.strerror}")


def chunk_numbers(tokens: Sequence[int], chunk_tokens: int, salt: str | None) -> list[int]:
    """Returns a number of 63 bits for each chunk; the last chunk may have fewer tokens. Two numbers
    are equal where the tokens up to the chunk's end are, and the salts."""
    ids = np.asarray(tokens, "<u4").tobytes()
    size = 4 * chunk_tokens
    link = hashlib.sha256((salt or "").encode()).digest()
    numbers = []
    for at in range(0, len(ids), size):
        link = hashlib.sha256(link + ids[at:at + size]).digest()
        numbers.append(int.from_bytes(link[:8], "little") >> 1)
    return numbers
