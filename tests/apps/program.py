"""Runs the program `terrace` as a user would."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["TERRACE_PROGRAM"]


def clean_environment():
    """Returns this process's variables but those that would set config keys."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TERRACE_")}


def terrace(*arguments, environment=None, stdin=None, stdout=subprocess.PIPE, file_bytes=None):
    """Returns the finished process, which has the text `stdin` in a pipe, if it is given one, and
    can make no file larger than file_bytes. The working directory is not the project's. Only a
    process that hangs takes as long as the timeout, under sanitizers and load, too."""
    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [PROGRAM, *map(str, arguments)], cwd="/",
        env=clean_environment() | (environment or {}), input=stdin, stdout=stdout,
        stderr=subprocess.PIPE, text=True, timeout=1800, check=False,
        preexec_fn=limit_files if file_bytes else None)


def run_json(*arguments):
    """Returns the document of `terrace run`, which must succeed without a word."""
    process = terrace("run", "--format", "json", *arguments)
    assert process.returncode == 0, process.stderr
    assert process.stderr == "", process.stderr
    return json.loads(process.stdout)


def ended_by(status):
    """Returns the number of the signal that ended a process, by its exit status; None if no signal
    did. If the system, or a sanitizer, prevents a signal's usual end, the program reports the
    signal as a shell does."""
    if status < 0:
        return -status
    return status - 128 if status > 128 else None


def assert_refuses(test, script, word, *arguments):
    """A script in Python ends with status 1 and one line on standard error, which has the word."""
    answer = subprocess.run([sys.executable, script, *arguments], check=False, capture_output=True,
                            text=True)
    test.assertEqual((answer.returncode, answer.stdout), (1, ""))
    test.assertIn(word, answer.stderr)
    test.assertEqual(answer.stderr.count("\n"), 1)


class InAFolder(unittest.TestCase):
    """Tests with a folder of their own, which goes with each test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
