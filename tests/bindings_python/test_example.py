"""examples/attend.py and examples/prefix.py, as people start them."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def said(name, *arguments):
    done = subprocess.run([sys.executable, ROOT / "examples" / name, *arguments],
                          check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_attends_to_the_budget():
    assert said("attend.py") == "one step over 1001 tokens attended to 512 of them\n"


def test_the_second_process_of_the_example_finds_the_prompt(tmp_path):
    has = "the file has 768 of them now\n"
    assert said("prefix.py", tmp_path / "rows") == f"0 of 1000 tokens were found, {has}"
    assert said("prefix.py", tmp_path / "rows") == f"768 of 1000 tokens were found, {has}"
