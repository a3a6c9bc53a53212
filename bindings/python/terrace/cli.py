"""The command line `terrace`, which is part of the package."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the program, with this process's arguments."""
    program = pathlib.Path(__file__).parent / "bin" / "terrace"
    try:
        os.execv(program, ["terrace", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"terrace: {program}: {error.strerror}: install the package anew")
