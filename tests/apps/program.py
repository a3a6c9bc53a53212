"""Runs the program `terrace` as a user would."""

import json
import os
import subprocess

PROGRAM = os.environ["TERRACE_PROGRAM"]


def terrace(*arguments, environment=None, stdout=subprocess.PIPE):
    """Returns the finished process. The working directory is not the project's. Only a process that
    hangs takes as long as the timeout, under sanitizers and load, too."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TERRACE_")}
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], cwd="/", env=clean | (environment or {}),
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=1800, check=False)


def run_json(*arguments):
    """Returns the document of `terrace run`, which must succeed without a word."""
    process = terrace("run", "--format", "json", *arguments)
    assert process.returncode == 0, process.stderr
    assert process.stderr == "", process.stderr
    return json.loads(process.stdout)
