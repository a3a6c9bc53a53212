"""Reads and writes files of token ids, which are little-endian 32-bit integers."""

import pathlib
import struct


def read_ids(path: pathlib.Path) -> list:
    data = path.read_bytes()
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def write_ids(path: pathlib.Path, ids: list) -> None:
    path.write_bytes(struct.pack(f"<{len(ids)}I", *ids))
