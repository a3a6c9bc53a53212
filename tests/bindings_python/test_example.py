"""examples/attend.py, as people start it."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_the_example_attends_to_the_budget():
    done = subprocess.run([sys.executable, ROOT / "examples" / "attend.py"],
                          check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "one step over 1001 tokens attended to 512 of them\n"
