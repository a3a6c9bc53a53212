#!/usr/bin/env python3
"""Runs clang-tidy over the units of a build tree that have changed: clang_tidy.py TREE [REGEX].

A unit takes seconds, and there are hundreds. One without findings is remembered by a
hash of all that clang-tidy sees of it: its preprocessed text with comments, its flags, the
configuration and the version. The memory is shared by all checkouts of a user:
$XDG_CACHE_HOME/terrace/clang-tidy.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIDY, COMPILER = ROOT / "build" / "venv-lint" / "bin" / "clang-tidy", "clang++-19"
MEMORY = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
                      "terrace", "clang-tidy")
# Places in the text that differ between checkouts of the same sources.
LINE_MARKER = re.compile(rb"^# \d+ .*$", re.MULTILINE)


def flags_of(unit: dict) -> list:
    """Returns the flags of a unit's command, without the compiler, its output and its source."""
    words = shlex.split(unit["command"])
    begin = next(i for i, word in enumerate(words) if re.search(r"(c\+\+|g\+\+|clang\+\+)", word)
                 and not word.startswith("-")) + 1
    flags, words = [], iter(words[begin:])
    for word in words:
        if word in ("-o", "-c", "-MF", "-MT"):
            next(words)
        elif word != "-MD":
            flags.append(word)
    return flags


def hash_of(unit: dict, common: bytes) -> str | None:
    """Returns None where the unit cannot be preprocessed: clang-tidy will say why."""
    flags = flags_of(unit)
    done = subprocess.run([COMPILER, "-E", "-C", "-w", *flags, unit["file"]], cwd=unit["directory"],
                          check=False, capture_output=True)
    if done.returncode != 0:
        return None
    relative = os.path.relpath(unit["file"], ROOT)
    kept_flags = [flag.replace(str(ROOT), "") for flag in flags]
    seen = hashlib.sha256(common)
    seen.update(repr((relative, kept_flags)).encode())
    seen.update(LINE_MARKER.sub(b"", done.stdout))
    return seen.hexdigest()


def check(unit: dict, tree: str, common: bytes) -> tuple:
    """Returns the file, whether it was checked now, and findings."""
    name = hash_of(unit, common)
    if name and (MEMORY / name).exists():
        return unit["file"], False, ""
    done = subprocess.run([TIDY, "-p", tree, "-quiet", "-extra-arg=-Wno-unknown-warning-option",
                           unit["file"]], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        return unit["file"], True, done.stdout + done.stderr
    if name:
        (MEMORY / name).touch()
    return unit["file"], True, ""


def main() -> int:
    tree, pattern = sys.argv[1], re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    units = json.loads(pathlib.Path(tree, "compile_commands.json").read_text())
    units = list({unit["file"]: unit for unit in units
                  if pattern.search(os.path.relpath(unit["file"], ROOT))}.values())
    version = subprocess.run([TIDY, "--version"], check=True, capture_output=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes()
    MEMORY.mkdir(parents=True, exist_ok=True)
    checked = failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (file, now, findings) in enumerate(
                pool.map(lambda unit: check(unit, tree, common), units), 1):
            checked += now
            if findings:
                failed += 1
                print(findings, end="")
            if now and sys.stderr.isatty():
                print(f"\r{done} of {len(units)}: {os.path.relpath(file, ROOT)}\033[K", end="",
                      file=sys.stderr)
    print(f"clang-tidy: {len(units)} units, {checked} new or changed, {failed} with findings")
    return 1 if failed or not units else 0


if __name__ == "__main__":
    sys.exit(main())
